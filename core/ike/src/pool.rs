//! Leases of virtual addresses (RFC 7296 section 2.19).

use crate::config::Pool;
use crate::peers::AuthScope;
use alloc::vec::Vec;
use casemate_tables::{Index, Key, Names, Table, Words};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Pools by name, with who has what.
#[derive(Debug, Default)]
pub(crate) struct Pools(Vec<Leases>);

#[derive(Debug)]
struct Leases {
    pool: Pool,
    /// Addresses that are in use now, or were by whom.
    taken: Table<u128, Lease>,
    /// The same by the peer ([`AuthScope::peer`]): the bits of the address.
    by_peer: Names,
    /// Those that are free, by their bits.
    free: Index,
    /// How many addresses, from the first on, were given out so far.
    used: u128,
}

#[derive(Debug)]
struct Lease {
    to: AuthScope,
    /// The peer's address outside.
    remote: IpAddr,
    /// IKE SAs that have it: two while one takes the other's place.
    holders: usize,
}

impl Lease {
    const fn is_free(&self) -> bool {
        self.holders == 0
    }
}

/// Who wants an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lessee<'a> {
    pub(crate) scope: &'a AuthScope,
    /// Its address outside.
    pub(crate) remote: IpAddr,
    /// Its other IKE SAs of the same scope are about to be closed: what they have is its own.
    pub(crate) replaces: bool,
    /// What this IKE SA has already.
    pub(crate) has: &'a [IpAddr],
}

/// The most addresses of a pool that are remembered for peers that are gone.
const REMEMBERED: usize = 65_536;

impl Pools {
    /// Puts new pools in the place of the old ones. Leases stay where pool and address do.
    pub(crate) fn replace(&mut self, pools: &[Pool]) {
        let mut old = core::mem::take(&mut self.0);
        self.0 = pools
            .iter()
            .map(|pool| {
                let known = old.iter().position(|leases| leases.pool.addrs == pool.addrs);
                let known = known.map(|at| old.swap_remove(at));
                match known {
                    Some(known) => Leases { pool: pool.clone(), ..known },
                    None => Leases::new(pool.clone()),
                }
            })
            .collect();
    }

    /// An address of the first of the pools `names` that has the IP version and a free one; `wanted` if it is free.
    pub(crate) fn lease(
        &mut self,
        names: &[alloc::string::String],
        v4: bool,
        wanted: Option<IpAddr>,
        to: Lessee<'_>,
    ) -> Option<IpAddr> {
        let pools = self
            .0
            .iter_mut()
            .filter(|leases| leases.pool.addrs.is_ipv4() == v4 && names.contains(&leases.pool.name));
        pools.into_iter().find_map(|leases| leases.lease(wanted, to))
    }

    /// An address is free again; its peer gets it back when it comes again.
    pub(crate) fn release(&mut self, addr: IpAddr) {
        let pools = self.0.iter_mut().filter(|leases| leases.pool.addrs.contains(addr));
        for Leases { taken, free, .. } in pools {
            let Some(lease) = taken.get_mut(bits(addr)) else { continue };
            lease.holders = lease.holders.saturating_sub(1);
            if lease.is_free() {
                free.insert(entry(addr));
            }
            return;
        }
    }

    /// The peer that has this address is at another one outside.
    pub(crate) fn follow(&mut self, addr: IpAddr, remote: IpAddr) {
        for Leases { taken, .. } in self.0.iter_mut().filter(|leases| leases.pool.addrs.contains(addr)) {
            if let Some(lease) = taken.get_mut(bits(addr)) {
                lease.remote = remote;
            }
        }
    }

    /// The pools with these names.
    pub(crate) fn named<'a>(
        &'a self,
        names: &'a [alloc::string::String],
    ) -> impl Iterator<Item = &'a Pool> + 'a {
        self.0.iter().map(|leases| &leases.pool).filter(|pool| names.contains(&pool.name))
    }
}

impl Leases {
    fn new(pool: Pool) -> Self {
        Self { pool, taken: Table::default(), by_peer: Names::new(), free: Index::new(), used: 0 }
    }

    fn lease(&mut self, wanted: Option<IpAddr>, to: Lessee<'_>) -> Option<IpAddr> {
        if let Some(addr) = self.own(wanted, to)
            && let Some(lease) = self.taken.get_mut(bits(addr))
        {
            let holders = lease.holders.saturating_add(1);
            *lease = Lease { to: to.scope.clone(), remote: to.remote, holders };
            self.free.remove(entry(addr));
            return Some(addr);
        }
        let is_free = |addr: &IpAddr| {
            self.pool.addrs.contains(*addr) && self.taken.get(bits(*addr)).is_none_or(Lease::is_free)
        };
        let addr = wanted.filter(is_free).or_else(|| self.fresh()).or_else(|| self.oldest())?;
        let lease = Lease { to: to.scope.clone(), remote: to.remote, holders: 1 };
        if let Some(before) = self.taken.insert(bits(addr), lease) {
            self.by_peer.remove(before.to.peer(), bits(addr).words());
        }
        self.free.remove(entry(addr));
        self.by_peer.insert(to.scope.peer(), bits(addr).words());
        Some(addr)
    }

    /// An address that this peer may have again: the one that it wants, or else the lowest.
    fn own(&self, wanted: Option<IpAddr>, to: Lessee<'_>) -> Option<IpAddr> {
        let may_have = |addr: &IpAddr| !to.has.contains(addr) && self.may_have_again(*addr, wanted, to);
        let known = || self.by_peer.of(to.scope.peer()).map(|words| self.addr(words));
        let is_known = |addr: &IpAddr| {
            self.taken.get(bits(*addr)).is_some_and(|lease| lease.to.peer() == to.scope.peer())
        };
        wanted.filter(is_known).filter(may_have).or_else(|| known().find(may_have))
    }

    /// Whether an address that this peer had or has is free, or held by its own IKE SAs that the new one
    /// takes the place of. It does if they are about to be closed, or if the peer asks from the same host for
    /// what it has: then it is authenticated anew (RFC 7296 section 2.8.3).
    fn may_have_again(&self, addr: IpAddr, wanted: Option<IpAddr>, to: Lessee<'_>) -> bool {
        let is_reauthentication = |lease: &Lease| wanted == Some(addr) && lease.remote == to.remote;
        self.taken.get(bits(addr)).is_some_and(|lease| {
            lease.is_free() || (lease.to == *to.scope && (to.replaces || is_reauthentication(lease)))
        })
    }

    /// The next address that nobody had.
    fn fresh(&mut self) -> Option<IpAddr> {
        if self.taken.len() >= REMEMBERED {
            return None;
        }
        // Each step passes an address that is taken already, so there are not more steps than leases.
        loop {
            let addr =
                nth(self.pool.addrs.first(), self.used).filter(|addr| self.pool.addrs.contains(*addr))?;
            self.used = self.used.saturating_add(1);
            if !self.taken.contains(bits(addr)) {
                return Some(addr);
            }
        }
    }

    /// The lowest address whose peer is gone.
    fn oldest(&self) -> Option<IpAddr> {
        self.free.first().map(|[upper, lower, _]| self.addr([upper, lower]))
    }

    /// The address of the pool with these bits.
    fn addr(&self, [upper, lower]: [u64; 2]) -> IpAddr {
        match self.pool.addrs.first() {
            IpAddr::V4(_) => Ipv4Addr::from_bits(lower as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(lower)).into(),
        }
    }
}

/// An address as a number: a pool has addresses of one version of IP.
fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_bits().into(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// An address among the free ones.
fn entry(addr: IpAddr) -> Words {
    let [upper, lower] = bits(addr).words();
    [upper, lower, 0]
}

fn nth(first: IpAddr, n: u128) -> Option<IpAddr> {
    Some(match first {
        IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits().checked_add(u32::try_from(n).ok()?)?).into(),
        IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits().checked_add(n)?).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Connection, Identity};
    use crate::peers::Proof;
    use alloc::string::ToString;
    use alloc::vec;
    use casemate_sa::AddrRange;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn scope(peer: &str) -> AuthScope {
        let named = |name: &str| Identity::Fqdn(name.into());
        let connection = Connection::with_shared_key("t", named("us"), named(peer));
        AuthScope::new((&connection, Proof::SharedKey), &named("us"), &named(peer), HOST)
    }

    fn pools(range: &str) -> Pools {
        let (first, last) = range.split_once('-').unwrap();
        let addrs = AddrRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap();
        let mut pools = Pools::default();
        pools.replace(&[Pool { name: "p".into(), addrs, dns: vec![], subnets: vec![] }]);
        pools
    }

    fn lease(pools: &mut Pools, wanted: Option<&str>, to: &str) -> Option<alloc::string::String> {
        let wanted = wanted.map(|addr| addr.parse().unwrap());
        let to = Lessee { scope: &scope(to), remote: HOST, replaces: false, has: &[] };
        let lease = pools.lease(&["p".into()], true, wanted, to);
        lease.map(|addr| addr.to_string())
    }

    #[test]
    fn addresses_are_given_once_and_come_back() {
        let mut pools = pools("10.0.0.1-10.0.0.3");
        assert_eq!(lease(&mut pools, None, "a").as_deref(), Some("10.0.0.1"));
        assert_eq!(lease(&mut pools, Some("10.0.0.1"), "b").as_deref(), Some("10.0.0.2"));
        assert_eq!(lease(&mut pools, Some("10.0.0.3"), "c").as_deref(), Some("10.0.0.3"));
        assert_eq!(lease(&mut pools, None, "d"), None);
        pools.release("10.0.0.2".parse().unwrap());
        assert_eq!(lease(&mut pools, None, "B").as_deref(), Some("10.0.0.2"), "the same peer");
        pools.release("10.0.0.1".parse().unwrap());
        assert_eq!(lease(&mut pools, None, "d").as_deref(), Some("10.0.0.1"), "a peer that is gone");
    }

    #[test]
    fn other_pools_and_versions_are_not_touched() {
        let mut pools = pools("10.0.0.1-10.0.0.3");
        let to = Lessee { scope: &scope("a"), remote: HOST, replaces: false, has: &[] };
        assert_eq!(pools.lease(&["q".into()], true, None, to), None);
        assert_eq!(pools.lease(&["p".into()], false, None, to), None);
    }

    #[test]
    fn a_peer_that_begins_anew_keeps_its_address_until_its_last_ike_sa_is_gone() {
        let mut pools = pools("10.0.0.1-10.0.0.1");
        let addr = lease(&mut pools, None, "a");
        let to = Lessee { scope: &scope("a"), remote: HOST, replaces: true, has: &[] };
        let again = pools.lease(&["p".into()], true, None, to);
        assert_eq!(again.map(|addr| addr.to_string()), addr);
        pools.release("10.0.0.1".parse().unwrap());
        assert_eq!(lease(&mut pools, None, "b"), None, "the new one has it");
        pools.release("10.0.0.1".parse().unwrap());
        assert_eq!(lease(&mut pools, None, "b"), addr);
    }

    #[test]
    fn a_peer_that_is_authenticated_anew_shares_its_address_with_itself_alone() {
        let mut pools = pools("10.0.0.1-10.0.0.4");
        let addr = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut from = |remote: &str, wanted: Option<&str>, peer: &str| {
            let to = Lessee { scope: &scope(peer), remote: addr(remote), replaces: false, has: &[] };
            pools.lease(&["p".into()], true, wanted.map(addr), to).map(|addr| addr.to_string())
        };
        assert_eq!(from("192.0.2.1", None, "a").as_deref(), Some("10.0.0.1"));
        assert_eq!(from("192.0.2.1", Some("10.0.0.1"), "a").as_deref(), Some("10.0.0.1"));
        assert_eq!(from("192.0.2.2", Some("10.0.0.1"), "a").as_deref(), Some("10.0.0.2"), "another host");
        assert_eq!(from("192.0.2.1", Some("10.0.0.1"), "b").as_deref(), Some("10.0.0.3"), "another peer");
        // It has moved.
        pools.follow(addr("10.0.0.1"), addr("192.0.2.9"));
        let to = Lessee { scope: &scope("a"), remote: addr("192.0.2.9"), replaces: false, has: &[] };
        assert_eq!(pools.lease(&["p".into()], true, Some(addr("10.0.0.1")), to), Some(addr("10.0.0.1")));
        for _ in 0..3 {
            assert_eq!(pools.0[0].free.len(), 0);
            pools.release(addr("10.0.0.1"));
        }
        assert_eq!(pools.0[0].free.len(), 1, "when the last IKE SA is gone");
    }

    #[test]
    fn an_address_is_one_peers_at_a_time() {
        let mut pools = pools("10.0.0.1-10.0.0.2");
        let addr = |text: &str| text.parse().unwrap();
        assert_eq!(lease(&mut pools, None, "a").as_deref(), Some("10.0.0.1"));
        assert_eq!(lease(&mut pools, None, "a").as_deref(), Some("10.0.0.2"), "both of one peer");
        pools.release(addr("10.0.0.2"));
        pools.release(addr("10.0.0.1"));
        assert_eq!(lease(&mut pools, Some("10.0.0.2"), "b").as_deref(), Some("10.0.0.2"));
        assert_eq!(lease(&mut pools, None, "A").as_deref(), Some("10.0.0.1"), "what is left of its own");
        assert_eq!(lease(&mut pools, None, "a"), None, "the other one is b's now");
        assert_eq!(lease(&mut pools, Some("10.0.0.1"), "c"), None);
        // Both come back, each to whom it was last.
        pools.release(addr("10.0.0.2"));
        pools.release(addr("10.0.0.1"));
        assert_eq!(lease(&mut pools, None, "b").as_deref(), Some("10.0.0.2"));
        assert_eq!(lease(&mut pools, None, "a").as_deref(), Some("10.0.0.1"));
        let leases = &pools.0[0];
        assert_eq!((leases.free.len(), leases.by_peer.len(), leases.taken.len()), (0, 2, 2));
    }
}
