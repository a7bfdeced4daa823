//! The inbound policy check (RFC 4301 section 5.2 step 4): did the packet come the way its policy demands?
//!
//! The only maker of [`Admitted`]. What it decided for a flow and the SAs it came through is remembered.

use crate::sad::Sad;
use crate::spd::{Action, Bundle, FlowCache, Lookup, MAX_BUNDLE, PolicyTable};
use crate::{Admitted, Direction, DropReason};
use casemate_sa::Mode;
use casemate_wire::flow::FlowKey;

/// What happens to packets that no policy names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unmatched {
    /// They are dropped (RFC 4301 section 5: there is always a final DISCARD).
    #[default]
    Discard,
    /// Clear text passes, and so does what came through transport mode; tunnels need a policy. As Linux does by default.
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

/// A remembered decision. It holds only for the same trail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remembered {
    trail: Trail,
    refused: Option<DropReason>,
}

/// Everything the check looks at.
pub(crate) struct Admission<'d> {
    pub(crate) policies: &'d PolicyTable,
    pub(crate) cache: &'d mut FlowCache<Remembered>,
    pub(crate) sad: &'d Sad,
    pub(crate) unmatched: Unmatched,
    pub(crate) epoch: u64,
}

impl Admission<'_> {
    /// Admits the packet of `flow` that came through the SAs in `trail`, or says why not.
    #[inline]
    pub(crate) fn check(&mut self, flow: &FlowKey, trail: Trail) -> Result<Admitted, DropReason> {
        let refused = match self.cache.get(flow, self.epoch) {
            Some(known) if known.trail == trail => known.refused,
            _ => {
                let refused = self.decide(flow, trail).err();
                self.cache.insert(flow, self.epoch, Remembered { trail, refused });
                refused
            }
        };
        match refused {
            Some(reason) => Err(reason),
            None => {
                let sa = trail.slots().next_back().map(|slot| self.sad.id_of(Direction::Inbound, slot));
                Ok(Admitted { sa, proof: Proof(()) })
            }
        }
    }

    fn decide(&self, flow: &FlowKey, trail: Trail) -> Result<(), DropReason> {
        self.check_selector(flow, trail)?;
        let tunnelled = self.came_through_tunnel(trail);
        let found = if tunnelled { self.policies.lookup_tunnelled(flow) } else { self.policies.lookup(flow) };
        match found {
            Lookup::Match(_, policy) => match &policy.action {
                Action::Discard => Err(DropReason::PolicyDiscard),
                Action::Bypass if tunnelled => Err(DropReason::PolicyMismatch),
                Action::Bypass => Ok(()),
                Action::Protect(_) if trail.is_empty() => Err(DropReason::Unprotected),
                Action::Protect(bundle) if self.satisfies(bundle, trail) => Ok(()),
                Action::Protect(_) => Err(DropReason::PolicyMismatch),
            },
            Lookup::NeedsPorts => Err(DropReason::FragmentWithoutPorts),
            Lookup::NoMatch => match self.unmatched {
                Unmatched::PassAll => Ok(()),
                Unmatched::PassClear if !tunnelled => Ok(()),
                Unmatched::PassClear | Unmatched::Discard => Err(DropReason::NoPolicy),
            },
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
            Some(selector) if !selector.matches(flow) => Err(DropReason::SelectorMismatch),
            _ => Ok(()),
        }
    }

    fn came_through_tunnel(&self, trail: Trail) -> bool {
        trail.slots().any(|slot| self.sad.inbound_ref(slot).is_some_and(|sa| sa.shared.mode == Mode::Tunnel))
    }
}
