//! The inbound policy check (RFC 4301 section 5.2 step 4): did the packet come through the SAs that its
//! policy demands?
//!
//! Only this check creates [`Admitted`]. The flow cache stores its result for a flow and the SAs that the
//! flow came through.

use crate::sad::{SaId, Sad};
use crate::spd::{Action, Bundle, Lookup, MAX_BUNDLE, Policy, PolicyTable};
use crate::{Admitted, Direction, DropReason, Inbound};
use casemate_sa::{Mode, SpdId};
use casemate_wire::flow::{FlowKey, FragmentKind};
use core::net::IpAddr;

/// What happens to packets that match no policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unmatched {
    /// Such packets are dropped (RFC 4301 section 5: the last entry is always DISCARD).
    #[default]
    Discard,
    /// Clear text passes. A packet from an SA needs a policy in every mode (RFC 4301 section 5.2).
    PassClear,
    /// All packets pass, also those from SAs. Meant for the inspection of captures.
    PassAll,
}

/// Prevents other modules from creating [`Admitted`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Proof(());

/// Slots of the inbound SAs that a packet came through, outermost first. Linux calls such a list the secpath.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SecPathSlots {
    // Slot plus one; zero means "none".
    slots: [u32; MAX_BUNDLE],
}

impl SecPathSlots {
    pub(crate) const EMPTY: Self = Self { slots: [0; MAX_BUNDLE] };

    /// Adds the SA that opened the packet last; `false` if the list is full.
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

    pub(crate) fn slots(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.slots.iter().filter_map(|&place| place.checked_sub(1))
    }
}

/// The inbound SAs that a fragment came through. Only fragments with the same SAs form a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecPath {
    /// Outermost first.
    sas: [Option<SaId>; MAX_BUNDLE],
}

impl SecPath {
    /// The slots of the SAs; `None` if one of the SAs does not exist any more.
    pub(crate) fn sec_path(&self, sad: &mut Sad) -> Option<SecPathSlots> {
        let mut sec_path = SecPathSlots::EMPTY;
        for id in self.sas.iter().flatten() {
            sad.inbound_by_id(*id)?;
            sec_path.push(id.slot());
        }
        Some(sec_path)
    }
}

/// Result of the policy check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AdmissionDecision {
    Admit,
    /// The packet is a fragment, and the check needs the whole datagram.
    Reassemble,
    Drop(DropReason),
}

/// Result for a flow that came through these SAs, as stored in the flow cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachedAdmission {
    sec_path: SecPathSlots,
    spd: SpdId,
    decision: AdmissionDecision,
}

impl CachedAdmission {
    #[inline]
    pub(crate) fn is_for(&self, sec_path: SecPathSlots) -> bool {
        self.sec_path == sec_path
    }

    /// Writes the verdict for a packet of the flow.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    pub(crate) fn write_verdict(&self, sad: &Sad, verdict: &mut Inbound) {
        match self.decision {
            AdmissionDecision::Admit => {
                let innermost = self.sec_path.slots().next_back();
                let sa = innermost.map(|slot| sad.id_of(Direction::Inbound, slot));
                *verdict = Inbound::Deliver(Admitted { sa, spd: self.spd, proof: Proof(()) });
            }
            AdmissionDecision::Drop(reason) => *verdict = Inbound::Drop(reason),
            AdmissionDecision::Reassemble => *verdict = self.reassemble(sad),
        }
    }

    #[cold]
    fn reassemble(&self, sad: &Sad) -> Inbound {
        if self.sec_path.is_empty() {
            return Inbound::Reassemble;
        }
        let mut sas = self.sec_path.slots().map(|slot| sad.id_of(Direction::Inbound, slot));
        Inbound::ReassembleOpened(SecPath { sas: [sas.next(), sas.next()] })
    }
}

/// The tables that the check depends on.
pub(crate) struct AdmissionCheck<'d> {
    pub(crate) policies: &'d PolicyTable,
    pub(crate) sad: &'d Sad,
    pub(crate) unmatched: Unmatched,
    /// Local addresses: fragments that an SA delivers for them are reassembled after that SA. `None` means
    /// all addresses.
    pub(crate) local_addrs: Option<&'d [IpAddr]>,
}

impl AdmissionCheck<'_> {
    /// Checks whether a packet of `flow` that came through the SAs in `sec_path` is admitted.
    pub(crate) fn check(&self, flow: &FlowKey, sec_path: SecPathSlots) -> CachedAdmission {
        let spd = self.spd_of(sec_path);
        let decision = match spd.and_then(|spd| self.decide(spd, flow, sec_path)) {
            Ok(AdmissionDecision::Admit) if self.is_fragment_for_host(flow, sec_path) => {
                AdmissionDecision::Reassemble
            }
            Ok(decision) => decision,
            Err(reason) => AdmissionDecision::Drop(reason),
        };
        CachedAdmission { sec_path, spd: spd.unwrap_or_default(), decision }
    }

    /// The SPD of the SAs that a packet came through. SAs of different SPDs serve no packet together.
    pub(crate) fn spd_of(&self, sec_path: SecPathSlots) -> Result<SpdId, DropReason> {
        let mut spds = sec_path.slots().filter_map(|slot| self.sad.inbound_ref(slot)).map(|sa| sa.spd);
        let first = spds.next().unwrap_or_default();
        if spds.all(|spd| spd == first) { Ok(first) } else { Err(DropReason::PolicyMismatch) }
    }

    /// Whether the packet is a fragment for the local host that came through an SA (RFC 4301 section 7.4).
    fn is_fragment_for_host(&self, flow: &FlowKey, sec_path: SecPathSlots) -> bool {
        let is_fragment = flow.fragment() != FragmentKind::Whole && !sec_path.is_empty();
        is_fragment
            && self.local_addrs.is_none_or(|local_addrs| local_addrs.binary_search(&flow.dst()).is_ok())
    }

    fn decide(
        &self,
        spd: SpdId,
        flow: &FlowKey,
        sec_path: SecPathSlots,
    ) -> Result<AdmissionDecision, DropReason> {
        self.check_selector(flow, sec_path)?;
        let tunnelled = self.came_through_tunnel(sec_path);
        let found = match tunnelled {
            true => self.policies.lookup_tunnelled(spd, flow),
            false => self.policies.lookup(spd, flow),
        };
        match found {
            Lookup::Match(_, policy) => match &policy.action {
                Action::Discard => Err(DropReason::PolicyDiscard),
                Action::Bypass if tunnelled => Err(DropReason::PolicyMismatch),
                Action::Bypass => Ok(AdmissionDecision::Admit),
                Action::Protect(_) if sec_path.is_empty() => Err(DropReason::Unprotected),
                Action::Protect(bundle) if self.satisfies(bundle, sec_path) => Ok(AdmissionDecision::Admit),
                Action::Protect(bundle) if self.has_equal(flow, policy, bundle, sec_path) => {
                    Ok(AdmissionDecision::Admit)
                }
                Action::Protect(_) => Err(DropReason::PolicyMismatch),
            },
            Lookup::NeedsPorts => self.decide_for_fragment(spd, flow, sec_path),
            Lookup::NoMatch => match self.unmatched {
                Unmatched::PassAll => Ok(AdmissionDecision::Admit),
                Unmatched::PassClear if sec_path.is_empty() => Ok(AdmissionDecision::Admit),
                Unmatched::PassClear | Unmatched::Discard => Err(DropReason::NoPolicy),
            },
        }
    }

    /// Whether the packet came through the SAs of another policy for the same traffic, such as those of the
    /// second of two tunnels between the same networks. The peer chooses among them.
    #[cold]
    fn has_equal(&self, flow: &FlowKey, first: &Policy, bundle: &Bundle, sec_path: SecPathSlots) -> bool {
        let is_so = |policy: &Policy| self.is_satisfied_equal(policy, sec_path);
        bundle.accepts_equal() && matches!(self.policies.find_equal(flow, first, is_so), Lookup::Match(..))
    }

    /// Whether a packet that came through these SAs may be admitted by this policy instead of an equal one.
    pub(crate) fn is_satisfied_equal(&self, policy: &Policy, sec_path: SecPathSlots) -> bool {
        match &policy.action {
            Action::Protect(bundle) => bundle.accepts_equal() && self.satisfies(bundle, sec_path),
            Action::Bypass | Action::Discard => false,
        }
    }

    /// Decides for a fragment that hides fields of a policy's selector. In clear, the whole datagram decides
    /// (RFC 4301 section 7.4). In a tunnel, the whole datagram decides if the SAs may carry fragments because
    /// they also serve a policy for all ports (section 7.1). Other SAs MUST NOT deliver fragments (section
    /// 7.3).
    fn decide_for_fragment(
        &self,
        spd: SpdId,
        flow: &FlowKey,
        sec_path: SecPathSlots,
    ) -> Result<AdmissionDecision, DropReason> {
        let is_satisfied = |policy: &Policy| match &policy.action {
            Action::Protect(bundle) => {
                self.satisfies(bundle, sec_path) || self.has_equal(flow, policy, bundle, sec_path)
            }
            Action::Bypass | Action::Discard => false,
        };
        let may_carry =
            sec_path.is_empty() || self.policies.lookup_visible(spd, flow).is_some_and(is_satisfied);
        match flow.fragment() {
            FragmentKind::First | FragmentKind::Later if may_carry => Ok(AdmissionDecision::Reassemble),
            _ => Err(DropReason::FragmentWithoutPorts),
        }
    }

    /// Whether the packet came through exactly the SAs that the bundle names. The SA that the sender applies
    /// last is the first that the receiver meets.
    pub(crate) fn satisfies(&self, bundle: &Bundle, sec_path: SecPathSlots) -> bool {
        let templates = bundle.templates().iter().rev();
        sec_path.slots().count() == templates.len()
            && sec_path
                .slots()
                .zip(templates)
                .all(|(slot, t)| self.sad.inbound_ref(slot).is_some_and(|sa| sa.matches_template(t)))
    }

    /// RFC 4301 section 5.2: the packet must match the selectors of its SA.
    fn check_selector(&self, flow: &FlowKey, sec_path: SecPathSlots) -> Result<(), DropReason> {
        let Some(innermost) = sec_path.slots().next_back().and_then(|slot| self.sad.inbound_ref(slot)) else {
            return Ok(());
        };
        match &innermost.selector {
            // RFC 4301 section 7.3: an SA for some ports MUST NOT deliver fragments.
            Some(selector) if flow.fragment() != FragmentKind::Whole => {
                let visible = flow.common_to_all_fragments();
                match (selector.matches(&visible), selector.may_match(&visible)) {
                    (true, _) => Ok(()),
                    (false, true) => Err(DropReason::FragmentWithoutPorts),
                    (false, false) => Err(DropReason::SelectorMismatch),
                }
            }
            Some(selector) if !selector.matches(flow) => Err(DropReason::SelectorMismatch),
            _ => Ok(()),
        }
    }

    pub(crate) fn came_through_tunnel(&self, sec_path: SecPathSlots) -> bool {
        sec_path.slots().any(|slot| self.sad.inbound_ref(slot).is_some_and(|sa| sa.keys.mode == Mode::Tunnel))
    }
}
