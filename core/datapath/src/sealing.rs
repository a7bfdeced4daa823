//! Outbound batches between the reservation of their sequence numbers and their verdicts, while ESP encrypts
//! them.
//!
//! This module does not use the data path: any thread may process a [`SealBatch`]. Neighbours with the same
//! SA form a run, and one call to the provider encrypts a run.

use crate::classify::SaChain;
use crate::esp::{self, EspKey, MAX_BATCH, RUN_IN_BATCH, SPARE};
use crate::protect::SizePlan;
use crate::sa::{ProtocolKey, SaKeys};
use crate::seq::Reserved;
use crate::trace::TracedPackets;
use crate::tunnel::InnerHeader;
use crate::{DropReason, Outbound, Sealed};
use alloc::sync::Arc;
use arrayvec::ArrayVec;
use casemate_sa::SpdId;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::Ipv6;
use casemate_wire::packet::Packet;
use casemate_wire::udp::{self, Udp};
use core::ops::Range;

/// A batch of outgoing packets that have their sequence numbers and headers and are ready for encryption; see
/// [`Datapath::begin_outbound`](crate::Datapath::begin_outbound). Keep and reuse it: it is several KB large,
/// and moving it costs as much as processing a packet.
pub struct SealBatch {
    pub(crate) batch: OutboundBatch,
    pub(crate) packets: BatchPackets,
}

impl SealBatch {
    /// An empty batch.
    #[inline]
    pub fn new() -> Self {
        Self { batch: OutboundBatch::new(), packets: BatchPackets::new() }
    }

    /// Removes the packets and releases their keys.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.batch.records.clear();
        self.batch.runs.clear();
        self.batch.traced.clear();
        self.packets.clear();
    }

    /// Encrypts the packets and adds their ICVs, on any thread. `packets` must be the packets that the batch
    /// began with, in the same buffers; other packets stay untouched.
    pub fn seal(&mut self, packets: &mut [Packet<'_>]) {
        if self.packets.matches(packets) {
            self.batch.seal(packets);
        }
    }
}

impl Default for SealBatch {
    fn default() -> Self {
        Self::new()
    }
}

/// Positions of the packets in a batch. [`seal_run`] uses one bit of a `u32` for each.
const POSITIONS: Range<u32> = 0..MAX_BATCH as u32;
const _: () = assert!(POSITIONS.end <= u32::BITS);

/// Address and length of each packet of a batch, to recognize the packets in the next step: a packet must
/// never pass with the verdict of another packet.
pub(crate) struct BatchPackets(ArrayVec<Location, MAX_BATCH>);

/// Address (for comparison only) and length in bytes.
type Location = (usize, usize);

impl BatchPackets {
    /// An empty list.
    #[inline]
    pub(crate) fn new() -> Self {
        Self(ArrayVec::new())
    }

    /// Removes all packets.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds the first [`MAX_BATCH`] of these packets.
    #[inline]
    pub(crate) fn record(&mut self, packets: &[Packet<'_>]) {
        self.0.extend(packets.iter().take(MAX_BATCH).map(location));
    }

    /// Whether `packets` are exactly the recorded packets, in the same order.
    pub(crate) fn matches(&self, packets: &[Packet<'_>]) -> bool {
        self.0.iter().copied().eq(packets.iter().map(location))
    }
}

fn location(packet: &Packet<'_>) -> Location {
    (packet.data().as_ptr().addr(), packet.len())
}

/// States of the packets, and the keys of those that wait for encryption.
pub(crate) struct OutboundBatch {
    /// The SPD whose policies apply.
    pub(crate) spd: SpdId,
    pub(crate) records: ArrayVec<OutboundPacket, MAX_BATCH>,
    /// At most one run for each packet.
    pub(crate) runs: ArrayVec<OutboundRun, MAX_BATCH>,
    pub(crate) traced: TracedPackets,
}

/// Neighbours in a batch that are sealed with one SA.
pub(crate) struct OutboundRun {
    pub(crate) sealer: Sealer,
    pub(crate) range: Range<usize>,
}

/// Seals the framed packets of one SA.
pub(crate) struct Sealer {
    pub(crate) keys: Arc<SaKeys>,
    /// Whether the packets have a UDP checksum, which covers the sealed bytes.
    pub(crate) has_checksum: bool,
}

/// State of one packet of an outbound batch.
pub(crate) struct OutboundPacket {
    pub(crate) chain: Option<SaChain>,
    /// The first IP header of the packet.
    pub(crate) header: InnerHeader,
    /// The path MTU, if the packet will exceed it and may be fragmented.
    pub(crate) fragment_to: Option<u16>,
    /// Padding that gives the packet the length of its neighbours, in bytes.
    pub(crate) batch_padding: u8,
    /// For a framed packet that waits for encryption: offset of the ESP header, and the sequence number.
    pub(crate) to_seal: Option<(usize, Reserved)>,
    /// The verdict once the packet is sealed.
    pub(crate) verdict: Outbound,
    /// Whether the drop is already counted.
    pub(crate) counted: bool,
}

impl OutboundBatch {
    /// An empty batch.
    #[inline]
    pub(crate) fn new() -> Self {
        let (records, runs) = (ArrayVec::new(), ArrayVec::new());
        Self { spd: SpdId::MAIN, records, runs, traced: TracedPackets::NONE }
    }

    /// Adds states for `packets` packets, at most [`MAX_BATCH`].
    #[inline]
    pub(crate) fn prepare(&mut self, packets: usize) {
        for _ in 0..packets.min(MAX_BATCH) {
            self.records.push(OutboundPacket::NEW);
        }
    }

    #[inline]
    pub(crate) fn seal(&mut self, packets: &mut [Packet<'_>]) {
        for OutboundRun { sealer, range } in &self.runs {
            let (packets, records) = (packets.get_mut(range.clone()), self.records.get_mut(range.clone()));
            sealer.seal(packets.or_broken_default(RUN_IN_BATCH), records.or_broken_default(RUN_IN_BATCH));
        }
    }
}

impl OutboundPacket {
    pub(crate) const NEW: Self = Self {
        chain: None,
        header: InnerHeader::NONE,
        fragment_to: None,
        batch_padding: 0,
        to_seal: None,
        verdict: Outbound::Drop(DropReason::CryptoFailed),
        counted: false,
    };

    /// What protection depends on besides the header.
    #[inline]
    pub(crate) fn size_plan(&self) -> SizePlan {
        SizePlan { will_be_fragmented: self.fragment_to.is_some(), extra_padding: self.batch_padding }
    }

    pub(crate) fn set_drop(&mut self, reason: DropReason) {
        self.chain = None;
        self.verdict = Outbound::Drop(reason);
    }

    /// The verdict. A packet that was not sealed is still clear text and is dropped.
    #[inline]
    pub(crate) fn verdict(&self) -> Outbound {
        match self.to_seal {
            None => self.verdict,
            Some(_) => Outbound::Drop(DropReason::CryptoFailed),
        }
    }
}

impl Sealer {
    /// Seals the framed packets of a run in one call.
    #[inline]
    pub(crate) fn seal(&self, packets: &mut [Packet<'_>], records: &mut [OutboundPacket]) {
        // AH packets were signed when they were framed.
        let ProtocolKey::Esp(key) = &self.keys.key else { return };
        seal_run(key, self.keys.esn, packets, records);
        if self.has_checksum {
            fill_checksums(packets, records);
        }
    }
}

#[inline]
fn seal_run(key: &EspKey, esn: bool, packets: &mut [Packet<'_>], records: &mut [OutboundPacket]) {
    let mut waiting = 0u32;
    let framed = POSITIONS.zip(packets.iter_mut().zip(&mut *records)).filter_map(|(n, (packet, record))| {
        let (at, number) = record.to_seal.take()?;
        waiting |= 1 << n;
        // An empty region fails to seal.
        let region = packet.data_mut_from(at.saturating_sub(SPARE));
        let region = region.or_broken_default("a framed packet contains its ESP header");
        Some((region, number))
    });
    let done = esp::seal(key, esn, framed);
    if done.all(waiting.count_ones()) {
        return;
    }
    let failed = POSITIONS.zip(records).filter(|(n, _)| waiting >> n & 1 == 1).map(|(_, record)| record);
    for (n, record) in (0..).zip(failed) {
        if !done.has(n) {
            record.set_drop(DropReason::CryptoFailed);
        }
    }
}

fn fill_checksums(packets: &mut [Packet<'_>], records: &[OutboundPacket]) {
    for (packet, record) in packets.iter_mut().zip(records) {
        if let Outbound::Send(Sealed { udp_payload: Some(at), .. }) = record.verdict {
            fill_udp6_checksum(packet.data_mut(), at.into());
        }
    }
}

/// The UDP checksum over IPv6 must not be zero (RFC 8200 section 8.1). It covers the sealed bytes.
fn fill_udp6_checksum(packet: &mut [u8], udp_payload: usize) {
    let ip = Ipv6::parse(&*packet).or_report("a protected packet has a valid outer header");
    let Some(ip) = ip else { return };
    let (src, dst) = (ip.src(), ip.dst());
    let udp = packet.get_mut(udp_payload.saturating_sub(udp::HEADER_LEN)..).map(Udp::parse);
    if let Some(mut udp) = udp.and_then(Result::ok).or_report("an encapsulated packet has a UDP header") {
        udp.fill_checksum_v6(src, dst);
    }
}
