//! The records of incoming packets, from their headers before they are opened, and from the state of the
//! batch with its verdicts.

use super::outbound::finding;
use super::session::{BatchList, Session};
use super::step::{InnerPacket, OuterPacket, TraceStep};
use crate::admission::{AdmissionCheck, SecPathSlots};
use crate::demux::InboundPacket;
use crate::esp::MAX_BATCH;
use crate::opening::InboundBatch;
use crate::sad::SaLookupKey;
use crate::spd::{Action, Lookup, Policy};
use crate::{Datapath, Direction, DropReason, Inbound};
use casemate_sa::Instant;
use casemate_wire::flow::FlowKey;
use casemate_wire::packet::Packet;

/// The headers of the packets of a batch as they arrived.
pub(crate) type Arrivals = BatchList<Option<OuterPacket>>;

impl Datapath {
    /// Keeps the headers of the packets of a batch, because they are removed before it is known which packets
    /// match.
    #[inline]
    pub(crate) fn trace_arrivals(&self, packets: &[Packet<'_>], batch: &mut InboundBatch) {
        if self.tracer.is_on() {
            batch.arrivals = self.read_arrivals(packets);
        }
    }

    #[cold]
    fn read_arrivals(&self, packets: &[Packet<'_>]) -> Arrivals {
        let is_wanted = self
            .tracer
            .session()
            .is_some_and(|session| session.takes_more() && session.filter.takes(Direction::Inbound));
        let read = || packets.iter().take(MAX_BATCH).map(|packet| OuterPacket::of(packet.data()));
        if is_wanted { BatchList::of(read()) } else { Arrivals::NONE }
    }

    /// Records the packets of a batch that match.
    #[inline]
    pub(crate) fn trace_inbound_verdicts(
        &mut self,
        now: Instant,
        packets: &[Packet<'_>],
        batch: &InboundBatch,
        verdicts: &[Inbound],
    ) {
        if let Some(arrivals) = batch.arrivals.get() {
            self.record_incoming(now, packets, arrivals, &batch.records, verdicts);
        }
    }

    #[cold]
    fn record_incoming(
        &mut self,
        now: Instant,
        packets: &[Packet<'_>],
        arrivals: &[Option<OuterPacket>],
        records: &[InboundPacket],
        verdicts: &[Inbound],
    ) {
        let Some(mut session) = self.tracer.take() else { return };
        for (((packet, outer), record), verdict) in packets.iter().zip(arrivals).zip(records).zip(verdicts) {
            if let Some(outer) = outer {
                self.record_one(now, packet.data(), outer, record, verdict, &mut session);
            }
        }
        self.tracer.put_back(session);
    }

    fn record_one(
        &self,
        now: Instant,
        packet: &[u8],
        outer: &OuterPacket,
        record: &InboundPacket,
        verdict: &Inbound,
        session: &mut Session,
    ) {
        if !session.filter.matches_incoming(outer) {
            return;
        }
        let inner = (!record.sec_path.is_empty() || outer.header.is_none()).then(|| InnerPacket::of(packet));
        if !session.filter.matches_flow(inner.and_then(|inner| inner.flow).as_ref()) {
            if inner.is_none() && matches!(verdict, Inbound::Drop(_)) {
                session.count_undecided();
            }
            return;
        }
        let Some(id) = session.next_packet() else { return };
        let mut push = |step| session.push(id, now, step);
        push(TraceStep::Incoming(*outer));
        self.record_opening(outer, record, verdict, &mut push);
        if let Some(inner) = inner {
            if outer.header.is_some() {
                push(TraceStep::Decapsulated { packet: inner, outer_ecn: record.outer_tos & 3 });
            }
            self.record_admission(&inner, record, verdict, &mut push);
        }
        push(match verdict {
            Inbound::Deliver(_) => TraceStep::Delivered,
            Inbound::Reassemble | Inbound::ReassembleOpened(_) => TraceStep::Reassembling,
            Inbound::Consumed(what) => TraceStep::Consumed(*what),
            Inbound::Ike(_) => TraceStep::Ike,
            Inbound::Drop(reason) => TraceStep::Dropped(*reason),
        });
        if let Inbound::Deliver(_) = verdict {
            session.wait_for(packet, id);
        }
    }

    /// The SAs that opened the packet, or how far the first one got.
    fn record_opening(
        &self,
        outer: &OuterPacket,
        record: &InboundPacket,
        verdict: &Inbound,
        push: &mut impl FnMut(TraceStep),
    ) {
        for (n, slot) in record.sec_path.slots().enumerate() {
            let sa = self.sad.id_of(Direction::Inbound, slot);
            push(TraceStep::Sa(sa));
            if n == 0 && record.sec_path.slots().count() == 1 {
                push(TraceStep::NotReplayed(record.seq()));
            }
            push(TraceStep::Opened(sa));
        }
        let Some(header) = outer.header.filter(|_| record.sec_path.is_empty()) else { return };
        let key = SaLookupKey::new(header.spi, header.protocol, outer.dst);
        let Some(entry) = self.sad.find_inbound(&key) else { return };
        let sa = self.sad.id_of(Direction::Inbound, entry.slot);
        push(TraceStep::Sa(sa));
        if let Inbound::Drop(reason) = verdict {
            let is_authentic = is_found_after_icv(*reason);
            if is_authentic || *reason == DropReason::IcvMismatch {
                push(TraceStep::NotReplayed(record.seq()));
            }
            if is_authentic {
                push(TraceStep::Opened(sa));
            }
        }
    }

    /// The policy that admits or refuses the packet.
    fn record_admission(
        &self,
        inner: &InnerPacket,
        record: &InboundPacket,
        verdict: &Inbound,
        push: &mut impl FnMut(TraceStep),
    ) {
        // Only these verdicts come from the SPD.
        let is_checked = match verdict {
            Inbound::Deliver(_) | Inbound::ReassembleOpened(_) => true,
            Inbound::Drop(reason) => !matches!(
                reason,
                DropReason::SelectorMismatch | DropReason::NestedTooDeep | DropReason::InnerMalformed
            ),
            _ => false,
        };
        let Some(flow) = inner.flow.filter(|_| is_checked) else { return };
        let found = finding(&self.admission().deciding_policy(&flow, record.sec_path));
        push(TraceStep::Policy(Direction::Inbound, found));
    }

    /// Records the verdict on a datagram that was put together from fragments of SAs.
    #[inline]
    pub(crate) fn trace_reassembled(&mut self, now: Instant, packet: &[u8], verdict: &Inbound) {
        if self.tracer.is_on() {
            self.record_reassembled(now, packet, verdict);
        }
    }

    #[cold]
    fn record_reassembled(&mut self, now: Instant, packet: &[u8], verdict: &Inbound) {
        let Some(session) = self.tracer.session_mut() else { return };
        let (inner, filter) = (InnerPacket::of(packet), session.filter);
        let is_wanted = filter.takes(Direction::Inbound)
            && !filter.needs_outer()
            && filter.matches_flow(inner.flow.as_ref());
        if is_wanted && let Some(id) = session.next_packet() {
            session.push(id, now, TraceStep::Reassembled(inner));
            session.push(
                id,
                now,
                match verdict {
                    Inbound::Drop(reason) => TraceStep::Dropped(*reason),
                    _ => TraceStep::Delivered,
                },
            );
        }
    }
}

impl AdmissionCheck<'_> {
    /// The policy that decides about a packet. Of several equal ones, that is the policy of its SAs, if they
    /// may be chosen by the peer.
    fn deciding_policy(&self, flow: &FlowKey, sec_path: SecPathSlots) -> Lookup<'_> {
        let spd = self.spd_of(sec_path).unwrap_or_default();
        let first = match self.came_through_tunnel(sec_path) {
            true => self.policies.lookup_tunnelled(spd, flow),
            false => self.policies.lookup(spd, flow),
        };
        let Lookup::Match(_, policy) = &first else { return first };
        let Action::Protect(bundle) = &policy.action else { return first };
        if self.satisfies(bundle, sec_path) || !bundle.accepts_equal() {
            return first;
        }
        let is_so = |policy: &Policy| self.is_satisfied_equal(policy, sec_path);
        match self.policies.find_equal(flow, policy, is_so) {
            Lookup::Match(id, equal) => Lookup::Match(id, equal),
            Lookup::NeedsPorts | Lookup::NoMatch => first,
        }
    }
}

/// Whether a packet with this drop reason had a correct ICV.
fn is_found_after_icv(reason: DropReason) -> bool {
    use DropReason::{BadNextHeader, BadPadding, EcnInvalid, InnerMalformed, RohcFailed, RohcIcvMismatch};
    matches!(reason, BadPadding | BadNextHeader | InnerMalformed | EcnInvalid | RohcFailed | RohcIcvMismatch)
}
