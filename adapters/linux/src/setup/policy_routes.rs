//! The routes that policies ask for, and which of them may differ from those of the kernel.
//!
//! All traffic that a policy protects or discards is routed into the TUN interface, even if a policy of
//! higher rank bypasses part of it: the data path decides. Only traffic that is bypassed in any case is
//! routed past the TUN interface.

use crate::route::{Prefix, RouteTarget};
use crate::setup::desired_state::{Handling, PolicyIntent, PolicyRank};
use casemate_sa::{AddrRange, PortRange, Selector};
use casemate_wire::invariant::OrBroken;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The routes to all destinations.
#[derive(Debug)]
pub(super) struct PolicyRoutes {
    tun: Arc<str>,
    /// The local addresses.
    addresses: Vec<IpAddr>,
    /// What policies ask for each destination. The claim of the first rank decides.
    claims: BTreeMap<ClaimKey, RouteClaim>,
    /// Policies that bypass all traffic to their destinations, unless they are blocked.
    bypasses: BTreeMap<PolicyRank, BypassRoute>,
    /// Number of destinations routed into the TUN interface, for IPv4 and IPv6.
    tun_destinations: [usize; 2],
    /// Destinations whose routes may have changed.
    changed: BTreeSet<Prefix>,
}

/// Identifies a claim. The claims for a destination are in the order of their ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ClaimKey {
    dst: Prefix,
    rank: PolicyRank,
}

/// What a policy asks for a destination.
#[derive(Debug, Clone, Copy)]
enum RouteClaim {
    /// Route into the TUN interface, with a source address in `src`, preferably `end`.
    Tun { src: AddrRange, end: Option<IpAddr> },
    /// Bypass, unless it is blocked.
    Bypass,
}

/// A policy that bypasses all traffic to its destinations.
#[derive(Debug)]
struct BypassRoute {
    dst: AddrRange,
    /// Number of claims of higher rank that route part of that traffic into the TUN interface.
    blocked_by: usize,
}

impl PolicyRoutes {
    /// No routes yet, for the interface `tun` of a host with these addresses.
    pub(super) fn new(tun: &str, addresses: Vec<IpAddr>) -> Self {
        Self {
            tun: tun.into(),
            addresses,
            claims: BTreeMap::new(),
            bypasses: BTreeMap::new(),
            tun_destinations: [0; 2],
            changed: BTreeSet::new(),
        }
    }

    /// Adds an outbound policy.
    pub(super) fn add(&mut self, rank: PolicyRank, intent: &PolicyIntent) {
        let Selector { src, dst, .. } = intent.selector;
        let prefixes = Prefix::cover(&dst);
        let claim = match intent.handling {
            Handling::DataPath { end } => RouteClaim::Tun { src, end },
            Handling::Bypass if matches_all_to_dst(&intent.selector) => {
                let blocks = |(key, claim): &(&ClaimKey, &RouteClaim)| {
                    matches!(claim, RouteClaim::Tun { .. }) && key.rank < rank && overlap(key.dst, &dst)
                };
                let blocked_by = self.claims.iter().filter(blocks).count();
                self.bypasses.insert(rank, BypassRoute { dst, blocked_by });
                RouteClaim::Bypass
            }
            Handling::Bypass => return,
        };
        self.change(&prefixes, |routes| {
            routes.claims.extend(prefixes.iter().map(|&dst| (ClaimKey { dst, rank }, claim)));
        });
        if matches!(claim, RouteClaim::Tun { .. }) {
            self.update_blockers(rank, &prefixes, |count, times| count.saturating_add(times));
        }
    }

    /// Removes an outbound policy.
    pub(super) fn remove(&mut self, rank: PolicyRank, intent: &PolicyIntent) {
        let prefixes = Prefix::cover(&intent.selector.dst);
        self.change(&prefixes, |routes| {
            for &dst in &prefixes {
                routes.claims.remove(&ClaimKey { dst, rank });
            }
            routes.bypasses.remove(&rank);
        });
        if intent.handling != Handling::Bypass {
            self.update_blockers(rank, &prefixes, |count, times| {
                count.checked_sub(times).or_broken("a removed policy blocked before", 0)
            });
        }
    }

    /// The local addresses.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Sets the local addresses.
    pub(super) fn set_addresses(&mut self, addresses: Vec<IpAddr>) {
        if self.addresses != addresses {
            self.addresses = addresses;
            self.changed.extend(self.claims.keys().map(|key| key.dst));
        }
    }

    /// All destinations with a claim.
    pub(super) fn destinations(&self) -> BTreeSet<Prefix> {
        self.claims.keys().map(|key| key.dst).collect()
    }

    /// The target of the route to a destination, if it needs a route.
    pub(super) fn target(&self, dst: Prefix) -> Option<RouteTarget> {
        match self.effective_claim(dst)? {
            RouteClaim::Tun { src, end } => {
                Some(RouteTarget::Tun(self.tun.clone(), self.preferred_source(src, *end)))
            }
            // A bypass route is needed only next to a route into the TUN interface.
            RouteClaim::Bypass => self.has_tun_routes(dst.is_ipv4()).then_some(RouteTarget::Throw),
        }
    }

    /// Whether any destination of an IP version is routed into the TUN interface.
    pub(super) const fn has_tun_routes(&self, v4: bool) -> bool {
        let [v4_count, v6_count] = self.tun_destinations;
        (if v4 { v4_count } else { v6_count }) > 0
    }

    /// Whether any route for an address leads into the TUN interface.
    pub(super) fn routes_into_tun(&self, addr: IpAddr) -> bool {
        Prefix::around(addr)
            .any(|prefix| matches!(self.effective_claim(prefix), Some(RouteClaim::Tun { .. })))
    }

    /// Takes the destinations whose routes may have changed since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<Prefix> {
        std::mem::take(&mut self.changed)
    }

    /// Marks a destination for another attempt, because its route could not be changed.
    pub(super) fn mark_changed(&mut self, destination: Prefix) {
        self.changed.insert(destination);
    }

    /// The claim that decides: the first one that is not a blocked bypass.
    fn effective_claim(&self, dst: Prefix) -> Option<&RouteClaim> {
        let key = |rank| ClaimKey { dst, rank };
        let mut of_dst = self.claims.range(key(PolicyRank::FIRST)..=key(PolicyRank::LAST));
        let is_open =
            |rank: &PolicyRank| self.bypasses.get(rank).is_some_and(|bypass| bypass.blocked_by == 0);
        let holds = |(key, claim): &(&ClaimKey, &RouteClaim)| match claim {
            RouteClaim::Tun { .. } => true,
            RouteClaim::Bypass => is_open(&key.rank),
        };
        of_dst.find(holds).map(|(_, claim)| claim)
    }

    /// Calls `act`, which changes claims for these destinations of one IP version, and updates the counts.
    fn change(&mut self, destinations: &[Prefix], act: impl FnOnce(&mut Self)) {
        let Some(v4) = destinations.first().map(Prefix::is_ipv4) else { return };
        let is_in = |routes: &Self, dst: &&Prefix| {
            matches!(routes.effective_claim(**dst), Some(RouteClaim::Tun { .. }))
        };
        let count = |routes: &Self| destinations.iter().filter(|dst| is_in(routes, dst)).count();
        let (before, needed) = (count(self), self.has_tun_routes(v4));
        act(self);
        let after = count(self);
        let [v4_count, v6_count] = &mut self.tun_destinations;
        let count = if v4 { v4_count } else { v6_count };
        let others = count.checked_sub(before).or_broken("the destinations were counted before", 0);
        *count = others.saturating_add(after);
        self.changed.extend(destinations);
        if needed != self.has_tun_routes(v4) {
            self.changed.extend(self.bypasses.values().flat_map(|bypass| Prefix::cover(&bypass.dst)));
        }
    }

    /// Updates the blockers of all bypasses of lower rank, because a policy with routes into the TUN
    /// interface was added or removed.
    fn update_blockers(&mut self, rank: PolicyRank, prefixes: &[Prefix], count: fn(usize, usize) -> usize) {
        let below: Vec<(PolicyRank, AddrRange)> =
            self.bypasses.range(rank..).map(|(rank, bypass)| (*rank, bypass.dst)).collect();
        for (rank, dst) in below {
            let times = prefixes.iter().filter(|prefix| overlap(**prefix, &dst)).count();
            if times == 0 {
                continue;
            }
            self.change(&Prefix::cover(&dst), |routes| {
                if let Some(bypass) = routes.bypasses.get_mut(&rank).or_report("the bypass is in the table") {
                    bypass.blocked_by = count(bypass.blocked_by, times);
                }
            });
        }
    }

    /// Preferred source address of the host's own packets, so that they match the policy.
    fn preferred_source(&self, src: &AddrRange, end: Option<IpAddr>) -> Option<IpAddr> {
        let fits = |addr: &&IpAddr| src.contains(**addr) && is_global(addr);
        let mut fitting = self.addresses.iter().filter(fits);
        let first = fitting.clone().next();
        fitting.find(|addr| Some(**addr) == end).or(first).copied()
    }
}

/// Whether a selector matches every packet to its destinations.
fn matches_all_to_dst(selector: &Selector) -> bool {
    let any_source = selector.src == AddrRange::ANY_V4 || selector.src == AddrRange::ANY_V6;
    let any_port = selector.src_port == PortRange::ANY && selector.dst_port == PortRange::ANY;
    any_source && any_port && selector.proto.is_none()
}

fn overlap(prefix: Prefix, range: &AddrRange) -> bool {
    let prefix = prefix.range();
    prefix.first() <= range.last() && range.first() <= prefix.last()
}

fn is_global(addr: &IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => !addr.is_loopback() && !addr.is_link_local(),
        IpAddr::V6(addr) => !addr.is_loopback() && !addr.is_unicast_link_local(),
    }
}
