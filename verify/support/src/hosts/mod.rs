//! Two hosts in memory, for tests of the data path with real algorithms.
//!
//! This module needs no operating system, so that the self-test of `verify/bare` can use it.
//!
//! A [`Host`] has a data path and its buffers. A [`Link`] has two hosts with mirrored SAs and policies.
//! There is no network and no clock: the time is an argument.

// In test support, an unexpected result panics with its reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod link;
pub mod packets;
pub mod suites;

use crate::TestRng;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{Provider, Providers};
use casemate_datapath::{
    Config, Datapath, DropReason, HEAD_ROOM, Inbound, Outbound, SaId, Sealed, SecPath, TAIL_ROOM, Unmatched,
};
use casemate_legacy::LEGACY;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Instant, Limits, SpdId};
use casemate_wire::packet::Packet;
pub use link::{Ends, Link, LinkSpec};

/// Providers of all algorithms.
pub const PROVIDERS: Providers<'static> = Providers(&[&RUSTCRYPTO as &dyn Provider, &LEGACY]);

/// Result of sending a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// The packet on the wire.
    Wire(Vec<u8>, Sealed),
    /// Packet in clear text.
    Bypass(Vec<u8>),
    /// ICMP error for the sender.
    Reply(DropReason, Vec<u8>),
    /// Fragment that needs reassembly.
    Reassemble,
    /// Dropped packet.
    Drop(DropReason),
}

impl Sent {
    /// Returns the packet on the wire.
    #[track_caller]
    pub fn wire(self) -> Vec<u8> {
        match self {
            Self::Wire(packet, _) => packet,
            other => panic!("not sent: {other:?}"),
        }
    }
}

/// Result of receiving a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Delivered packet.
    Packet(Vec<u8>),
    /// Other result.
    Other(Inbound),
}

/// Host whose time changes only when a test sets it.
pub struct Host {
    /// Data path.
    pub dp: Datapath,
    /// Current time.
    pub now: Instant,
    /// Bytes behind each packet in its buffer.
    pub tail_room: usize,
    rng: TestRng,
}

impl Host {
    /// Creates a host without SAs and policies. `link_mtu` is the MTU of its link.
    pub fn new(unmatched: Unmatched, link_mtu: usize) -> Self {
        Self::with_limits(unmatched, link_mtu, Limits::SERVER)
    }

    /// Creates a host with other table sizes. Tables of a server need too much time in tests with many
    /// iterations.
    pub fn with_limits(unmatched: Unmatched, link_mtu: usize, limits: Limits) -> Self {
        let config = Config { unmatched, link_mtu, limits, ..Config::server(7) };
        Self {
            dp: Datapath::new(config),
            now: Instant::from_secs(1),
            tail_room: TAIL_ROOM,
            rng: TestRng::new(1),
        }
    }

    /// Sends one packet through outbound processing.
    pub fn send(&mut self, packet: &[u8]) -> Sent {
        self.send_batch(&[packet]).remove(0)
    }

    /// Sends a batch of packets.
    pub fn send_batch(&mut self, batch: &[&[u8]]) -> Vec<Sent> {
        let mut buffers: Vec<Vec<u8>> = batch.iter().map(|packet| buffer(packet, self.tail_room)).collect();
        let mut packets: Vec<Packet<'_>> = packets(&mut buffers, batch);
        let mut verdicts = vec![Outbound::Drop(DropReason::NoRoom); batch.len()];
        self.dp.outbound(self.now, &mut self.rng, &mut packets, &mut verdicts);
        packets.iter().zip(verdicts).map(|(packet, verdict)| sent(packet, verdict)).collect()
    }

    /// Sends a datagram that was reassembled from fragments.
    pub fn send_reassembled(&mut self, packet: &[u8]) -> Sent {
        let mut buffer = buffer(packet, self.tail_room);
        let mut packet = Packet::new(&mut buffer, HEAD_ROOM, packet.len()).unwrap();
        let verdict = self.dp.outbound_reassembled(SpdId::MAIN, self.now, &mut self.rng, &mut packet);
        sent(&packet, verdict)
    }

    /// Sends a dummy packet with `len` inner bytes.
    pub fn dummy(&mut self, id: SaId, len: usize) -> Sent {
        let mut buffer = buffer(&vec![0x77; len], self.tail_room);
        let mut packet = Packet::new(&mut buffer, HEAD_ROOM, len).unwrap();
        let verdict = self.dp.outbound_dummy(id, self.now, &mut self.rng, &mut packet);
        sent(&packet, verdict)
    }

    /// Passes one packet to inbound processing.
    pub fn receive(&mut self, packet: &[u8]) -> Received {
        self.receive_batch(&[packet]).remove(0)
    }

    /// Passes a batch of packets to inbound processing.
    pub fn receive_batch(&mut self, batch: &[&[u8]]) -> Vec<Received> {
        let mut buffers: Vec<Vec<u8>> = batch.iter().map(|packet| buffer(packet, self.tail_room)).collect();
        let mut packets: Vec<Packet<'_>> = packets(&mut buffers, batch);
        let mut verdicts = Vec::from_iter(batch.iter().map(|_| Inbound::Drop(DropReason::NoRoom)));
        self.dp.inbound(self.now, &mut packets, &mut verdicts);
        let received = packets.iter().zip(verdicts).map(|(packet, verdict)| match verdict {
            Inbound::Deliver(_) => Received::Packet(packet.data().to_vec()),
            other => Received::Other(other),
        });
        received.collect()
    }

    /// Passes a datagram to inbound processing that was reassembled from fragments of SAs.
    pub fn admit_reassembled(&mut self, via: SecPath, packet: &[u8]) -> Received {
        let mut buffer = buffer(packet, self.tail_room);
        let mut packet = Packet::new(&mut buffer, HEAD_ROOM, packet.len()).unwrap();
        match self.dp.admit_reassembled(self.now, via, &mut packet) {
            Inbound::Deliver(_) => Received::Packet(packet.data().to_vec()),
            other => Received::Other(other),
        }
    }

    /// Receives one packet. Panics unless the packet is dropped for this reason and counted once.
    #[track_caller]
    pub fn must_drop(&mut self, packet: &[u8], reason: DropReason) {
        let before = self.dp.drops().get(reason);
        assert_eq!(self.receive(packet), Received::Other(Inbound::Drop(reason)));
        assert_eq!(self.dp.drops().get(reason), before + 1, "drop counter of {reason}");
    }
}

fn buffer(packet: &[u8], tail_room: usize) -> Vec<u8> {
    let mut buffer = vec![0xEE; HEAD_ROOM + packet.len() + tail_room];
    buffer[HEAD_ROOM..HEAD_ROOM + packet.len()].copy_from_slice(packet);
    buffer
}

fn packets<'b>(buffers: &'b mut [Vec<u8>], batch: &[&[u8]]) -> Vec<Packet<'b>> {
    buffers
        .iter_mut()
        .zip(batch)
        .map(|(b, packet)| Packet::new(b, HEAD_ROOM, packet.len()).unwrap())
        .collect()
}

fn sent(packet: &Packet<'_>, verdict: Outbound) -> Sent {
    let bytes = packet.data().to_vec();
    match verdict {
        Outbound::Send(sealed) => Sent::Wire(bytes, sealed),
        Outbound::Bypass => Sent::Bypass(bytes),
        Outbound::Reply(reason) => Sent::Reply(reason, bytes),
        Outbound::Reassemble => Sent::Reassemble,
        // Without `hold_packets`, no packet is to be kept.
        Outbound::Hold => Sent::Drop(DropReason::NoOutboundSa),
        Outbound::Drop(reason) => Sent::Drop(reason),
    }
}
