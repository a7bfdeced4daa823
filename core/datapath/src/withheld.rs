//! Outgoing packets that match no policy and must not leave in clear, although such packets pass.
//!
//! A route that follows a policy leads packets here until it is changed, which takes longer than a change of
//! the SPD. Meanwhile, what the removed policy protected must not leave in clear: another policy may protect
//! it elsewhere. Nor must packets from a virtual address: it belongs to the network behind the peer, and the
//! host keeps it until the peer has confirmed the end of the IKE SA, longer than the policies. Nor must
//! packets from the former address of a trap: programs stay bound to it. Devices have no such routes.

#[cfg(feature = "spds")]
use crate::Direction;
#[cfg(feature = "spds")]
use crate::spd::{Action, Lookup, Policy, PolicyId, PolicyTable};
use crate::{Datapath, Unmatched};
#[cfg(feature = "spds")]
use alloc::collections::VecDeque;
#[cfg(feature = "spds")]
use alloc::vec::Vec;
#[cfg(feature = "spds")]
use casemate_sa::SpdId;
use casemate_wire::flow::FlowKey;
#[cfg(feature = "spds")]
use core::net::IpAddr;

/// Former addresses of traps that are remembered, at most.
#[cfg(feature = "spds")]
const MAX_FORMER: usize = 64;

/// What must not leave in clear.
#[cfg(feature = "spds")]
#[derive(Debug)]
pub(crate) struct Withheld {
    /// Number of outbound policies of the main SPD that were removed.
    removals: u64,
    /// Number of removals that the routes follow; `None` if no routes depend on policies.
    followed: Option<u64>,
    /// DISCARD policies with the selectors of the other removed policies.
    policies: PolicyTable,
    /// These policies, each with the number of its removal, in this order.
    queue: VecDeque<(u64, PolicyId)>,
    /// The last removal for which the table had no room. All packets wait until the routes follow it.
    without_room: u64,
    /// Sorted.
    virtual_addrs: Vec<IpAddr>,
    /// The last addresses of traps that have moved, the oldest first.
    former_addrs: VecDeque<IpAddr>,
}

#[cfg(feature = "spds")]
impl Withheld {
    /// Nothing. Remembers at most `limit` removed policies.
    pub(crate) fn new(limit: usize, seed: u64) -> Self {
        Self {
            removals: 0,
            followed: None,
            policies: PolicyTable::new(limit, seed),
            queue: VecDeque::new(),
            without_room: 0,
            virtual_addrs: Vec::new(),
            former_addrs: VecDeque::new(),
        }
    }

    /// Notes that a policy was removed.
    pub(crate) fn note_removal(&mut self, direction: Direction, policy: &Policy) {
        let is_bypass = matches!(policy.action, Action::Bypass);
        if direction == Direction::Inbound || !policy.spd.is_main() || is_bypass {
            return;
        }
        // A counter of 64 bits never wraps in practice.
        self.removals = self.removals.wrapping_add(1);
        if self.followed.is_none() {
            return;
        }
        let selector = policy.selector;
        let discard = Policy { spd: SpdId::MAIN, selector, action: Action::Discard, priority: 0 };
        match self.policies.insert(discard) {
            Ok(id) => self.queue.push_back((self.removals, id)),
            Err(_) => self.without_room = self.removals,
        }
    }

    fn follow(&mut self, removals: u64) {
        self.followed = Some(removals);
        while let Some((_, id)) = self.queue.pop_front_if(|(number, _)| *number <= removals) {
            self.policies.remove(id);
        }
    }

    fn is_everything(&self) -> bool {
        self.followed.is_some_and(|followed| followed < self.without_room)
    }

    fn contains(&self, flow: &FlowKey) -> bool {
        self.is_everything()
            || !self.queue.is_empty() && !matches!(self.policies.lookup(SpdId::MAIN, flow), Lookup::NoMatch)
            || self.virtual_addrs.binary_search(&flow.src()).is_ok()
            || self.former_addrs.contains(&flow.src())
    }
}

#[cfg(feature = "spds")]
impl Datapath {
    /// What happens to an outgoing packet that matches no policy.
    pub(crate) fn unmatched(&self, flow: &FlowKey) -> Unmatched {
        if self.withheld.contains(flow) { Unmatched::Discard } else { self.default_unmatched }
    }

    /// Whether some packets that match no policy are discarded, even if others pass.
    pub(crate) fn withholds_packets(&self) -> bool {
        self.withheld.is_everything()
            || !self.withheld.queue.is_empty()
            || !self.withheld.virtual_addrs.is_empty()
            || !self.withheld.former_addrs.is_empty()
    }

    /// From now on, routes of the host that follow the policies lead packets here. After the removal of
    /// an outbound policy, packets that it matches, and no other policy, are discarded until
    /// [`removals_followed`] says that the routes follow.
    ///
    /// [`removals_followed`]: Self::removals_followed
    pub const fn expect_routes_to_follow(&mut self) {
        self.withheld.followed = Some(self.withheld.removals);
    }

    /// Number of removals so far that routes have to follow.
    pub const fn removals(&self) -> u64 {
        self.withheld.removals
    }

    /// Notes that the routes follow this number of removals.
    pub fn removals_followed(&mut self, removals: u64) {
        if self.withheld.followed.is_some_and(|followed| followed != removals) {
            self.withheld.follow(removals);
            self.forget_flows();
        }
    }

    /// Notes that a trap has protected packets from this address, and protects those from another one now.
    /// Outgoing packets from it that match no policy are discarded. The last 64 such addresses count.
    pub fn note_former_addr(&mut self, addr: IpAddr) {
        let former = &mut self.withheld.former_addrs;
        former.retain(|known| *known != addr);
        if former.len() >= MAX_FORMER {
            former.pop_front();
        }
        former.push_back(addr);
        self.forget_flows();
    }

    /// Sets the virtual addresses of the host. Outgoing packets from them that match no policy are
    /// discarded.
    pub fn set_virtual_addrs(&mut self, addrs: impl IntoIterator<Item = IpAddr>) {
        let mut addrs = Vec::from_iter(addrs);
        addrs.sort_unstable();
        if addrs != self.withheld.virtual_addrs {
            self.withheld.virtual_addrs = addrs;
            self.forget_flows();
        }
    }
}

#[cfg(not(feature = "spds"))]
impl Datapath {
    /// What happens to an outgoing packet that matches no policy.
    pub(crate) const fn unmatched(&self, _flow: &FlowKey) -> Unmatched {
        self.default_unmatched
    }

    /// Whether some packets that match no policy are discarded, even if others pass.
    pub(crate) const fn withholds_packets(&self) -> bool {
        false
    }
}
