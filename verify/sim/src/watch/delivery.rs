//! Packets of protected hosts: each arrives where it belongs, unchanged, through an SA, and once.

use super::{Checked, Violation, violated};
use casemate_datapath_tests::packets;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Marks our packets, in front of their number.
const MAGIC: &[u8; 8] = b"casemate";
/// Where the payload of UDP begins.
const PAYLOAD_AT: usize = 28;

/// A packet that was offered to a node.
#[derive(Debug, Clone)]
pub(crate) struct Parcel {
    /// Whose host sent it.
    pub(crate) from: usize,
    /// Whose host is to get it; nobody if policy forbids it.
    pub(crate) to: Option<usize>,
    /// When.
    pub(crate) at: Duration,
    /// Whether it must arrive.
    pub(crate) must_arrive: bool,
    bytes: Vec<u8>,
    arrived: bool,
}

/// All packets that were offered, by number.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Vec<Parcel>);

impl Ledger {
    /// Writes down a new packet between these hosts; answers its number and the packet.
    pub(crate) fn post(
        &mut self,
        (src, dst): (Ipv4Addr, Ipv4Addr),
        (from, to): (usize, Option<usize>),
        at: Duration,
        must_arrive: bool,
    ) -> (usize, Vec<u8>) {
        let number = self.0.len();
        let mut payload = [&MAGIC[..], &(number as u64).to_be_bytes()].concat();
        payload.extend((0..number % 97).map(|at| (at * 7 + number) as u8));
        let bytes = packets::udp(src.into(), dst.into(), (1_000, 2_000), &payload, false);
        self.0.push(Parcel { from, to, at, must_arrive, bytes: bytes.clone(), arrived: false });
        (number, bytes)
    }

    /// A packet that has not been offered to anybody.
    pub(crate) fn forge(&self, (src, dst): (Ipv4Addr, Ipv4Addr)) -> Vec<u8> {
        let payload = [&MAGIC[..], &u64::MAX.to_be_bytes()].concat();
        packets::udp(src.into(), dst.into(), (1_000, 2_000), &payload, false)
    }

    /// A node protected the packet with this number.
    pub(crate) fn sent(&self, number: usize) -> Checked {
        let parcel = &self.0[number];
        match parcel.to {
            Some(_) => Ok(()),
            None => violated(format!("node {} sends packet {number}, which policy forbids", parcel.from)),
        }
    }

    /// A node delivers a packet to one of its hosts. Answers its number.
    pub(crate) fn deliver(
        &mut self,
        node: usize,
        packet: &[u8],
        protected: bool,
    ) -> Result<usize, Violation> {
        let number = packet.get(PAYLOAD_AT..).and_then(|payload| payload.strip_prefix(MAGIC));
        let number =
            number.and_then(|rest| rest.first_chunk()).map(|bytes| u64::from_be_bytes(*bytes) as usize);
        let Some((number, parcel)) = number.and_then(|number| Some((number, self.0.get_mut(number)?))) else {
            return violated(format!("node {node} delivers a packet that nobody sent"));
        };
        if !protected {
            return violated(format!("node {node} delivers packet {number}, which came in clear"));
        }
        if parcel.to != Some(node) {
            return violated(format!("node {node} delivers packet {number}, which is for {:?}", parcel.to));
        }
        if parcel.bytes != packet {
            return violated(format!("node {node} delivers packet {number} changed"));
        }
        if std::mem::replace(&mut parcel.arrived, true) {
            return violated(format!("node {node} delivers packet {number} twice"));
        }
        Ok(number)
    }

    /// Nothing that had to arrive was lost, of what was sent until `sent`.
    pub(crate) fn check_arrived(&self, sent: Duration) -> Checked {
        let is_lost = |parcel: &Parcel| parcel.must_arrive && !parcel.arrived && parcel.at <= sent;
        match self.0.iter().enumerate().find(|(_, parcel)| is_lost(parcel)) {
            None => Ok(()),
            Some((number, Parcel { from, to, at, .. })) => violated(format!(
                "packet {number} from node {from} to {to:?}, sent at {:.3} s, did not arrive",
                at.as_secs_f64()
            )),
        }
    }

    /// How many were offered, and how many arrived.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.0.len(), self.0.iter().filter(|parcel| parcel.arrived).count())
    }
}
