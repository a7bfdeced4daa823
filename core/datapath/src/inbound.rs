//! The inbound path (RFC 4301 section 5.2): demultiplex, find the SA, check for replay, open, commit to the
//! replay window, remove headers, check policy.
//!
//! The path works on up to [`MAX_BATCH`] packets at a time in three steps. `find_sas` does everything before
//! opening. `opening` opens the packets on any thread. `commit_and_admit` does the rest. An opened packet may
//! be protected again (AH over ESP); then the steps repeat until no local SA is left to open it.

use crate::admission::{AdmissionCheck, SecPathSlots};
use crate::commit::InboundCommit;
use crate::datapath::{Datapath, Role};
use crate::demux::{InboundPacket, Stage};
use crate::esp::{MAX_BATCH, RUN_IN_BATCH};
use crate::opening::{InboundBatch, InboundRun, OpenBatch};
use crate::rohc::InboundRohc;
use crate::sa::{ProtocolKey, SaIn, SaKeys};
use crate::spd::MAX_BUNDLE;
use crate::{Consumed, Direction, DropReason, Event, Inbound, SaId, SecPath, icmp, mss};
use alloc::sync::Arc;
use arrayvec::ArrayVec;
use casemate_sa::Instant;
use casemate_wire::flow::{FlowKey, HeaderSummary};
use casemate_wire::invariant::OrBroken;
use casemate_wire::packet::Packet;

impl Datapath {
    /// Opens, admits or drops a batch of incoming IP packets, which begin with their outer headers.
    /// `verdicts` receives one verdict for each packet.
    ///
    /// Packets need 4 bytes of tail room if an SA uses AH with extended sequence numbers. Both slices should
    /// have the same length; elements beyond the shorter one stay untouched.
    pub fn inbound(&mut self, now: Instant, packets: &mut [Packet<'_>], verdicts: &mut [Inbound]) {
        for (packets, verdicts) in packets.chunks_mut(MAX_BATCH).zip(verdicts.chunks_mut(MAX_BATCH)) {
            let mut batch = InboundBatch::new();
            batch.prepare(packets.len());
            self.trace_arrivals(packets, &mut batch);
            self.find_sas(now, packets, &mut batch);
            batch.open(packets);
            self.commit_and_admit(now, packets, &mut batch, verdicts);
        }
    }

    /// The first of three steps that together do what [`inbound`](Self::inbound) does, for at most
    /// [`MAX_BATCH`] packets. This step finds the SAs and checks for replays. The second step,
    /// [`OpenBatch::open`], is the expensive one and needs no data path. The third step is
    /// [`finish_inbound`](Self::finish_inbound).
    ///
    /// Several cores can thus work for one SA: begin the batches in order, open them in parallel, and finish
    /// them in the order in which they began. Between the steps the packets must neither move nor change. The
    /// data path may be used meanwhile; packets of an SA that is removed are dropped.
    ///
    /// `opening` carries the batch through the steps. If it still holds an unfinished batch, that batch is
    /// discarded and can no longer be finished.
    pub fn begin_inbound(&mut self, now: Instant, packets: &mut [Packet<'_>], opening: &mut OpenBatch) {
        opening.clear();
        opening.batch.prepare(packets.len());
        self.trace_arrivals(packets, &mut opening.batch);
        self.find_sas(now, packets, &mut opening.batch);
        opening.packets.record(packets);
    }

    /// The last of the three steps: commits to the replay windows, removes headers, checks policy and writes
    /// one verdict for each packet. If `packets` are not the packets of the batch, all are dropped. A packet
    /// that was not opened is dropped. A sequence number that occurs twice, in any batches, is accepted once.
    /// A batch can be finished once.
    pub fn finish_inbound(
        &mut self,
        now: Instant,
        packets: &mut [Packet<'_>],
        opening: &mut OpenBatch,
        verdicts: &mut [Inbound],
    ) {
        if opening.packets.matches(packets) {
            self.commit_and_admit(now, packets, &mut opening.batch, verdicts);
            return opening.clear();
        }
        opening.clear();
        for (packet, verdict) in packets.iter().zip(verdicts) {
            self.count_drop(now, DropReason::CryptoFailed, packet.data(), None);
            *verdict = Inbound::Drop(DropReason::CryptoFailed);
        }
    }

    /// Does everything from the commit on. Opens packets that are still protected after their first SA.
    #[inline]
    fn commit_and_admit(
        &mut self,
        now: Instant,
        packets: &mut [Packet<'_>],
        batch: &mut InboundBatch,
        verdicts: &mut [Inbound],
    ) {
        self.commit_runs(now, packets, batch);
        for _ in 0..MAX_BUNDLE {
            if !batch.records.iter().any(|record| record.stage == Stage::New) {
                break;
            }
            self.find_sas(now, packets, batch);
            batch.open(packets);
            self.commit_runs(now, packets, batch);
        }
        for ((packet, record), verdict) in packets.iter_mut().zip(&batch.records).zip(&mut *verdicts) {
            self.admit(now, packet, record, verdict);
        }
        self.trace_inbound_verdicts(now, packets, batch, verdicts);
    }

    /// Demultiplexes new packets, finds the SAs of protected ones, checks for replays, and groups neighbours
    /// with the same SA into runs. One loop for each step that may wait for memory: with many SAs, the
    /// look-ups overlap, and then the accesses to the SAs overlap.
    #[inline]
    fn find_sas(&mut self, now: Instant, packets: &mut [Packet<'_>], batch: &mut InboundBatch) {
        let records = &mut batch.records;
        for (packet, record) in packets.iter_mut().zip(&mut *records) {
            record.demux(packet, &self.encap_ports);
        }
        let mut last = None;
        for (packet, record) in packets.iter().zip(&mut *records) {
            record.find_sa(packet.len(), &self.sad, &mut last);
        }
        let (mut end, mut found) = (0usize, ArrayVec::<_, MAX_BATCH>::new());
        for run in records.chunk_by_mut(|a, b| a.slot() == b.slot()) {
            let range = end..end.saturating_add(run.len());
            end = range.end;
            let Some(slot) = run.first().and_then(InboundPacket::slot) else { continue };
            let Some(sa) = self.sad.inbound(slot) else { continue };
            for (packet, record) in packets.get(range.clone()).or_broken_default(RUN_IN_BATCH).iter().zip(run)
            {
                record.check_replay(packet, sa);
            }
            found.push((slot, range));
        }
        for (slot, range) in &found {
            let run = records.get_mut(range.clone()).or_broken_default(RUN_IN_BATCH);
            if let Some((id, keys)) = self.usable_keys(now, *slot, run) {
                batch.runs.push(InboundRun { id, keys, range: range.clone() });
            }
        }
    }

    /// The keys that open the packets of a run. Drops the packets if the hard lifetime of the SA has ended.
    #[inline]
    fn usable_keys(
        &mut self,
        now: Instant,
        slot: u32,
        run: &mut [InboundPacket],
    ) -> Option<(SaId, Arc<SaKeys>)> {
        let id = self.sad.id_of(Direction::Inbound, slot);
        let SaIn { keys, state, .. } = self.sad.inbound(slot)?;
        if state.meter.check(now).is_ok() {
            return Some((id, Arc::clone(keys)));
        }
        // The replay check may have dropped some packets, or all of them.
        let mut is_used = false;
        for record in run.iter_mut().filter(|record| record.slot().is_some()) {
            record.set_drop(DropReason::SaExpired);
            is_used = true;
        }
        if is_used {
            self.events.push(Event::HardLifetime(id));
        }
        None
    }

    /// Commits to the replay windows and removes the protection of accepted packets.
    #[inline]
    fn commit_runs(&mut self, now: Instant, packets: &mut [Packet<'_>], batch: &mut InboundBatch) {
        let InboundBatch { records, outcomes, runs, .. } = batch;
        for &InboundRun { id, ref keys, ref range } in &*runs {
            let packets = packets.get_mut(range.clone()).or_broken_default(RUN_IN_BATCH);
            let records = records.get_mut(range.clone()).or_broken_default(RUN_IN_BATCH);
            let outcomes = outcomes.get_mut(range.clone()).or_broken_default(RUN_IN_BATCH);
            let Some(SaIn { state, rohc, .. }) = self.sad.inbound_by_id(id) else {
                records.iter_mut().for_each(|record| record.set_drop(DropReason::NoSa));
                continue;
            };
            let mut commit = InboundCommit { keys, state, rohc: rohc.as_deref_mut(), packets: 0, bytes: 0 };
            match &keys.key {
                ProtocolKey::Esp(key) => commit.commit_esp(key, packets, records, outcomes),
                ProtocolKey::Ah(key) => commit.commit_ah(key, packets, records),
            }
            let soft_reached = commit.count(now);
            let feedback = rohc.as_deref_mut().and_then(InboundRohc::take_feedback);
            if let Some(feedback) = feedback {
                self.pass_on_feedback(now, &feedback);
            }
            if soft_reached {
                self.events.push(Event::SoftLifetime(id));
            }
        }
        runs.clear();
    }

    /// Whether a clear-text ICMP error quotes one of the local SAs. If so, updates the path MTU of that SA.
    #[cold]
    fn learn_pmtu_from_icmp(&mut self, now: Instant, packet: &[u8]) -> bool {
        icmp::parse_inbound(packet).is_some_and(|update| self.learn_path_mtu(&update, now))
    }

    /// Lowers the MSS of TCP connections that begin with an admitted packet.
    #[cold]
    fn clamp_admitted(&mut self, now: Instant, packet: &mut Packet<'_>, flow: &FlowKey, verdict: &Inbound) {
        if let Inbound::Deliver(admitted) = verdict
            && (admitted.sa.is_some() || self.role == Role::Host)
        {
            self.clamp_mss_inbound(now, admitted.spd, packet.data_mut(), flow);
        }
    }

    /// Checks the policy for a packet that came through the SAs of `sec_path`. Writes the verdict in place,
    /// because copying one costs as much as finding it.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn check_policy(&mut self, flow: &FlowKey, sec_path: SecPathSlots, verdict: &mut Inbound) {
        match self.flows_in.get(flow, self.epoch) {
            Some(known) if known.is_for(sec_path) => known.write_verdict(&self.sad, verdict),
            _ => *verdict = self.check_policy_uncached(flow, sec_path),
        }
    }

    /// The check of inbound packets against the policies.
    pub(crate) fn admission(&self) -> AdmissionCheck<'_> {
        AdmissionCheck {
            policies: &self.spd_in,
            sad: &self.sad,
            unmatched: self.default_unmatched,
            local_addrs: (self.role == Role::Gateway).then_some(&*self.local_addrs),
        }
    }

    #[inline(never)]
    fn check_policy_uncached(&mut self, flow: &FlowKey, sec_path: SecPathSlots) -> Inbound {
        let decision = self.admission().check(flow, sec_path);
        self.flows_in.insert(flow, self.epoch, decision);
        let mut verdict = Inbound::Drop(DropReason::PolicyMismatch);
        decision.write_verdict(&self.sad, &mut verdict);
        verdict
    }

    /// Checks the policy for a datagram that was reassembled from fragments with the verdict
    /// [`Inbound::ReassembleOpened`] and this `via`. The verdict is `Deliver` or `Drop`.
    pub fn admit_reassembled(&mut self, now: Instant, via: SecPath, packet: &mut Packet<'_>) -> Inbound {
        let verdict = match (via.sec_path(&mut self.sad), HeaderSummary::parse(packet.data())) {
            (None, _) => Inbound::Drop(DropReason::NoSa),
            (_, Err(_)) => Inbound::Drop(DropReason::InnerMalformed),
            (Some(sec_path), Ok(summary)) => match self.check_policy_uncached(&summary.key, sec_path) {
                verdict @ Inbound::Deliver(_) => {
                    if mss::may_be_syn(&summary.key, packet) {
                        self.clamp_admitted(now, packet, &summary.key, &verdict);
                    }
                    verdict
                }
                Inbound::Drop(reason) => Inbound::Drop(reason),
                // The packet is still a fragment.
                _ => Inbound::Drop(DropReason::FragmentWithoutPorts),
            },
        };
        if let Inbound::Drop(reason) = verdict {
            self.count_drop(now, reason, packet.data(), None);
        }
        self.trace_reassembled(now, packet.data(), &verdict);
        verdict
    }

    /// Writes the decided verdict, or else checks the policy.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn admit(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        record: &InboundPacket,
        verdict: &mut Inbound,
    ) {
        match record.stage {
            Stage::Plain if !record.may_be_pmtu_error => self.admit_plain(now, packet, record, verdict),
            _ => self.admit_other(now, packet, record, verdict),
        }
        if let Inbound::Drop(reason) = *verdict {
            self.count_drop(now, reason, packet.data(), record.header());
        }
    }

    #[inline(never)]
    fn admit_other(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        record: &InboundPacket,
        verdict: &mut Inbound,
    ) {
        match record.stage {
            Stage::Decided(early) => *verdict = early.into(),
            // Still protected by a local SA after as many SAs as a policy can have.
            Stage::Identified | Stage::Protected => *verdict = Inbound::Drop(DropReason::NestedTooDeep),
            Stage::Plain if record.may_be_pmtu_error && self.learn_pmtu_from_icmp(now, packet.data()) => {
                *verdict = Inbound::Consumed(Consumed::PathMtu);
            }
            Stage::New | Stage::Plain => self.admit_plain(now, packet, record, verdict),
        }
    }

    /// Checks the policy for a packet that no local SA protects any more.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn admit_plain(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        record: &InboundPacket,
        verdict: &mut Inbound,
    ) {
        let Ok(summary) = HeaderSummary::parse(packet.data()) else {
            *verdict = Inbound::Drop(record.malformed());
            return;
        };
        let _ = packet.set_len(summary.total_len()); // Never fails, because the packet parses.
        self.check_policy(&summary.key, record.sec_path, verdict);
        if mss::may_be_syn(&summary.key, packet) {
            self.clamp_admitted(now, packet, &summary.key, verdict);
        }
    }
}
