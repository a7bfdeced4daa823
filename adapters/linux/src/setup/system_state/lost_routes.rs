//! Routes, rules and virtual addresses that were set and have gone.
//!
//! When the last IPv4 address of an interface goes, Linux removes every IPv4 route through the interface, in
//! every table, and reports only the address. It also removes IPv4 routes whose preferred source is a
//! removed address, and takes the preferred source from IPv6 routes. With an interface that is switched off,
//! its routes and its IPv6 addresses go. Other programs may remove anything: by default, systemd-networkd
//! removes the rules of others when it starts. So after each such event, all of them are read again.

use super::SystemState;
use crate::Error;
use crate::netlink;
use crate::route::{Route, RouteTarget, Rule, destination};
use crate::setup::ignore_existing;
use crate::setup::routing_check::Lost;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

impl SystemState {
    /// Sets rules, routes of marks and virtual addresses again that have gone since the last call, at once:
    /// without them, packets with a mark leave in clear. Notes which routes of policies have gone or have
    /// changed, so that they are set again behind the guard.
    pub(super) fn restore_lost_routes(&mut self) -> Result<(), Error> {
        if !self.routing_check.begin() {
            return Ok(());
        }
        let mut lost = Lost::default();
        let restored = self.restore_addresses(&mut lost);
        let found = self.find_lost(&mut lost);
        let named = self.check_name();
        self.routing_check.end(lost, named.and(restored).and(found))
    }

    /// An error if another program has renamed the TUN interface. The guard then drops what passes it.
    fn check_name(&mut self) -> Result<(), Error> {
        let name = self.netlink.link_at(self.tun)?.name;
        let own = self.journal.tun();
        if name == own {
            return Ok(());
        }
        let reason = format!(
            "another program has renamed it to {name}, so protected traffic is blocked: `ip link set {name} \
             name {own}` was expected"
        );
        Err(Error::other(format!("interface {own}"), reason))
    }

    fn restore_addresses(&mut self, lost: &mut Lost) -> Result<(), Error> {
        let present = self.desired.routes.addresses();
        let missing: Vec<IpAddr> =
            self.virtual_addrs.assigned().filter(|addr| !present.contains(addr)).collect();
        let mut outcome = Ok(());
        for addr in missing {
            let added = self.netlink.add_address(self.tun, addr, host_len(addr));
            self.addresses_changed = true;
            if added.is_ok() {
                lost.add_foreign(&format_args!("ip address add {addr} dev {}", self.journal.tun()));
            }
            outcome = outcome.and(added);
        }
        outcome.and(self.reconcile_addresses())
    }

    fn find_lost(&mut self, lost: &mut Lost) -> Result<(), Error> {
        let mut present = BTreeMap::new();
        for v4 in [true, false] {
            let rules = self.netlink.rules(v4)?;
            let is_lost = |rule: &mut Rule| rule.v4 == v4 && !rule.is_among(&rules);
            for rule in self.rules.extract_if(.., is_lost).collect::<Vec<_>>() {
                lost.add(&rule);
                if rule.add(&mut self.netlink).or_else(ignore_existing).is_ok() {
                    self.rules.push(rule);
                }
            }
            self.mark_routes.restore_rules(v4, &rules, &mut self.netlink, lost);
            let routes = self.netlink.routes(self.numbers.table, v4)?;
            let name: Arc<str> = self.journal.tun().into();
            let known = |route: RouteMessage| {
                target(&route, self.tun, &name).map(|target| (destination(&route, v4), target))
            };
            present.extend(routes.into_iter().filter_map(known));
        }
        self.mark_routes.restore_routes(&mut self.netlink, lost)?;
        for (dst, target) in std::mem::take(&mut self.routes) {
            let present = present.remove(&dst);
            if present.as_ref() != Some(&target) {
                self.desired.routes.mark_changed(dst);
                lost.add(&Route { dst, table: self.numbers.table, target });
            }
            self.routes.extend(present.map(|target| (dst, target)));
        }
        Ok(())
    }
}

/// Length of the prefix that contains only this address.
pub(super) const fn host_len(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

/// Target of a route of our table; `None` if it leads neither into our interface nor past the table.
fn target(route: &RouteMessage, tun: u32, name: &Arc<str>) -> Option<RouteTarget> {
    if route.header.kind == RouteType::Throw {
        return Some(RouteTarget::Throw);
    }
    let source = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::PrefSource(RouteAddress::Inet(addr)) => Some(IpAddr::from(*addr)),
        RouteAttribute::PrefSource(RouteAddress::Inet6(addr)) => Some(IpAddr::from(*addr)),
        _ => None,
    });
    netlink::leads_into(route, tun).then(|| RouteTarget::Tun(name.clone(), source))
}
