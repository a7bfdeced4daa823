//! Log of the packets of protected hosts. Each packet arrives at the right node, unchanged, once, and
//! through an SA.

use super::{Checked, Violation, violated};
use crate::addresses::Flow;
use casemate_test_support::hosts::packets;
use std::time::Duration;

/// Marks the packets of the simulation, in front of their number.
const MAGIC: &[u8; 8] = b"casemate";

/// Expected path of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Through an SA, to this node.
    Protected(usize),
    /// In clear, to this node.
    Clear(usize),
    /// Dropped by policy.
    Blocked,
}

/// Packet to be sent, and what is expected of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketSpec {
    /// Addresses and port.
    pub(crate) flow: Flow,
    /// Node of the sender.
    pub(crate) from: usize,
    /// Expected path and node of the receiver.
    pub(crate) route: Route,
    /// Whether the packet has to arrive.
    pub(crate) must_arrive: bool,
}

/// Packet that a host sent.
#[derive(Debug, Clone)]
struct SentPacket {
    spec: PacketSpec,
    /// Time of sending.
    sent_at: Duration,
    bytes: Vec<u8>,
    arrived: bool,
}

/// All packets that hosts sent, by number.
#[derive(Debug, Default)]
pub(crate) struct PacketLog(Vec<SentPacket>);

impl PacketLog {
    /// Creates and records a packet. Returns its number and the packet.
    pub(crate) fn record_sent(&mut self, spec: PacketSpec, sent_at: Duration) -> (usize, Vec<u8>) {
        let (number, flow) = (self.0.len(), spec.flow);
        let mut payload = [&MAGIC[..], &(number as u64).to_be_bytes()].concat();
        payload.extend((0..number % 97).map(|i| (i * 7 + number) as u8));
        let bytes = packets::udp(flow.src, flow.dst, (flow.port, flow.port), &payload, false);
        self.0.push(SentPacket { spec, sent_at, bytes: bytes.clone(), arrived: false });
        (number, bytes)
    }

    /// Packet that no host sent.
    pub(crate) fn forged_packet(&self, flow: Flow) -> Vec<u8> {
        let payload = [&MAGIC[..], &u64::MAX.to_be_bytes()].concat();
        packets::udp(flow.src, flow.dst, (flow.port, flow.port), &payload, false)
    }

    /// Checks that policy protects the packet that a node sealed.
    pub(crate) fn check_route(&self, number: usize) -> Checked {
        let PacketSpec { from, route, .. } = self.0[number].spec;
        match route {
            Route::Protected(_) => Ok(()),
            Route::Clear(_) => violated(format!("node {from} protects packet {number}")),
            Route::Blocked => violated(format!("node {from} sends packet {number}, which policy forbids")),
        }
    }

    /// Records the delivery of a packet to a host of `node`. Returns the number of the packet.
    pub(crate) fn record_delivery(
        &mut self,
        node: usize,
        packet: &[u8],
        protected: bool,
    ) -> Result<usize, Violation> {
        let payload_at = if packet[0] >> 4 == 6 { 48 } else { 28 };
        let number = packet.get(payload_at..).and_then(|payload| payload.strip_prefix(MAGIC));
        let number =
            number.and_then(|rest| rest.first_chunk()).map(|bytes| u64::from_be_bytes(*bytes) as usize);
        let Some((number, record)) = number.and_then(|number| Some((number, self.0.get_mut(number)?))) else {
            return violated(format!("node {node} delivers a packet that no host sent"));
        };
        if !protected && !matches!(record.spec.route, Route::Clear(_)) {
            return violated(format!("node {node} delivers packet {number}, which came in clear"));
        }
        let route = if protected { Route::Protected(node) } else { Route::Clear(node) };
        if record.spec.route != route {
            return violated(format!(
                "node {node} delivers packet {number}, which is for {:?}",
                record.spec.route
            ));
        }
        if record.bytes != packet {
            return violated(format!("node {node} delivers packet {number} changed"));
        }
        if std::mem::replace(&mut record.arrived, true) {
            return violated(format!("node {node} delivers packet {number} twice"));
        }
        Ok(number)
    }

    /// Checks that every packet that was sent until `sent`, and that has to arrive, arrived.
    pub(crate) fn check_arrived(&self, sent: Duration) -> Checked {
        let is_lost =
            |record: &SentPacket| record.spec.must_arrive && !record.arrived && record.sent_at <= sent;
        match self.0.iter().enumerate().find(|(_, record)| is_lost(record)) {
            None => Ok(()),
            Some((number, SentPacket { spec: PacketSpec { from, route, .. }, sent_at, .. })) => {
                violated(format!(
                    "packet {number} from node {from} to {route:?}, sent at {:.3} s, did not arrive",
                    sent_at.as_secs_f64()
                ))
            }
        }
    }

    /// Checks that no direction lost more than `most` consecutive packets.
    pub(crate) fn check_gaps(&self, most: usize) -> Checked {
        for node in [0, 1] {
            let mut lost = 0;
            for SentPacket { arrived, sent_at, .. } in self.0.iter().filter(|record| record.spec.from == node)
            {
                lost = if *arrived { 0 } else { lost + 1 };
                if lost > most {
                    return violated(format!(
                        "node {node} lost {lost} consecutive packets until {:.3} s",
                        sent_at.as_secs_f64()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Number of packets sent.
    pub(crate) fn sent_count(&self) -> usize {
        self.0.len()
    }

    /// Number of packets delivered.
    pub(crate) fn delivered_count(&self) -> usize {
        self.0.iter().filter(|record| record.arrived).count()
    }
}
