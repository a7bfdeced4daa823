//! The state of a keeper, for status output and alarms.

use crate::keeper::{Keeper, State};
use crate::members::Member;
use crate::registration::ForwardAddress;
use crate::writes::CurrentWrite;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_store::{Store, StoreError};

/// What a node of a cell does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeeperRole {
    /// It has not found out yet whether there is an owner.
    #[default]
    Starting,
    /// Another node of the cell has the name of this one, or the former process of this node is not forgotten
    /// yet.
    NameTaken,
    /// Another node owns the SAs.
    Standby,
    /// An administrator has drained the node: it does not become the owner.
    Drained,
    /// It owns the SAs.
    Owner,
    /// It owns the SAs, but could not renew its lease: IKE waits, and ESP uses what is reserved.
    Fenced,
    /// Another owner has taken over, or the store is damaged. The process must end.
    Lost,
}

/// State of a keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeeperStatus {
    /// What the node does.
    pub role: KeeperRole,
    /// Number of owners of the state so far; 0 unless this is the owner.
    pub owner: u64,
    /// IKE SAs with a record.
    pub records: usize,
    /// Transactions that have been written.
    pub writes: u64,
    /// Transactions that are not completed.
    pub pending: usize,
    /// Messages that wait for them.
    pub held: usize,
    /// Messages that were dropped because too many waited, or because the owner was fenced.
    pub dropped: u64,
    /// Child SAs that have used up three quarters of a reserve whose extension is not written.
    pub low_reserves: usize,
    /// Data keys that the store has.
    pub data_keys: usize,
    /// Whether data keys in the store are, or may be, encrypted with the second wrapping key.
    pub needs_second_key: bool,
    /// Why the last transaction failed, if it did.
    pub problem: Option<StoreError>,
}

impl KeeperStatus {
    /// Whether another owner has taken over, or the store is damaged, so that this process must end.
    pub fn is_lost(&self) -> bool {
        self.role == KeeperRole::Lost
    }
}

impl<S: Store> Keeper<S> {
    /// The present state.
    pub fn status(&self, now: Instant) -> KeeperStatus {
        let (role, owner, problem) = match &self.state {
            State::Claiming(claim) => (claim.role(), 0, claim.problem()),
            State::Owner(ownership) => {
                let is_fenced = ownership.lease.is_fenced(now);
                let role = if is_fenced { KeeperRole::Fenced } else { KeeperRole::Owner };
                (role, ownership.owner, self.problem)
            }
            State::Lost => (KeeperRole::Lost, 0, self.problem),
        };
        let needs_second_key = match &self.state {
            State::Claiming(claim) => claim.needs_second_key(),
            State::Owner(_) => self.data_keys.is_changing(),
            State::Lost => false,
        };
        KeeperStatus {
            role,
            owner,
            records: self.records.len(),
            writes: self.writes_done,
            pending: self.current.as_ref().map_or(0, CurrentWrite::transactions),
            held: self.outbox.held(),
            dropped: self.outbox.dropped(),
            low_reserves: self.records.low_reserves(),
            data_keys: self.data_keys.count(),
            needs_second_key,
            problem,
        }
    }

    /// The nodes of the cell, in the order of their names, at most two seconds ago.
    pub fn members(&self) -> Vec<Member> {
        self.members.all()
    }

    /// The node that owns the SAs, as far as this node knows.
    pub fn owner_node(&self) -> Option<&[u8]> {
        match &self.state {
            State::Claiming(claim) => claim.seen_owner(),
            State::Owner(_) => Some(&self.node),
            State::Lost => None,
        }
    }

    /// Where a node that stands by forwards packets: to the owner that it last knew. `None` for an owner,
    /// and if that owner does not receive any.
    pub fn forward_target(&mut self) -> Option<ForwardAddress> {
        let State::Claiming(claim) = &self.state else { return None };
        // The former process of this node may still be entered as the owner.
        let owner = claim.seen_owner().filter(|owner| **owner != *self.node);
        self.members.forward_target(owner)
    }
}
