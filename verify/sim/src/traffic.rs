//! Packets of protected hosts, and those that policy forbids.

use crate::manual;
use crate::node::Protected;
use crate::places::{self, Flow, HostKind};
use crate::sabotage::Sabotage;
use crate::style::VirtualAddrs;
use crate::tally::Seen;
use crate::watch::{Checked, Way, violated};
use crate::world::{CONNECTED, World};
use casemate_datapath::{Inbound, Outbound};
use casemate_ike::IkeStatus;
use std::net::IpAddr;

impl World {
    /// A host behind `from` sends a packet to one behind `to`. `child` is whose network they are in.
    pub(crate) fn offer(&mut self, (from, to, child): (usize, usize, usize), must_arrive: bool) -> Checked {
        let ends = self.host(from, from, child).zip(self.host(from, to, child));
        match ends {
            Some((src, dst)) => {
                let flow = self.flow((from, to, child), HostKind::Protected);
                self.offer_flow(Flow { src, dst, ..flow }, (from, Way::Protected(to)), must_arrive)
            }
            None if must_arrive && self.plan.style.virtual_addrs != VirtualAddrs::One => {
                violated(format!("nodes {from} and {to} are not connected"))
            }
            None => Ok(()),
        }
    }

    fn flow(&self, between: (usize, usize, usize), kind: HostKind) -> Flow {
        places::flow(&self.plan.style, between, kind)
    }

    fn offer_flow(&mut self, flow: Flow, (from, way): (usize, Way), must_arrive: bool) -> Checked {
        let (number, packet) = self.watch.ledger.post(flow, (from, way), self.now(), must_arrive);
        let now = self.now();
        let (verdict, sent) = self.nodes[from].outbound(now, &packet);
        self.trace.say(self.now(), || {
            format!("node {from}: packet {number} from {} to {}: {verdict:?}", flow.src, flow.dst)
        });
        self.drain(from)?;
        match (verdict, way) {
            (Outbound::Send(sealed), _) => {
                self.watch.ledger.sent(number)?;
                let protected = Protected::new(sent, sealed.udp_payload);
                self.watch.sealed_packet(&self.nodes[from], &protected)?;
                if self.sabotage == Some(Sabotage::BreakBeforeMake) && number % 50 == 0 {
                    return Ok(());
                }
                self.send(from, protected.into_datagram());
                Ok(())
            }
            (Outbound::Bypass, Way::Clear(to)) => self.hand_over(to, &packet),
            (Outbound::Bypass, _) => violated(format!("node {from} lets packet {number} out in clear")),
            (_, Way::Clear(_)) => violated(format!("node {from} does not let packet {number} pass")),
            (Outbound::Reassemble | Outbound::Reply(_) | Outbound::Drop(_), _) => Ok(()),
        }
    }

    /// A packet in clear arrives at once: nobody is in between.
    fn hand_over(&mut self, to: usize, packet: &[u8]) -> Checked {
        self.counter.tally.count(Seen::Bypassed);
        let now = self.now();
        let (verdict, packet) = self.nodes[to].inbound(now, packet);
        match verdict {
            Inbound::Deliver(admitted) => {
                self.watch.ledger.deliver(to, &packet, admitted.sa.is_some()).map(drop)
            }
            other => violated(format!("node {to} does not admit a packet that may pass in clear: {other:?}")),
        }
    }

    /// The address of a host that `node` protects, as `viewer` knows it.
    fn host(&self, viewer: usize, node: usize, child: usize) -> Option<IpAddr> {
        if child == manual::CHILD || self.plan.style.virtual_addrs == VirtualAddrs::No || node == 0 {
            return Some(self.flow((node, node, child), HostKind::Protected).src);
        }
        let peer = if viewer == node { "to0".to_string() } else { format!("to{node}") };
        let its = |ike: &IkeStatus| ike.connection.name == peer && !ike.children.is_empty();
        let addrs = self.nodes[viewer].ikes().into_iter().rfind(its)?.virtual_addrs;
        addrs.first().copied()
    }

    /// Nodes that speak with each other.
    pub(crate) fn pairs(&self) -> Vec<(usize, usize)> {
        let trusted = (1..self.nodes.len()).filter(|peer| !self.plan.is_stranger(*peer));
        trusted.map(|peer| (0, peer)).collect()
    }

    pub(crate) fn send_something(&mut self) -> Checked {
        let pairs = self.pairs();
        if pairs.is_empty() {
            return Ok(());
        }
        let (a, b) = self.dice.pick(&pairs);
        let (from, to) = if self.dice.coin() { (a, b) } else { (b, a) };
        let child = self.dice.below(self.plan.style.children);
        let between = (from, to, child);
        match self.dice.below(20) {
            0 => self.offer_flow(self.flow(between, HostKind::Outside), (from, Way::Nowhere), false),
            1 | 2 if self.plan.style.shunts => self.send_beside(between),
            3 if manual::has(&self.plan, from) && manual::has(&self.plan, to) => {
                self.offer((from, to, manual::CHILD), self.plan.is_lossless())
            }
            _ => {
                let must_arrive = self.plan.is_lossless() && self.now() >= CONNECTED;
                self.offer(between, must_arrive)
            }
        }
    }

    /// A packet that needs no protection, or one that is not to be sent although its neighbours are.
    fn send_beside(&mut self, (from, to, _): (usize, usize, usize)) -> Checked {
        if self.dice.coin() {
            return self.offer_flow(self.flow((from, to, 0), HostKind::Clear), (from, Way::Clear(to)), false);
        }
        self.counter.tally.count(Seen::Barred);
        self.offer_flow(self.flow((from, to, 0), HostKind::Barred), (from, Way::Nowhere), false)
    }

    /// Packets for each Child SA, both ways.
    pub(crate) fn send_everything(&mut self, must_arrive: bool) -> Checked {
        for (a, b) in self.pairs() {
            for child in 0..self.plan.style.children {
                self.offer((b, a, child), must_arrive)?;
                self.offer((a, b, child), must_arrive)?;
            }
            if manual::has(&self.plan, b) {
                self.offer((b, a, manual::CHILD), must_arrive)?;
                self.offer((a, b, manual::CHILD), must_arrive)?;
            }
        }
        Ok(())
    }
}
