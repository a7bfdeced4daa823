//! Leases of virtual addresses (RFC 7296 section 2.19).

use crate::config::Pool;
use crate::engine::peer_index::AuthScope;
use alloc::vec::Vec;
use casemate_sa::table::{ByteIndex, MapKey, OrderedMap, WordSet};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Address pools with their leases.
#[derive(Debug, Default)]
pub(crate) struct AddressPools(Vec<PoolLeases>);

#[derive(Debug)]
struct PoolLeases {
    pool: Pool,
    /// Leased addresses, and free ones that a peer had before.
    leases: OrderedMap<u128, Lease>,
    /// Bits of the addresses by the last peer ([`AuthScope::peer`]).
    by_peer: ByteIndex,
    /// Free addresses that a peer had before, by their bits.
    free: WordSet,
    /// Number of addresses, from the first one on, that were leased so far.
    used: u128,
}

#[derive(Debug)]
struct Lease {
    scope: AuthScope,
    /// The peer's outer address.
    remote: IpAddr,
    /// Number of IKE SAs that have the address: two while one replaces the other.
    holders: usize,
}

impl Lease {
    const fn is_free(&self) -> bool {
        self.holders == 0
    }
}

/// Request of a peer for an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseRequest<'a> {
    pub(crate) scope: &'a AuthScope,
    /// Outer address of the peer.
    pub(crate) remote: IpAddr,
    /// Whether the peer's other IKE SAs of the same scope are about to be closed, so that it may have their
    /// addresses.
    pub(crate) replaces_older: bool,
    /// Addresses that the IKE SA already has.
    pub(crate) held: &'a [IpAddr],
}

/// Maximum number of addresses of a pool that are remembered for former peers.
const MAX_REMEMBERED: usize = 65_536;

impl AddressPools {
    /// Replaces the pools. Leases stay if their pool has the same addresses.
    pub(crate) fn replace(&mut self, pools: &[Pool]) {
        let mut old = core::mem::take(&mut self.0);
        self.0 = pools
            .iter()
            .map(|pool| {
                let known = old.iter().position(|leases| leases.pool.addrs == pool.addrs);
                let known = known.map(|at| old.swap_remove(at));
                match known {
                    Some(known) => PoolLeases { pool: pool.clone(), ..known },
                    None => PoolLeases::new(pool.clone()),
                }
            })
            .collect();
    }

    /// Leases an address from the first of the pools `names` with the IP version and a free address. Prefers
    /// `wanted`.
    pub(crate) fn lease(
        &mut self,
        names: &[alloc::string::String],
        v4: bool,
        wanted: Option<IpAddr>,
        to: LeaseRequest<'_>,
    ) -> Option<IpAddr> {
        let pools = self
            .0
            .iter_mut()
            .filter(|leases| leases.pool.addrs.is_ipv4() == v4 && names.contains(&leases.pool.name));
        pools.into_iter().find_map(|leases| leases.lease(wanted, to))
    }

    /// Frees an address. A returning peer gets it back.
    pub(crate) fn release(&mut self, addr: IpAddr) {
        let pools = self.0.iter_mut().filter(|leases| leases.pool.addrs.contains(addr));
        for PoolLeases { leases: taken, free, .. } in pools {
            let Some(lease) = taken.get_mut(bits(addr)) else { continue };
            lease.holders = lease.holders.saturating_sub(1);
            if lease.is_free() {
                free.insert(free_entry(addr));
            }
            return;
        }
    }

    /// Updates the outer address of the peer that has this address.
    pub(crate) fn update_remote(&mut self, addr: IpAddr, remote: IpAddr) {
        for PoolLeases { leases: taken, .. } in
            self.0.iter_mut().filter(|leases| leases.pool.addrs.contains(addr))
        {
            if let Some(lease) = taken.get_mut(bits(addr)) {
                lease.remote = remote;
            }
        }
    }

    /// Pools with these names.
    pub(crate) fn by_name<'a>(
        &'a self,
        names: &'a [alloc::string::String],
    ) -> impl Iterator<Item = &'a Pool> + 'a {
        self.0.iter().map(|leases| &leases.pool).filter(|pool| names.contains(&pool.name))
    }
}

impl PoolLeases {
    fn new(pool: Pool) -> Self {
        Self { pool, leases: OrderedMap::default(), by_peer: ByteIndex::new(), free: WordSet::new(), used: 0 }
    }

    fn lease(&mut self, wanted: Option<IpAddr>, to: LeaseRequest<'_>) -> Option<IpAddr> {
        if let Some(addr) = self.known_addr(wanted, to)
            && let Some(lease) = self.leases.get_mut(bits(addr))
        {
            let holders = lease.holders.saturating_add(1);
            *lease = Lease { scope: to.scope.clone(), remote: to.remote, holders };
            self.free.remove(free_entry(addr));
            return Some(addr);
        }
        let is_free = |addr: &IpAddr| {
            self.pool.addrs.contains(*addr) && self.leases.get(bits(*addr)).is_none_or(Lease::is_free)
        };
        let addr = wanted.filter(is_free).or_else(|| self.unused_addr()).or_else(|| self.lowest_free())?;
        let lease = Lease { scope: to.scope.clone(), remote: to.remote, holders: 1 };
        if let Some(before) = self.leases.insert(bits(addr), lease) {
            self.by_peer.remove(before.scope.peer(), bits(addr).words());
        }
        self.free.remove(free_entry(addr));
        self.by_peer.insert(to.scope.peer(), bits(addr).words());
        Some(addr)
    }

    /// An address that this peer had and may have again: the wanted one, or the lowest.
    fn known_addr(&self, wanted: Option<IpAddr>, to: LeaseRequest<'_>) -> Option<IpAddr> {
        let may_have = |addr: &IpAddr| !to.held.contains(addr) && self.may_have_again(*addr, wanted, to);
        let known = || self.by_peer.get_all(to.scope.peer()).map(|words| self.addr(words));
        let is_known = |addr: &IpAddr| {
            self.leases.get(bits(*addr)).is_some_and(|lease| lease.scope.peer() == to.scope.peer())
        };
        wanted.filter(is_known).filter(may_have).or_else(|| known().find(may_have))
    }

    /// Whether an address that this peer has or had is free, or held by IKE SAs that the new one replaces.
    /// The new IKE SA replaces others if they are about to be closed, or if the peer requests its own address
    /// from the same host: then it reauthenticates (RFC 7296 section 2.8.3).
    fn may_have_again(&self, addr: IpAddr, wanted: Option<IpAddr>, to: LeaseRequest<'_>) -> bool {
        let is_reauthentication = |lease: &Lease| wanted == Some(addr) && lease.remote == to.remote;
        self.leases.get(bits(addr)).is_some_and(|lease| {
            lease.is_free() || (lease.scope == *to.scope && (to.replaces_older || is_reauthentication(lease)))
        })
    }

    /// The next address that was never leased.
    fn unused_addr(&mut self) -> Option<IpAddr> {
        if self.leases.len() >= MAX_REMEMBERED {
            return None;
        }
        // Each step skips a leased address, so there are not more steps than leases.
        loop {
            let addr =
                nth(self.pool.addrs.first(), self.used).filter(|addr| self.pool.addrs.contains(*addr))?;
            self.used = self.used.saturating_add(1);
            if !self.leases.contains(bits(addr)) {
                return Some(addr);
            }
        }
    }

    /// The lowest free address that a peer had before.
    fn lowest_free(&self) -> Option<IpAddr> {
        self.free.first().map(|[upper, lower, _]| self.addr([upper, lower]))
    }

    /// The address with these bits.
    fn addr(&self, [upper, lower]: [u64; 2]) -> IpAddr {
        match self.pool.addrs.first() {
            IpAddr::V4(_) => Ipv4Addr::from_bits(lower as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(lower)).into(),
        }
    }
}

/// Bits of an address. A pool has one IP version.
fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_bits().into(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// Entry of the set of free addresses.
fn free_entry(addr: IpAddr) -> [u64; 3] {
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
    use crate::engine::peer_index::Proof;
    use alloc::string::ToString;
    use alloc::vec;
    use casemate_sa::AddrRange;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn scope(peer: &str) -> AuthScope {
        let named = |name: &str| Identity::Fqdn(name.into());
        let connection = Connection::with_shared_key("t", named("us"), named(peer));
        AuthScope::new(&connection, Proof::SharedKey, &named("us"), &named(peer), HOST)
    }

    fn pools(range: &str) -> AddressPools {
        let (first, last) = range.split_once('-').unwrap();
        let addrs = AddrRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap();
        let mut pools = AddressPools::default();
        pools.replace(&[Pool { name: "p".into(), addrs, dns: vec![], subnets: vec![] }]);
        pools
    }

    fn lease(pools: &mut AddressPools, wanted: Option<&str>, to: &str) -> Option<alloc::string::String> {
        let wanted = wanted.map(|addr| addr.parse().unwrap());
        let to = LeaseRequest { scope: &scope(to), remote: HOST, replaces_older: false, held: &[] };
        let lease = pools.lease(&["p".into()], true, wanted, to);
        lease.map(|addr| addr.to_string())
    }

    #[test]
    fn an_address_is_leased_once_and_returned() {
        let mut pools = pools("10.0.0.1-10.0.0.3");
        assert_eq!(lease(&mut pools, None, "a").as_deref(), Some("10.0.0.1"));
        assert_eq!(lease(&mut pools, Some("10.0.0.1"), "b").as_deref(), Some("10.0.0.2"));
        assert_eq!(lease(&mut pools, Some("10.0.0.3"), "c").as_deref(), Some("10.0.0.3"));
        assert_eq!(lease(&mut pools, None, "d"), None);
        pools.release("10.0.0.2".parse().unwrap());
        assert_eq!(lease(&mut pools, None, "B").as_deref(), Some("10.0.0.2"), "the same peer");
        pools.release("10.0.0.1".parse().unwrap());
        assert_eq!(lease(&mut pools, None, "d").as_deref(), Some("10.0.0.1"), "the address of a former peer");
    }

    #[test]
    fn other_pools_and_ip_versions_are_not_used() {
        let mut pools = pools("10.0.0.1-10.0.0.3");
        let to = LeaseRequest { scope: &scope("a"), remote: HOST, replaces_older: false, held: &[] };
        assert_eq!(pools.lease(&["q".into()], true, None, to), None);
        assert_eq!(pools.lease(&["p".into()], false, None, to), None);
    }

    #[test]
    fn a_restarted_peer_keeps_its_address_until_its_last_ike_sa_ends() {
        let mut pools = pools("10.0.0.1-10.0.0.1");
        let addr = lease(&mut pools, None, "a");
        let to = LeaseRequest { scope: &scope("a"), remote: HOST, replaces_older: true, held: &[] };
        let again = pools.lease(&["p".into()], true, None, to);
        assert_eq!(again.map(|addr| addr.to_string()), addr);
        pools.release("10.0.0.1".parse().unwrap());
        assert_eq!(lease(&mut pools, None, "b"), None, "the new IKE SA has it");
        pools.release("10.0.0.1".parse().unwrap());
        assert_eq!(lease(&mut pools, None, "b"), addr);
    }

    #[test]
    fn a_reauthenticated_peer_shares_its_address_only_with_itself() {
        let mut pools = pools("10.0.0.1-10.0.0.4");
        let addr = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut from = |remote: &str, wanted: Option<&str>, peer: &str| {
            let to =
                LeaseRequest { scope: &scope(peer), remote: addr(remote), replaces_older: false, held: &[] };
            pools.lease(&["p".into()], true, wanted.map(addr), to).map(|addr| addr.to_string())
        };
        assert_eq!(from("192.0.2.1", None, "a").as_deref(), Some("10.0.0.1"));
        assert_eq!(from("192.0.2.1", Some("10.0.0.1"), "a").as_deref(), Some("10.0.0.1"));
        assert_eq!(from("192.0.2.2", Some("10.0.0.1"), "a").as_deref(), Some("10.0.0.2"), "another host");
        assert_eq!(from("192.0.2.1", Some("10.0.0.1"), "b").as_deref(), Some("10.0.0.3"), "another peer");
        // The peer has moved.
        pools.update_remote(addr("10.0.0.1"), addr("192.0.2.9"));
        let to =
            LeaseRequest { scope: &scope("a"), remote: addr("192.0.2.9"), replaces_older: false, held: &[] };
        assert_eq!(pools.lease(&["p".into()], true, Some(addr("10.0.0.1")), to), Some(addr("10.0.0.1")));
        for _ in 0..3 {
            assert_eq!(pools.0[0].free.len(), 0);
            pools.release(addr("10.0.0.1"));
        }
        assert_eq!(pools.0[0].free.len(), 1, "when the last IKE SA has ended");
    }

    #[test]
    fn an_address_belongs_to_one_peer_at_a_time() {
        let mut pools = pools("10.0.0.1-10.0.0.2");
        let addr = |text: &str| text.parse().unwrap();
        assert_eq!(lease(&mut pools, None, "a").as_deref(), Some("10.0.0.1"));
        assert_eq!(
            lease(&mut pools, None, "a").as_deref(),
            Some("10.0.0.2"),
            "one peer may have both addresses"
        );
        pools.release(addr("10.0.0.2"));
        pools.release(addr("10.0.0.1"));
        assert_eq!(lease(&mut pools, Some("10.0.0.2"), "b").as_deref(), Some("10.0.0.2"));
        assert_eq!(lease(&mut pools, None, "A").as_deref(), Some("10.0.0.1"), "its other former address");
        assert_eq!(lease(&mut pools, None, "a"), None, "peer b has the other address");
        assert_eq!(lease(&mut pools, Some("10.0.0.1"), "c"), None);
        // Both peers return and get their last addresses.
        pools.release(addr("10.0.0.2"));
        pools.release(addr("10.0.0.1"));
        assert_eq!(lease(&mut pools, None, "b").as_deref(), Some("10.0.0.2"));
        assert_eq!(lease(&mut pools, None, "a").as_deref(), Some("10.0.0.1"));
        let leases = &pools.0[0];
        assert_eq!((leases.free.len(), leases.by_peer.len(), leases.leases.len()), (0, 2, 2));
    }
}
