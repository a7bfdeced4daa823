//! Looks up the next hop of a destination: the interface, and the Ethernet address of the neighbour there.

use crate::netlink::{Netlink, family};
use crate::packet_socket::{ETHERTYPE_V4, ETHERTYPE_V6};
use crate::route_lookup::route_lookup;
use crate::sys::{LINK_ADDRESS_LEN, LinkAddress};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, LinkAttribute, LinkExtentMask, LinkFlags, LinkLayerType, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType};
use std::net::IpAddr;

/// Where packets to a destination are sent, as the kernel would send them.
#[derive(Debug, Clone, Copy)]
pub(super) struct NextHop {
    pub(super) to: LinkAddress,
    /// Index of the interface.
    pub(super) ifindex: u32,
    /// IP address of the neighbour: the destination itself, or a router.
    pub(super) neighbour: IpAddr,
    /// Longest packet, in bytes.
    pub(super) mtu: usize,
}

/// What is used of a route.
struct Route {
    ifindex: u32,
    gateway: Option<IpAddr>,
    /// MTU of the route, or of a path MTU that the kernel has learned.
    mtu: Option<usize>,
}

/// Looks up the next hop of packets with `mark` to `dst`. `None` if there is none, or if the kernel might
/// send the packets in another way than as plain Ethernet frames to a known neighbour.
pub(super) fn look_up(netlink: &mut Netlink, dst: IpAddr, mark: u32) -> Option<NextHop> {
    // The scope of a link-local address is not known here.
    if matches!(dst, IpAddr::V6(dst) if dst.is_unicast_link_local()) {
        return None;
    }
    let replies = netlink.get(RouteNetlinkMessage::GetRoute(route_lookup(dst, mark))).ok()?;
    let Route { ifindex, gateway, mtu } = replies.into_iter().find_map(|reply| match reply {
        RouteNetlinkMessage::NewRoute(route) => unicast_route(&route),
        _ => None,
    })?;
    let link_mtu = ethernet_mtu(netlink, ifindex, dst.is_ipv4())?;
    let neighbour = gateway.unwrap_or(dst);
    let addr = link_address(netlink, ifindex, neighbour)?;
    let ethertype = if dst.is_ipv4() { ETHERTYPE_V4 } else { ETHERTYPE_V6 };
    let to = LinkAddress::new(ifindex, ethertype, addr)?;
    Some(NextHop { to, ifindex, neighbour, mtu: mtu.unwrap_or(link_mtu).min(link_mtu) })
}

/// The parts of a route that are needed. `None` if packets need more than a next hop, such as an
/// encapsulation.
fn unicast_route(message: &RouteMessage) -> Option<Route> {
    if message.header.kind != RouteType::Unicast {
        return None;
    }
    let (mut ifindex, mut gateway, mut mtu) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => ifindex = Some(*index),
            RouteAttribute::Gateway(RouteAddress::Inet(addr)) => gateway = Some(IpAddr::from(*addr)),
            RouteAttribute::Gateway(RouteAddress::Inet6(addr)) => gateway = Some(IpAddr::from(*addr)),
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu as usize).filter(|mtu| *mtu > 0),
                    _ => None,
                });
            }
            // A router of the other IP version, several next hops, or an encapsulation.
            RouteAttribute::Gateway(_)
            | RouteAttribute::Via(_)
            | RouteAttribute::MultiPath(_)
            | RouteAttribute::NewDestination(_)
            | RouteAttribute::NewDestinationAddress(_)
            | RouteAttribute::EncapType(_)
            | RouteAttribute::Encap(_) => return None,
            _ => {}
        }
    }
    Some(Route { ifindex: ifindex?, gateway, mtu })
}

/// MTU of an interface for an IP version. `None` unless it is an Ethernet interface that is up, resolves
/// neighbours, and is part of no other interface, such as a VRF, which would get the packets first.
fn ethernet_mtu(netlink: &mut Netlink, ifindex: u32, v4: bool) -> Option<usize> {
    let mut request = LinkMessage::default();
    request.header.index = ifindex;
    request.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    let replies = netlink.get(RouteNetlinkMessage::GetLink(request)).ok()?;
    let link = replies.into_iter().find_map(|reply| match reply {
        RouteNetlinkMessage::NewLink(link) if link.header.index == ifindex => Some(link),
        _ => None,
    })?;
    let is_usable = link.header.link_layer_type == LinkLayerType::Ether
        && link.header.flags.contains(LinkFlags::Up)
        && !link.header.flags.intersects(LinkFlags::Loopback | LinkFlags::Noarp);
    if !is_usable {
        return None;
    }
    let (mut mtu, mut mtu_v6) = (None, None);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Mtu(value) => mtu = Some(*value as usize),
            LinkAttribute::Controller(_) => return None,
            LinkAttribute::AfSpecUnspec(families) => mtu_v6 = families.iter().find_map(ipv6_mtu),
            _ => {}
        }
    }
    // A router may have announced a smaller MTU for IPv6 (RFC 4861 section 4.6.4).
    if v4 { mtu } else { Some(mtu?.min(mtu_v6?)) }
}

fn ipv6_mtu(family: &AfSpecUnspec) -> Option<usize> {
    let AfSpecUnspec::Inet6(parts) = family else { return None };
    parts.iter().find_map(|part| match part {
        AfSpecInet6::DevConf(config) => usize::try_from(config.mtu6).ok(),
        _ => None,
    })
}

/// Ethernet address of a neighbour, if the kernel would use it without asking first. Kernels before 5.0 do
/// not look up a single neighbour.
fn link_address(netlink: &mut Netlink, ifindex: u32, neighbour: IpAddr) -> Option<[u8; LINK_ADDRESS_LEN]> {
    let mut request = NeighbourMessage::default();
    request.header.family = family(neighbour.is_ipv4());
    request.header.ifindex = ifindex;
    request.attributes.push(NeighbourAttribute::Destination(match neighbour {
        IpAddr::V4(addr) => NeighbourAddress::Inet(addr),
        IpAddr::V6(addr) => NeighbourAddress::Inet6(addr),
    }));
    let replies = netlink.get(RouteNetlinkMessage::GetNeighbour(request)).ok()?;
    let found = replies.into_iter().find_map(|reply| match reply {
        RouteNetlinkMessage::NewNeighbour(found) => Some(found),
        _ => None,
    })?;
    let is_usable = matches!(
        found.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
    );
    let addr = found.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(addr) => Some(addr.as_slice()),
        _ => None,
    })?;
    is_usable.then(|| addr.try_into().ok()).flatten()
}
