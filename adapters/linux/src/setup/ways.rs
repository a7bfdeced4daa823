//! The routes that policies ask for, and which of them may differ from the kernel's.
//!
//! Whatever a policy protects or discards goes into the TUN interface, also where a policy of higher rank lets part of it
//! pass: the data path decides. Only what passes in any case goes past it.

use crate::rank::{Demand, Purpose, Rank};
use crate::route::{Prefix, Way};
use casemate_sa::{AddrRange, PortRange, Selector};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The ways to all destinations.
#[derive(Debug)]
pub(super) struct Ways {
    tun: Arc<str>,
    /// The addresses of this host.
    addresses: Vec<IpAddr>,
    /// What policies want of destinations. The first has the say.
    claims: BTreeMap<(Prefix, Rank), Claim>,
    /// The policies that pass in any case unless they are blocked.
    passing: BTreeMap<Rank, Passing>,
    /// How many destinations are led in, IPv4 and IPv6.
    inward: [usize; 2],
    /// Destinations whose ways may be other ones now.
    touched: BTreeSet<Prefix>,
}

/// What a policy wants of a destination.
#[derive(Debug, Clone, Copy)]
enum Claim {
    /// Its packets go in, from an address of `src`, if possible the `end`.
    Into { src: AddrRange, end: Option<IpAddr> },
    /// They pass, unless it is blocked.
    Past,
}

/// A policy that lets everything to its destinations pass.
#[derive(Debug)]
struct Passing {
    dst: AddrRange,
    /// How many claims of higher rank lead in what it lets pass.
    blocked_by: usize,
}

impl Ways {
    /// No ways yet, into the interface `tun` of a host with these addresses.
    pub(super) fn new(tun: &str, addresses: Vec<IpAddr>) -> Self {
        Self {
            tun: tun.into(),
            addresses,
            claims: BTreeMap::new(),
            passing: BTreeMap::new(),
            inward: [0; 2],
            touched: BTreeSet::new(),
        }
    }

    /// An outbound policy comes.
    pub(super) fn add(&mut self, rank: Rank, demand: &Demand) {
        let Selector { src, dst, .. } = demand.selector;
        let prefixes = Prefix::cover(&dst);
        let claim = match demand.purpose {
            Purpose::Inside { end } => Claim::Into { src, end },
            Purpose::Bypass if lets_all_pass(&demand.selector) => {
                let blocks = |(at, claim): &(&(Prefix, Rank), &Claim)| {
                    matches!(claim, Claim::Into { .. }) && at.1 < rank && overlap(at.0, &dst)
                };
                let blocked_by = self.claims.iter().filter(blocks).count();
                self.passing.insert(rank, Passing { dst, blocked_by });
                Claim::Past
            }
            Purpose::Bypass => return,
        };
        self.change(&prefixes, |ways| {
            ways.claims.extend(prefixes.iter().map(|prefix| ((*prefix, rank), claim)));
        });
        if matches!(claim, Claim::Into { .. }) {
            self.block(rank, &prefixes, usize::saturating_add);
        }
    }

    /// An outbound policy goes.
    pub(super) fn remove(&mut self, rank: Rank, demand: &Demand) {
        let prefixes = Prefix::cover(&demand.selector.dst);
        self.change(&prefixes, |ways| {
            for prefix in &prefixes {
                ways.claims.remove(&(*prefix, rank));
            }
            ways.passing.remove(&rank);
        });
        if demand.purpose != Purpose::Bypass {
            self.block(rank, &prefixes, usize::saturating_sub);
        }
    }

    /// The addresses of this host.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The host has other addresses.
    pub(super) fn set_addresses(&mut self, addresses: Vec<IpAddr>) {
        if self.addresses != addresses {
            self.addresses = addresses;
            self.touched.extend(self.claims.keys().map(|(prefix, _)| *prefix));
        }
    }

    /// Every destination that has a way.
    pub(super) fn destinations(&self) -> BTreeSet<Prefix> {
        self.claims.keys().map(|(prefix, _)| *prefix).collect()
    }

    /// The way to a destination, if it needs one.
    pub(super) fn way(&self, dst: Prefix) -> Option<Way> {
        match self.decides(dst)? {
            Claim::Into { src, end } => Some(Way::Into(self.tun.clone(), self.preferred_source(src, *end))),
            // A way past is needed only around a way in.
            Claim::Past => self.leads_in(dst.is_ipv4()).then_some(Way::Past),
        }
    }

    /// Whether any destination of an IP version is led in.
    pub(super) const fn leads_in(&self, v4: bool) -> bool {
        let [inward_v4, inward_v6] = self.inward;
        (if v4 { inward_v4 } else { inward_v6 }) > 0
    }

    /// Whether packets to an address are led in by any of its ways.
    pub(super) fn leads_in_to(&self, addr: IpAddr) -> bool {
        Prefix::around(addr).any(|prefix| matches!(self.decides(prefix), Some(Claim::Into { .. })))
    }

    /// The destinations whose ways may be other ones than before. To be asked once.
    pub(super) fn take_touched(&mut self) -> BTreeSet<Prefix> {
        std::mem::take(&mut self.touched)
    }

    /// A destination whose route could not be changed, and is to be looked at again.
    pub(super) fn touch(&mut self, destination: Prefix) {
        self.touched.insert(destination);
    }

    /// The first claim that holds.
    fn decides(&self, dst: Prefix) -> Option<&Claim> {
        let mut of_dst = self.claims.range((dst, Rank::FIRST)..=(dst, Rank::LAST));
        let holds = |((_, rank), claim): &(&(Prefix, Rank), &Claim)| match claim {
            Claim::Into { .. } => true,
            Claim::Past => self.passing.get(rank).is_some_and(|passing| passing.blocked_by == 0),
        };
        of_dst.find(holds).map(|(_, claim)| claim)
    }

    /// Changes what concerns destinations of one IP version.
    fn change(&mut self, destinations: &[Prefix], act: impl FnOnce(&mut Self)) {
        let Some(v4) = destinations.first().map(Prefix::is_ipv4) else { return };
        let is_in = |ways: &Self, dst: &&Prefix| matches!(ways.decides(**dst), Some(Claim::Into { .. }));
        let count = |ways: &Self| destinations.iter().filter(|dst| is_in(ways, dst)).count();
        let (before, needed) = (count(self), self.leads_in(v4));
        act(self);
        let after = count(self);
        let [inward_v4, inward_v6] = &mut self.inward;
        let inward = if v4 { inward_v4 } else { inward_v6 };
        *inward = inward.saturating_add(after).saturating_sub(before);
        self.touched.extend(destinations);
        if needed != self.leads_in(v4) {
            self.touched.extend(self.passing.values().flat_map(|passing| Prefix::cover(&passing.dst)));
        }
    }

    /// A policy that leads in came or went, which counts for those of lower rank that let the same pass.
    fn block(&mut self, rank: Rank, prefixes: &[Prefix], count: fn(usize, usize) -> usize) {
        let below: Vec<(Rank, AddrRange)> =
            self.passing.range(rank..).map(|(rank, passing)| (*rank, passing.dst)).collect();
        for (rank, dst) in below {
            let times = prefixes.iter().filter(|prefix| overlap(**prefix, &dst)).count();
            if times == 0 {
                continue;
            }
            self.change(&Prefix::cover(&dst), |ways| {
                if let Some(passing) = ways.passing.get_mut(&rank) {
                    passing.blocked_by = count(passing.blocked_by, times);
                }
            });
        }
    }

    /// The address that the host's own packets should come from, so that they match the policy.
    fn preferred_source(&self, src: &AddrRange, end: Option<IpAddr>) -> Option<IpAddr> {
        let fits = |addr: &&IpAddr| src.contains(**addr) && is_global(addr);
        let mut fitting = self.addresses.iter().filter(fits);
        let first = fitting.clone().next();
        fitting.find(|addr| Some(**addr) == end).or(first).copied()
    }
}

/// Whether every packet to the destinations of a selector matches it.
fn lets_all_pass(selector: &Selector) -> bool {
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
