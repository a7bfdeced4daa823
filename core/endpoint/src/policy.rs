//! The policies of a Child SA: one for each pair of its selectors in each direction (RFC 4301 section 4.4.1).

use crate::{Notice, PolicyChange};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate_datapath::spd::{Action, Bundle, InsertError, Policy, PolicyId, Template};
use casemate_datapath::{Datapath, Direction};
use casemate_ike::{TrafficSelector, packet_selector};
use casemate_sa::{AddrRange, Selector, SpdPair};
use core::net::IpAddr;

/// Write access to the SPD. Sends a notice for each change.
pub(crate) struct SpdWriter<'s> {
    pub(crate) datapath: &'s mut Datapath,
    pub(crate) notices: &'s mut VecDeque<Notice>,
}

impl SpdWriter<'_> {
    fn add(&mut self, direction: Direction, policy: Policy) -> Result<PolicyId, InsertError> {
        let id = self.datapath.add_policy(direction, policy.clone())?;
        self.notices.push_back(Notice::Policy(PolicyChange::Added { direction, id, policy }));
        Ok(id)
    }

    /// Notes the addresses that traffic selectors of this host had before and do not have now, so that
    /// nothing leaves in clear from them.
    pub(crate) fn note_former_addrs(&mut self, before: &[TrafficSelector], now: &[TrafficSelector]) {
        #[cfg(feature = "spds")]
        for addr in before.iter().filter(|former| former.is_single()).map(|former| former.addrs.first()) {
            if !now.iter().any(|own| own.addrs.contains(addr)) {
                self.datapath.note_former_addr(addr);
            }
        }
        #[cfg(not(feature = "spds"))]
        let _ = (before, now);
    }

    fn remove(&mut self, direction: Direction, id: PolicyId) {
        if self.datapath.remove_policy(direction, id).is_some() {
            self.notices.push_back(Notice::Policy(PolicyChange::Removed { direction, id }));
        }
    }
}

/// Policies that are added and removed together.
#[derive(Debug, Default)]
pub(crate) struct PolicySet(Vec<(Direction, PolicyId)>);

/// Default priorities. Policies of Child SAs take precedence over traps.
const TRAP: u32 = 200_000;
const CHILD: u32 = 100_000;

/// Purpose of a policy. Decides between policies with equally narrow selectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The policy requests a Child SA.
    Trap,
    /// The policy belongs to a Child SA.
    Child,
}

/// Priority of a policy: narrower selectors take precedence.
pub(crate) fn priority(selector: &Selector, configured: Option<u32>, purpose: Purpose) -> u32 {
    let base = match purpose {
        Purpose::Trap => TRAP,
        Purpose::Child => CHILD,
    };
    if let Some(configured) = configured {
        // A trap directly follows its Child SA.
        return configured.saturating_mul(2).saturating_add(u32::from(purpose == Purpose::Trap));
    }
    let range_bits = |range: &AddrRange| match (range.first(), range.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            first.to_bits().abs_diff(last.to_bits()).checked_ilog2().map_or(0, |bits| bits.saturating_add(1))
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            first.to_bits().abs_diff(last.to_bits()).checked_ilog2().map_or(0, |bits| bits.saturating_add(1))
        }
        _ => 0,
    };
    let width = range_bits(&selector.src).saturating_add(range_bits(&selector.dst)).saturating_mul(4);
    let any_proto = u32::from(selector.proto.is_none()).saturating_mul(2);
    base.saturating_add(width).saturating_add(any_proto).saturating_add(u32::from(!selector.needs_ports()))
}

/// Actions of the policies for outbound and inbound packets.
pub(crate) struct DirectionActions<'a> {
    pub(crate) outbound: &'a Action,
    pub(crate) inbound: &'a Action,
}

impl<'a> DirectionActions<'a> {
    /// Uses one action in both directions.
    pub(crate) const fn both(action: &'a Action) -> Self {
        Self { outbound: action, inbound: action }
    }
}

impl PolicySet {
    /// Adds policies for all pairs of `local` and `remote` to `pair`. If one policy is rejected, none is
    /// added.
    pub(crate) fn add(
        spds: &mut SpdWriter<'_>,
        pair: SpdPair,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
        actions: DirectionActions<'_>,
        rank: impl Fn(&Selector) -> u32,
    ) -> Result<Self, InsertError> {
        let mut set = Self::default();
        let pairs = local.iter().flat_map(|local| remote.iter().map(move |remote| (local, remote)));
        for (local, remote) in pairs {
            let both = packet_selector(local, remote).zip(packet_selector(remote, local));
            let Some((out, inn)) = both else { continue };
            for (direction, spd, selector, action) in [
                (Direction::Outbound, pair.outbound, out, actions.outbound),
                (Direction::Inbound, pair.inbound, inn, actions.inbound),
            ] {
                let policy = Policy { spd, selector, action: action.clone(), priority: rank(&selector) };
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

    pub(crate) fn remove(&mut self, spds: &mut SpdWriter<'_>) {
        for (direction, id) in self.0.drain(..) {
            spds.remove(direction, id);
        }
    }

    /// Whether there is no policy, because no packet matches any of the pairs.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The outbound policies.
    pub(crate) fn outbound(&self) -> impl Iterator<Item = PolicyId> {
        self.0.iter().filter(|(direction, _)| *direction == Direction::Outbound).map(|(_, id)| *id)
    }
}

/// The action to protect with SAs that match `template`. With `accepts_equal`, an equal policy may do it
/// instead ([`Bundle::accepting_equal`]).
pub(crate) fn protect(template: Template, accepts_equal: bool) -> Action {
    Action::Protect(Bundle::single(template).accepting_equal(accepts_equal))
}

/// First generated reqid. Lower values are for administrators.
pub const FIRST_REQID: u32 = 0x4000_0000;

/// Generator of reqids.
#[derive(Debug)]
pub(crate) struct Reqids(u32);

impl Default for Reqids {
    fn default() -> Self {
        Self(FIRST_REQID)
    }
}

impl Reqids {
    /// A reqid that no SA has.
    pub(crate) fn next(&mut self) -> u32 {
        // Wraps after billions of Child SAs; the first of them ended long ago.
        self.0 = self.0.checked_add(1).unwrap_or(FIRST_REQID);
        self.0
    }
}
