//! Who gets a slot when all are taken.
//!
//! Fragments cannot be authenticated before they are put together, and their source addresses can be forged.
//! So the slots are shared: a new datagram takes a free slot; without one, a slot of a sender that has no SA;
//! without one of these, the oldest slot of the sender that holds the most. A flood of forged fragments fills
//! only what nobody else asks for. If it bears the address of a peer, it competes with fragments of that peer
//! alone.

use super::Reassembler;
use super::piece::{Key, Piece};
use super::slot::{Slot, State};
use crate::Via;
use casemate_sa::Instant;
use core::cmp::Reverse;
use core::net::IpAddr;

/// Where a fragment comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The network, and no SA ends at its source address. Gives way to all others.
    Stranger,
    /// The other end of an SA, or a host on the protected side.
    Known,
    /// SAs that delivered it. Such fragments make datagrams only with others of the same SAs (RFC 4301
    /// section 7.4).
    Opened(Via),
}

/// Whose share of the slots a datagram counts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    Stranger(IpAddr),
    Known(IpAddr),
    /// Inner addresses are the choice of the peer, who gets one share for all.
    Opened(Via),
}

impl Account {
    fn new(sender: Sender, key: &Key) -> Self {
        match sender {
            Sender::Stranger => Self::Stranger(key.src()),
            Sender::Known => Self::Known(key.src()),
            Sender::Opened(via) => Self::Opened(via),
        }
    }

    const fn is_stranger(&self) -> bool {
        matches!(self, Self::Stranger(_))
    }

    const fn via(&self) -> Option<Via> {
        match self {
            Self::Opened(via) => Some(*via),
            Self::Stranger(_) | Self::Known(_) => None,
        }
    }
}

impl Reassembler {
    /// The slot of the piece's datagram, or one for it that is free now.
    pub(super) fn slot_for(&mut self, now: Instant, piece: &Piece<'_>, sender: Sender) -> Option<&mut Slot> {
        let account = Account::new(sender, &piece.key);
        let mut free = None;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            slot.expire(now, &mut self.timed_out);
            match slot.state.key() {
                Some(held) if *held == piece.key && slot.account.via() == account.via() => {
                    // The source may have got an SA since.
                    return self.assign(index, account);
                }
                None if free.is_none() => free = Some(index),
                _ => {}
            }
        }
        let index = match free {
            Some(index) => index,
            None => self.evict(account)?,
        };
        self.assign(index, account)
    }

    /// Counts the slot to `account`. Free slots stay with the account that used them last, so the shares are
    /// exact whenever no slot is free.
    fn assign(&mut self, index: usize, account: Account) -> Option<&mut Slot> {
        let former = self.slots.get(index)?.account;
        if former != account {
            let mut share = 1usize;
            for slot in &mut self.slots {
                if slot.account == account {
                    slot.share = slot.share.saturating_add(1);
                    share = slot.share;
                } else if slot.account == former {
                    slot.share = slot.share.saturating_sub(1);
                }
            }
            let slot = self.slots.get_mut(index)?;
            (slot.account, slot.share) = (account, share);
        }
        self.slots.get_mut(index)
    }

    /// Frees a slot for a datagram of `account`; `None` if all are held by others that come first.
    fn evict(&mut self, account: Account) -> Option<usize> {
        let victim = self.victim(account)?;
        let slot = self.slots.get_mut(victim)?;
        // Those that were dropped before are counted.
        self.evicted = self.evicted.saturating_add(matches!(slot.state, State::Partial(_)).into());
        slot.state = State::Free;
        Some(victim)
    }

    /// Looks at each slot once: forged fragments must not cost more than that.
    fn victim(&self, account: Account) -> Option<usize> {
        let strangers_only =
            account.is_stranger() || self.slots.iter().any(|slot| slot.account.is_stranger());
        let candidates =
            self.slots.iter().enumerate().filter(|(_, slot)| !strangers_only || slot.account.is_stranger());
        // With equal shares the newcomer's own datagrams give way, the oldest first.
        let weight = |slot: &Slot| (slot.share, slot.account == account, Reverse(slot.state.since()));
        candidates.max_by_key(|(_, slot)| weight(slot)).map(|(index, _)| index)
    }
}
