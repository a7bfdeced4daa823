//! What is held for a former run, in the data path.
//!
//! The packet filter keeps held packets off the wire. A route for another policy may lead them into the TUN
//! interface, and what no policy names passes there, with our mark, which the filter lets out. So each held
//! selector is a DISCARD policy behind all others.

use casemate_datapath::spd::{Action, InsertError, Policy, PolicyId};
use casemate_datapath::{Datapath, Direction};
use casemate_sa::Selector;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// The policies for what is held of the packets that leave.
#[derive(Debug, Default)]
pub(super) struct Discards(HashMap<Selector, PolicyId>);

impl Discards {
    /// Adds and removes policies, so that there is one for each of these selectors. If the SPD is full, none
    /// is removed.
    pub(super) fn follow(
        &mut self,
        held: &HashSet<Selector>,
        datapath: &mut Datapath,
    ) -> Result<(), InsertError> {
        for &selector in held {
            if let Entry::Vacant(place) = self.0.entry(selector) {
                let policy = Policy { selector, action: Action::Discard, priority: u32::MAX };
                place.insert(datapath.add_policy(Direction::Outbound, policy)?);
            }
        }
        self.0.retain(|selector, id| {
            let stays = held.contains(selector);
            if !stays {
                datapath.remove_policy(Direction::Outbound, *id);
            }
            stays
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_datapath::{Config, Unmatched};
    use casemate_sa::{AddrRange, Limits};

    fn selector(n: u8) -> Selector {
        let range = |net: u8| AddrRange::prefix([10, net, n, 0].into(), 24).unwrap();
        Selector::between(range(1), range(2))
    }

    #[test]
    fn there_is_a_policy_for_each_held_selector_and_none_else() {
        let limits = Limits { policies: 3, ..Limits::SERVER };
        let config = Config { limits, seed: 1, unmatched: Unmatched::PassClear, link_mtu: 1_500 };
        let mut datapath = Datapath::new(config);
        let mut discards = Discards::default();
        let mut follow = |held: &[u8]| {
            let held = held.iter().map(|n| selector(*n)).collect();
            let done = discards.follow(&held, &mut datapath).is_ok();
            let policies = datapath.policies(Direction::Outbound);
            let mut is: Vec<_> = policies.map(|(_, policy)| policy.selector.to_string()).collect();
            is.sort();
            (done, is)
        };
        let texts = |all: &[u8]| all.iter().map(|n| selector(*n).to_string()).collect::<Vec<_>>();
        assert_eq!(follow(&[1, 2]), (true, texts(&[1, 2])));
        assert_eq!(follow(&[2, 3]), (true, texts(&[2, 3])));
        let (done, is) = follow(&[4, 5]);
        assert!(!done && is.len() == 3, "the SPD is full, so what is held stays: {is:?}");
        assert_eq!(follow(&[]), (true, texts(&[])));
    }
}
