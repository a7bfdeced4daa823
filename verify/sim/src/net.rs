//! Network between the nodes: datagrams, NATs, and their transport.

use crate::attacker;
use crate::invariants::Checked;
use crate::node::{Node, Queued};
use crate::packet::{self, ProtectedPacket};
use crate::plan::NetworkConditions;
use crate::simulation::{SimEvent, Simulation};
use crate::situation::Situation;
use crate::{addresses, trace};
use casemate_datapath::{Inbound, Outbound};
use casemate_ike::Path;
use casemate_wire::ike::{ExchangeType, Header};
use casemate_wire::udp::Natt;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// UDP port that IKE shares with ESP.
const NATT: u16 = 4_500;
/// Time in which a request and its response arrive, with the longest delay of each.
const LOSSLESS_TIME: Duration = Duration::from_secs(3);

/// Datagram on the network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Datagram {
    /// Source address. The port is 0 without UDP.
    pub(crate) from: SocketAddr,
    /// Destination address.
    pub(crate) to: SocketAddr,
    /// Payload.
    pub(crate) payload: Payload,
}

/// Payload of a datagram.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Payload {
    /// UDP payload.
    Udp(Vec<u8>),
    /// IP packet without UDP, with its IP header.
    Ip(Vec<u8>),
}

impl Payload {
    /// Mutable payload bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Udp(bytes) | Self::Ip(bytes) => bytes,
        }
    }
}

impl Datagram {
    /// Whether the datagram is an IKE message.
    pub(crate) fn is_ike(&self) -> bool {
        self.ike().is_some()
    }

    /// Whether the datagram is a message of an INFORMATIONAL exchange.
    pub(crate) fn is_informational(&self) -> bool {
        let header = self.ike().and_then(|message| Header::parse(message).ok());
        header.is_some_and(|header| header.exchange == ExchangeType::INFORMATIONAL)
    }

    /// IKE message of the datagram. On port 4500 it follows four zero bytes (RFC 3948 section 2.2).
    fn ike(&self) -> Option<&[u8]> {
        let Payload::Udp(payload) = &self.payload else { return None };
        if self.from.port() == NATT || self.to.port() == NATT {
            return payload.strip_prefix(&[0; 4]);
        }
        Some(payload)
    }

    /// Length of the IP packet.
    pub(crate) fn ip_len(&self) -> usize {
        match &self.payload {
            Payload::Ip(packet) => packet.len(),
            Payload::Udp(payload) => payload.len() + 8 + if self.to.is_ipv6() { 40 } else { 20 },
        }
    }
}

/// NAT with one host behind it. Its mappings accept datagrams from every source.
#[derive(Debug)]
pub(crate) struct Nat {
    inside: IpAddr,
    outside: IpAddr,
    /// Inner port to outer port.
    mapped: BTreeMap<u16, u16>,
    last_port: u16,
}

impl Nat {
    /// NAT between two addresses.
    pub(crate) fn new(inside: IpAddr, outside: IpAddr) -> Self {
        Self { inside, outside, mapped: BTreeMap::new(), last_port: 20_000 }
    }

    /// Translates an outgoing datagram. Returns `None` for datagrams without UDP, which have no port to
    /// map.
    pub(crate) fn outbound(&mut self, mut datagram: Datagram) -> Option<Datagram> {
        if !matches!(datagram.payload, Payload::Udp(_)) || datagram.from.ip() != self.inside {
            return None;
        }
        let port = *self.mapped.entry(datagram.from.port()).or_insert_with(|| {
            self.last_port += 1;
            self.last_port
        });
        datagram.from = SocketAddr::new(self.outside, port);
        Some(datagram)
    }

    /// Translates an incoming datagram. Returns `None` if its port is not mapped.
    pub(crate) fn inbound(&self, mut datagram: Datagram) -> Option<Datagram> {
        let port = datagram.to.port();
        let (inner, _) = self.mapped.iter().find(|(_, outer)| **outer == port)?;
        datagram.to = SocketAddr::new(self.inside, *inner);
        Some(datagram)
    }

    /// Removes all mappings: each sender gets another port for its next datagram.
    pub(crate) fn forget(&mut self) {
        self.mapped.clear();
    }
}

/// Transport of datagrams between the nodes.
impl Simulation {
    /// Sends a datagram of a node to the network.
    pub(crate) fn send(&mut self, index: usize, datagram: Datagram) {
        let translated = match &mut self.nodes[index].nat {
            Some(nat) => nat.outbound(datagram),
            None => Some(datagram),
        };
        let Some(mut datagram) = translated else { return };
        (self.now, index, &datagram).hash(&mut self.digest);
        self.attacker.see(&datagram);
        let NetworkConditions {
            loss,
            duplicate,
            corrupt,
            min_delay,
            max_delay,
            informational_delay,
            max_ip_len,
            max_losses: _,
        } = self.conditions;
        let is_udp = matches!(datagram.payload, Payload::Udp(_));
        if max_ip_len.is_some_and(|max_ip_len| is_udp && datagram.ip_len() > max_ip_len) {
            return self.trace.log(self.now, || format!("too long {}", trace::format_datagram(&datagram)));
        }
        let rng = &mut self.network_rng;
        let max_delay = if datagram.is_informational() { max_delay + informational_delay } else { max_delay };
        let delay = rng.time(min_delay, max_delay);
        let is_cut_off = self.nodes[index].cut_off_until > self.now;
        if self.rules.is_some() && loss == 0 && !is_cut_off && datagram.is_ike() {
            return self.apply_fault(delay, datagram);
        }
        let is_kept = self.now < self.ike_arrives_until && datagram.is_ike();
        if rng.per_mille(loss) && !is_kept || is_cut_off {
            self.counter.coverage.count(Situation::Lost);
            return self.trace.log(self.now, || format!("lost     {}", trace::format_datagram(&datagram)));
        }
        let again = rng.per_mille(duplicate).then(|| rng.time(min_delay, max_delay));
        if rng.per_mille(corrupt) {
            attacker::flip_bits(&self.plan.setup, &mut datagram, rng);
        }
        if let Some(delay) = again {
            self.schedule(delay, SimEvent::Arrival(datagram.clone()));
        }
        self.schedule(delay, SimEvent::Arrival(datagram));
    }

    /// Handles a retransmission, before its datagrams are sent.
    pub(crate) fn note_retransmission(&mut self, attempt: u32) {
        if self.conditions.max_losses.is_some_and(|max_losses| attempt >= max_losses) {
            self.ike_arrives_until = self.now + LOSSLESS_TIME;
        }
    }

    /// Sends datagrams of the attacker to the network.
    pub(crate) fn inject(&mut self, datagrams: Vec<Datagram>) {
        datagrams
            .into_iter()
            .for_each(|datagram| self.schedule(self.conditions.min_delay, SimEvent::Arrival(datagram)));
    }

    /// Delivers a datagram to the node that has its destination address.
    pub(crate) fn arrive(&mut self, datagram: Datagram) -> Checked {
        let (setup, to) = (&self.plan.setup, datagram.to.ip());
        let reached = |node: &Node| addresses::outer(setup, node.index) == to;
        let Some(index) = self.nodes.iter().position(reached) else { return Ok(()) };
        if self.is_cell(index) {
            return self.arrive_at_cell(index, &datagram);
        }
        self.with_former(index, |simulation| simulation.arrive_at(index, datagram.clone()))?;
        self.arrive_at(index, datagram)
    }

    /// Delivers a datagram to the process of a node.
    pub(crate) fn arrive_at(&mut self, index: usize, datagram: Datagram) -> Checked {
        if self.nodes[index].queue_if_stopped(|| Queued::Arrival(datagram.clone())) {
            return Ok(());
        }
        if self.nodes[index].cut_off_until > self.now || !self.nodes[index].moves_packets() {
            self.counter.coverage.count(Situation::Lost);
            return Ok(());
        }
        self.trace.log(self.now, || format!("arrives  {}", trace::format_datagram(&datagram)));
        let translated = match &self.nodes[index].nat {
            Some(nat) => nat.inbound(datagram),
            None => Some(datagram),
        };
        let Some(datagram) = translated else {
            self.trace.log(self.now, || "the NAT drops it".into());
            return Ok(());
        };
        let path = Path { local: datagram.to, remote: datagram.from };
        let handles_ike = self.nodes[index].is_up();
        match &datagram.payload {
            Payload::Udp(payload) if datagram.to.port() == 500 && handles_ike => {
                self.nodes[index].receive_ike(self.now, payload, path);
                self.drain(index)
            }
            Payload::Udp(payload) if datagram.to.port() == 4500 => match Natt::classify(payload) {
                Natt::NonEsp(message) if handles_ike => {
                    self.nodes[index].receive_ike(self.now, message, path);
                    self.drain(index)
                }
                Natt::Esp(_) => self.open_packet(index, &datagram),
                Natt::NonEsp(_) | Natt::Keepalive | Natt::TooShort => Ok(()),
            },
            Payload::Udp(_) => Ok(()),
            Payload::Ip(_) => self.open_packet(index, &datagram),
        }
    }

    /// Delivers an ESP or AH packet.
    fn open_packet(&mut self, index: usize, datagram: &Datagram) -> Checked {
        let (verdict, packet) = self.nodes[index].inbound(self.now, &packet::to_packet(datagram));
        match verdict {
            Inbound::Deliver(admitted) => {
                let number =
                    self.monitor.packet_log.record_delivery(index, &packet, admitted.sa.is_some())?;
                self.trace.log(self.now, || format!("node {index}: delivers packet {number}"));
            }
            other => self.trace.log(self.now, || format!("node {index}: {other:?}")),
        }
        self.send_rohc_feedback(index)?;
        self.drain(index)
    }

    /// Sends the feedback of header compression that a packet has caused.
    fn send_rohc_feedback(&mut self, index: usize) -> Checked {
        while let Some((verdict, packet)) = self.nodes[index].next_rohc_feedback(self.now) {
            self.trace.log(self.now, || format!("node {index}: feedback of header compression: {verdict:?}"));
            if let Outbound::Send(sealed) = verdict {
                self.counter.coverage.count(Situation::RohcFeedback);
                let protected = ProtectedPacket::new(packet, sealed.udp_payload);
                self.monitor.check_sealed_packet(&self.nodes[index], &protected)?;
                self.send(index, protected.into_datagram());
            }
        }
        Ok(())
    }
}
