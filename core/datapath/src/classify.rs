//! The outbound policy decision (RFC 4301 section 5.1 steps 2 and 3): the SAs that a packet goes through, if
//! any.

use crate::event::{Event, Events};
use crate::sa::AddrPair;
use crate::sad::Sad;
use crate::spd::{Action, Bundle, Lookup, PolicyId, PolicyTable};
use crate::{DropReason, Unmatched};
use casemate_sa::{Mode, SpdId};
use casemate_wire::flow::{FlowKey, FlowPorts, FragmentKind};
use casemate_wire::ip::proto;

/// Decision for the packets of a flow. Small, because the flow cache stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Protect the packet with these outbound SAs.
    Protect(SaChain),
    Bypass,
    Reassemble,
    Drop(DropReason),
    /// The policy demands an SA that does not exist.
    Acquire(PolicyId),
}

/// Decision for the packets of a flow that enter by the interface of an SPD, as stored in the flow cache. If
/// a flow enters by several, each replaces the decision of the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachedDecision {
    pub(crate) spd: SpdId,
    pub(crate) decision: Decision,
}

/// Slots of one or two outbound SAs, innermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SaChain {
    pub(crate) inner: u32,
    pub(crate) outer: Option<u32>,
}

/// The tables that the decision depends on.
pub(crate) struct Classifier<'d> {
    pub(crate) policies: &'d PolicyTable,
    pub(crate) sad: &'d Sad,
    pub(crate) events: &'d mut Events,
    pub(crate) unmatched: Unmatched,
}

impl Classifier<'_> {
    /// Decides for packets of `flow` by the policies of an SPD.
    pub(crate) fn decide(&mut self, spd: SpdId, flow: &FlowKey) -> Decision {
        match self.policies.lookup(spd, flow) {
            Lookup::Match(id, policy) => match &policy.action {
                Action::Discard => Decision::Drop(DropReason::PolicyDiscard),
                Action::Bypass => Decision::Bypass,
                Action::Protect(bundle) => self.resolve(spd, id, bundle, flow),
            },
            Lookup::NeedsPorts => Decision::Reassemble,
            // What the administrator routes into a tunnel never leaves in clear.
            Lookup::NoMatch if !spd.is_main() => Decision::Drop(DropReason::NoPolicy),
            Lookup::NoMatch => match self.unmatched {
                Unmatched::Discard => Decision::Drop(DropReason::NoPolicy),
                Unmatched::PassClear | Unmatched::PassAll => Decision::Bypass,
            },
        }
    }

    fn resolve(&mut self, spd: SpdId, id: PolicyId, bundle: &Bundle, flow: &FlowKey) -> Decision {
        let first_is_transport = bundle.templates().first().is_some_and(|t| t.mode == Mode::Transport);
        // RFC 4303 section 3.3.4: transport mode protects whole datagrams only.
        if first_is_transport && flow.fragment() != FragmentKind::Whole {
            return Decision::Reassemble;
        }
        match self.chain(bundle, flow) {
            // An SA with manual keys may have its own selector, and that may have ports.
            Some(chain) if self.hides_choice(chain, flow) => Decision::Reassemble,
            Some(chain) if !spd.is_main() && self.is_loop(chain, flow) => {
                Decision::Drop(DropReason::NestedTooDeep)
            }
            Some(chain) => Decision::Protect(chain),
            None => {
                self.events.push(Event::Acquire { policy: id, flow: *flow });
                Decision::Acquire(id)
            }
        }
    }

    /// Whether the flow is a fragment without the fields that the SA's selector needs.
    fn hides_choice(&self, chain: SaChain, flow: &FlowKey) -> bool {
        let selector = self.sad.outbound_ref(chain.inner).and_then(|sa| sa.selector.as_deref());
        flow.fragment() != FragmentKind::Whole
            && selector.is_some_and(|selector| !selector.matches(&flow.common_to_all_fragments()))
    }

    /// Whether the packet is one that the SA has protected: a route leads the packets to the peer into the
    /// interface of their own tunnel.
    fn is_loop(&self, chain: SaChain, flow: &FlowKey) -> bool {
        let Some(sa) = self.sad.outbound_ref(chain.inner) else { return false };
        let is_same_proto = match sa.encapsulation.encap {
            None => matches!(flow.proto(), Some(proto::ESP | proto::AH)),
            Some(encap) => {
                let is_port = |ports: FlowPorts| (ports.src, ports.dst) == (encap.src_port, encap.dst_port);
                flow.proto() == Some(proto::UDP) && flow.ports().is_none_or(is_port)
            }
        };
        is_same_proto && (flow.src(), flow.dst()) == (sa.src, sa.dst)
    }

    pub(crate) fn chain(&self, bundle: &Bundle, flow: &FlowKey) -> Option<SaChain> {
        let mut templates = bundle.templates().iter();
        let first = templates.next()?;
        let packet_addrs = AddrPair { src: flow.src(), dst: flow.dst() };
        let inner = self.sad.resolve(first, packet_addrs, Some(flow))?;
        let Some(second) = templates.next() else { return Some(SaChain { inner, outer: None }) };
        // After a tunnel, the next SA sees the tunnel's addresses.
        let path = match first.mode {
            Mode::Transport => packet_addrs,
            Mode::Tunnel => self.sad.outbound_ref(inner)?.path(),
        };
        let outer = self.sad.resolve(second, path, None)?;
        Some(SaChain { inner, outer: Some(outer) })
    }
}
