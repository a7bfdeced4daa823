//! Routes that the kernel removes together with an address.
//!
//! When the last IPv4 address of an interface goes, Linux removes every IPv4 route through the interface, in
//! every table, and reports only the address. It also removes IPv4 routes whose preferred source is a
//! removed address, and takes the preferred source from IPv6 routes. So after each removal of an address, the
//! routes are read again.

use super::SystemState;
use crate::Error;
use crate::netlink;
use crate::route::{RouteTarget, destination};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

impl SystemState {
    /// Notes which of the routes that were set have gone or have changed since an address was removed, so
    /// that they are set again.
    pub(super) fn note_lost_routes(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.has_lost_address) {
            return Ok(());
        }
        self.read_routes().inspect_err(|_| self.has_lost_address = true)
    }

    fn read_routes(&mut self) -> Result<(), Error> {
        let mut present = BTreeMap::new();
        for v4 in [true, false] {
            let routes = self.netlink.routes(self.numbers.table, v4)?;
            let name: Arc<str> = self.journal.tun().into();
            let known = |route: RouteMessage| {
                target(&route, self.tun, &name).map(|target| (destination(&route, v4), target))
            };
            present.extend(routes.into_iter().filter_map(known));
        }
        self.mark_routes.note_lost_routes(&mut self.netlink)?;
        for (dst, target) in std::mem::take(&mut self.routes) {
            let present = present.remove(&dst);
            if present.as_ref() != Some(&target) {
                self.desired.routes.mark_changed(dst);
            }
            self.routes.extend(present.map(|target| (dst, target)));
        }
        Ok(())
    }
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
