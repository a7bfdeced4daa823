//! The inbound policy check (RFC 4301 section 5.2 step 4): did the packet come the way its policy demands?
//!
//! The only maker of [`Admitted`]. What it decided for a flow and the SAs it came through is remembered.

use crate::sad::{SaId, Sad};
use crate::spd::{Action, Bundle, Lookup, MAX_BUNDLE, Policy, PolicyTable};
use crate::{Admitted, Direction, DropReason, Inbound};
use casemate_sa::Mode;
use casemate_wire::flow::{FlowKey, Fragment};
use core::net::IpAddr;

/// What happens to packets that no policy names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unmatched {
    /// They are dropped (RFC 4301 section 5: there is always a final DISCARD).
    #[default]
    Discard,
    /// Clear text passes. What an SA opens needs a policy, whatever its mode (RFC 4301 section 5.2).
    PassClear,
    /// Everything passes, in particular all that an SA opens: for looking at captures.
    PassAll,
}

/// Keeps [`Admitted`] from being made elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proof(());

/// The inbound SAs that a packet came through, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trail {
    // Slot plus one, so that zero is "none".
    slots: [u32; MAX_BUNDLE],
}

impl Trail {
    pub(crate) const EMPTY: Self = Self { slots: [0; MAX_BUNDLE] };

    /// Adds the SA that was opened last; `false` if the trail is full.
    #[inline]
    pub(crate) fn push(&mut self, slot: u32) -> bool {
        match self.slots.iter_mut().find(|place| **place == 0) {
            Some(place) => {
                *place = slot.saturating_add(1);
                true
            }
            None => false,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.first() == Some(&0)
    }

    fn slots(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.slots.iter().filter_map(|&place| place.checked_sub(1))
    }
}

/// The inbound SAs that a fragment came through. Only fragments that came through the same SAs make a
/// datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Via {
    /// Outermost first.
    sas: [Option<SaId>; MAX_BUNDLE],
}

impl Via {
    /// As the trail of a packet; `None` if one of the SAs is gone.
    pub(crate) fn trail(&self, sad: &mut Sad) -> Option<Trail> {
        let mut trail = Trail::EMPTY;
        for id in self.sas.iter().flatten() {
            sad.inbound_by_id(*id)?;
            trail.push(id.slot());
        }
        Some(trail)
    }
}

/// What the check says of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decided {
    Admit,
    /// It is a fragment, and the whole datagram decides.
    Reassemble,
    Refuse(DropReason),
}

/// A decision for a flow that came through these SAs. The data path remembers it by the flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remembered {
    trail: Trail,
    decided: Decided,
}

impl Remembered {
    #[inline]
    pub(crate) fn is_for(&self, trail: Trail) -> bool {
        self.trail == trail
    }

    #[inline]
    pub(crate) fn verdict(&self, sad: &Sad) -> Inbound {
        match self.decided {
            Decided::Admit => {
                let innermost = self.trail.slots().next_back();
                let sa = innermost.map(|slot| sad.id_of(Direction::Inbound, slot));
                Inbound::Deliver(Admitted { sa, proof: Proof(()) })
            }
            Decided::Refuse(reason) => Inbound::Drop(reason),
            Decided::Reassemble => self.reassemble(sad),
        }
    }

    #[cold]
    fn reassemble(&self, sad: &Sad) -> Inbound {
        if self.trail.is_empty() {
            return Inbound::Reassemble;
        }
        let mut sas = self.trail.slots().map(|slot| sad.id_of(Direction::Inbound, slot));
        Inbound::ReassembleOpened(Via { sas: [sas.next(), sas.next()] })
    }
}

/// Everything the check looks at.
pub(crate) struct Admission<'d> {
    pub(crate) policies: &'d PolicyTable,
    pub(crate) sad: &'d Sad,
    pub(crate) unmatched: Unmatched,
    /// Fragments that an SA delivered for these addresses are put together behind that SA; `None` means all
    /// addresses.
    pub(crate) hosts: Option<&'d [IpAddr]>,
}

impl Admission<'_> {
    /// Whether the packet of `flow` that came through the SAs in `trail` is admitted, or why not.
    pub(crate) fn check(&self, flow: &FlowKey, trail: Trail) -> Remembered {
        let decided = match self.decide(flow, trail) {
            Ok(Decided::Admit) if self.is_part_for_host(flow, trail) => Decided::Reassemble,
            Ok(decided) => decided,
            Err(reason) => Decided::Refuse(reason),
        };
        Remembered { trail, decided }
    }

    /// Whether the packet is a fragment for the host itself that came through an SA (RFC 4301 section 7.4).
    fn is_part_for_host(&self, flow: &FlowKey, trail: Trail) -> bool {
        let is_part = flow.fragment() != Fragment::Whole && !trail.is_empty();
        is_part && self.hosts.is_none_or(|hosts| hosts.binary_search(&flow.dst()).is_ok())
    }

    fn decide(&self, flow: &FlowKey, trail: Trail) -> Result<Decided, DropReason> {
        self.check_selector(flow, trail)?;
        let tunnelled = self.came_through_tunnel(trail);
        let found = if tunnelled { self.policies.lookup_tunnelled(flow) } else { self.policies.lookup(flow) };
        match found {
            Lookup::Match(_, policy) => match &policy.action {
                Action::Discard => Err(DropReason::PolicyDiscard),
                Action::Bypass if tunnelled => Err(DropReason::PolicyMismatch),
                Action::Bypass => Ok(Decided::Admit),
                Action::Protect(_) if trail.is_empty() => Err(DropReason::Unprotected),
                Action::Protect(bundle) if self.satisfies(bundle, trail) => Ok(Decided::Admit),
                Action::Protect(_) => Err(DropReason::PolicyMismatch),
            },
            Lookup::NeedsPorts => self.decide_on_fragment(flow, trail),
            Lookup::NoMatch => match self.unmatched {
                Unmatched::PassAll => Ok(Decided::Admit),
                Unmatched::PassClear if trail.is_empty() => Ok(Decided::Admit),
                Unmatched::PassClear | Unmatched::Discard => Err(DropReason::NoPolicy),
            },
        }
    }

    /// A policy looks at what the packet hides. In clear the whole datagram decides (RFC 4301 section 7.4).
    /// From a tunnel it does if the SAs may carry fragments, because they serve a policy for all ports too
    /// (section 7.1); others MUST NOT (section 7.3).
    fn decide_on_fragment(&self, flow: &FlowKey, trail: Trail) -> Result<Decided, DropReason> {
        let serves = |policy: &Policy| match &policy.action {
            Action::Protect(bundle) => self.satisfies(bundle, trail),
            Action::Bypass | Action::Discard => false,
        };
        let may_carry = trail.is_empty() || self.policies.lookup_shown(flow).is_some_and(serves);
        match flow.fragment() {
            Fragment::First | Fragment::Later if may_carry => Ok(Decided::Reassemble),
            _ => Err(DropReason::FragmentWithoutPorts),
        }
    }

    /// Whether the packet came through exactly the SAs that the bundle names. The one applied last when sending is the
    /// first met when receiving.
    fn satisfies(&self, bundle: &Bundle, trail: Trail) -> bool {
        let templates = bundle.templates().iter().rev();
        trail.slots().count() == templates.len()
            && trail
                .slots()
                .zip(templates)
                .all(|(slot, t)| self.sad.inbound_ref(slot).is_some_and(|sa| sa.satisfies(t)))
    }

    /// RFC 4301 section 5.2: the packet is matched against the selectors of the SA that it came through.
    fn check_selector(&self, flow: &FlowKey, trail: Trail) -> Result<(), DropReason> {
        let Some(innermost) = trail.slots().next_back().and_then(|slot| self.sad.inbound_ref(slot)) else {
            return Ok(());
        };
        match &innermost.selector {
            // RFC 4301 section 7.3: an SA for some ports MUST NOT deliver fragments.
            Some(selector) if flow.fragment() != Fragment::Whole => {
                let shown = flow.of_all_fragments();
                match (selector.matches(&shown), selector.may_match(&shown)) {
                    (true, _) => Ok(()),
                    (false, true) => Err(DropReason::FragmentWithoutPorts),
                    (false, false) => Err(DropReason::SelectorMismatch),
                }
            }
            Some(selector) if !selector.matches(flow) => Err(DropReason::SelectorMismatch),
            _ => Ok(()),
        }
    }

    fn came_through_tunnel(&self, trail: Trail) -> bool {
        trail.slots().any(|slot| self.sad.inbound_ref(slot).is_some_and(|sa| sa.shared.mode == Mode::Tunnel))
    }
}
