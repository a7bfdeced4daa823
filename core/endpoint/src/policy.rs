//! The policies of a Child SA: one for each pair of its selectors, in both directions (RFC 4301 section 4.4.1).

use crate::{Notice, PolicyChange};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate_datapath::spd::{Action, Bundle, InsertError, Policy, PolicyId, Template};
use casemate_datapath::{Datapath, Direction};
use casemate_ike::{Traffic, selector};
use casemate_sa::{AddrRange, Selector};
use core::net::IpAddr;

/// The SPDs, and who is told of what changes in them.
pub(crate) struct Spds<'s> {
    pub(crate) datapath: &'s mut Datapath,
    pub(crate) notices: &'s mut VecDeque<Notice>,
}

impl Spds<'_> {
    fn add(&mut self, direction: Direction, policy: Policy) -> Result<PolicyId, InsertError> {
        let id = self.datapath.add_policy(direction, policy.clone())?;
        self.notices.push_back(Notice::Policy(PolicyChange::Added { direction, id, policy }));
        Ok(id)
    }

    fn remove(&mut self, direction: Direction, id: PolicyId) {
        if self.datapath.remove_policy(direction, id).is_some() {
            self.notices.push_back(Notice::Policy(PolicyChange::Removed { direction, id }));
        }
    }
}

/// Policies that stand or fall together.
#[derive(Debug, Default)]
pub(crate) struct PolicySet(Vec<(Direction, PolicyId)>);

/// Rank of policies that nobody ranked: above these stand those of SAs, which are made when the need is shown.
const TRAP: u32 = 200_000;
const CHILD: u32 = 100_000;

/// What policies are for; it decides between equally narrow ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// They wait for an SA.
    Trap,
    /// They lead to one.
    Child,
}

/// Rank of a policy: the narrower it is, the earlier it is asked.
pub(crate) fn priority(selector: &Selector, configured: Option<u32>, purpose: Purpose) -> u32 {
    let base = match purpose {
        Purpose::Trap => TRAP,
        Purpose::Child => CHILD,
    };
    if let Some(configured) = configured {
        // A trap comes right behind its SA.
        return configured.saturating_mul(2).saturating_add(u32::from(purpose == Purpose::Trap));
    }
    let wide = |range: &AddrRange| match (range.first(), range.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            first.to_bits().abs_diff(last.to_bits()).checked_ilog2().map_or(0, |bits| bits.saturating_add(1))
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            first.to_bits().abs_diff(last.to_bits()).checked_ilog2().map_or(0, |bits| bits.saturating_add(1))
        }
        _ => 0,
    };
    let width = wide(&selector.src).saturating_add(wide(&selector.dst)).saturating_mul(4);
    let loose = u32::from(selector.proto.is_none()).saturating_mul(2);
    base.saturating_add(width).saturating_add(loose).saturating_add(u32::from(!selector.needs_ports()))
}

impl PolicySet {
    /// Adds policies for all pairs of `local` and `remote`. `out` and `inn` are the templates of both directions, or the
    /// action without any. Nothing is added if one is refused.
    pub(crate) fn add(
        spds: &mut Spds<'_>,
        (local, remote): (&[Traffic], &[Traffic]),
        actions: (&Action, &Action),
        rank: impl Fn(&Selector) -> u32,
    ) -> Result<Self, InsertError> {
        let mut set = Self::default();
        let pairs = local.iter().flat_map(|local| remote.iter().map(move |remote| (local, remote)));
        for (local, remote) in pairs {
            let both = selector(local, remote).zip(selector(remote, local));
            let Some((out, inn)) = both else { continue };
            for (direction, selector, action) in
                [(Direction::Outbound, out, actions.0), (Direction::Inbound, inn, actions.1)]
            {
                let policy = Policy { selector, action: action.clone(), priority: rank(&selector) };
                match spds.add(direction, policy) {
                    Ok(id) => set.0.push((direction, id)),
                    Err(error) => {
                        set.remove(spds);
                        return Err(error);
                    }
                }
            }
        }
        Ok(set)
    }

    pub(crate) fn remove(&mut self, spds: &mut Spds<'_>) {
        for (direction, id) in self.0.drain(..) {
            spds.remove(direction, id);
        }
    }

    /// Whether there is no policy: no packet fits any of the pairs.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that packets meet on their way out.
    pub(crate) fn outbound(&self) -> impl Iterator<Item = PolicyId> {
        self.0.iter().filter(|(direction, _)| *direction == Direction::Outbound).map(|(_, id)| *id)
    }
}

/// Protection by SAs like this one.
pub(crate) fn protect(template: Template) -> Action {
    Action::Protect(Bundle::single(template))
}
