//! Packets of protected hosts: each arrives where it belongs, unchanged, through an SA, and once.

use super::{Checked, Violation, violated};
use crate::places::Flow;
use casemate_datapath_tests::packets;
use std::time::Duration;

/// Marks our packets, in front of their number.
const MAGIC: &[u8; 8] = b"casemate";
/// How a packet is to travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through an SA, to this node.
    Protected(usize),
    /// In clear, to this node.
    Clear(usize),
    /// Not at all.
    Nowhere,
}

/// A packet that was offered to a node.
#[derive(Debug, Clone)]
pub(crate) struct Parcel {
    /// Whose host sent it.
    pub(crate) from: usize,
    /// Whose host is to get it, and how.
    pub(crate) way: Way,
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
        flow: Flow,
        (from, way): (usize, Way),
        at: Duration,
        must_arrive: bool,
    ) -> (usize, Vec<u8>) {
        let number = self.0.len();
        let mut payload = [&MAGIC[..], &(number as u64).to_be_bytes()].concat();
        payload.extend((0..number % 97).map(|at| (at * 7 + number) as u8));
        let bytes = packets::udp(flow.src, flow.dst, (flow.port, flow.port), &payload, false);
        self.0.push(Parcel { from, way, at, must_arrive, bytes: bytes.clone(), arrived: false });
        (number, bytes)
    }

    /// A packet that has not been offered to anybody.
    pub(crate) fn forge(&self, flow: Flow) -> Vec<u8> {
        let payload = [&MAGIC[..], &u64::MAX.to_be_bytes()].concat();
        packets::udp(flow.src, flow.dst, (flow.port, flow.port), &payload, false)
    }

    /// A node protected the packet with this number.
    pub(crate) fn sent(&self, number: usize) -> Checked {
        let parcel = &self.0[number];
        match parcel.way {
            Way::Protected(_) => Ok(()),
            Way::Clear(_) => violated(format!("node {} protects packet {number}", parcel.from)),
            Way::Nowhere => {
                violated(format!("node {} sends packet {number}, which policy forbids", parcel.from))
            }
        }
    }

    /// A node delivers a packet to one of its hosts. Answers its number.
    pub(crate) fn deliver(
        &mut self,
        node: usize,
        packet: &[u8],
        protected: bool,
    ) -> Result<usize, Violation> {
        let payload_at = if packet[0] >> 4 == 6 { 48 } else { 28 };
        let number = packet.get(payload_at..).and_then(|payload| payload.strip_prefix(MAGIC));
        let number =
            number.and_then(|rest| rest.first_chunk()).map(|bytes| u64::from_be_bytes(*bytes) as usize);
        let Some((number, parcel)) = number.and_then(|number| Some((number, self.0.get_mut(number)?))) else {
            return violated(format!("node {node} delivers a packet that nobody sent"));
        };
        if !protected && !matches!(parcel.way, Way::Clear(_)) {
            return violated(format!("node {node} delivers packet {number}, which came in clear"));
        }
        let way = if protected { Way::Protected(node) } else { Way::Clear(node) };
        if parcel.way != way {
            return violated(format!("node {node} delivers packet {number}, which is for {:?}", parcel.way));
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
            Some((number, Parcel { from, way, at, .. })) => violated(format!(
                "packet {number} from node {from} to {way:?}, sent at {:.3} s, did not arrive",
                at.as_secs_f64()
            )),
        }
    }

    /// Never were more packets than this lost in a row, in one direction.
    pub(crate) fn check_gaps(&self, most: usize) -> Checked {
        for way in [0, 1] {
            let mut lost = 0;
            for Parcel { arrived, at, .. } in self.0.iter().filter(|parcel| parcel.from == way) {
                lost = if *arrived { 0 } else { lost + 1 };
                if lost > most {
                    return violated(format!(
                        "of node {way}, {lost} packets in a row are lost until {:.3} s",
                        at.as_secs_f64()
                    ));
                }
            }
        }
        Ok(())
    }

    /// How many were offered, and how many arrived.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.0.len(), self.0.iter().filter(|parcel| parcel.arrived).count())
    }
}
