//! Removals of outbound policies that the routes of the host have to follow.
//!
//! A route that follows a policy leads packets here until it is changed, which takes longer than a change of
//! the SPD. Meanwhile, packets that match no policy any more must not leave in clear. Devices have no such
//! routes.

#[cfg(feature = "spds")]
use crate::spd::{Action, Policy};
use crate::{Datapath, Direction, Unmatched};

/// Number of removals, and how many of them the routes follow.
#[cfg(feature = "spds")]
#[derive(Debug, Default)]
pub(crate) struct Removals {
    /// Number of outbound policies of the main SPD that were removed.
    count: u64,
    /// Number of removals that the routes follow; `None` if no routes depend on policies.
    followed: Option<u64>,
}

#[cfg(feature = "spds")]
impl Removals {
    /// Notes that a policy was removed.
    pub(crate) fn note(&mut self, direction: Direction, policy: &Policy) {
        let is_bypass = matches!(policy.action, Action::Bypass);
        if direction == Direction::Outbound && policy.spd.is_main() && !is_bypass {
            // A counter of 64 bits never wraps in practice.
            self.count = self.count.wrapping_add(1);
        }
    }

    fn are_followed(&self) -> bool {
        self.followed.is_none_or(|followed| followed == self.count)
    }
}

#[cfg(feature = "spds")]
impl Datapath {
    /// What happens to packets that match no policy.
    pub(crate) fn unmatched(&self, direction: Direction) -> Unmatched {
        let is_held = direction == Direction::Outbound && !self.removals.are_followed();
        if is_held { Unmatched::Discard } else { self.default_unmatched }
    }

    /// From now on, routes of the host that follow the policies lead packets here. After the removal of an
    /// outbound policy, packets that match none are discarded until [`removals_followed`] says that the
    /// routes follow: another policy may protect them elsewhere.
    ///
    /// [`removals_followed`]: Self::removals_followed
    pub const fn expect_routes_to_follow(&mut self) {
        self.removals.followed = Some(self.removals.count);
    }

    /// Number of removals so far that routes have to follow.
    pub const fn removals(&self) -> u64 {
        self.removals.count
    }

    /// Notes that the routes follow this number of removals.
    pub fn removals_followed(&mut self, removals: u64) {
        if self.removals.followed.is_some_and(|followed| followed != removals) {
            self.removals.followed = Some(removals);
            self.forget_flows();
        }
    }
}

#[cfg(not(feature = "spds"))]
impl Datapath {
    /// What happens to packets that match no policy.
    pub(crate) const fn unmatched(&self, _direction: Direction) -> Unmatched {
        self.default_unmatched
    }
}
