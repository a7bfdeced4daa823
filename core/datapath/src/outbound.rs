//! The outbound path (RFC 4301 section 5.1): classify, check the size, reserve a sequence number, frame,
//! seal, add the outer header.
//!
//! The path works on up to [`MAX_BATCH`] packets at a time in three steps. `frame_batch` does everything
//! before the encryption, with `framing` for the packets of each SA. `sealing` encrypts the packets on any
//! thread. `write_verdicts` returns the verdicts.

use crate::classify::{CachedDecision, Classifier, Decision, SaChain};
use crate::datapath::{Datapath, Role};
use crate::esp::MAX_BATCH;
use crate::framing::Content;
use crate::icmp;
use crate::sealing::{OutboundBatch, OutboundPacket, OutboundRun, SealBatch, Sealer};
use crate::size::SafeLen;
use crate::spd::{Action, Lookup};
use crate::tunnel::InnerHeader;
use crate::{DropReason, Outbound, mss};
use casemate_crypto::Rng;
use casemate_sa::{Instant, SpdId};
use casemate_wire::flow::{FlowKey, HeaderSummary};
use casemate_wire::invariant::{self, OrBroken};
use casemate_wire::packet::Packet;
use core::slice;

/// Whether the packets were reassembled. If so, their source allows fragmentation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    AsSent,
    Reassembled,
}

impl Datapath {
    /// Protects, bypasses or drops a batch of outgoing IP packets by the policies of the main SPD. `verdicts`
    /// receives one verdict for each packet.
    ///
    /// Packets need [`HEAD_ROOM`](crate::HEAD_ROOM) and [`TAIL_ROOM`](crate::TAIL_ROOM). Both slices should
    /// have the same length; elements beyond the shorter one stay untouched.
    pub fn outbound(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Outbound],
    ) {
        self.outbound_in(SpdId::MAIN, now, rng, packets, verdicts);
    }

    /// Does what [`outbound`](Self::outbound) does, by the policies of this SPD. A packet that matches none
    /// of them is dropped if the SPD is not the main one.
    pub fn outbound_in(
        &mut self,
        spd: SpdId,
        now: Instant,
        rng: &mut dyn Rng,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Outbound],
    ) {
        for (packets, verdicts) in packets.chunks_mut(MAX_BATCH).zip(verdicts.chunks_mut(MAX_BATCH)) {
            self.outbound_chunk(spd, now, rng, packets, verdicts, Origin::AsSent);
        }
    }

    /// The first of three steps that together do what [`outbound_in`](Self::outbound_in) does, for at most
    /// [`MAX_BATCH`] packets. This step applies policy, reserves sequence numbers and writes headers. The
    /// second step, [`SealBatch::seal`], is the expensive one and needs no data path. The third step is
    /// [`finish_outbound`](Self::finish_outbound).
    ///
    /// Several cores can thus work for one SA: begin the batches in order, seal them in parallel, and send
    /// them in the order in which they began. Between the steps the packets must neither move nor change. The
    /// data path may be used meanwhile; packets of an SA that is removed or moved keep the headers that they
    /// have.
    ///
    /// `sealing` carries the batch through the steps. If it still holds an unfinished batch, that batch is
    /// discarded: its sequence numbers stay used, and it can no longer be finished.
    pub fn begin_outbound(
        &mut self,
        spd: SpdId,
        now: Instant,
        rng: &mut dyn Rng,
        packets: &mut [Packet<'_>],
        sealing: &mut SealBatch,
    ) {
        sealing.clear();
        sealing.batch.spd = spd;
        self.frame_batch(now, rng, packets, Origin::AsSent, &mut sealing.batch);
        sealing.packets.record(packets);
    }

    /// The last of the three steps: writes one verdict for each packet. If `packets` are not the packets of
    /// the batch, all are dropped. A packet that was not sealed is dropped. A batch can be finished once.
    pub fn finish_outbound(
        &mut self,
        now: Instant,
        packets: &[Packet<'_>],
        sealing: &mut SealBatch,
        verdicts: &mut [Outbound],
    ) {
        if sealing.packets.matches(packets) {
            self.write_verdicts(now, packets, &sealing.batch.records, verdicts);
            self.trace_outbound_verdicts(now, packets, &sealing.batch, verdicts);
            return sealing.clear();
        }
        sealing.clear();
        for (packet, verdict) in packets.iter().zip(verdicts) {
            self.count_drop(now, DropReason::CryptoFailed, packet.data(), None);
            *verdict = Outbound::Drop(DropReason::CryptoFailed);
        }
    }

    /// Does what [`outbound_in`](Self::outbound_in) does for one datagram that the caller reassembled after
    /// the verdict [`Outbound::Reassemble`].
    pub fn outbound_reassembled(
        &mut self,
        spd: SpdId,
        now: Instant,
        rng: &mut dyn Rng,
        packet: &mut Packet<'_>,
    ) -> Outbound {
        let mut verdict = Outbound::Drop(DropReason::NoRoom);
        let (packets, verdicts) = (slice::from_mut(packet), slice::from_mut(&mut verdict));
        self.outbound_chunk(spd, now, rng, packets, verdicts, Origin::Reassembled);
        verdict
    }

    fn outbound_chunk(
        &mut self,
        spd: SpdId,
        now: Instant,
        rng: &mut dyn Rng,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Outbound],
        origin: Origin,
    ) {
        let mut batch = OutboundBatch::new();
        batch.spd = spd;
        self.frame_batch(now, rng, packets, origin, &mut batch);
        batch.seal(packets);
        self.write_verdicts(now, packets, &batch.records, verdicts);
        self.trace_outbound_verdicts(now, packets, &batch, verdicts);
    }

    /// Does everything before the encryption with the last SA of each packet. Writes the batch in place,
    /// because moving one costs as much as processing a packet.
    #[inline]
    fn frame_batch(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        packets: &mut [Packet<'_>],
        origin: Origin,
        batch: &mut OutboundBatch,
    ) {
        batch.prepare(packets.len());
        self.trace_unframed(now, packets, batch);
        let (mut known, spd) = (None, batch.spd);
        for (packet, record) in packets.iter_mut().zip(&mut batch.records) {
            self.classify_packet(now, spd, packet, origin, record, &mut known);
        }
        let (mut rest, mut end) = (&mut *packets, 0usize);
        for run in batch.records.chunk_by_mut(|a, b| a.chain == b.chain) {
            let split = rest.split_at_mut_checked(run.len());
            let Some((these, others)) = split.or_report("a batch has a record for each packet") else {
                break;
            };
            rest = others;
            let start = end;
            end = start.saturating_add(run.len());
            let Some(chain) = run.first().and_then(|record| record.chain) else { continue };
            if let Some(sealer) = self.frame_bundle(now, rng, chain, these, run) {
                batch.runs.push(OutboundRun { sealer, range: start..end });
            }
        }
        self.trace_framed(now, packets, batch);
    }

    /// Applies the SAs of `chain` to a run of packets, except for the encryption with the last SA.
    #[inline]
    fn frame_bundle(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        chain: SaChain,
        packets: &mut [Packet<'_>],
        run: &mut [OutboundPacket],
    ) -> Option<Sealer> {
        let inner = self.frame_run(now, rng, chain.inner, packets, run, Content::Packets)?;
        let Some(outer) = chain.outer else { return Some(inner) };
        // The outer SA protects the output of the inner SA, so the inner SA must seal first.
        inner.seal(packets, run);
        reread_headers(packets, run);
        self.frame_run(now, rng, outer, packets, run, Content::Packets)
    }

    /// The decision of an SPD for outgoing packets of `flow`, from the flow cache if possible.
    #[inline(always)]
    pub(crate) fn decide(&mut self, spd: SpdId, flow: &FlowKey) -> Decision {
        match self.flows_out.get(flow, self.epoch) {
            Some(known) if known.spd == spd => known.decision,
            _ => self.decide_uncached(spd, flow),
        }
    }

    #[inline(never)]
    fn decide_uncached(&mut self, spd: SpdId, flow: &FlowKey) -> Decision {
        let unmatched = self.unmatched(flow);
        let mut classifier =
            Classifier { policies: &self.spd_out, sad: &self.sad, events: &mut self.events, unmatched };
        let decision = classifier.decide(spd, flow);
        self.flows_out.insert(flow, self.epoch, CachedDecision { spd, decision });
        decision
    }

    /// Classifies the packet and checks that it fits the path once it is protected. `known` is the safe
    /// length of the previous packet's SAs, which this packet usually has too.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn classify_packet(
        &mut self,
        now: Instant,
        spd: SpdId,
        packet: &mut Packet<'_>,
        origin: Origin,
        record: &mut OutboundPacket,
        known: &mut Option<SafeLen>,
    ) {
        let Ok(summary) = HeaderSummary::parse(packet.data()) else {
            return record.set_drop(DropReason::MalformedHeader);
        };
        let chain = match self.decide(spd, &summary.key) {
            Decision::Protect(chain) => chain,
            other => return self.handle_unprotected(now, packet, &summary.key, other, origin, record),
        };
        (record.chain, record.header) = (Some(chain), InnerHeader::from(&summary));
        // Drops bytes after the packet, such as link padding: transport mode would take them for payload.
        invariant::check(packet.set_len(summary.total_len()).is_ok(), "the packet fits");
        if mss::may_be_syn(&summary.key, packet) {
            self.clamp_mss(now, packet.data_mut(), Some(chain));
        }
        let safe = known.filter(|known| known.chain == chain).unwrap_or_else(|| self.safe_len(now, chain));
        *known = Some(safe);
        if packet.len() > safe.len {
            self.check_exact_size(now, packet, chain, origin, record);
        }
    }

    /// Handles a packet that is not to be protected.
    #[inline(never)]
    fn handle_unprotected(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        flow: &FlowKey,
        decision: Decision,
        origin: Origin,
        record: &mut OutboundPacket,
    ) {
        match decision {
            Decision::Bypass if icmp::is_icmp_error(flow) && self.quotes_protected(flow, packet.data()) => {
                record.set_drop(DropReason::NoPolicy);
            }
            Decision::Bypass => {
                record.verdict = Outbound::Bypass;
                if self.role == Role::Host && mss::may_be_syn(flow, packet) {
                    self.clamp_mss(now, packet.data_mut(), None);
                }
            }
            Decision::Reassemble if origin == Origin::AsSent => record.verdict = Outbound::Reassemble,
            Decision::Reassemble => record.set_drop(DropReason::FragmentWithoutPorts),
            // RFC 4301 section 5.1.1: tell the source that policy forbids the packet.
            Decision::Drop(reason @ DropReason::PolicyDiscard) => {
                self.reject(now, packet, reason, record, |packet| icmp::prohibited(packet, None));
            }
            Decision::Drop(reason) => record.set_drop(reason),
            Decision::Acquire(_) if self.holds_packets && origin == Origin::AsSent => {
                record.verdict = Outbound::Hold;
            }
            // The caller protects the packets of `Protect`.
            Decision::Protect(_) | Decision::Acquire(_) => record.set_drop(DropReason::NoOutboundSa),
        }
    }

    /// Whether an ICMP error without a policy quotes a packet whose replies are protected. Such an error
    /// would reveal in clear what came through an SA (RFC 4301 section 6).
    #[cold]
    fn quotes_protected(&self, flow: &FlowKey, packet: &[u8]) -> bool {
        let is_unmatched = matches!(self.spd_out.lookup(SpdId::MAIN, flow), Lookup::NoMatch);
        let answers = icmp::quoted_flow(packet).filter(|_| is_unmatched).map(FlowKey::reversed);
        answers.is_some_and(|answers| match self.spd_out.lookup(SpdId::MAIN, &answers) {
            Lookup::Match(_, policy) => matches!(policy.action, Action::Protect(_)),
            Lookup::NeedsPorts => true,
            Lookup::NoMatch => false,
        })
    }

    /// Writes the verdicts and counts the drops.
    #[inline]
    pub(crate) fn write_verdicts(
        &mut self,
        now: Instant,
        packets: &[Packet<'_>],
        records: &[OutboundPacket],
        verdicts: &mut [Outbound],
    ) {
        for ((record, packet), verdict) in records.iter().zip(packets).zip(verdicts) {
            *verdict = record.verdict();
            if let Outbound::Drop(reason) = *verdict
                && !record.counted
            {
                self.count_drop(now, reason, packet.data(), None);
            }
        }
    }
}

/// Reads the headers again that the inner SA wrote, for the outer SA.
#[cold]
fn reread_headers(packets: &[Packet<'_>], records: &mut [OutboundPacket]) {
    // A packet that the inner SA dropped may have lost its headers.
    let continuing = packets.iter().zip(records).filter(|(_, record)| record.chain.is_some());
    for (packet, record) in continuing {
        let header = InnerHeader::parse(packet.data());
        if let Some(header) = header.or_report("the inner SA wrote a valid header") {
            record.header = header;
        }
    }
}
