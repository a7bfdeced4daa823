//! Addresses that the kernel removes by itself, and the Ethernet interfaces that have them.

use super::{Netlink, family, own_address, route_address};
use crate::Error;
use crate::route::Prefix;
use crate::sys::LINK_ADDRESS_LEN;
use casemate_sa::AddrRange;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, CacheInfo};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, LinkAttribute, LinkExtentMask, LinkLayerType, LinkMessage,
};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use std::io;
use std::net::IpAddr;

/// Metric of the connected route of an IPv6 address with a lifetime. Another metric than that of the kernel
/// (256), because Linux has one route for all addresses with the same prefix and metric, and the last change
/// of one of them determines when it ends.
const CONNECTED_ROUTE_METRIC: u32 = 512;
/// Lifetime of an address that does not end (INFINITY_LIFE_TIME in net/addrconf.h).
const UNLIMITED: u32 = u32::MAX;

/// An address of an interface of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AssignedAddress {
    /// Interface index.
    pub(crate) index: u32,
    pub(crate) addr: IpAddr,
    /// Length of the prefix in bits.
    pub(crate) prefix_len: u8,
    /// Seconds until the kernel removes it; `None` for an address that stays.
    pub(crate) remaining: Option<u32>,
}

/// An address that the kernel removes after a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitedAddress {
    /// Interface index.
    pub(crate) index: u32,
    pub(crate) addr: IpAddr,
    /// Length of the prefix in bits.
    pub(crate) prefix_len: u8,
    /// Seconds until the kernel removes it.
    pub(crate) lifetime: u32,
}

/// An Ethernet interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EthernetLink {
    /// Interface index.
    pub(crate) index: u32,
    /// Ethernet address at the moment; it may change.
    pub(crate) mac: [u8; LINK_ADDRESS_LEN],
    /// Whether it forwards IPv6 packets; `None` if IPv6 is disabled on it.
    pub(crate) forwards_ipv6: Option<bool>,
}

impl Netlink {
    /// The addresses of all interfaces, with their lifetimes.
    pub(crate) fn assigned_addresses(&mut self) -> Result<Vec<AssignedAddress>, Error> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let replies = self.request(request, NLM_F_DUMP);
        let replies = replies.map_err(|error| Error::new("list of addresses", error))?;
        Ok(replies.into_iter().filter_map(assigned_address).collect())
    }

    /// Adds an address with a lifetime, without duplicate address detection. An error if the interface has
    /// it.
    pub(crate) fn add_limited_address(&mut self, address: &LimitedAddress) -> io::Result<()> {
        self.set_limited_address(address, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Sets the lifetime of an address from now on. Adds the address if the interface does not have it.
    pub(crate) fn extend_address(&mut self, address: &LimitedAddress) -> io::Result<()> {
        self.set_limited_address(address, NLM_F_CREATE | NLM_F_REPLACE)
    }

    fn set_limited_address(&mut self, address: &LimitedAddress, flags: u16) -> io::Result<()> {
        let LimitedAddress { index, addr, prefix_len, lifetime } = *address;
        let mut times = CacheInfo::default();
        (times.ifa_preferred, times.ifa_valid) = (lifetime, lifetime);
        let mut message = AddressMessage::default();
        message.header.family = family(addr.is_ipv4());
        message.header.index = index;
        message.header.prefix_len = prefix_len;
        message.attributes = vec![
            AddressAttribute::Local(addr),
            AddressAttribute::Address(addr),
            AddressAttribute::Flags(AddressFlags::Nodad),
            AddressAttribute::CacheInfo(times),
        ];
        if addr.is_ipv6() {
            message.attributes.push(AddressAttribute::RoutePriority(CONNECTED_ROUTE_METRIC));
        }
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_ACK | flags).map(drop)
    }

    /// Removes an address with a lifetime, and the connected route that Linux keeps until that is over. No
    /// error if the address or its interface has gone.
    pub(crate) fn remove_limited_address(
        &mut self,
        index: u32,
        addr: IpAddr,
        prefix_len: u8,
    ) -> Result<(), Error> {
        match self.remove_address(index, addr, prefix_len) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::ENODEV)) => {}
            removed => removed?,
        }
        if addr.is_ipv4() {
            return Ok(());
        }
        let first = AddrRange::prefix(addr, prefix_len).map_or(addr, |range| range.first());
        let dst = Prefix { addr: first, len: prefix_len };
        match self.remove_route(connected_route(index, dst)) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) => {
                Err(Error::new(format!("removal of the connected route to {dst}"), error))
            }
            _ => Ok(()),
        }
    }

    /// The Ethernet interface of this name.
    pub(crate) fn ethernet_link(&mut self, name: &str) -> Result<EthernetLink, Error> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let failed = |error| Error::new(format!("interface {name}"), error);
        let replies = self.request(RouteNetlinkMessage::GetLink(message), 0).map_err(failed)?;
        let link = replies.into_iter().find_map(ethernet_link);
        link.ok_or_else(|| {
            Error::other(format!("interface {name}"), "it is no Ethernet interface: expected one")
        })
    }

    /// The Ethernet addresses of all interfaces.
    pub(crate) fn ethernet_addresses(&mut self) -> Result<Vec<[u8; LINK_ADDRESS_LEN]>, Error> {
        let replies = self.request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP);
        let replies = replies.map_err(|error| Error::new("list of interfaces", error))?;
        Ok(replies.into_iter().filter_map(ethernet_link).map(|link| link.mac).collect())
    }
}

fn assigned_address(reply: RouteNetlinkMessage) -> Option<AssignedAddress> {
    let RouteNetlinkMessage::NewAddress(message) = reply else { return None };
    let valid = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::CacheInfo(times) => Some(times.ifa_valid),
        _ => None,
    });
    Some(AssignedAddress {
        index: message.header.index,
        addr: own_address(&message)?,
        prefix_len: message.header.prefix_len,
        remaining: valid.filter(|valid| *valid != UNLIMITED),
    })
}

fn ethernet_link(reply: RouteNetlinkMessage) -> Option<EthernetLink> {
    let RouteNetlinkMessage::NewLink(message) = reply else { return None };
    if message.header.link_layer_type != LinkLayerType::Ether {
        return None;
    }
    let (mut mac, mut forwards_ipv6) = (None, None);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::Address(bytes) => mac = bytes.try_into().ok(),
            LinkAttribute::AfSpecUnspec(families) => {
                forwards_ipv6 = families.iter().find_map(ipv6_forwarding);
            }
            _ => {}
        }
    }
    Some(EthernetLink { index: message.header.index, mac: mac?, forwards_ipv6 })
}

/// Whether an interface forwards IPv6 packets; `None` if these are not its settings of IPv6, or if IPv6 is
/// disabled.
fn ipv6_forwarding(settings: &AfSpecUnspec) -> Option<bool> {
    let AfSpecUnspec::Inet6(settings) = settings else { return None };
    settings.iter().find_map(|setting| match setting {
        AfSpecInet6::DevConf(conf) => (conf.disable_ipv6 == 0).then_some(conf.forwarding != 0),
        _ => None,
    })
}

/// The connected route that Linux adds with an IPv6 address of [`CONNECTED_ROUTE_METRIC`].
fn connected_route(index: u32, dst: Prefix) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(false);
    message.header.destination_prefix_length = dst.len;
    message.header.table = libc::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Kernel;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Destination(route_address(dst.addr)),
        RouteAttribute::Oif(index),
        RouteAttribute::Priority(CONNECTED_ROUTE_METRIC),
    ];
    message
}
