//! Routes that the kernel selects for a destination.

use crate::Error;
use crate::netlink::{Netlink, family, is_unreachable, route_address};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use std::net::IpAddr;

/// A route, as the kernel selects it for one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteTo {
    /// Index of the outgoing interface.
    pub interface: u32,
    /// Next hop; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Source address of packets without one.
    pub source: Option<IpAddr>,
    /// Whether the destination is this host.
    pub is_local: bool,
}

impl RouteTo {
    fn of(route: &RouteMessage) -> Option<Self> {
        let is_local = route.header.kind == RouteType::Local;
        let mut found = Self { interface: 0, gateway: None, source: None, is_local };
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => found.interface = *index,
                RouteAttribute::Gateway(addr) => found.gateway = ip_address(addr),
                RouteAttribute::PrefSource(addr) => found.source = ip_address(addr),
                _ => {}
            }
        }
        (found.interface != 0).then_some(found)
    }
}

fn ip_address(addr: &RouteAddress) -> Option<IpAddr> {
    match addr {
        RouteAddress::Inet(addr) => Some((*addr).into()),
        RouteAddress::Inet6(addr) => Some((*addr).into()),
        _ => None,
    }
}

impl Netlink {
    /// The interface through which packets with `mark` reach `dst`; `None` without a route.
    pub fn interface_to(&mut self, dst: IpAddr, mark: u32) -> Result<Option<u32>, Error> {
        Ok(self.route_to(dst, mark)?.map(|route| route.interface))
    }

    /// The route of packets with `mark` to `dst`; `None` without a route.
    pub fn route_to(&mut self, dst: IpAddr, mark: u32) -> Result<Option<RouteTo>, Error> {
        let replies = match self.get(RouteNetlinkMessage::GetRoute(route_lookup(dst, mark))) {
            Err(error) if is_unreachable(&error) => return Ok(None),
            replies => replies.map_err(|error| Error::new(format!("route to {dst}"), error))?,
        };
        Ok(replies.iter().find_map(|reply| match reply {
            RouteNetlinkMessage::NewRoute(route) => RouteTo::of(route),
            _ => None,
        }))
    }

    /// MTU of the link through which packets with `mark` reach `dst`; `None` without a route.
    pub fn link_mtu_to(&mut self, dst: IpAddr, mark: u32) -> Result<Option<usize>, Error> {
        let index = self.interface_to(dst, mark)?;
        index.map(|index| self.link_at(index).map(|link| link.mtu)).transpose()
    }
}

/// Request for the route of packets with `mark` to `dst`.
pub(crate) fn route_lookup(dst: IpAddr, mark: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(dst.is_ipv4());
    message.header.destination_prefix_length = if dst.is_ipv4() { 32 } else { 128 };
    message.attributes.push(RouteAttribute::Destination(route_address(dst)));
    message.attributes.push(RouteAttribute::Mark(mark));
    message
}
