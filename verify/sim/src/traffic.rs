//! Packets of protected hosts: permitted and forbidden ones.

use crate::addresses::{self, Flow, HostKind, HostPair};
use crate::defect::Defect;
use crate::invariants::{Checked, PacketSpec, Route, violated};
use crate::manual;
use crate::node::Queued;
use crate::packet::ProtectedPacket;
use crate::plan::VirtualAddrs;
use crate::simulation::{CONNECTED, Simulation};
use crate::situation::Situation;
use casemate_datapath::{Inbound, Outbound};
use casemate_ike::IkeStatus;
use std::net::IpAddr;

impl Simulation {
    /// Sends a packet from a host to another one, protected by an SA.
    pub(crate) fn send_packet(&mut self, pair: HostPair, must_arrive: bool) -> Checked {
        let HostPair { from, to, child } = pair;
        let ends = self.host(from, from, child).zip(self.host(from, to, child));
        match ends {
            Some((src, dst)) => {
                let flow = Flow { src, dst, ..self.flow(pair, HostKind::Protected) };
                self.send_flow_packet(PacketSpec { flow, from, route: Route::Protected(to), must_arrive })
            }
            None if must_arrive && self.plan.setup.virtual_addrs != VirtualAddrs::One => {
                violated(format!("nodes {from} and {to} have no Child SA"))
            }
            None => Ok(()),
        }
    }

    fn flow(&self, pair: HostPair, kind: HostKind) -> Flow {
        addresses::flow(&self.plan.setup, pair, kind)
    }

    fn send_flow_packet(&mut self, spec: PacketSpec) -> Checked {
        let (number, packet) = self.monitor.packet_log.record_sent(spec, self.now());
        let queued = || Queued::Packet { number, packet: packet.clone(), spec };
        if self.nodes[spec.from].queue_if_stopped(queued) {
            return Ok(());
        }
        self.protect(number, &packet, spec)
    }

    /// Lets a node protect a packet, and sends the result.
    pub(crate) fn protect(&mut self, number: usize, packet: &[u8], spec: PacketSpec) -> Checked {
        let PacketSpec { flow, from, route, .. } = spec;
        if !self.nodes[from].moves_packets() {
            return Ok(());
        }
        let now = self.now();
        let (verdict, sent) = self.nodes[from].outbound(now, packet);
        self.trace.log(self.now(), || {
            format!("node {from}: packet {number} from {} to {}: {verdict:?}", flow.src, flow.dst)
        });
        self.drain(from)?;
        if !self.nodes[from].moves_packets() {
            return Ok(());
        }
        match (verdict, route) {
            (Outbound::Send(sealed), _) => {
                self.monitor.packet_log.check_route(number)?;
                let protected = ProtectedPacket::new(sent, sealed.udp_payload);
                self.monitor.check_sealed_packet(&self.nodes[from], &protected)?;
                if self.nodes[from].is_replaced {
                    self.counter.coverage.count(Situation::SentByFormer);
                }
                if self.nodes[from].hands_over() {
                    self.counter.coverage.count(Situation::SentInHandover);
                }
                if self.defect == Some(Defect::PacketLoss) && number.is_multiple_of(50) {
                    return Ok(());
                }
                self.send(from, protected.into_datagram());
                Ok(())
            }
            (Outbound::Bypass, Route::Clear(to)) => self.deliver_in_clear(to, packet),
            (Outbound::Bypass, _) => violated(format!("node {from} sends packet {number} in clear")),
            (_, Route::Clear(_)) => violated(format!("node {from} does not pass packet {number} in clear")),
            (Outbound::Reassemble | Outbound::Hold | Outbound::Reply(_) | Outbound::Drop(_), _) => Ok(()),
        }
    }

    /// Delivers a packet in clear at once, without the network.
    fn deliver_in_clear(&mut self, to: usize, packet: &[u8]) -> Checked {
        self.counter.coverage.count(Situation::Bypassed);
        let now = self.now();
        let (verdict, packet) = self.nodes[to].inbound(now, packet);
        match verdict {
            Inbound::Deliver(admitted) => {
                self.monitor.packet_log.record_delivery(to, &packet, admitted.sa.is_some()).map(drop)
            }
            other => violated(format!("node {to} does not admit a packet that may pass in clear: {other:?}")),
        }
    }

    /// Address of a host of `node`, as the node `viewer` knows it.
    fn host(&self, viewer: usize, node: usize, child: usize) -> Option<IpAddr> {
        if child == manual::CHILD || self.plan.setup.virtual_addrs == VirtualAddrs::No || node == 0 {
            return Some(self.flow(HostPair { from: node, to: node, child }, HostKind::Protected).src);
        }
        let peer = if viewer == node { "to0".to_string() } else { format!("to{node}") };
        let its = |ike: &IkeStatus| ike.connection.name == peer && !ike.children.is_empty();
        let addrs = self.nodes[viewer].ikes().into_iter().rfind(its)?.virtual_addrs;
        addrs.first().copied()
    }

    /// Pairs of nodes that exchange traffic.
    pub(crate) fn pairs(&self) -> Vec<(usize, usize)> {
        let trusted = (1..self.nodes.len()).filter(|peer| !self.plan.is_untrusted(*peer));
        trusted.map(|peer| (0, peer)).collect()
    }

    pub(crate) fn send_random(&mut self) -> Checked {
        let pairs = self.pairs();
        if pairs.is_empty() {
            return Ok(());
        }
        let (a, b) = self.rng.pick(&pairs);
        let (from, to) = if self.rng.coin() { (a, b) } else { (b, a) };
        let child = self.rng.below(self.plan.setup.children);
        let pair = HostPair { from, to, child };
        match self.rng.below(20) {
            0 => self.send_optional(pair, HostKind::Outside, Route::Blocked),
            1 | 2 if self.plan.setup.shunts => self.send_shunted(HostPair { child: 0, ..pair }),
            3 if manual::is_used(&self.plan, from) && manual::is_used(&self.plan, to) => {
                let pair = HostPair { child: manual::CHILD, ..pair };
                self.send_packet(pair, self.plan.is_lossless())
            }
            _ => {
                let must_arrive = self.plan.is_lossless() && self.now() >= CONNECTED;
                self.send_packet(pair, must_arrive)
            }
        }
    }

    /// Sends a packet that a shunt passes in clear or drops.
    fn send_shunted(&mut self, pair: HostPair) -> Checked {
        if self.rng.coin() {
            return self.send_optional(pair, HostKind::Clear, Route::Clear(pair.to));
        }
        self.counter.coverage.count(Situation::Blocked);
        self.send_optional(pair, HostKind::Blocked, Route::Blocked)
    }

    /// Sends a packet that need not arrive.
    fn send_optional(&mut self, pair: HostPair, kind: HostKind, route: Route) -> Checked {
        let flow = self.flow(pair, kind);
        self.send_flow_packet(PacketSpec { flow, from: pair.from, route, must_arrive: false })
    }

    /// Sends packets for each Child SA, in both directions.
    pub(crate) fn send_on_all_children(&mut self, must_arrive: bool) -> Checked {
        for (a, b) in self.pairs() {
            let manual = manual::is_used(&self.plan, b).then_some(manual::CHILD);
            for child in (0..self.plan.setup.children).chain(manual) {
                let pair = HostPair { from: b, to: a, child };
                self.send_packet(pair, must_arrive)?;
                self.send_packet(pair.reversed(), must_arrive)?;
            }
        }
        Ok(())
    }
}
