//! One end: a data path and a buffer.

use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{Provider, Providers, Rng};
use casemate_datapath::{
    Config, Datapath, DropReason, HEAD_ROOM, Inbound, Outbound, SaId, Sealed, TAIL_ROOM, Unmatched, Via,
};
use casemate_legacy::LEGACY;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Instant, Limits};
use casemate_wire::packet::Packet;

/// Every algorithm.
pub const PROVIDERS: Providers<'static> = Providers(&[&RUSTCRYPTO as &dyn Provider, &LEGACY]);

/// Repeatable "randomness".
#[derive(Debug, Default)]
pub struct NotRandom(u8);

impl Rng for NotRandom {
    fn public(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_mul(5).wrapping_add(113);
            *byte = self.0;
        }
    }

    fn secret(&mut self, out: &mut [u8]) {
        self.public(out);
    }
}

/// What became of a packet that was sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// On the wire, as it is there.
    Wire(Vec<u8>, Sealed),
    /// In clear.
    Bypass(Vec<u8>),
    /// An ICMP error came back.
    Reply(DropReason, Vec<u8>),
    /// To be reassembled.
    Reassemble,
    /// Dropped.
    Drop(DropReason),
}

impl Sent {
    /// The packet on the wire.
    #[track_caller]
    pub fn wire(self) -> Vec<u8> {
        match self {
            Self::Wire(packet, _) => packet,
            other => panic!("not sent: {other:?}"),
        }
    }
}

/// What became of a packet that was received.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Delivered.
    Packet(Vec<u8>),
    /// Anything else.
    Other(Inbound),
}

/// A data path whose time is moved by hand.
pub struct Host {
    /// The data path.
    pub dp: Datapath,
    /// The present time.
    pub now: Instant,
    rng: NotRandom,
}

impl Host {
    /// An empty one; its link has an MTU of `link_mtu`.
    pub fn new(unmatched: Unmatched, link_mtu: usize) -> Self {
        Self::with_limits(unmatched, link_mtu, Limits::SERVER)
    }

    /// An empty one with tables of other sizes: a server's take longer to set up than a test that is run often.
    pub fn with_limits(unmatched: Unmatched, link_mtu: usize, limits: Limits) -> Self {
        let config = Config { unmatched, link_mtu, limits, ..Config::server(7) };
        Self { dp: Datapath::new(config), now: Instant::from_secs(1), rng: NotRandom::default() }
    }

    /// Offers one packet to the outbound road.
    pub fn send(&mut self, packet: &[u8]) -> Sent {
        self.send_batch(&[packet]).remove(0)
    }

    /// Offers a batch.
    pub fn send_batch(&mut self, batch: &[&[u8]]) -> Vec<Sent> {
        let mut buffers: Vec<Vec<u8>> = batch.iter().map(|packet| buffer(packet)).collect();
        let mut packets: Vec<Packet<'_>> = packets(&mut buffers, batch);
        let mut verdicts = vec![Outbound::Drop(DropReason::NoRoom); batch.len()];
        self.dp.outbound(self.now, &mut self.rng, &mut packets, &mut verdicts);
        packets.iter().zip(verdicts).map(|(packet, verdict)| sent(packet, verdict)).collect()
    }

    /// Offers a datagram that was put together from fragments.
    pub fn send_reassembled(&mut self, packet: &[u8]) -> Sent {
        let mut buffer = buffer(packet);
        let mut packet = Packet::new(&mut buffer, HEAD_ROOM, packet.len()).unwrap();
        let verdict = self.dp.outbound_reassembled(self.now, &mut self.rng, &mut packet);
        sent(&packet, verdict)
    }

    /// Makes a dummy packet of `len` bytes inside.
    pub fn dummy(&mut self, id: SaId, len: usize) -> Sent {
        let mut buffer = buffer(&vec![0x77; len]);
        let mut packet = Packet::new(&mut buffer, HEAD_ROOM, len).unwrap();
        let verdict = self.dp.dummy(id, self.now, &mut self.rng, &mut packet);
        sent(&packet, verdict)
    }

    /// Offers one packet to the inbound road.
    pub fn receive(&mut self, packet: &[u8]) -> Received {
        self.receive_batch(&[packet]).remove(0)
    }

    /// Offers a batch.
    pub fn receive_batch(&mut self, batch: &[&[u8]]) -> Vec<Received> {
        let mut buffers: Vec<Vec<u8>> = batch.iter().map(|packet| buffer(packet)).collect();
        let mut packets: Vec<Packet<'_>> = packets(&mut buffers, batch);
        let mut verdicts = vec![Inbound::Drop(DropReason::NoRoom); batch.len()];
        self.dp.inbound(self.now, &mut packets, &mut verdicts);
        let received = packets.iter().zip(verdicts).map(|(packet, verdict)| match verdict {
            Inbound::Deliver(_) => Received::Packet(packet.data().to_vec()),
            other => Received::Other(other),
        });
        received.collect()
    }

    /// Offers a datagram that was put together from fragments that SAs delivered.
    pub fn admit_reassembled(&mut self, via: Via, packet: &[u8]) -> Received {
        let mut buffer = buffer(packet);
        let mut packet = Packet::new(&mut buffer, HEAD_ROOM, packet.len()).unwrap();
        match self.dp.admit_reassembled(self.now, via, &mut packet) {
            Inbound::Deliver(_) => Received::Packet(packet.data().to_vec()),
            other => Received::Other(other),
        }
    }

    /// Receives one packet, which must be dropped for this reason and counted once.
    #[track_caller]
    pub fn must_drop(&mut self, packet: &[u8], reason: DropReason) {
        let before = self.dp.drops().get(reason);
        assert_eq!(self.receive(packet), Received::Other(Inbound::Drop(reason)));
        assert_eq!(self.dp.drops().get(reason), before + 1, "{reason} is counted");
    }
}

fn buffer(packet: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0xEE; HEAD_ROOM + packet.len() + TAIL_ROOM];
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
        Outbound::Drop(reason) => Sent::Drop(reason),
    }
}
