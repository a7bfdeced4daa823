//! The routes that policies ask for, and which of them may differ from those of the kernel.
//!
//! All traffic that a policy protects or discards is routed into the TUN interface, even if a policy of
//! higher rank bypasses part of it: the data path decides. Only traffic that is bypassed in any case is
//! routed past the TUN interface. A bypass for some sources only has a route into the TUN interface beside
//! one that contains it, so that the host's own packets have a source that matches the bypass.

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
    /// Destinations of bypasses for some sources only.
    sources: BTreeSet<Prefix>,
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
    /// A source address in `src` for packets that policies of lower rank route into the TUN interface.
    Source { src: AddrRange },
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
            sources: BTreeSet::new(),
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
            Handling::Bypass if matches_all_between(&intent.selector) => RouteClaim::Source { src },
            Handling::Bypass => return,
        };
        if matches!(claim, RouteClaim::Source { .. }) {
            self.sources.extend(&prefixes);
        }
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
        self.forget_sources(&prefixes);
        if intent.handling != Handling::Bypass {
            self.update_blockers(rank, &prefixes, |count, times| {
                count.checked_sub(times).or_broken("a removed policy blocked before", 0)
            });
        }
    }

    /// Forgets destinations for which no bypass for some sources is left.
    fn forget_sources(&mut self, prefixes: &[Prefix]) {
        for dst in prefixes {
            if !self.claims_of(*dst).any(|(_, claim)| matches!(claim, RouteClaim::Source { .. })) {
                self.sources.remove(dst);
            }
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
        if let Some(source) = self.bypass_source(dst) {
            return Some(RouteTarget::Tun(self.tun.clone(), Some(source)));
        }
        match self.effective_claim(dst)? {
            RouteClaim::Tun { src, end } => {
                Some(RouteTarget::Tun(self.tun.clone(), self.preferred_source(src, *end)))
            }
            // A bypass route is needed only next to a route into the TUN interface.
            RouteClaim::Bypass => self.has_tun_routes(dst.is_ipv4()).then_some(RouteTarget::Throw),
            RouteClaim::Source { .. } => None,
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
        let is_open =
            |rank: &PolicyRank| self.bypasses.get(rank).is_some_and(|bypass| bypass.blocked_by == 0);
        let holds = |(key, claim): &(&ClaimKey, &RouteClaim)| match claim {
            RouteClaim::Tun { .. } => true,
            RouteClaim::Bypass => is_open(&key.rank),
            RouteClaim::Source { .. } => false,
        };
        self.claims_of(dst).find(holds).map(|(_, claim)| claim)
    }

    /// The source address for packets to `dst` that match a bypass for some sources only. `None` unless
    /// policies of lower rank, and none of higher rank, route those packets into the TUN interface.
    fn bypass_source(&self, dst: Prefix) -> Option<IpAddr> {
        let (rank, source) = self.claims_of(dst).find_map(|(key, claim)| match claim {
            RouteClaim::Source { src } => Some((key.rank, self.preferred_source(src, None)?)),
            RouteClaim::Tun { .. } | RouteClaim::Bypass => None,
        })?;
        let around = Prefix::around(dst.addr).take_while(|prefix| prefix.len <= dst.len);
        let is_tun = |(_, claim): &(&ClaimKey, &RouteClaim)| matches!(claim, RouteClaim::Tun { .. });
        let first =
            around.flat_map(|prefix| self.claims_of(prefix)).filter(is_tun).map(|(key, _)| key.rank).min();
        first.filter(|first| rank < *first).map(|_| source)
    }

    /// The claims for a destination in the order of their ranks.
    fn claims_of(&self, dst: Prefix) -> impl Iterator<Item = (&ClaimKey, &RouteClaim)> {
        let key = |rank| ClaimKey { dst, rank };
        self.claims.range(key(PolicyRank::FIRST)..=key(PolicyRank::LAST))
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
        self.changed
            .extend(self.sources.iter().filter(|dst| destinations.iter().any(|tun| tun.contains(dst))));
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
    any_source && matches_all_between(selector)
}

/// Whether a selector matches every packet from its sources to its destinations.
fn matches_all_between(selector: &Selector) -> bool {
    let any_port = selector.src_port == PortRange::ANY && selector.dst_port == PortRange::ANY;
    any_port && selector.proto.is_none()
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

#[cfg(test)]
mod tests {
    use super::*;

    const ETHERNET: [u8; 4] = [10, 1, 0, 10];
    const VIRTUAL: [u8; 4] = [10, 3, 0, 1];

    fn prefix(addr: [u8; 4], len: u8) -> Prefix {
        Prefix { addr: addr.into(), len }
    }

    fn intent(src: Prefix, dst: Prefix, handling: Handling) -> PolicyIntent {
        let (src_port, dst_port) = (PortRange::ANY, PortRange::ANY);
        let selector = Selector { src: src.range(), dst: dst.range(), proto: None, src_port, dst_port };
        PolicyIntent { selector, handling }
    }

    fn rank(priority: u32) -> PolicyRank {
        PolicyRank { priority, serial: 1 }
    }

    fn source(routes: &PolicyRoutes, dst: Prefix) -> Option<IpAddr> {
        match routes.target(dst) {
            Some(RouteTarget::Tun(_, source)) => source,
            _ => None,
        }
    }

    /// A tunnel to all addresses with a virtual address, and an exception for the local network, in any
    /// order.
    #[test]
    fn a_bypass_for_some_sources_chooses_the_source_beside_a_tunnel() {
        let (net, all) = (prefix([10, 1, 0, 0], 16), prefix([0; 4], 0));
        let tunnel = intent(prefix(VIRTUAL, 32), all, Handling::DataPath { end: None });
        let exception = intent(net, net, Handling::Bypass);
        for exception_first in [true, false] {
            let mut routes = PolicyRoutes::new("tun", vec![VIRTUAL.into(), ETHERNET.into()]);
            let mut both = [(rank(5), &exception), (rank(10), &tunnel)];
            if !exception_first {
                both.reverse();
            }
            for (rank, intent) in both {
                assert_eq!(source(&routes, net), None, "one of them alone needs no route");
                routes.take_changed();
                routes.add(rank, intent);
            }
            assert!(routes.take_changed().contains(&net));
            assert_eq!(source(&routes, net), Some(ETHERNET.into()));
            assert_eq!(source(&routes, all), Some(VIRTUAL.into()));
            // Without an address there, the virtual address is used.
            routes.set_addresses(vec![VIRTUAL.into()]);
            assert_eq!(routes.target(net), None);
            routes.set_addresses(vec![VIRTUAL.into(), ETHERNET.into()]);
            routes.take_changed();
            routes.remove(rank(10), &tunnel);
            assert!(routes.take_changed().contains(&net));
            assert_eq!(routes.target(net), None);
            assert!(!routes.has_tun_routes(true));
        }
    }

    /// The source of a policy of higher rank comes first.
    #[test]
    fn a_bypass_behind_a_tunnel_chooses_no_source() {
        let (net, all) = (prefix([10, 1, 0, 0], 16), prefix([0; 4], 0));
        let mut routes = PolicyRoutes::new("tun", vec![VIRTUAL.into(), ETHERNET.into()]);
        routes.add(rank(5), &intent(prefix(VIRTUAL, 32), all, Handling::DataPath { end: None }));
        routes.add(rank(10), &intent(net, net, Handling::Bypass));
        assert_eq!(routes.target(net), None);
    }
}
