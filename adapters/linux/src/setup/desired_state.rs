//! What policies ask of the system: routes and a packet filter. [`Plan`](super::Plan) lists it,
//! [`SystemState`](super::SystemState) applies its changes.

use super::PlanInput;
use super::former_traffic::covers;
use super::policy_routes::PolicyRoutes;
use crate::Error;
use crate::journal::Journal;
use crate::leak_guard::{GuardConfig, GuardUpdate, LeakGuard};
use crate::protected_traffic::{ProtectedSelector, TrafficChange};
use crate::route::Route;
use casemate_datapath::Direction;
use casemate_datapath::spd::{Action, Policy, PolicyId};
use casemate_sa::Selector;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// The desired state of the system, derived from all policies. The cost of a change does not depend on the
/// number of policies.
#[derive(Debug)]
pub(super) struct DesiredState {
    policies: HashMap<PolicyKey, RankedPolicy>,
    last_serial: u64,
    /// Changes of protected traffic that are not written to the file yet.
    unwritten: Vec<TrafficChange>,
    /// Traffic of a former run, or of another node of the cell, that no policy covers. It comes behind all
    /// policies.
    former: HashSet<ProtectedSelector>,
    /// `former` has changed since the data path received it.
    former_changed: bool,
    pub(super) routes: PolicyRoutes,
    pub(super) guard: LeakGuard,
}

/// Identifies a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PolicyKey {
    direction: Direction,
    id: PolicyId,
}

impl DesiredState {
    /// The desired state of a host with these addresses. Nothing of it is applied yet.
    pub(super) fn new(input: &PlanInput<'_>, addresses: Vec<IpAddr>) -> Self {
        let config = GuardConfig {
            tun: input.tun.into(),
            mark: input.numbers.mark,
            encap_ports: input.encap_ports.into(),
            cell_addresses: input.cell_addresses.to_vec(),
        };
        let mut desired = Self {
            policies: HashMap::new(),
            last_serial: 0,
            unwritten: Vec::new(),
            former: input.former_protected.iter().copied().collect(),
            former_changed: !input.former_protected.is_empty(),
            routes: PolicyRoutes::new(input.tun, addresses),
            guard: LeakGuard::new(config),
        };
        for (direction, policies) in
            [(Direction::Outbound, input.outbound), (Direction::Inbound, input.inbound)]
        {
            policies.iter().for_each(|(id, policy)| desired.add(direction, *id, policy));
        }
        // The plan writes its protected traffic itself, all at once.
        desired.unwritten.clear();
        desired.rebuild_guard();
        desired
    }

    /// Adds a policy, behind all others of its direction and priority. Policies of route-based tunnels ask
    /// for nothing: the administrator routes into their interfaces.
    pub(super) fn add(&mut self, direction: Direction, id: PolicyId, policy: &Policy) {
        if !policy.spd.is_main() {
            return;
        }
        // A counter of 64 bits never wraps in practice.
        self.last_serial = self.last_serial.wrapping_add(1);
        let rank = PolicyRank { priority: policy.priority, serial: self.last_serial };
        let intent = PolicyIntent::of(policy);
        let ranked = RankedPolicy { direction, rank, intent };
        if self.policies.insert(PolicyKey { direction, id }, ranked).is_some() {
            return;
        }
        if direction == Direction::Outbound {
            self.routes.add(rank, &intent);
        }
        self.guard.add(direction, rank, &intent);
        self.record_change(true, direction, &intent);
        self.release_former(&ProtectedSelector { direction, selector: policy.selector });
    }

    /// Whether traffic of a former run is still blocked.
    pub(super) fn has_former_traffic(&self) -> bool {
        !self.former.is_empty()
    }

    /// Outbound selectors of a former run that are still blocked; `None` if they have not changed since the
    /// last call.
    pub(super) fn take_former_outbound(&mut self) -> Option<HashSet<Selector>> {
        let outbound = self.former.iter().filter(|former| former.direction == Direction::Outbound);
        std::mem::take(&mut self.former_changed).then(|| outbound.map(|former| former.selector).collect())
    }

    /// Replaces each selector of a former run by those that `replacements` returns for it.
    pub(super) fn narrow_former_traffic(
        &mut self,
        replacements: impl Fn(&ProtectedSelector) -> Vec<ProtectedSelector>,
    ) {
        let after: HashSet<_> = self.former.iter().flat_map(&replacements).collect();
        let removed: Vec<_> = self.former.difference(&after).copied().collect();
        // New selectors are added before old ones are removed, because the new ones are parts of the old
        // ones.
        self.block(after);
        for selector in &removed {
            self.unblock(selector);
        }
    }

    /// Blocks this traffic, behind all policies, until a policy covers it.
    pub(super) fn block(&mut self, traffic: impl IntoIterator<Item = ProtectedSelector>) {
        for selector in traffic {
            if self.former.insert(selector) {
                let RankedPolicy { direction, rank, intent } = RankedPolicy::of_former(selector);
                self.guard.add(direction, rank, &intent);
                self.unwritten.push(TrafficChange { is_added: true, selector });
                self.former_changed = true;
            }
        }
    }

    /// Returns whether this traffic was blocked.
    fn unblock(&mut self, selector: &ProtectedSelector) -> bool {
        let was_blocked = self.former.remove(selector);
        if was_blocked {
            let RankedPolicy { direction, rank, intent } = RankedPolicy::of_former(*selector);
            self.guard.remove(direction, rank, &intent);
            self.unwritten.push(TrafficChange { is_added: false, selector: *selector });
            self.former_changed = true;
        }
        was_blocked
    }

    /// Unblocks what a new policy covers. Most policies cover exactly what the same configuration has
    /// blocked; then the others are not compared, so that the cost does not depend on their number.
    fn release_former(&mut self, policy: &ProtectedSelector) {
        if self.unblock(policy) {
            return;
        }
        let is_covered = |former: &&ProtectedSelector| {
            former.direction == policy.direction && covers(&policy.selector, &former.selector)
        };
        let covered: Vec<_> = self.former.iter().filter(is_covered).copied().collect();
        for former in &covered {
            self.unblock(former);
        }
    }

    /// All traffic that must not leave in clear, each selector as often as a policy asks for it.
    pub(super) fn protected_traffic(&self) -> impl Iterator<Item = ProtectedSelector> {
        let all = self.policies.values();
        let protected =
            all.filter(|policy| matches!(policy.intent.handling, Handling::DataPath { .. })).map(|policy| {
                ProtectedSelector { direction: policy.direction, selector: policy.intent.selector }
            });
        protected.chain(self.former.iter().copied())
    }

    /// The selectors of outbound traffic that policies protect.
    pub(super) fn protected_outbound(&self) -> impl Iterator<Item = Selector> {
        let outbound = |policy: &&RankedPolicy| policy.direction == Direction::Outbound;
        let is_protected =
            |policy: &&RankedPolicy| matches!(policy.intent.handling, Handling::DataPath { .. });
        let policies = self.policies.values();
        policies.filter(outbound).filter(is_protected).map(|policy| policy.intent.selector)
    }

    /// Removes a policy.
    pub(super) fn remove(&mut self, direction: Direction, id: PolicyId) {
        let Some(removed) = self.policies.remove(&PolicyKey { direction, id }) else { return };
        let RankedPolicy { rank, intent, .. } = removed;
        if direction == Direction::Outbound {
            self.routes.remove(rank, &intent);
        }
        self.guard.remove(direction, rank, &intent);
        self.record_change(false, direction, &intent);
    }

    fn record_change(&mut self, is_added: bool, direction: Direction, intent: &PolicyIntent) {
        if intent.handling != Handling::Bypass {
            let selector = ProtectedSelector { direction, selector: intent.selector };
            self.unwritten.push(TrafficChange { is_added, selector });
        }
    }

    /// Writes the changes of the protected traffic to the file, in their order.
    pub(super) fn write_protected_traffic(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let Some(file) = journal.protected_traffic() else { return Ok(()) };
        for TrafficChange { is_added, selector } in std::mem::take(&mut self.unwritten) {
            if is_added { file.add(selector) } else { file.remove(&selector) }
        }
        file.write()
    }

    /// The changes that the packet filter needs. They count as applied.
    pub(super) fn guard_update(&mut self) -> GuardUpdate {
        if self.guard.needs_rebuild() {
            self.rebuild_guard();
        }
        self.guard.take_update()
    }

    fn rebuild_guard(&mut self) {
        let former = self.former.iter().copied().map(RankedPolicy::of_former);
        self.guard.rebuild(self.policies.values().copied().chain(former));
    }

    /// All routes of `table`.
    pub(super) fn routes(&self, table: u32) -> impl Iterator<Item = Route> {
        let targets =
            self.routes.destinations().into_iter().filter_map(|dst| Some((dst, self.routes.target(dst)?)));
        targets.map(move |(dst, target)| Route { dst, table, target })
    }
}

/// A policy as the guard and the routes see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RankedPolicy {
    pub(crate) direction: Direction,
    pub(crate) rank: PolicyRank,
    pub(crate) intent: PolicyIntent,
}

impl RankedPolicy {
    /// Blocks traffic of a former run, which has no local tunnel endpoint.
    const fn of_former(former: ProtectedSelector) -> Self {
        let intent = PolicyIntent { selector: former.selector, handling: Handling::DataPath { end: None } };
        Self { direction: former.direction, rank: PolicyRank::LAST, intent }
    }
}

/// Rank of a policy within its direction: by priority, then in the order in which the policies were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PolicyRank {
    pub(crate) priority: u32,
    pub(crate) serial: u64,
}

impl PolicyRank {
    /// Not behind any other rank.
    pub(crate) const FIRST: Self = Self { priority: 0, serial: 0 };
    /// Not before any other rank.
    pub(crate) const LAST: Self = Self { priority: u32::MAX, serial: u64::MAX };
}

/// What a policy asks of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PolicyIntent {
    /// The packets.
    pub(crate) selector: Selector,
    /// How the packets are handled.
    pub(crate) handling: Handling,
}

/// How packets are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handling {
    /// They must go through the data path, which protects or discards them.
    DataPath {
        /// Our address of the outermost tunnel.
        end: Option<IpAddr>,
    },
    /// They are sent and received in clear.
    Bypass,
}

impl PolicyIntent {
    pub(crate) fn of(policy: &Policy) -> Self {
        let handling = match &policy.action {
            Action::Protect(bundle) => {
                Handling::DataPath { end: bundle.templates().last().and_then(|template| template.src) }
            }
            Action::Discard => Handling::DataPath { end: None },
            Action::Bypass => Handling::Bypass,
        };
        Self { selector: policy.selector, handling }
    }
}
