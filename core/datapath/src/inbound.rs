//! The inbound road (RFC 4301 section 5.2): demultiplex, find the SA, check for replay, open, commit, take the headers off,
//! check policy.
//!
//! Works on up to [`RUN`] packets at once, in three steps: `find_sas` does everything up to opening, `opening` opens, on
//! whatever thread, and `conclude_inbound` does the rest. What comes out of an SA may be protected again (AH over ESP); then the
//! steps repeat, until nothing more is ours to open.

use crate::admission::{Admission, Remembered, Trail};
use crate::arrival::{Arriving, Early, Stage};
use crate::datapath::{Datapath, Role};
use crate::esp::{EspKey, RUN};
use crate::opening::{Answer, Batch, Opening, Run};
use crate::replay::Authenticated;
use crate::sa_in::{SaIn, State};
use crate::shared::{Engine, Shared};
use crate::spd::MAX_BUNDLE;
use crate::transport::Front;
use crate::{
    Consumed, Direction, DropReason, Event, Inbound, SaId, Via, ah, arrival, esp, icmp, mss, transport,
    tunnel,
};
use alloc::sync::Arc;
use casemate_sa::{Instant, Mode};
use casemate_wire::flow::{FlowKey, Overview};
use casemate_wire::ip::proto;
use casemate_wire::packet::{NoRoom, Packet};
use core::mem;

impl Datapath {
    /// Opens, admits or drops a batch of incoming IP packets, outer headers included; `verdicts` gets one verdict for each
    /// packet.
    ///
    /// Packets need 4 bytes of tail room if an SA uses AH with extended sequence numbers. The two slices should have the
    /// same length; what is beyond the shorter one is left untouched.
    pub fn inbound(&mut self, now: Instant, packets: &mut [Packet<'_>], verdicts: &mut [Inbound]) {
        for (packets, verdicts) in packets.chunks_mut(RUN).zip(verdicts.chunks_mut(RUN)) {
            let mut batch = Batch::new();
            batch.expect(packets.len());
            self.find_sas(now, packets, &mut batch);
            batch.open(packets);
            self.conclude_inbound(now, packets, &mut batch, verdicts);
        }
    }

    /// The first of three steps that do together what [`inbound`](Self::inbound) does, for at most [`RUN`] packets: it finds
    /// their SAs and asks whether they may be new. The second, [`Opening::open`], is the expensive one and needs no data
    /// path; the third is [`finish_inbound`](Self::finish_inbound).
    ///
    /// So several cores share the work of one SA: batches are begun in order, opened side by side, and finished in the order
    /// in which they were begun. Between the steps nobody else may touch the packets, and they stay where they are. The
    /// data path may do anything meanwhile; packets of an SA that is removed are dropped.
    ///
    /// `opening` is what the steps have in common. Packets that it was begun with before and that were not finished are
    /// forgotten, and cannot be finished any more.
    pub fn begin_inbound(&mut self, now: Instant, packets: &mut [Packet<'_>], opening: &mut Opening) {
        opening.clear();
        opening.batch.expect(packets.len());
        self.find_sas(now, packets, &mut opening.batch);
        opening.places.note(packets);
    }

    /// The last of the three steps: commits to the replay windows, takes headers off, checks policy, and gives one verdict
    /// for each packet. All packets are dropped if they are not those that the batch began with, and so is each that was not
    /// opened. A number that came twice, in whatever batches, is accepted once. A batch is finished once.
    pub fn finish_inbound(
        &mut self,
        now: Instant,
        packets: &mut [Packet<'_>],
        opening: &mut Opening,
        verdicts: &mut [Inbound],
    ) {
        if opening.places.are_of(packets) {
            self.conclude_inbound(now, packets, &mut opening.batch, verdicts);
            return opening.clear();
        }
        opening.clear();
        for (packet, verdict) in packets.iter().zip(verdicts) {
            self.count_drop(now, DropReason::CryptoFailed, packet.data(), None);
            *verdict = Inbound::Drop(DropReason::CryptoFailed);
        }
    }

    /// Everything from the commit on. What comes out of an SA and is protected again is opened here.
    #[inline]
    fn conclude_inbound(
        &mut self,
        now: Instant,
        packets: &mut [Packet<'_>],
        batch: &mut Batch,
        verdicts: &mut [Inbound],
    ) {
        self.settle(now, packets, batch);
        for _ in 0..MAX_BUNDLE {
            if !batch.arriving.iter().any(|arriving| arriving.stage == Stage::New) {
                break;
            }
            self.find_sas(now, packets, batch);
            batch.open(packets);
            self.settle(now, packets, batch);
        }
        for ((packet, arriving), verdict) in packets.iter_mut().zip(&batch.arriving).zip(verdicts) {
            *verdict = self.admit(now, packet, arriving);
        }
    }

    /// Sorts the packets that are new, finds and asks the SAs of those that are protected, and makes runs of them.
    ///
    /// One loop for each thing that may wait for memory: with many SAs the look-ups, and then the visits, wait together.
    #[inline]
    fn find_sas(&mut self, now: Instant, packets: &mut [Packet<'_>], batch: &mut Batch) {
        let arriving = &mut batch.arriving;
        for (packet, arriving) in packets.iter_mut().zip(&mut *arriving) {
            arriving.look(packet, &self.encap_ports);
        }
        let mut last = None;
        for (packet, arriving) in packets.iter().zip(&mut *arriving) {
            arriving.find(packet.len(), &self.sad, &mut last);
        }
        for (packet, arriving) in packets.iter().zip(&mut *arriving) {
            arriving.check_replay(packet.data(), &mut self.sad);
        }
        let mut end = 0usize;
        for run in arriving.chunk_by_mut(|a, b| a.slot() == b.slot()) {
            let start = end;
            end = start.saturating_add(run.len());
            if let Some(slot) = run.first().and_then(Arriving::slot)
                && let Some((id, shared)) = self.usable(now, slot, run)
            {
                batch.runs.push(Run { id, shared, range: start..end });
            }
        }
    }

    /// What the packets of a run are to be opened with. They are stopped if the SA's hard lifetime is over.
    #[inline]
    fn usable(&mut self, now: Instant, slot: u32, run: &mut [Arriving]) -> Option<(SaId, Arc<Shared>)> {
        let id = self.sad.id_of(Direction::Inbound, slot);
        let SaIn { shared, state, .. } = self.sad.inbound(slot)?;
        if state.meter.check(now).is_ok() {
            return Some((id, Arc::clone(shared)));
        }
        self.events.push(Event::HardLifetime(id));
        run.iter_mut().for_each(|arriving| arriving.stop(DropReason::SaExpired));
        None
    }

    /// Commits to the windows of the packets' SAs, and takes the protection off those that are accepted.
    #[inline]
    fn settle(&mut self, now: Instant, packets: &mut [Packet<'_>], batch: &mut Batch) {
        let Batch { arriving, answers, runs } = batch;
        for &Run { id, ref shared, ref range } in &*runs {
            let packets = packets.get_mut(range.clone()).unwrap_or_default();
            let arriving = arriving.get_mut(range.clone()).unwrap_or_default();
            let answers = answers.get_mut(range.clone()).unwrap_or_default();
            let Some(SaIn { state, .. }) = self.sad.inbound_by_id(id) else {
                arriving.iter_mut().for_each(|arriving| arriving.stop(DropReason::NoSa));
                continue;
            };
            let mut settler = Settler { shared, state, now };
            let warned = match &shared.engine {
                Engine::Esp(key) => settler.settle_esp(key, packets, arriving, answers),
                Engine::Ah(key) => settler.settle_ah(key, packets, arriving),
            };
            if warned {
                self.events.push(Event::SoftLifetime(id));
            }
        }
        runs.clear();
    }

    /// Whether a clear-text ICMP error was about one of our SAs; if so, the path MTU is taken note of.
    #[cold]
    fn hear_path_news(&mut self, now: Instant, packet: &[u8]) -> bool {
        icmp::parse_inbound(packet).is_some_and(|update| self.learn_path_mtu(&update, now))
    }

    /// Keeps TCP connections that begin with an admitted packet to segments that fit.
    #[cold]
    fn clamp_admitted(&mut self, now: Instant, packet: &mut Packet<'_>, flow: &FlowKey, verdict: &Inbound) {
        if let Inbound::Deliver(admitted) = verdict
            && (admitted.sa.is_some() || self.role == Role::Host)
        {
            self.lower_mss_inbound(now, packet.data_mut(), flow);
        }
    }

    /// The policy check of a packet that came through the SAs of `trail`.
    #[inline]
    fn check_policy(&mut self, flow: &FlowKey, trail: Trail) -> Inbound {
        let known = match self.flows_in.get(flow, self.epoch) {
            Some(known) if known.is_for(trail) => known,
            _ => self.check_policy_anew(flow, trail),
        };
        known.verdict(&self.sad)
    }

    #[inline(never)]
    fn check_policy_anew(&mut self, flow: &FlowKey, trail: Trail) -> Remembered {
        let admission = Admission {
            policies: &self.spd_in,
            sad: &self.sad,
            unmatched: self.unmatched,
            hosts: (self.role == Role::Gateway).then_some(&*self.hosts),
        };
        let decision = admission.check(flow, trail);
        self.flows_in.insert(flow, self.epoch, decision);
        decision
    }

    /// The policy check of a datagram that was put together from fragments whose verdicts were
    /// [`Inbound::ReassembleOpened`] with this `via`. The verdict is `Deliver` or `Drop`.
    pub fn admit_reassembled(&mut self, now: Instant, via: Via, packet: &mut Packet<'_>) -> Inbound {
        let verdict = match (via.trail(&mut self.sad), Overview::of(packet.data())) {
            (None, _) => Inbound::Drop(DropReason::NoSa),
            (_, Err(_)) => Inbound::Drop(DropReason::InnerMalformed),
            (Some(trail), Ok(overview)) => match self.check_policy(&overview.key, trail) {
                verdict @ Inbound::Deliver(_) => {
                    if mss::may_be_syn(&overview.key, packet.data()) {
                        self.clamp_admitted(now, packet, &overview.key, &verdict);
                    }
                    verdict
                }
                Inbound::Drop(reason) => Inbound::Drop(reason),
                // It is no datagram but a fragment still.
                _ => Inbound::Drop(DropReason::FragmentWithoutPorts),
            },
        };
        if let Inbound::Drop(reason) = verdict {
            self.count_drop(now, reason, packet.data(), None);
        }
        verdict
    }

    /// The policy check, or the verdict that stands already.
    #[inline]
    fn admit(&mut self, now: Instant, packet: &mut Packet<'_>, arriving: &Arriving) -> Inbound {
        let verdict = match arriving.stage {
            Stage::Early(early) => early.into(),
            // Still protected by an SA of ours after as many SAs as a policy can name.
            Stage::Named | Stage::Protected => Inbound::Drop(DropReason::NestedTooDeep),
            Stage::Plain if arriving.is_path_news && self.hear_path_news(now, packet.data()) => {
                Inbound::Consumed(Consumed::PathMtu)
            }
            Stage::New | Stage::Plain => match Overview::of(packet.data()) {
                Err(_) => Inbound::Drop(arriving.malformed()),
                Ok(overview) => {
                    // What parses is no longer than its bytes.
                    let _ = packet.set_len(overview.total_len());
                    let verdict = self.check_policy(&overview.key, arriving.trail);
                    if mss::may_be_syn(&overview.key, packet.data()) {
                        self.clamp_admitted(now, packet, &overview.key, &verdict);
                    }
                    verdict
                }
            },
        };
        if let Inbound::Drop(reason) = verdict {
            self.count_drop(now, reason, packet.data(), arriving.header());
        }
        verdict
    }
}

/// One inbound SA that settles a run of packets.
struct Settler<'s> {
    shared: &'s Shared,
    state: &'s mut State,
    now: Instant,
}

impl Settler<'_> {
    /// Settles ESP packets. `true` if the SA's soft lifetime was reached.
    #[inline]
    fn settle_esp(
        &mut self,
        key: &EspKey,
        packets: &mut [Packet<'_>],
        run: &mut [Arriving],
        answers: &mut [Answer],
    ) -> bool {
        let mut warned = false;
        for ((packet, arriving), answer) in packets.iter_mut().zip(run).zip(answers) {
            if arriving.slot().is_none() {
                continue;
            }
            let proof = match mem::replace(answer, Answer::Pending) {
                Answer::Pending => {
                    arriving.stop(DropReason::CryptoFailed);
                    continue;
                }
                Answer::Forged => None,
                Answer::Proved(proof) => Some(proof),
            };
            warned |= self.settle(packet.len(), arriving, proof.as_ref());
            let shared = self.shared;
            arriving.unwrap_with(|arriving| take_off_esp(packet, arriving, key, shared));
        }
        warned
    }

    /// Commits the window for a packet that proved itself and meters it; stops any other. `true` for the soft lifetime.
    #[inline]
    fn settle(&mut self, len: usize, arriving: &mut Arriving, proof: Option<&Authenticated>) -> bool {
        let Some(proof) = proof else {
            self.state.icv_failures = self.state.icv_failures.saturating_add(1);
            arriving.stop(DropReason::IcvMismatch);
            return false;
        };
        if let Err(reason) = self.state.commit_replay(proof) {
            arriving.stop(reason);
            return false;
        }
        self.state.meter.count(len, self.now)
    }

    /// Verifies and settles AH packets. `true` if the SA's soft lifetime was reached.
    fn settle_ah(&mut self, key: &ah::AhKey, packets: &mut [Packet<'_>], run: &mut [Arriving]) -> bool {
        let mut warned = false;
        for (packet, arriving) in packets.iter_mut().zip(run) {
            match self.verify_ah(key, packet, arriving) {
                Ok((proof, len, next_header)) => {
                    warned |= self.settle(packet.len(), arriving, Some(&proof));
                    let shared = self.shared;
                    arriving.unwrap_with(|arriving| {
                        let taken = arriving.at().saturating_add(len);
                        packet.shrink_front(taken).map_err(|NoRoom| DropReason::Truncated)?;
                        expose(packet, &arriving.front, len, next_header, shared, arriving.outer_tos)
                    });
                }
                Err(DropReason::IcvMismatch) => {
                    self.settle(0, arriving, None);
                }
                Err(reason) => arriving.stop(reason),
            }
        }
        warned
    }

    /// Answers the proof, the AH header's length and what it protects.
    fn verify_ah(
        &mut self,
        key: &ah::AhKey,
        packet: &mut Packet<'_>,
        arriving: &Arriving,
    ) -> Result<(Authenticated, usize, u8), DropReason> {
        let at = arriving.at();
        let (len, next_header) = ah::receive(packet.data(), at, key)?;
        let proof = ah::verify(packet, at, key, arriving.seq(), self.shared.esn)?;
        Ok((proof, len, next_header))
    }
}

/// Removes ESP and, in a tunnel, the outer header.
#[inline]
fn take_off_esp(
    packet: &mut Packet<'_>,
    arriving: &Arriving,
    key: &EspKey,
    shared: &Shared,
) -> Result<Stage, DropReason> {
    let (at, front) = (arriving.at(), &arriving.front);
    let next_header = esp::unframe(packet, at, key.sizes)?;
    // The headers that stay, and what lay between them and the payload: UDP, if any, and ESP's own header.
    let gap = at.saturating_sub(front.headers.into()).saturating_add(key.sizes.front());
    expose(packet, front, gap, next_header, shared, arriving.outer_tos)
}

/// What the protection held, as an IP packet.
#[inline]
fn expose(
    packet: &mut Packet<'_>,
    front: &Front,
    gap: usize,
    next_header: u8,
    shared: &Shared,
    outer_tos: u8,
) -> Result<Stage, DropReason> {
    // RFC 4303 section 2.6: dummy packets are discarded without further notice.
    if next_header == proto::NO_NEXT {
        return Ok(Stage::Early(Early::Consumed(Consumed::Dummy)));
    }
    let payload = match shared.mode {
        Mode::Tunnel => tunnel::receive_inner(packet, next_header, outer_tos)?,
        Mode::Transport => {
            transport::close(packet, front, gap, next_header)?;
            if let Some(original) = &shared.original_addrs {
                original.repair(packet.data_mut());
            }
            next_header
        }
    };
    Ok(if arrival::may_hide_protection(payload) { Stage::New } else { Stage::Plain })
}
