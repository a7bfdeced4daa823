//! The outbound road (RFC 4301 section 5.1): classify, check the size, reserve a number, frame, seal, outer header.
//!
//! Works on up to [`RUN`] packets at once. Neighbours with the same SA make a run and reach the provider in one call.

use crate::classify::{Chain, Classifier, Decision};
use crate::datapath::Datapath;
use crate::esp::{RUN, SPARE};
use crate::icmp::{self, NoReply};
use crate::protect::Framed;
use crate::sa_out::{Engine, SaOut};
use crate::seq::{NoNumber, Reserved, SeqCounter};
use crate::spd::MAX_BUNDLE;
use crate::tunnel::Inner;
use crate::{Direction, DropReason, Event, Outbound, SaId, Sealed, esp, pmtu, transport};
use arrayvec::ArrayVec;
use casemate_crypto::Rng;
use casemate_sa::{Instant, Mode};
use casemate_wire::flow::{FlowKey, Overview};
use casemate_wire::ip::Ipv6;
use casemate_wire::packet::Packet;
use casemate_wire::udp::{self, Udp};
use core::slice;

/// A packet on its way through its SAs.
struct Step {
    chain: Option<Chain>,
    /// The header in front of the packet.
    header: Inner,
    /// The path's MTU, if the packet will exceed it and may be cut.
    fragment_to: Option<u16>,
    /// Framed, and waiting to be sealed: where the ESP header stands and the number it carries.
    to_seal: Option<(usize, Reserved)>,
    verdict: Outbound,
    /// Whether the drop is in the counters already.
    counted: bool,
}

impl Step {
    const NEW: Self = Self {
        chain: None,
        header: Inner::DUMMY,
        fragment_to: None,
        to_seal: None,
        verdict: Outbound::Drop(DropReason::CryptoFailed),
        counted: false,
    };

    /// The SA to apply at this level of the bundle, if the packet is still on its way.
    #[inline]
    fn slot(&self, level: usize) -> Option<u32> {
        let chain = self.chain.as_ref()?;
        if level == 0 { Some(chain.inner) } else { chain.outer }
    }

    fn stop(&mut self, reason: DropReason) {
        self.chain = None;
        self.verdict = Outbound::Drop(reason);
    }
}

/// Whether the packets were put together from fragments: their source lets them be cut again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    AsSent,
    Reassembled,
}

/// What a run of packets holds.
#[derive(Clone, Copy)]
enum Content {
    Packets,
    Dummies,
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

    /// Turns the bytes in `packet` into a dummy packet of an outbound ESP SA, to hide when and how much real traffic flows
    /// (RFC 4303 section 2.6). What the bytes are does not matter: nobody is ever shown them.
    ///
    /// Send it like any other. A dummy uses up a sequence number and counts towards the SA's lifetime.
    pub fn dummy(&mut self, id: SaId, now: Instant, rng: &mut dyn Rng, packet: &mut Packet<'_>) -> Outbound {
        let mut step = Step::NEW;
        match self.sad.outbound_by_id(id) {
            None => step.stop(DropReason::NoOutboundSa),
            Some(_) => {
                let (packets, steps) = (slice::from_mut(packet), slice::from_mut(&mut step));
                self.protect_run(now, rng, id.slot(), packets, steps, Content::Dummies);
            }
        }
        self.conclude(now, packet, &step);
        step.verdict
    }

    /// The longest packet that an outbound SA still protects within `mtu` bytes; `None` if the SA is gone.
    pub fn inner_mtu(&mut self, id: SaId, mtu: usize) -> Option<usize> {
        let sa = self.sad.outbound_by_id(id)?;
        Some(pmtu::inner_mtu(mtu, |len| sa.shared.growth.sealed_len(len)))
    }

    fn outbound_chunk(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Outbound],
        origin: Origin,
    ) {
        let mut steps: ArrayVec<Step, RUN> = ArrayVec::new();
        for _ in packets.iter().take(RUN) {
            steps.push(Step::NEW);
        }
        let mut levels = 1;
        for (packet, step) in packets.iter_mut().zip(&mut steps) {
            self.first_step(now, packet, origin, step);
            if step.slot(1).is_some() {
                levels = MAX_BUNDLE;
            }
        }
        for level in 0..levels {
            let mut rest = &mut *packets;
            for run in steps.chunk_by_mut(|a, b| a.slot(level) == b.slot(level)) {
                let Some((these, others)) = rest.split_at_mut_checked(run.len()) else { break };
                rest = others;
                if let Some(slot) = run.first().and_then(|step| step.slot(level)) {
                    if level > 0 {
                        look_again(these, run);
                    }
                    self.protect_run(now, rng, slot, these, run, Content::Packets);
                }
            }
        }
        for ((step, packet), verdict) in steps.iter().zip(packets.iter_mut()).zip(verdicts) {
            self.conclude(now, packet, step);
            *verdict = step.verdict;
        }
    }

    /// What is to be done with outgoing packets of `flow`.
    #[inline]
    pub(crate) fn decide(&mut self, flow: &FlowKey) -> Decision {
        let mut classifier = Classifier {
            policies: &self.spd_out,
            cache: &mut self.flows_out,
            sad: &self.sad,
            events: &mut self.events,
            unmatched: self.unmatched,
            epoch: self.epoch,
        };
        classifier.decide(flow)
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
                self.check_size(now, packet, chain, origin, step);
            }
            Decision::Bypass => step.verdict = Outbound::Bypass,
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
        let mut at_most = inner.shared.growth.sealed_len_at_most(packet.len());
        if let Some(outer) = outer {
            at_most = outer.shared.growth.sealed_len_at_most(at_most);
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

    /// Drops a packet and turns it into the ICMP error that `reply` makes of it, as often as the rate limit allows.
    #[cold]
    fn refuse(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        reason: DropReason,
        step: &mut Step,
        reply: impl FnOnce(&mut Packet<'_>) -> Result<(), NoReply>,
    ) {
        step.stop(reason);
        // Counted here, because the reply takes the packet's place.
        self.count_drop(now, reason, packet.data(), None);
        step.counted = true;
        if self.icmp_limit.allow(now) && reply(packet).is_ok() {
            step.verdict = Outbound::Reply(reason);
        }
    }

    /// Applies one SA to neighbours in the batch.
    fn protect_run(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        slot: u32,
        packets: &mut [Packet<'_>],
        steps: &mut [Step],
        content: Content,
    ) {
        let id = self.sad.id_of(Direction::Outbound, slot);
        let Some(SaOut { shared, seq, meter, .. }) = self.sad.outbound(slot) else { return };
        for (packet, step) in packets.iter_mut().zip(&mut *steps) {
            let bytes = packet.len();
            let framed =
                meter.check(now).map_err(|_| DropReason::SaExpired).and_then(|()| reserve(seq)).and_then(
                    |number| match content {
                        Content::Packets => {
                            shared.protect(packet, &step.header, number, step.fragment_to.is_some(), rng)
                        }
                        Content::Dummies => shared.protect_dummy(packet, number, rng),
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
        if let Engine::Esp(key) = &shared.engine {
            seal_run(key, shared.esn, packets, steps);
        }
    }

    /// What is left to do once the verdict is known.
    #[inline]
    fn conclude(&mut self, now: Instant, packet: &mut Packet<'_>, step: &Step) {
        match step.verdict {
            Outbound::Drop(reason) if !step.counted => self.count_drop(now, reason, packet.data(), None),
            Outbound::Send(Sealed { udp_payload: Some(at), .. }) => {
                fill_udp6_checksum(packet.data_mut(), usize::from(at));
            }
            _ => {}
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

/// Over IPv6 a UDP checksum of zero is not allowed (RFC 8200 section 8.1), and it covers the sealed bytes.
fn fill_udp6_checksum(packet: &mut [u8], udp_payload: usize) {
    let Ok(ip) = Ipv6::parse(&*packet) else { return };
    let (src, dst) = (ip.src(), ip.dst());
    let udp = packet.get_mut(udp_payload.saturating_sub(udp::HEADER_LEN)..).map(Udp::parse);
    if let Some(Ok(mut udp)) = udp {
        udp.fill_checksum_v6(src, dst);
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
        Some(headers) => sa.shared.growth.sealed_len_behind(len, headers),
        None => sa.shared.growth.sealed_len(len),
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
        Mode::Tunnel => !sa.shared.outer.df(&header),
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

/// Seals the framed packets of a run in one call.
#[inline]
fn seal_run(key: &esp::EspKey, esn: bool, packets: &mut [Packet<'_>], steps: &mut [Step]) {
    let (mut waiting, mut count) = (0u32, 0u32);
    let framed = (0..32).zip(packets.iter_mut().zip(&mut *steps)).filter_map(|(n, (packet, step))| {
        let (at, number) = step.to_seal.take()?;
        waiting |= 1 << n;
        count = count.saturating_add(1);
        // A region that cannot be had is empty, and fails to seal.
        let region = packet.data_mut().get_mut(at.saturating_sub(SPARE)..).unwrap_or_default();
        Some((region, number))
    });
    let done = esp::seal(key, esn, framed);
    if done.all(count) {
        return;
    }
    let failed = (0..32).zip(steps).filter(|(n, _)| waiting >> n & 1 == 1).map(|(_, step)| step);
    for (n, step) in (0..).zip(failed) {
        if !done.has(n) {
            step.stop(DropReason::CryptoFailed);
        }
    }
}
