//! The inbound road (RFC 4301 section 5.2): demultiplex, find the SA, check for replay, open, commit, take the headers off,
//! check policy.
//!
//! Works on up to [`RUN`] packets at once. Neighbours with the same SA make a run and reach the provider in one call. What
//! comes out of an SA may be protected again (AH over ESP), so the steps repeat until nothing more is ours to open.

use crate::admission::Admission;
use crate::arrival::{Arriving, Early, Stage};
use crate::datapath::Datapath;
use crate::esp::{EspKey, RUN, SPARE};
use crate::replay::Authenticated;
use crate::sa_in::{SaIn, Shared, State};
use crate::sa_out::Engine;
use crate::spd::MAX_BUNDLE;
use crate::transport::Front;
use crate::{Consumed, Direction, DropReason, Event, Inbound, ah, arrival, esp, icmp, transport, tunnel};
use arrayvec::ArrayVec;
use casemate_sa::{Instant, Mode};
use casemate_wire::flow::Overview;
use casemate_wire::ip::proto;
use casemate_wire::packet::{NoRoom, Packet};

impl Datapath {
    /// Opens, admits or drops a batch of incoming IP packets, outer headers included; `verdicts` gets one verdict for each
    /// packet.
    ///
    /// Packets need 4 bytes of tail room if an SA uses AH with extended sequence numbers. The two slices should have the
    /// same length; what is beyond the shorter one is left untouched.
    pub fn inbound(&mut self, now: Instant, packets: &mut [Packet<'_>], verdicts: &mut [Inbound]) {
        for (packets, verdicts) in packets.chunks_mut(RUN).zip(verdicts.chunks_mut(RUN)) {
            self.inbound_chunk(now, packets, verdicts);
        }
    }

    fn inbound_chunk(&mut self, now: Instant, packets: &mut [Packet<'_>], verdicts: &mut [Inbound]) {
        let mut arriving: ArrayVec<Arriving, RUN> = ArrayVec::new();
        for _ in packets.iter().take(RUN) {
            arriving.push(Arriving::NEW);
        }
        for _ in 0..=MAX_BUNDLE {
            if !self.find_sas(packets, &mut arriving) {
                break;
            }
            let mut rest = &mut *packets;
            for run in arriving.chunk_by_mut(|a, b| a.slot() == b.slot()) {
                let Some((these, others)) = rest.split_at_mut_checked(run.len()) else { break };
                rest = others;
                if let Some(slot) = run.first().and_then(Arriving::slot) {
                    self.open_run(now, slot, these, run);
                }
            }
        }
        for ((packet, arriving), verdict) in packets.iter_mut().zip(&arriving).zip(verdicts) {
            *verdict = self.admit(now, packet, arriving);
        }
    }

    /// Sorts the packets that are new, and finds and asks the SAs of those that are protected. `false` if none is.
    ///
    /// One loop for each thing that may wait for memory: with many SAs the look-ups, and then the visits, wait together.
    fn find_sas(&mut self, packets: &mut [Packet<'_>], arriving: &mut [Arriving]) -> bool {
        for (packet, arriving) in packets.iter_mut().zip(&mut *arriving) {
            arriving.look(packet, &self.encap_ports);
        }
        let mut last = None;
        for (packet, arriving) in packets.iter().zip(&mut *arriving) {
            arriving.find(packet.len(), &self.sad, &mut last);
        }
        let mut any_protected = false;
        for arriving in arriving {
            arriving.check_replay(&mut self.sad);
            any_protected |= arriving.slot().is_some();
        }
        any_protected
    }

    /// Opens neighbours in the batch that arrived on the same SA.
    fn open_run(&mut self, now: Instant, slot: u32, packets: &mut [Packet<'_>], run: &mut [Arriving]) {
        let id = self.sad.id_of(Direction::Inbound, slot);
        let Some(SaIn { shared, state, .. }) = self.sad.inbound(slot) else { return };
        if state.meter.check(now).is_err() {
            self.events.push(Event::HardLifetime(id));
            run.iter_mut().for_each(|arriving| arriving.stop(DropReason::SaExpired));
            return;
        }
        let mut opener = Opener { shared, state, now };
        let warned = match &shared.engine {
            Engine::Esp(key) => opener.open_esp(key, packets, run),
            Engine::Ah(key) => opener.open_ah(key, packets, run),
        };
        if warned {
            self.events.push(Event::SoftLifetime(id));
        }
    }

    /// Whether a clear-text ICMP error was about one of our SAs; if so, the path MTU is taken note of.
    #[cold]
    fn hear_path_news(&mut self, now: Instant, packet: &[u8]) -> bool {
        icmp::parse_inbound(packet).is_some_and(|update| self.learn_path_mtu(&update, now))
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
                    let mut admission = Admission {
                        policies: &self.spd_in,
                        cache: &mut self.flows_in,
                        sad: &self.sad,
                        unmatched: self.unmatched,
                        epoch: self.epoch,
                    };
                    match admission.check(&overview.key, arriving.trail) {
                        Ok(admitted) => Inbound::Deliver(admitted),
                        Err(reason) => Inbound::Drop(reason),
                    }
                }
            },
        };
        if let Inbound::Drop(reason) = verdict {
            self.count_drop(now, reason, packet.data(), arriving.header());
        }
        verdict
    }
}

/// One inbound SA at work on a run of packets.
struct Opener<'s> {
    shared: &'s Shared,
    state: &'s mut State,
    now: Instant,
}

impl Opener<'_> {
    /// Opens ESP packets. `true` if the SA's soft lifetime was reached.
    fn open_esp(&mut self, key: &EspKey, packets: &mut [Packet<'_>], run: &mut [Arriving]) -> bool {
        let mut waiting = 0u32;
        let regions =
            (0..32).zip(packets.iter_mut().zip(&mut *run)).filter_map(|(n, (packet, arriving))| match packet
                .data_mut()
                .get_mut(arriving.at().saturating_sub(SPARE)..)
            {
                Some(region) => {
                    waiting |= 1 << n;
                    Some((region, arriving.seq()))
                }
                None => {
                    arriving.stop(DropReason::Truncated);
                    None
                }
            });
        let mut proofs = esp::open(key, self.shared.esn, regions).into_iter();
        let mut warned = false;
        for (n, (packet, arriving)) in (0..32).zip(packets.iter_mut().zip(run)) {
            if waiting >> n & 1 == 1 {
                warned |= self.settle(packet.len(), arriving, proofs.next().flatten().as_ref());
                let mode = self.shared.mode;
                arriving.unwrap_with(|arriving| take_off_esp(packet, arriving, key, mode));
            }
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

    /// Verifies AH packets. `true` if the SA's soft lifetime was reached.
    fn open_ah(&mut self, key: &ah::AhKey, packets: &mut [Packet<'_>], run: &mut [Arriving]) -> bool {
        let mut warned = false;
        for (packet, arriving) in packets.iter_mut().zip(run) {
            match self.verify_ah(key, packet, arriving) {
                Ok((proof, len, next_header)) => {
                    warned |= self.settle(packet.len(), arriving, Some(&proof));
                    let mode = self.shared.mode;
                    arriving.unwrap_with(|arriving| {
                        let taken = arriving.at().saturating_add(len);
                        packet.shrink_front(taken).map_err(|NoRoom| DropReason::Truncated)?;
                        expose(packet, &arriving.front, len, next_header, mode, arriving.outer_tos)
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
    mode: Mode,
) -> Result<Stage, DropReason> {
    let (at, front) = (arriving.at(), &arriving.front);
    let next_header = esp::unframe(packet, at, key.sizes)?;
    // The headers that stay, and what lay between them and the payload: UDP, if any, and ESP's own header.
    let gap = at.saturating_sub(front.headers.into()).saturating_add(key.sizes.front());
    expose(packet, front, gap, next_header, mode, arriving.outer_tos)
}

/// What the protection held, as an IP packet.
#[inline]
fn expose(
    packet: &mut Packet<'_>,
    front: &Front,
    gap: usize,
    next_header: u8,
    mode: Mode,
    outer_tos: u8,
) -> Result<Stage, DropReason> {
    // RFC 4303 section 2.6: dummy packets are discarded without further notice.
    if next_header == proto::NO_NEXT {
        return Ok(Stage::Early(Early::Consumed(Consumed::Dummy)));
    }
    let payload = match mode {
        Mode::Tunnel => tunnel::receive_inner(packet, next_header, outer_tos)?,
        Mode::Transport => {
            transport::close(packet, front, gap, next_header)?;
            next_header
        }
    };
    Ok(if arrival::may_hide_protection(payload) { Stage::New } else { Stage::Plain })
}
