//! Leases of virtual addresses (RFC 7296 section 2.19).

use crate::config::Pool;
use crate::engine::peer_index::AuthScope;
use alloc::string::String;
use alloc::vec::Vec;
use casemate_sa::AddrRange;
use casemate_sa::table::{ByteIndex, MapKey, OrderedMap, WordSet};
use casemate_wire::invariant::OrBroken;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Address pools, and the leases of all of them. A lease does not belong to a pool: pools may overlap, and
/// the configuration may change while IKE SAs have addresses.
#[derive(Debug, Default)]
pub(crate) struct AddressPools {
    pools: Vec<PoolCursor>,
    /// Leased addresses, and free ones that a peer had before, by their bits.
    leases: OrderedMap<u128, Lease>,
    /// Bits of the addresses by the last peer ([`AuthScope::peer`]).
    by_peer: ByteIndex,
    /// Free addresses that a peer had before, by their bits. Each is in a pool.
    free: WordSet,
}

/// A pool, and where its search for a new address continues.
#[derive(Debug)]
struct PoolCursor {
    pool: Pool,
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

/// Number of free addresses remembered for former peers from which on a pool leases these first.
const MAX_REMEMBERED: usize = 65_536;

impl AddressPools {
    /// Replaces the pools. Leases stay, also those of addresses that are in no pool any more.
    pub(crate) fn replace(&mut self, pools: &[Pool]) {
        let old = core::mem::take(&mut self.pools);
        let used =
            |pool: &Pool| old.iter().find(|old| old.pool.addrs == pool.addrs).map_or(0, |old| old.used);
        self.pools = pools.iter().map(|pool| PoolCursor { pool: pool.clone(), used: used(pool) }).collect();
        let remembered: Vec<u128> =
            self.free.iter().map(|[upper, lower, _]| to_bits([upper, lower])).collect();
        for bits in remembered {
            if !self.is_in_pool(addr(bits)) {
                self.forget(bits);
            }
        }
    }

    /// Leases an address from the first of the pools `names` with the IP version and a free address. Prefers
    /// `wanted`.
    pub(crate) fn lease(
        &mut self,
        names: &[String],
        v4: bool,
        wanted: Option<IpAddr>,
        to: LeaseRequest<'_>,
    ) -> Option<IpAddr> {
        (0..self.pools.len()).find_map(|index| {
            let PoolCursor { pool, .. } = self.pools.get(index)?;
            let is_candidate = pool.addrs.is_ipv4() == v4 && names.contains(&pool.name);
            if is_candidate { self.lease_from(index, wanted, to) } else { None }
        })
    }

    /// Leases the address that an AAA server has assigned to a peer; `None` if another peer has it. The
    /// server decides, so a peer that begins again gets its address although its old IKE SA has it, too.
    #[cfg(feature = "eap")]
    pub(crate) fn lease_assigned(&mut self, addr: IpAddr, to: LeaseRequest<'_>) -> Option<IpAddr> {
        let known = self.leases.get(bits(addr)).filter(|lease| !lease.is_free());
        let holders = match known {
            Some(lease) if lease.scope == *to.scope => lease.holders.saturating_add(1),
            Some(_) => return None,
            None => 1,
        };
        if holders == 1 {
            self.forget(bits(addr));
            self.by_peer.insert(to.scope.peer(), bits(addr).words());
        }
        let lease = Lease { scope: to.scope.clone(), remote: to.remote, holders };
        self.leases.insert(bits(addr), lease);
        Some(addr)
    }

    /// Frees an address. A returning peer gets it back.
    pub(crate) fn release(&mut self, addr: IpAddr) {
        let lease = self.leases.get_mut(bits(addr)).or_report("an address to release is leased");
        let Some(lease) = lease else { return };
        lease.holders = lease.holders.checked_sub(1).or_broken_default("a leased address has a holder");
        if !lease.is_free() {
            return;
        }
        self.free.insert(free_entry(bits(addr)));
        if !self.is_in_pool(addr) {
            self.forget(bits(addr));
        }
    }

    /// Updates the outer address of the peer that has this address.
    pub(crate) fn update_remote(&mut self, addr: IpAddr, remote: IpAddr) {
        if let Some(lease) = self.leases.get_mut(bits(addr)).or_report("an address to update is leased") {
            lease.remote = remote;
        }
    }

    /// Pools with these names.
    pub(crate) fn by_name<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = &'a Pool> + 'a {
        self.pools.iter().map(|cursor| &cursor.pool).filter(|pool| names.contains(&pool.name))
    }

    fn is_in_pool(&self, addr: IpAddr) -> bool {
        self.pools.iter().any(|cursor| cursor.pool.addrs.contains(addr))
    }

    /// Forgets the former peer of a free address.
    fn forget(&mut self, bits: u128) {
        self.free.remove(free_entry(bits));
        if let Some(lease) = self.leases.remove(bits) {
            self.by_peer.remove(lease.scope.peer(), bits.words());
        }
    }

    fn lease_from(&mut self, index: usize, wanted: Option<IpAddr>, to: LeaseRequest<'_>) -> Option<IpAddr> {
        let addrs = self.pools.get(index)?.pool.addrs;
        if let Some(addr) = self.known_addr(&addrs, wanted, to)
            && let Some(lease) = self.leases.get_mut(bits(addr))
        {
            let holders = lease.holders.saturating_add(1);
            *lease = Lease { scope: to.scope.clone(), remote: to.remote, holders };
            self.free.remove(free_entry(bits(addr)));
            return Some(addr);
        }
        let is_free =
            |addr: &IpAddr| addrs.contains(*addr) && self.leases.get(bits(*addr)).is_none_or(Lease::is_free);
        let addr = match wanted.filter(is_free) {
            Some(wanted) => wanted,
            None if self.free.len() < MAX_REMEMBERED => {
                self.unused_addr(index).or_else(|| self.lowest_free(&addrs))?
            }
            None => self.lowest_free(&addrs).or_else(|| self.unused_addr(index))?,
        };
        let lease = Lease { scope: to.scope.clone(), remote: to.remote, holders: 1 };
        self.forget(bits(addr));
        self.leases.insert(bits(addr), lease);
        self.by_peer.insert(to.scope.peer(), bits(addr).words());
        Some(addr)
    }

    /// An address of a pool that this peer had and may have again: the wanted one, or the lowest.
    fn known_addr(&self, addrs: &AddrRange, wanted: Option<IpAddr>, to: LeaseRequest<'_>) -> Option<IpAddr> {
        let may_have = |addr: &IpAddr| {
            addrs.contains(*addr) && !to.held.contains(addr) && self.may_have_again(*addr, wanted, to)
        };
        let known = || self.by_peer.get_all(to.scope.peer()).map(|words| addr(to_bits(words)));
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

    /// The next address of a pool that was never leased.
    fn unused_addr(&mut self, index: usize) -> Option<IpAddr> {
        let PoolCursor { pool, used } = self.pools.get_mut(index)?;
        // Each step skips a leased address, so there are not more steps than leases.
        loop {
            let addr = nth(pool.addrs.first(), *used).filter(|addr| pool.addrs.contains(*addr))?;
            *used = used.saturating_add(1);
            if !self.leases.contains(bits(addr)) {
                return Some(addr);
            }
        }
    }

    /// The lowest free address of a pool that a peer had before.
    fn lowest_free(&self, addrs: &AddrRange) -> Option<IpAddr> {
        let [upper, lower, _] = self.free.first_from(free_entry(bits(addrs.first())))?;
        Some(addr(to_bits([upper, lower]))).filter(|addr| addrs.contains(*addr))
    }
}

/// Bits of an address; of an IPv4 address, those of the IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2).
const fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().to_bits(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// The address with these bits.
const fn addr(bits: u128) -> IpAddr {
    Ipv6Addr::from_bits(bits).to_canonical()
}

/// Bits of an address from their two halves.
fn to_bits([upper, lower]: [u64; 2]) -> u128 {
    u128::from(upper) << 64 | u128::from(lower)
}

/// Entry of the set of free addresses.
fn free_entry(bits: u128) -> [u64; 3] {
    let [upper, lower] = bits.words();
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

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn scope(peer: &str) -> AuthScope {
        let named = |name: &str| Identity::Fqdn(name.into());
        let connection = Connection::with_shared_key("t", named("us"), named(peer));
        AuthScope::new(&connection, Proof::SharedKey, &named("us"), &named(peer), HOST)
    }

    fn pool(name: &str, range: &str) -> Pool {
        let (first, last) = range.split_once('-').unwrap();
        let addrs = AddrRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap();
        Pool { name: name.into(), addrs, dns: vec![], dns_domains: vec![], subnets: vec![] }
    }

    fn pools(range: &str) -> AddressPools {
        let mut pools = AddressPools::default();
        pools.replace(&[pool("p", range)]);
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

    #[cfg(feature = "eap")]
    #[test]
    fn an_assigned_address_has_one_peer() {
        let mut pools = pools("10.0.0.1-10.0.0.1");
        let mut assign = |addr: &str, to: &str| {
            let to = LeaseRequest { scope: &scope(to), remote: HOST, replaces_older: false, held: &[] };
            pools.lease_assigned(addr.parse().unwrap(), to).is_some()
        };
        assert!(assign("10.9.0.1", "a"), "outside of all pools");
        assert!(!assign("10.9.0.1", "b"));
        assert!(assign("10.9.0.1", "a"), "the peer begins again");
        assert!(assign("10.0.0.1", "b"));
        for holder in ["10.9.0.1", "10.9.0.1", "10.0.0.1"] {
            pools.release(holder.parse().unwrap());
        }
        let to = LeaseRequest { scope: &scope("b"), remote: HOST, replaces_older: false, held: &[] };
        assert!(pools.lease_assigned("10.9.0.1".parse().unwrap(), to).is_some());
        assert_eq!(lease(&mut pools, None, "c").as_deref(), Some("10.0.0.1"));
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
            assert_eq!(pools.free.len(), 0);
            pools.release(addr("10.0.0.1"));
        }
        assert_eq!(pools.free.len(), 1, "when the last IKE SA has ended");
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
        assert_eq!((pools.free.len(), pools.by_peer.len(), pools.leases.len()), (0, 2, 2));
    }

    #[test]
    fn an_address_stays_leased_when_its_pool_changes() {
        let mut pools = pools("10.0.0.1-10.0.0.3");
        let addr = |text: &str| text.parse().unwrap();
        for peer in ["a", "b", "c"] {
            assert!(lease(&mut pools, None, peer).is_some());
        }
        pools.release(addr("10.0.0.3"));
        // A larger pool.
        pools.replace(&[pool("p", "10.0.0.0-10.0.0.4")]);
        assert_eq!(lease(&mut pools, None, "c").as_deref(), Some("10.0.0.3"), "its former address");
        assert_eq!(lease(&mut pools, None, "d").as_deref(), Some("10.0.0.0"));
        assert_eq!(lease(&mut pools, Some("10.0.0.1"), "e").as_deref(), Some("10.0.0.4"), "a has 10.0.0.1");
        // Addresses outside of the pool stay leased; when they are released, they are forgotten.
        pools.replace(&[pool("p", "10.0.0.4-10.0.0.4")]);
        pools.release(addr("10.0.0.0"));
        pools.release(addr("10.0.0.4"));
        assert_eq!((pools.leases.len(), pools.free.len(), pools.by_peer.len()), (4, 1, 4));
        pools.replace(&[]);
        assert_eq!((pools.leases.len(), pools.free.len(), pools.by_peer.len()), (3, 0, 3));
        // The first pool again.
        pools.replace(&[pool("p", "10.0.0.1-10.0.0.3")]);
        assert_eq!(lease(&mut pools, None, "e"), None, "a, b and c have all addresses");
        pools.release(addr("10.0.0.2"));
        assert_eq!(lease(&mut pools, None, "e").as_deref(), Some("10.0.0.2"));
    }

    #[test]
    fn pools_that_overlap_lease_an_address_once() {
        let mut pools = AddressPools::default();
        pools.replace(&[pool("p", "10.0.0.1-10.0.0.2"), pool("q", "10.0.0.2-10.0.0.3")]);
        let mut from = |pool: &str, peer: &str| {
            let to = LeaseRequest { scope: &scope(peer), remote: HOST, replaces_older: false, held: &[] };
            pools.lease(&[pool.into()], true, None, to).map(|addr| addr.to_string())
        };
        assert_eq!(from("q", "a").as_deref(), Some("10.0.0.2"));
        assert_eq!(from("p", "b").as_deref(), Some("10.0.0.1"));
        assert_eq!(from("p", "c"), None);
        assert_eq!(from("q", "c").as_deref(), Some("10.0.0.3"));
    }
}
