//! Assignment of slots to senders.
//!
//! Fragments cannot be authenticated before reassembly, and their source addresses can be forged. A new
//! datagram therefore takes a free slot; if there is none, a slot of a sender without an SA; if there is none
//! either, the oldest slot of the sender with the most slots. A flood of forged fragments thus fills only
//! slots that nothing else needs. If the fragments have the address of a peer, they compete with fragments of
//! that peer only.

use super::Reassembler;
use super::parse::{Key, ParsedFragment};
use super::slot::{Slot, State};
use crate::SecPath;
use casemate_sa::{Instant, SpdId};
use casemate_wire::invariant::OrBroken;
use core::cmp::Reverse;
use core::net::IpAddr;

/// Origin of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The network; no SA has its source address. Evicted before all others.
    Unknown,
    /// The peer of an SA, or a host on the protected side.
    Known,
    /// A host whose packets the policies of this SPD protect. Only fragments for one SPD form a datagram.
    Protected(SpdId),
    /// These SAs. Such fragments form a datagram only with others that came through the same SAs (RFC 4301
    /// section 7.4).
    Opened(SecPath),
}

/// The sender whose slots a datagram counts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotOwner {
    Unknown(IpAddr),
    Known(IpAddr),
    /// The peer chooses the inner addresses, so all its datagrams count together.
    Opened(SecPath),
}

impl SlotOwner {
    fn new(sender: Sender, key: &Key) -> Self {
        match sender {
            Sender::Unknown => Self::Unknown(key.src()),
            Sender::Known | Sender::Protected(_) => Self::Known(key.src()),
            Sender::Opened(via) => Self::Opened(via),
        }
    }

    const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

    const fn via(&self) -> Option<SecPath> {
        match self {
            Self::Opened(via) => Some(*via),
            Self::Unknown(_) | Self::Known(_) => None,
        }
    }
}

impl Reassembler {
    /// The slot of the fragment's datagram, or a slot for a new datagram.
    pub(super) fn slot_for(
        &mut self,
        now: Instant,
        fragment: &ParsedFragment<'_>,
        sender: Sender,
    ) -> Option<&mut Slot> {
        let owner = SlotOwner::new(sender, &fragment.key);
        let mut free = None;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            slot.expire(now, &mut self.timed_out);
            match slot.state.key() {
                Some(held) if *held == fragment.key && slot.owner.via() == owner.via() => {
                    // The sender may have got an SA since the last fragment.
                    return self.assign(index, owner);
                }
                None if free.is_none() => free = Some(index),
                _ => {}
            }
        }
        let index = match free {
            Some(index) => index,
            None => self.evict(owner)?,
        };
        self.assign(index, owner)
    }

    /// Counts the slot to `owner`. A free slot keeps its last owner, so the counts are exact whenever no slot
    /// is free.
    fn assign(&mut self, index: usize, owner: SlotOwner) -> Option<&mut Slot> {
        let former = self.slots.get(index)?.owner;
        if former != owner {
            let mut share = 1usize;
            for slot in &mut self.slots {
                if slot.owner == owner {
                    slot.owner_slots = slot.owner_slots.saturating_add(1);
                    share = slot.owner_slots;
                } else if slot.owner == former {
                    let others = slot.owner_slots.checked_sub(1);
                    slot.owner_slots = others.or_broken("the former owner had this slot", 0);
                }
            }
            let slot = self.slots.get_mut(index)?;
            (slot.owner, slot.owner_slots) = (owner, share);
        }
        self.slots.get_mut(index)
    }

    /// Frees a slot for a datagram of `owner`; `None` if all slots have owners with precedence.
    fn evict(&mut self, owner: SlotOwner) -> Option<usize> {
        let victim = self.victim(owner)?;
        let slot = self.slots.get_mut(victim)?;
        // Datagrams that were dropped before are already counted.
        self.evicted = self.evicted.saturating_add(matches!(slot.state, State::Partial(_)).into());
        slot.state = State::Free;
        Some(victim)
    }

    /// Looks at each slot once, which bounds the cost of a forged fragment.
    fn victim(&self, owner: SlotOwner) -> Option<usize> {
        let unknown_only = owner.is_unknown() || self.slots.iter().any(|slot| slot.owner.is_unknown());
        let candidates =
            self.slots.iter().enumerate().filter(|(_, slot)| !unknown_only || slot.owner.is_unknown());
        // With equal counts, the datagrams of `owner` itself are evicted, the oldest first.
        let weight = |slot: &Slot| (slot.owner_slots, slot.owner == owner, Reverse(slot.state.since()));
        candidates.max_by_key(|(_, slot)| weight(slot)).map(|(index, _)| index)
    }
}
