//! Packets of protected hosts, and those that policy forbids.

use crate::config;
use crate::node;
use crate::sabotage::Sabotage;
use crate::watch::{Checked, violated};
use crate::world::{CONNECTED, World};
use casemate_datapath::Outbound;
use casemate_ike::IkeStatus;
use std::net::{IpAddr, Ipv4Addr};

impl World {
    /// A host behind `from` sends a packet to one behind `to`. `child` is whose network they are in.
    fn offer(&mut self, (from, to, child): (usize, usize, usize), must_arrive: bool) -> Checked {
        let ends = self.host(from, from, child).zip(self.host(from, to, child));
        match ends {
            Some(ends) => self.offer_between(ends, (from, Some(to)), must_arrive),
            None if must_arrive => violated(format!("nodes {from} and {to} are not connected")),
            None => Ok(()),
        }
    }

    fn offer_between(
        &mut self,
        ends: (Ipv4Addr, Ipv4Addr),
        (from, to): (usize, Option<usize>),
        must_arrive: bool,
    ) -> Checked {
        let (number, packet) = self.watch.ledger.post(ends, (from, to), self.now(), must_arrive);
        let now = self.now();
        let (verdict, packet) = self.nodes[from].outbound(now, &packet);
        self.trace.say(self.now(), || {
            format!("node {from}: packet {number} from {} to {}: {verdict:?}", ends.0, ends.1)
        });
        self.drain(from)?;
        match verdict {
            Outbound::Send(sealed) => {
                self.watch.ledger.sent(number)?;
                let esp = sealed.udp_payload.map_or(20, usize::from);
                self.watch.sealed_packet(&self.nodes[from], &packet[esp..])?;
                if self.sabotage == Some(Sabotage::BreakBeforeMake) && number % 50 == 0 {
                    return Ok(());
                }
                self.send(from, node::of_packet(packet, sealed.udp_payload));
                Ok(())
            }
            Outbound::Bypass => violated(format!("node {from} lets packet {number} out in clear")),
            Outbound::Reassemble | Outbound::Reply(_) | Outbound::Drop(_) => Ok(()),
        }
    }

    /// The address of a host that `node` protects, as `viewer` knows it.
    fn host(&self, viewer: usize, node: usize, child: usize) -> Option<Ipv4Addr> {
        if !self.plan.style.virtual_addrs || node == 0 {
            return Some(config::host(node, child, 5));
        }
        let peer = if viewer == node { "to0".to_string() } else { format!("to{node}") };
        let its = |ike: &IkeStatus| ike.connection.name == peer && !ike.children.is_empty();
        let addrs = self.nodes[viewer].ikes().into_iter().rfind(its)?.virtual_addrs;
        addrs.iter().find_map(|addr| match addr {
            IpAddr::V4(addr) => Some(*addr),
            IpAddr::V6(_) => None,
        })
    }

    /// Nodes that speak with each other.
    pub(crate) fn pairs(&self) -> Vec<(usize, usize)> {
        (1..self.nodes.len()).map(|peer| (0, peer)).collect()
    }

    pub(crate) fn send_something(&mut self) -> Checked {
        let pairs = self.pairs();
        let (a, b) = self.dice.pick(&pairs);
        let (from, to) = if self.dice.coin() { (a, b) } else { (b, a) };
        let child = self.dice.below(self.plan.style.children);
        if self.dice.below(20) == 0 {
            // Beside all policies.
            let ends = (config::host(from, child, 200), config::host(to, child, 5));
            return self.offer_between(ends, (from, None), false);
        }
        let must_arrive = self.plan.is_lossless() && self.now() >= CONNECTED;
        self.offer((from, to, child), must_arrive)
    }

    /// Packets for each Child SA, both ways.
    pub(crate) fn send_everything(&mut self, must_arrive: bool) -> Checked {
        for (a, b) in self.pairs() {
            for child in 0..self.plan.style.children {
                self.offer((b, a, child), must_arrive)?;
                self.offer((a, b, child), must_arrive)?;
            }
        }
        Ok(())
    }
}
