//! Policy routing that directs traffic into the TUN interface.
//!
//! A routing table of our own has the routes to the protected destinations. One rule for each IP version
//! sends every packet without our mark to this table. Protected packets carry the mark and use the other
//! tables, so a peer may be a protected destination itself, as in transport mode.

use crate::instance::Instance;
use crate::journal::{Journal, Undo, ignore_missing};
use crate::netlink::{self, Netlink};
use casemate_sa::AddrRange;
use casemate_wire::invariant::{self, OrBroken};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::RuleAttribute;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

pub use crate::netlink::Rule;

/// An address prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// The first address.
    pub addr: IpAddr,
    /// Length of the prefix, in bits.
    pub len: u8,
}

impl Prefix {
    /// The fewest prefixes that contain exactly the addresses of `range`.
    pub fn cover(range: &AddrRange) -> Vec<Self> {
        let (first, last, width) = match (range.first(), range.last()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                (u128::from(first.to_bits()), u128::from(last.to_bits()), 32u32)
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => (first.to_bits(), last.to_bits(), 128),
            _ => {
                invariant::report("a range has addresses of one IP version");
                return Vec::new();
            }
        };
        let mut prefixes = Vec::new();
        let mut next = Some(first);
        while let Some(start) = next.filter(|&start| start <= last) {
            // The largest prefix that starts here, by its alignment, and ends before the last address.
            let mut bits = start.trailing_zeros().min(width);
            while bits > 0 && ones(bits).saturating_add(start) > last {
                bits = bits.saturating_sub(1);
            }
            let addr = match width {
                32 => IpAddr::V4((start as u32).into()),
                _ => IpAddr::V6(start.into()),
            };
            prefixes.push(Self {
                addr,
                len: u8::try_from(width.saturating_sub(bits)).or_broken("the length fits", 0),
            });
            next = start.checked_add(ones(bits)).and_then(|end| end.checked_add(1));
        }
        prefixes
    }

    /// Every prefix that contains this address.
    pub(crate) fn around(addr: IpAddr) -> impl Iterator<Item = Self> {
        let width = if addr.is_ipv4() { 32 } else { 128 };
        (0..=width).filter_map(move |len| {
            let range = AddrRange::prefix(addr, len).or_report("the length fits")?;
            Some(Self { addr: range.first(), len })
        })
    }

    /// The addresses of the prefix.
    pub(crate) fn range(&self) -> AddrRange {
        AddrRange::prefix(self.addr, self.len).or_broken("the length fits", AddrRange::single(self.addr))
    }

    /// Whether all addresses of another prefix are in this one.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        self.len <= other.len && self.range().contains(other.addr)
    }

    /// Whether it is an IPv4 prefix.
    pub const fn is_ipv4(&self) -> bool {
        self.addr.is_ipv4()
    }
}

/// A number with the lowest `bits` bits set.
fn ones(bits: u32) -> u128 {
    u128::MAX.checked_shr(128u32.saturating_sub(bits)).unwrap_or(0)
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// Routing table of the first instance. Its number contains the IP protocols 50 and 51.
const FIRST_TABLE: u32 = 50_510;

/// Instances in one network namespace, at most.
const MAX_INSTANCES: u32 = 256;

/// The numbers of one instance: mark, routing table and priority of its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutingNumbers {
    /// Mark of our own packets.
    pub mark: u32,
    /// The table with the routes into the TUN interface.
    pub table: u32,
    /// Priority of the rules.
    pub priority: u32,
}

impl RoutingNumbers {
    /// The numbers of the `n`th instance.
    const fn nth(n: u32) -> Self {
        let table = FIRST_TABLE.saturating_add(n);
        // Behind the rule for local addresses (0), before the rules that administrators usually add.
        Self { mark: table, table, priority: 220u32.saturating_add(n) }
    }

    /// The numbers with this table; `None` if it is not the table of an instance.
    pub(crate) fn of_table(table: u32) -> Option<Self> {
        table.checked_sub(FIRST_TABLE).filter(|n| *n < MAX_INSTANCES).map(Self::nth)
    }

    /// The first numbers that no rule uses.
    pub fn free(netlink: &mut Netlink) -> Result<Self, crate::Error> {
        let used = Self::used(netlink)?;
        (0..MAX_INSTANCES).map(Self::nth).find(|numbers| !used.contains(&numbers.table)).ok_or_else(none_free)
    }

    /// Claims numbers for the instance with this journal: those of its former run, if no other instance has
    /// claimed them since, or the first that no rule uses. The rule for IPv4 is the claim: the kernel creates
    /// it only once in a network namespace, so that each of two instances that start together gets its own
    /// numbers, wherever they keep their files. The rule has no effect until its table has routes. If a rule
    /// exists already, the journals in the same directory and the routes in its table show which instance
    /// owns it.
    pub fn claim(
        instance: &Instance,
        journal: &mut Journal,
        netlink: &mut Netlink,
    ) -> Result<Self, crate::Error> {
        let former = journal.entries().iter().find_map(|entry| match entry {
            Undo::Routes { table, .. } => Self::of_table(*table),
            _ => None,
        });
        if let Some(former) = former {
            if former.claim_again(instance, journal, netlink)? {
                return Ok(former);
            }
            journal.release_table(former.table)?;
        }
        let used = Self::used(netlink)?;
        for numbers in (0..MAX_INSTANCES).map(Self::nth).filter(|numbers| !used.contains(&numbers.table)) {
            if numbers.claim_rule(netlink)? {
                return numbers.record(instance, journal, netlink).map(|()| numbers);
            }
        }
        Err(none_free())
    }

    /// Claims the numbers of a former run again. Returns whether this instance has them. If its rule was
    /// removed, another instance may have claimed them since.
    fn claim_again(
        self,
        instance: &Instance,
        journal: &mut Journal,
        netlink: &mut Netlink,
    ) -> Result<bool, crate::Error> {
        if self.claim_rule(netlink)? {
            return self.record(instance, journal, netlink).map(|()| true);
        }
        let claim = Undo::Rule(Rule { v4: true, numbers: self });
        Ok(!journal.is_recorded_elsewhere(&claim)? && !self.leads_elsewhere(instance, netlink)?)
    }

    /// Whether the table has routes into another interface than that of this instance.
    fn leads_elsewhere(self, instance: &Instance, netlink: &mut Netlink) -> Result<bool, crate::Error> {
        let own = netlink.index_of(instance.tun())?;
        for v4 in [true, false] {
            let routes = netlink.routes(self.table, v4)?;
            let mut attributes = routes.iter().flat_map(|route| &route.attributes);
            if attributes
                .any(|attribute| matches!(attribute, RouteAttribute::Oif(index) if Some(*index) != own))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds the rule for IPv4. Returns `false` if another instance has it.
    fn claim_rule(self, netlink: &mut Netlink) -> Result<bool, crate::Error> {
        let rule = Rule { v4: true, numbers: self };
        match rule.add(netlink) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(error) => Err(crate::Error::new(format!("`{rule}`"), error)),
        }
    }

    /// Records the claim. If it were recorded before it is made, a crash in between would remove the rule of
    /// another instance. So a crash here leaves a rule without effect.
    fn record(
        self,
        instance: &Instance,
        journal: &mut Journal,
        netlink: &mut Netlink,
    ) -> Result<(), crate::Error> {
        let rule = Rule { v4: true, numbers: self };
        let routes = Undo::Routes { table: self.table, tun: instance.tun().into() };
        journal.record(Undo::Rule(rule)).and_then(|()| journal.record(routes)).inspect_err(|_| {
            // The first error is the one to report.
            let _ = rule.remove(netlink).or_else(ignore_missing);
        })
    }

    /// The tables to which rules lead.
    fn used(netlink: &mut Netlink) -> Result<HashSet<u32>, crate::Error> {
        let mut used = HashSet::new();
        for v4 in [true, false] {
            for rule in netlink.rules(v4)? {
                used.extend(rule.attributes.iter().filter_map(|attribute| match attribute {
                    RuleAttribute::Table(table) => Some(*table),
                    _ => None,
                }));
            }
        }
        Ok(used)
    }
}

fn none_free() -> crate::Error {
    crate::Error::other("policy rules", format!("all {MAX_INSTANCES} numbers are in use by other instances"))
}

/// A route of our table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub dst: Prefix,
    /// The table.
    pub table: u32,
    /// Target.
    pub target: RouteTarget,
}

/// Target of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteTarget {
    /// The TUN interface of this name, with this source address unless the sender chooses another.
    Tun(Arc<str>, Option<IpAddr>),
    /// The next table: the packet takes the route that it has without our table.
    Throw,
}

impl Route {
    /// Adds the route, or replaces the one to the same destination. `tun` is the index of its interface.
    pub(crate) fn set(&self, tun: u32, netlink: &mut Netlink) -> io::Result<()> {
        netlink.set_route(self.message(tun))
    }

    pub(crate) fn remove(&self, tun: u32, netlink: &mut Netlink) -> io::Result<()> {
        netlink.remove_route(self.message(tun))
    }

    fn message(&self, tun: u32) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = netlink::family(self.dst.is_ipv4());
        message.header.destination_prefix_length = self.dst.len;
        message.header.protocol = RouteProtocol::Static;
        message.attributes = vec![
            RouteAttribute::Destination(netlink::route_address(self.dst.addr)),
            RouteAttribute::Table(self.table),
        ];
        match &self.target {
            RouteTarget::Tun(_, src) => {
                message.header.kind = RouteType::Unicast;
                // With the scope of a link, the kernel would look for routers behind the TUN interface: a
                // route `via ROUTER` without `dev` would lead into the tunnel. IPv6 routes have no scope.
                message.header.scope = RouteScope::Universe;
                message.attributes.push(RouteAttribute::Oif(tun));
                let src = src.map(|src| RouteAttribute::PrefSource(netlink::route_address(src)));
                message.attributes.extend(src);
            }
            RouteTarget::Throw => message.header.kind = RouteType::Throw,
        }
        message
    }
}

/// Removes the routes of a table that lead into the interface `tun`, if there is one, or past the table.
/// Routes to `wanted` stay. A failure does not prevent the other removals; returns the first error.
pub(crate) fn clear(
    table: u32,
    tun: Option<u32>,
    wanted: &HashSet<Prefix>,
    netlink: &mut Netlink,
) -> Result<(), crate::Error> {
    let mut outcome = Ok(());
    for v4 in [true, false] {
        for route in netlink.routes(table, v4)? {
            let dst = destination(&route, v4);
            if wanted.contains(&dst) {
                continue;
            }
            let is_into_tun = |attribute: &RouteAttribute| match attribute {
                RouteAttribute::Oif(index) => Some(*index) == tun,
                _ => false,
            };
            if route.header.kind != RouteType::Throw && !route.attributes.iter().any(is_into_tun) {
                continue;
            }
            let failed = |error| crate::Error::new(format!("removal of route {dst} of table {table}"), error);
            outcome = outcome.and(netlink.remove_route(route).or_else(ignore_missing).map_err(failed));
        }
    }
    outcome
}

/// Destination of a route. The kernel does not send the destination of a default route.
pub(crate) fn destination(route: &RouteMessage, v4: bool) -> Prefix {
    let named = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(addr)) => Some(IpAddr::from(*addr)),
        RouteAttribute::Destination(RouteAddress::Inet6(addr)) => Some(IpAddr::from(*addr)),
        _ => None,
    });
    let any = if v4 { AddrRange::ANY_V4.first() } else { AddrRange::ANY_V6.first() };
    Prefix { addr: named.unwrap_or(any), len: route.header.destination_prefix_length }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dst, table, target } = self;
        // The program `ip` gives IPv4 routes without a router the scope of a link.
        let (version, scope) = if dst.is_ipv4() { ("-4", " scope global") } else { ("-6", "") };
        match target {
            RouteTarget::Tun(interface, None) => {
                write!(f, "ip {version} route add {dst} dev {interface} table {table}{scope}")
            }
            RouteTarget::Tun(interface, Some(src)) => {
                write!(f, "ip {version} route add {dst} dev {interface} table {table}{scope} src {src}")
            }
            RouteTarget::Throw => write!(f, "ip {version} route add throw {dst} table {table}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cover(first: &str, last: &str) -> Vec<String> {
        let range = AddrRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap();
        Prefix::cover(&range).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ranges_become_prefixes() {
        assert_eq!(cover("10.0.0.0", "10.0.0.255"), ["10.0.0.0/24"]);
        assert_eq!(cover("10.0.0.1", "10.0.0.1"), ["10.0.0.1/32"]);
        assert_eq!(cover("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(
            cover("10.0.0.1", "10.0.0.6"),
            ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]
        );
        assert_eq!(cover("255.255.255.254", "255.255.255.255"), ["255.255.255.254/31"]);
        assert_eq!(cover("fd00::", "fd00::ffff"), ["fd00::/112"]);
        assert_eq!(cover("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["::/0"]);
        assert_eq!(
            cover("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").len(),
            1
        );
    }

    /// Two instances that have seen the same free numbers.
    #[test]
    fn the_kernel_gives_numbers_to_one_instance_only() {
        let Some(netns) = crate::netns::Netns::new().map_err(casemate_test_support::skip).ok() else {
            return;
        };
        let claim = |n| RoutingNumbers::nth(n).claim_rule(&mut Netlink::open().unwrap()).unwrap();
        let claims = netns.run(|| [claim(0), claim(0), claim(1)]).unwrap();
        assert_eq!(claims, [true, false, true]);
    }

    #[test]
    fn rules_and_routes_display_as_commands() {
        let numbers = RoutingNumbers::nth(1);
        let rule = Rule { v4: false, numbers };
        assert_eq!(rule.to_string(), "ip -6 rule add pref 221 not fwmark 50511 lookup 50511");
        let dst = Prefix { addr: [10, 2, 0, 0].into(), len: 16 };
        let target = RouteTarget::Tun("casemate0".into(), Some([10, 1, 0, 1].into()));
        let route = Route { dst, table: 50511, target };
        let shown = "ip -4 route add 10.2.0.0/16 dev casemate0 table 50511 scope global src 10.1.0.1";
        assert_eq!(route.to_string(), shown);
        let past = Route { target: RouteTarget::Throw, ..route };
        assert_eq!(past.to_string(), "ip -4 route add throw 10.2.0.0/16 table 50511");
    }

    /// Routers are on links, also while all traffic goes through the tunnel.
    #[test]
    fn the_kernel_looks_for_routers_past_our_table() {
        let Some(netns) = crate::netns::Netns::new().map_err(casemate_test_support::skip).ok() else {
            return;
        };
        let test = || {
            let mut netlink = Netlink::open().unwrap();
            let tun = crate::tun::Tun::create("tun5", &mut netlink).unwrap();
            tun.set_up(1_400, &mut netlink).unwrap();
            let numbers = RoutingNumbers::nth(0);
            Rule { v4: true, numbers }.add(&mut netlink).unwrap();
            let all = Prefix { addr: [0; 4].into(), len: 0 };
            let target = RouteTarget::Tun("tun5".into(), None);
            Route { dst: all, table: numbers.table, target }.set(tun.index(), &mut netlink).unwrap();
            let ip = |arguments: &str| {
                let done = std::process::Command::new("ip").args(arguments.split(' ')).output();
                done.unwrap().status.success()
            };
            assert!(ip("link add wire type veth peer name other"));
            assert!(ip("link set other up") && ip("link set wire up"));
            assert!(!ip("route replace default via 192.0.2.1"), "no link leads to the router");
            assert!(ip("address add 192.0.2.2/24 dev wire"));
            assert!(ip("route replace default via 192.0.2.1"));
            let (wire, far) = (netlink.link("wire").unwrap().index, IpAddr::from([198, 51, 100, 1]));
            assert_eq!(netlink.interface_to(far, numbers.mark).unwrap(), Some(wire));
            assert_eq!(netlink.interface_to(far, 0).unwrap(), Some(tun.index()));
        };
        netns.run(test).unwrap();
    }

    /// A journal that no longer lists routes that are still there would leave them for ever.
    #[test]
    fn a_route_that_cannot_be_removed_is_an_error() {
        let Some(netns) = crate::netns::Netns::new().map_err(casemate_test_support::skip).ok() else {
            return;
        };
        let test = || {
            let mut netlink = Netlink::open().unwrap();
            let dst = Prefix { addr: [10, 9, 0, 0].into(), len: 16 };
            Route { dst, table: 7, target: RouteTarget::Throw }.set(0, &mut netlink).unwrap();
            crate::sandbox::drop_capabilities().unwrap();
            let error = clear(7, None, &HashSet::new(), &mut netlink).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
        };
        netns.run(test).unwrap();
    }
}
