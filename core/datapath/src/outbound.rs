//! The outbound road (RFC 4301 section 5.1): classify, check the size, reserve a number, frame, seal, outer header.
//!
//! Works on up to [`RUN`] packets at once, in three steps: `frame` does everything up to the encryption, `sealing` encrypts,
//! on whatever thread, and `conclude` tells what became of the packets.

use crate::classify::{Chain, Classifier, Decision};
use crate::datapath::{Datapath, Role};
use crate::dummy::Look;
use crate::esp::RUN;
use crate::icmp;
use crate::protect::Framed;
use crate::sa_out::SaOut;
use crate::sealing::{Batch, Run, Sealer, Sealing, Step};
use crate::seq::{NoNumber, Reserved, SeqCounter};
use crate::spd::{Action, Lookup};
use crate::tunnel::Inner;
use crate::{Direction, DropReason, Event, Outbound, SaId, Sealed, mss, pmtu, transport};
use alloc::sync::Arc;
use casemate_crypto::Rng;
use casemate_sa::{Instant, Mode};
use casemate_wire::flow::{FlowKey, Overview};
use casemate_wire::packet::Packet;
use core::slice;

/// Whether the packets were put together from fragments: their source lets them be cut again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    AsSent,
    Reassembled,
}

/// What a run of packets holds.
#[derive(Clone, Copy)]
pub(crate) enum Content<'l> {
    Packets,
    Dummies(&'l Look),
}

/// What is done with each packet of a run.
enum Work<'l> {
    Packets,
    /// The SA carries dummy packets, and all its packets show the same.
    Covered(&'l Look),
    Dummies(&'l Look),
}

impl<'l> Work<'l> {
    fn new(content: Content<'l>, look: Option<&'l Look>) -> Self {
        match (content, look) {
            (Content::Packets, None) => Self::Packets,
            (Content::Packets, Some(look)) => Self::Covered(look),
            (Content::Dummies(look), _) => Self::Dummies(look),
        }
    }
}

impl Datapath {
    /// Protects, bypasses or drops a batch of outgoing IP packets; `verdicts` gets one verdict for each packet.
    ///
    /// Packets need [`HEAD_ROOM`](crate::HEAD_ROOM) and [`TAIL_ROOM`](crate::TAIL_ROOM) around them. The two slices should
    /// have the same length; what is beyond the shorter one is left untouched.
    pub fn outbound(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Outbound],
    ) {
        for (packets, verdicts) in packets.chunks_mut(RUN).zip(verdicts.chunks_mut(RUN)) {
            self.outbound_chunk(now, rng, packets, verdicts, Origin::AsSent);
        }
    }

    /// The first of three steps that do together what [`outbound`](Self::outbound) does, for at most [`RUN`] packets: policy,
    /// sequence numbers and headers. The second, [`Sealing::seal`], is the expensive one and needs no data path; the third
    /// is [`finish_outbound`](Self::finish_outbound).
    ///
    /// So several cores share the work of one SA: batches are begun in order, sealed side by side, and sent in the order in
    /// which they were begun. Between the steps nobody else may touch the packets, and they stay where they are. The data
    /// path may do anything meanwhile; packets of an SA that is removed or moved go out as they were begun.
    ///
    /// `sealing` is what the steps have in common. Packets that it was begun with before and that were not finished are
    /// forgotten: their numbers are used up, and they cannot be finished any more.
    pub fn begin_outbound(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        packets: &mut [Packet<'_>],
        sealing: &mut Sealing,
    ) {
        sealing.clear();
        self.frame(now, rng, packets, Origin::AsSent, &mut sealing.batch);
        sealing.places.note(packets);
    }

    /// The last of the three steps: gives one verdict for each packet. All packets are dropped if they are not those that
    /// the batch began with, and so is each that was not sealed. A batch is finished once.
    pub fn finish_outbound(
        &mut self,
        now: Instant,
        packets: &[Packet<'_>],
        sealing: &mut Sealing,
        verdicts: &mut [Outbound],
    ) {
        if sealing.places.are_of(packets) {
            self.conclude(now, packets, &sealing.batch.steps, verdicts);
            return sealing.clear();
        }
        sealing.clear();
        for (packet, verdict) in packets.iter().zip(verdicts) {
            self.count_drop(now, DropReason::CryptoFailed, packet.data(), None);
            *verdict = Outbound::Drop(DropReason::CryptoFailed);
        }
    }

    /// The same for one datagram that the caller put together from fragments, after [`Outbound::Reassemble`].
    pub fn outbound_reassembled(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        packet: &mut Packet<'_>,
    ) -> Outbound {
        let mut verdict = Outbound::Drop(DropReason::NoRoom);
        let (packets, verdicts) = (slice::from_mut(packet), slice::from_mut(&mut verdict));
        self.outbound_chunk(now, rng, packets, verdicts, Origin::Reassembled);
        verdict
    }

    /// The longest packet that an outbound SA still protects within `mtu` bytes; `None` if the SA is gone.
    pub fn inner_mtu(&mut self, id: SaId, mtu: usize) -> Option<usize> {
        let sa = self.sad.outbound_by_id(id)?;
        Some(pmtu::inner_mtu(mtu, |len| sa.framing.growth.sealed_len(len)))
    }

    fn outbound_chunk(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Outbound],
        origin: Origin,
    ) {
        let mut batch = Batch::new();
        self.frame(now, rng, packets, origin, &mut batch);
        batch.seal(packets);
        self.conclude(now, packets, &batch.steps, verdicts);
    }

    /// Everything up to the encryption with the last SA of each packet. A batch is filled where it lies: to move one costs as
    /// much as a packet.
    #[inline]
    fn frame(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        packets: &mut [Packet<'_>],
        origin: Origin,
        batch: &mut Batch,
    ) {
        batch.expect(packets.len());
        for (packet, step) in packets.iter_mut().zip(&mut batch.steps) {
            self.first_step(now, packet, origin, step);
        }
        let (mut rest, mut end) = (packets, 0usize);
        for run in batch.steps.chunk_by_mut(|a, b| a.chain == b.chain) {
            let Some((these, others)) = rest.split_at_mut_checked(run.len()) else { break };
            rest = others;
            let start = end;
            end = start.saturating_add(run.len());
            let Some(chain) = run.first().and_then(|step| step.chain) else { continue };
            if let Some(sealer) = self.frame_bundle(now, rng, chain, these, run) {
                batch.runs.push(Run { sealer, range: start..end });
            }
        }
    }

    /// Applies their SAs to neighbours in the batch, up to the encryption with the last one.
    #[inline]
    fn frame_bundle(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        chain: Chain,
        packets: &mut [Packet<'_>],
        run: &mut [Step],
    ) -> Option<Sealer> {
        let inner = self.frame_run(now, rng, chain.inner, packets, run, Content::Packets)?;
        let Some(outer) = chain.outer else { return Some(inner) };
        // The outer SA covers what the inner one makes.
        inner.seal(packets, run);
        look_again(packets, run);
        self.frame_run(now, rng, outer, packets, run, Content::Packets)
    }

    /// What is to be done with outgoing packets of `flow`.
    #[inline(always)]
    pub(crate) fn decide(&mut self, flow: &FlowKey) -> Decision {
        match self.flows_out.get(flow, self.epoch) {
            Some(decision) => decision,
            None => self.decide_anew(flow),
        }
    }

    #[inline(never)]
    fn decide_anew(&mut self, flow: &FlowKey) -> Decision {
        let mut classifier = Classifier {
            policies: &self.spd_out,
            sad: &self.sad,
            events: &mut self.events,
            unmatched: self.unmatched,
        };
        let decision = classifier.decide(flow);
        self.flows_out.insert(flow, self.epoch, decision);
        decision
    }

    /// Classifies the packet and checks that its protected form fits the path.
    #[inline]
    fn first_step(&mut self, now: Instant, packet: &mut Packet<'_>, origin: Origin, step: &mut Step) {
        let Ok(overview) = Overview::of(packet.data()) else {
            return step.stop(DropReason::MalformedHeader);
        };
        match self.decide(&overview.key) {
            Decision::Protect(chain) => {
                (step.chain, step.header) = (Some(chain), Inner::from(&overview));
                // Bytes behind the packet, such as a link's padding, are no part of it; transport mode would make payload of
                // them. What parses is no longer than its bytes.
                let _ = packet.set_len(overview.total_len());
                if mss::may_be_syn(&overview.key, packet.data()) {
                    self.lower_mss(now, packet.data_mut(), Some(chain));
                }
                self.check_size(now, packet, chain, origin, step);
            }
            Decision::Bypass
                if icmp::is_of_errors(&overview.key)
                    && self.quotes_protected(&overview.key, packet.data()) =>
            {
                step.stop(DropReason::NoPolicy);
            }
            Decision::Bypass => {
                step.verdict = Outbound::Bypass;
                if self.role == Role::Host && mss::may_be_syn(&overview.key, packet.data()) {
                    self.lower_mss(now, packet.data_mut(), None);
                }
            }
            Decision::Reassemble if origin == Origin::AsSent => step.verdict = Outbound::Reassemble,
            Decision::Reassemble => step.stop(DropReason::FragmentWithoutPorts),
            // RFC 4301 section 5.1.1: tell the source that policy forbids the packet.
            Decision::Drop(reason @ DropReason::PolicyDiscard) => {
                self.refuse(now, packet, reason, step, |packet| icmp::prohibited(packet, None));
            }
            Decision::Drop(reason) => step.stop(reason),
            Decision::Acquire(_) => step.stop(DropReason::NoOutboundSa),
        }
    }

    /// Whether an ICMP error that no policy names quotes a packet whose answers are protected. It would show in clear what
    /// came through an SA (RFC 4301 section 6).
    #[cold]
    fn quotes_protected(&self, flow: &FlowKey, packet: &[u8]) -> bool {
        let is_unmatched = matches!(self.spd_out.lookup(flow), Lookup::NoMatch);
        let answers = icmp::quoted_flow(packet).filter(|_| is_unmatched).map(FlowKey::reversed);
        answers.is_some_and(|answers| match self.spd_out.lookup(&answers) {
            Lookup::Match(_, policy) => matches!(policy.action, Action::Protect(_)),
            Lookup::NeedsPorts => true,
            Lookup::NoMatch => false,
        })
    }

    /// Finds out whether the packet has to be cut after protection, or must be refused (RFC 4301 section 8.2).
    #[inline]
    fn check_size(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        chain: Chain,
        origin: Origin,
        step: &mut Step,
    ) {
        let Some(inner) = self.sad.outbound_ref(chain.inner) else {
            return step.stop(DropReason::NoOutboundSa);
        };
        let outer = chain.outer.and_then(|slot| self.sad.outbound_ref(slot));
        let mtu = outer.unwrap_or(inner).path_mtu.current(now, self.link_mtu);
        // IP's own limit holds whatever the path takes.
        let mtu = mtu.min(usize::from(u16::MAX));
        let mut at_most = inner.framing.growth.sealed_len_at_most(packet.len());
        if let Some(outer) = outer {
            at_most = outer.framing.growth.sealed_len_at_most(at_most);
        }
        if at_most > mtu {
            self.check_exact_size(now, mtu, packet, origin, step);
        }
    }

    /// The same for a packet that may be too long.
    #[cold]
    fn check_exact_size(
        &mut self,
        now: Instant,
        mtu: usize,
        packet: &mut Packet<'_>,
        origin: Origin,
        step: &mut Step,
    ) {
        let (Some(chain), header) = (step.chain, step.header) else { return };
        let Some(inner) = self.sad.outbound_ref(chain.inner) else { return };
        let outer = chain.outer.and_then(|slot| self.sad.outbound_ref(slot));
        let sealed_len = sealed_len(packet.data(), inner, outer);
        if sealed_len(packet.len()) <= mtu {
            return;
        }
        let inner_mtu = pmtu::inner_mtu(mtu, sealed_len);
        if origin == Origin::Reassembled || may_be_cut(header, inner, inner_mtu) {
            step.fragment_to = u16::try_from(mtu).ok();
            return;
        }
        let reason = DropReason::TooBig;
        self.refuse(now, packet, reason, step, |packet| icmp::too_big(packet, inner_mtu, None));
    }

    /// Applies one SA to neighbours in the batch. Answers what they are to be sealed with, if the SA is there.
    pub(crate) fn frame_run(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        slot: u32,
        packets: &mut [Packet<'_>],
        steps: &mut [Step],
        content: Content<'_>,
    ) -> Option<Sealer> {
        let id = self.sad.id_of(Direction::Outbound, slot);
        let Some(SaOut { shared, framing, seq, meter, look, .. }) = self.sad.outbound(slot) else {
            steps.iter_mut().for_each(|step| step.stop(DropReason::NoOutboundSa));
            return None;
        };
        let moving = packets.iter_mut().zip(steps).filter(|(_, step)| step.chain.is_some());
        let work = Work::new(content, look.as_ref());
        for (packet, step) in moving {
            let bytes = packet.len();
            let framed =
                meter.check(now).map_err(|_| DropReason::SaExpired).and_then(|()| reserve(seq)).and_then(
                    |number| {
                        let will_be_cut = step.fragment_to.is_some();
                        match work {
                            Work::Packets => {}
                            Work::Covered(look) => {
                                look.cover(shared.mode, packet, &mut step.header, &number);
                            }
                            Work::Dummies(look) => {
                                return framing.protect_dummy(shared, packet, look, number, rng);
                            }
                        }
                        framing.protect(shared, packet, &step.header, number, will_be_cut, rng)
                    },
                );
            match framed {
                Ok(Framed { to_seal, udp_payload }) => {
                    step.to_seal = to_seal;
                    step.verdict =
                        Outbound::Send(Sealed { sa: id, udp_payload, fragment_to: step.fragment_to });
                    if meter.count(bytes, now) {
                        self.events.push(Event::SoftLifetime(id));
                    }
                }
                Err(reason) => {
                    step.stop(reason);
                    if reason == DropReason::SaExpired {
                        self.events.push(Event::HardLifetime(id));
                    }
                }
            }
        }
        Some(Sealer { shared: Arc::clone(shared), has_checksum: framing.has_checksum() })
    }

    /// Tells the verdicts, and counts the drops.
    #[inline]
    pub(crate) fn conclude(
        &mut self,
        now: Instant,
        packets: &[Packet<'_>],
        steps: &[Step],
        verdicts: &mut [Outbound],
    ) {
        for ((step, packet), verdict) in steps.iter().zip(packets).zip(verdicts) {
            *verdict = step.verdict();
            if let Outbound::Drop(reason) = *verdict
                && !step.counted
            {
                self.count_drop(now, reason, packet.data(), None);
            }
        }
    }
}

/// The headers that an inner SA has made are what the outer one meets.
#[cold]
fn look_again(packets: &[Packet<'_>], steps: &mut [Step]) {
    for (packet, step) in packets.iter().zip(steps) {
        // What an SA has made does parse.
        if let Ok(header) = Inner::of(packet.data()) {
            step.header = header;
        }
    }
}

/// How long packets with the headers of this one become under one or two SAs.
#[cold]
pub(crate) fn sealed_len<'s>(
    packet: &[u8],
    inner: &'s SaOut,
    outer: Option<&'s SaOut>,
) -> impl Fn(usize) -> usize + 's {
    let headers = match inner.mode {
        Mode::Transport => transport::place(packet).ok().map(|place| place.headers),
        Mode::Tunnel => None,
    };
    let under = move |sa: &SaOut, len| match headers {
        Some(headers) => sa.framing.growth.sealed_len_behind(len, headers),
        None => sa.framing.growth.sealed_len(len),
    };
    move |len| {
        let len = under(inner, len);
        outer.map_or(len, |outer| under(outer, len))
    }
}

/// Whether a packet that will exceed the path may be cut after protection; otherwise its source must be told.
fn may_be_cut(header: Inner, sa: &SaOut, inner_mtu: usize) -> bool {
    let is_allowed = match sa.mode {
        Mode::Transport => !header.df,
        Mode::Tunnel => !sa.framing.outer.df(&header),
    };
    // RFC 2473 section 7.1: no IPv6 source can be asked for less than 1,280 bytes, so the tunnel has to cut.
    is_allowed || (!header.is_v4() && inner_mtu < pmtu::V6_MIN_MTU)
}

fn reserve(seq: &mut SeqCounter) -> Result<Reserved, DropReason> {
    seq.reserve().map_err(|why| match why {
        NoNumber::Exhausted => DropReason::SequenceExhausted,
        NoNumber::NotDurable => DropReason::CounterNotReserved,
    })
}
