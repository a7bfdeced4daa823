//! The records of outgoing packets, from the state of a batch before it is framed, after it is framed, and
//! with its verdicts.

use super::session::{BatchList, Session};
use super::step::{InnerPacket, OuterPacket, PolicyFinding, SizeFacts, TraceStep};
use crate::classify::{Classifier, SaChain};
use crate::esp::MAX_BATCH;
use crate::sa::ProtocolKey;
use crate::sealing::{OutboundBatch, OutboundPacket};
use crate::size::sealed_len;
use crate::spd::{Action, Lookup, Policy, PolicyId};
use crate::{Datapath, Direction, Outbound, pmtu};
use arrayvec::ArrayVec;
use casemate_sa::{Instant, SpdId};
use casemate_wire::flow::FlowKey;
use casemate_wire::ip::proto;
use casemate_wire::packet::Packet;

/// The traced packets of a batch.
pub(crate) type TracedPackets = BatchList<Traced>;

/// A traced packet of a batch.
pub(crate) struct Traced {
    /// Position in the batch.
    index: usize,
    /// Number in the trace.
    id: u32,
}

impl Datapath {
    /// Looks at the packets of a batch before anything happens to them.
    #[inline]
    pub(crate) fn trace_unframed(&mut self, now: Instant, packets: &[Packet<'_>], batch: &mut OutboundBatch) {
        if self.tracer.is_on() {
            batch.traced = self.select_outgoing(now, batch.spd, packets);
        }
    }

    #[cold]
    fn select_outgoing(&mut self, now: Instant, spd: SpdId, packets: &[Packet<'_>]) -> TracedPackets {
        let Some(mut session) = self.tracer.take() else { return TracedPackets::NONE };
        let mut traced = ArrayVec::<Traced, MAX_BATCH>::new();
        if session.filter.takes(Direction::Outbound) && session.takes_more() {
            for (index, packet) in packets.iter().take(MAX_BATCH).enumerate() {
                if let Some(id) = self.record_outgoing(now, spd, packet.data(), &mut session) {
                    traced.push(Traced { index, id });
                }
            }
        }
        self.tracer.put_back(session);
        if traced.is_empty() { TracedPackets::NONE } else { BatchList::of(traced) }
    }

    /// Records what policy, SAs and path MTU say about a packet. Returns its number if it matches.
    fn record_outgoing(
        &mut self,
        now: Instant,
        spd: SpdId,
        packet: &[u8],
        session: &mut Session,
    ) -> Option<u32> {
        let inner = InnerPacket::of(packet);
        if !session.filter.matches_flow(inner.flow.as_ref()) {
            return None;
        }
        let (policy, chain) = inner.flow.map_or((None, None), |flow| self.explain_outgoing(spd, &flow));
        let slots = chain.into_iter().flat_map(|chain| [Some(chain.inner), chain.outer]).flatten();
        let sas = || slots.clone().filter_map(|slot| self.sad.outbound_ref(slot));
        if session.filter.needs_outer() && !sas().any(|sa| session.filter.matches_sa(sa.spi.get(), sa.dst)) {
            return None;
        }
        let id = session.next_packet()?;
        let mut push = |step| session.push(id, now, step);
        push(TraceStep::Outgoing(inner));
        policy.into_iter().for_each(|policy| push(TraceStep::Policy(Direction::Outbound, policy)));
        slots.clone().for_each(|slot| push(TraceStep::Sa(self.sad.id_of(Direction::Outbound, slot))));
        let size = chain.and_then(|chain| self.size_facts(now, packet, inner.len, chain));
        size.into_iter().for_each(|size| push(TraceStep::Size(size)));
        Some(id)
    }

    /// The policy of a flow and its SAs, if they exist. Unlike the decision, this raises no event.
    fn explain_outgoing(&mut self, spd: SpdId, flow: &FlowKey) -> (Option<PolicyFinding>, Option<SaChain>) {
        let (policies, sad) = (&self.spd_out, &self.sad);
        let found = policies.lookup(spd, flow);
        let chain = match found {
            Lookup::Match(_, Policy { action: Action::Protect(bundle), .. }) => {
                let unmatched = self.unmatched(flow);
                let events = &mut self.events;
                Classifier { policies, sad, events, unmatched }.chain(bundle, flow)
            }
            _ => None,
        };
        (Some(finding(&found)), chain)
    }

    fn size_facts(&self, now: Instant, packet: &[u8], len: usize, chain: SaChain) -> Option<SizeFacts> {
        let inner = self.sad.outbound_ref(chain.inner)?;
        let outer = chain.outer.and_then(|slot| self.sad.outbound_ref(slot));
        let path_mtu = self.path_mtu_of(now, chain)?;
        let sealed_len = sealed_len(packet, inner, outer);
        Some(SizeFacts {
            len,
            protected: sealed_len(len),
            path_mtu,
            inner_mtu: pmtu::inner_mtu(path_mtu, sealed_len),
        })
    }

    /// Records what framing did to the traced packets.
    #[inline]
    pub(crate) fn trace_framed(&mut self, now: Instant, packets: &[Packet<'_>], batch: &OutboundBatch) {
        if let Some(traced) = batch.traced.get() {
            self.record_framed(now, packets, traced, &batch.records);
        }
    }

    #[cold]
    fn record_framed(
        &mut self,
        now: Instant,
        packets: &[Packet<'_>],
        traced: &[Traced],
        records: &[OutboundPacket],
    ) {
        let Some(session) = self.tracer.session_mut() else { return };
        for Traced { index, id } in traced {
            let (Some(packet), Some(record)) = (packets.get(*index), records.get(*index)) else { continue };
            let (Some(chain), Outbound::Send(_)) = (record.chain, record.verdict) else { continue };
            let mut push = |step| session.push(*id, now, step);
            let outer = OuterPacket::of(packet.data());
            let number = match &record.to_seal {
                Some((_, number)) => Some(number.number()),
                None => outer.and_then(|outer| outer.header).map(|header| header.seq.into()),
            };
            let sa = self.sad.outbound_ref(chain.outer.unwrap_or(chain.inner));
            let is_compressed = sa.filter(|sa| sa.rohc.is_some()).is_some_and(|sa| match &sa.keys.key {
                ProtocolKey::Esp(key) => next_header(packet.data(), key.sizes.icv()) == Some(proto::ROHC),
                ProtocolKey::Ah(_) => false,
            });
            number.into_iter().for_each(|number| push(TraceStep::Number(number)));
            if is_compressed {
                push(TraceStep::Compressed);
            }
            if record.batch_padding > 0 {
                push(TraceStep::Padded(record.batch_padding));
            }
            outer.into_iter().for_each(|outer| push(TraceStep::Encapsulated(outer)));
            record.fragment_to.into_iter().for_each(|mtu| push(TraceStep::Fragmented(mtu)));
        }
    }

    /// Records the verdicts on the traced packets.
    #[inline]
    pub(crate) fn trace_outbound_verdicts(
        &mut self,
        now: Instant,
        packets: &[Packet<'_>],
        batch: &OutboundBatch,
        verdicts: &[Outbound],
    ) {
        if let Some(traced) = batch.traced.get() {
            self.record_outbound_verdicts(now, packets, traced, verdicts);
        }
    }

    #[cold]
    fn record_outbound_verdicts(
        &mut self,
        now: Instant,
        packets: &[Packet<'_>],
        traced: &[Traced],
        verdicts: &[Outbound],
    ) {
        let Some(session) = self.tracer.session_mut() else { return };
        for Traced { index, id } in traced {
            let (Some(packet), Some(verdict)) = (packets.get(*index), verdicts.get(*index)) else { continue };
            let step = match *verdict {
                Outbound::Send(_) => TraceStep::Sealed,
                Outbound::Bypass => {
                    session.wait_for(packet.data(), *id);
                    continue;
                }
                Outbound::Reassemble => TraceStep::Reassembling,
                Outbound::Hold => TraceStep::Held,
                Outbound::Reply(reason) => TraceStep::Rejected(reason),
                Outbound::Drop(reason) => TraceStep::Dropped(reason),
            };
            session.push(*id, now, step);
            if step == TraceStep::Sealed {
                session.wait_for(packet.data(), *id);
            }
        }
    }
}

/// The result of a look-up in the SPD as a fact.
pub(super) fn finding(found: &Lookup<'_>) -> PolicyFinding {
    let of = |id: PolicyId, policy: &Policy| match &policy.action {
        Action::Protect(_) => PolicyFinding::Protect(id, policy.selector),
        Action::Bypass => PolicyFinding::Bypass(id, policy.selector),
        Action::Discard => PolicyFinding::Discard(id, policy.selector),
    };
    match found {
        Lookup::Match(id, policy) => of(*id, policy),
        Lookup::NeedsPorts => PolicyFinding::NeedsPorts,
        Lookup::NoMatch => PolicyFinding::NoMatch,
    }
}

/// The next header field of a framed ESP packet that is not encrypted yet and has room for its ICV.
fn next_header(packet: &[u8], icv: usize) -> Option<u8> {
    packet.get(packet.len().checked_sub(icv)?.checked_sub(1)?).copied()
}
