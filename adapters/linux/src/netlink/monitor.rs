//! Reports that the kernel sends when addresses, links, routes or rules change.

use super::own_address;
use crate::Error;
use netlink_packet_core::{NLM_F_REPLACE, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::RouteAttribute;
use netlink_sys::{Socket, SocketAddr, protocols};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// What a [`NetworkMonitor`] has reported.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NetworkChange {
    /// Anything has changed, or it is unknown.
    pub(crate) any: bool,
    /// An address was removed, or it is unknown.
    pub(crate) removed_address: bool,
}

/// What a [`NetworkMonitor`] has reported about routes, rules and links.
#[derive(Debug, Default)]
pub(crate) struct RoutingChange {
    /// Anything has changed, or it is unknown.
    pub(crate) any: bool,
    /// Messages were lost, so anything may have changed.
    pub(crate) is_unknown: bool,
    /// A rule was removed.
    pub(crate) removed_rule: bool,
    /// Tables of which a route was removed or replaced. Only numbers above 255 are listed.
    pub(crate) tables: BTreeSet<u32>,
    /// Indices of interfaces that were changed, such as switched on or off.
    pub(crate) links: BTreeSet<u32>,
}

/// Reports changes of the network configuration of this host. A longer lifetime of an address is no change.
pub(crate) struct NetworkMonitor {
    socket: Socket,
    known: KnownAddresses,
}

/// Longest message that is read as a whole. A longer one has a route with many next hops.
const MAX_MESSAGE: usize = 4_096;
/// What the header of a route has for a table whose number does not fit into a byte.
const LARGE_TABLE: u8 = libc::RT_TABLE_COMPAT;

impl NetworkMonitor {
    /// Monitors the addresses.
    pub(crate) fn addresses() -> Result<Self, Error> {
        let open = || Self::open(libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR);
        open().map_err(|error| Error::new("netlink socket for addresses", error))
    }

    /// Monitors everything from which the kernel derives the source address of a packet. When an IPv4 link is
    /// switched off, its routes disappear and only the link is reported.
    pub(crate) fn routes() -> Result<Self, Error> {
        let addresses = libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        let routes = libc::RTMGRP_IPV4_ROUTE | libc::RTMGRP_IPV6_ROUTE | libc::RTMGRP_IPV4_RULE;
        let open = || {
            let monitor = Self::open(libc::RTMGRP_LINK | addresses | routes)?;
            // This group has no bit in the mask.
            monitor.socket.add_membership(libc::RTNLGRP_IPV6_RULE)?;
            Ok(monitor)
        };
        open().map_err(|error| Error::new("netlink socket for routes", error))
    }

    fn open(groups: i32) -> io::Result<Self> {
        let mut socket = Socket::new(protocols::NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, groups as u32))?;
        socket.set_non_blocking(true)?;
        Ok(Self { socket, known: KnownAddresses::default() })
    }

    /// What has changed since the last call.
    pub(crate) fn read(&mut self) -> NetworkChange {
        let mut change = NetworkChange::default();
        let is_complete = self.read_messages(|message| {
            change.any = true;
            change.removed_address |= kind(message) == Some(libc::RTM_DELADDR);
        });
        if is_complete { change } else { NetworkChange { any: true, removed_address: true } }
    }

    /// What the kernel and other programs have changed since the last call. The changes of the connection
    /// with the port `own` only count as "any".
    pub(crate) fn read_routing(&mut self, own: u32) -> RoutingChange {
        let mut change = RoutingChange::default();
        let is_complete = self.read_messages(|message| change.add(message, own));
        if !is_complete {
            (change.any, change.is_unknown) = (true, true);
        }
        change
    }

    /// Reads all messages that wait, except those about addresses in which nothing but the lifetime is new.
    /// Each is read as far as it fits into the buffer. Returns whether none was lost.
    fn read_messages(&mut self, mut add: impl FnMut(&[u8])) -> bool {
        let Self { socket, known } = self;
        let mut buffer = [0; MAX_MESSAGE];
        let mut is_complete = true;
        loop {
            let mut free = buffer.as_mut_slice();
            let message = match socket.recv(&mut free, 0) {
                Ok(len) => buffer.get(..len).unwrap_or(&buffer),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    is_complete = false;
                    known.0.clear();
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return is_complete,
                Err(_) => return false,
            };
            if !known.is_repeated(message) {
                add(message);
            }
        }
    }
}

/// What the kernel has last reported of each address: interface index, address and length of the prefix, and
/// the message without the times. Empty after the removal of an address, and after a loss of messages.
#[derive(Default)]
struct KnownAddresses(BTreeMap<(u32, IpAddr, u8), AddressMessage>);

/// Addresses that are remembered, at most.
const MAX_KNOWN: usize = 256;

impl KnownAddresses {
    /// Whether this is a message about an address that is known, in which nothing but the lifetime is new:
    /// the owner of the address, such as a DHCP client, has extended it.
    fn is_repeated(&mut self, message: &[u8]) -> bool {
        if !matches!(kind(message), Some(libc::RTM_NEWADDR | libc::RTM_DELADDR)) {
            return false;
        }
        let parsed = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message).map(|parsed| parsed.payload);
        let Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(mut address))) = parsed else {
            self.0.clear();
            return false;
        };
        address.attributes.retain(|attribute| !matches!(attribute, AddressAttribute::CacheInfo(_)));
        let Some(addr) = own_address(&address) else { return false };
        let key = (address.header.index, addr, address.header.prefix_len);
        if self.0.get(&key) == Some(&address) {
            return true;
        }
        if self.0.len() >= MAX_KNOWN {
            self.0.clear();
        }
        self.0.insert(key, address);
        false
    }
}

impl RoutingChange {
    fn add(&mut self, message: &[u8], own: u32) {
        self.any = true;
        let Some(kind) = kind(message).filter(|_| word_at(message, 12) != Some(own)) else { return };
        match kind {
            libc::RTM_DELRULE => self.removed_rule = true,
            libc::RTM_NEWLINK => self.links.extend(word_at(message, 20)),
            libc::RTM_DELROUTE => self.add_route(message),
            libc::RTM_NEWROUTE if flags(message).is_some_and(|flags| flags & NLM_F_REPLACE != 0) => {
                self.add_route(message);
            }
            _ => {}
        }
    }

    fn add_route(&mut self, message: &[u8]) {
        if message.get(20) != Some(&LARGE_TABLE) {
            return;
        }
        let parsed = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message).map(|parsed| parsed.payload);
        let Ok(NetlinkPayload::InnerMessage(
            RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route),
        )) = parsed
        else {
            self.is_unknown = true;
            return;
        };
        self.tables.extend(route.attributes.iter().filter_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        }));
    }
}

/// Type of a message, such as RTM_NEWLINK.
fn kind(message: &[u8]) -> Option<u16> {
    message.get(4..).and_then(|rest| rest.first_chunk()).copied().map(u16::from_ne_bytes)
}

fn flags(message: &[u8]) -> Option<u16> {
    message.get(6..).and_then(|rest| rest.first_chunk()).copied().map(u16::from_ne_bytes)
}

/// The word at this offset, such as 12 for the port of the program that made the change, or 20 for the index
/// of an interface in a message about a link.
fn word_at(message: &[u8], offset: usize) -> Option<u32> {
    message.get(offset..).and_then(|rest| rest.first_chunk()).copied().map(u32::from_ne_bytes)
}

impl AsFd for NetworkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{LimitedAddress, Netlink};
    use crate::netns::Netns;
    use casemate_test_support::eventually;
    use std::process::Command;
    use std::thread::sleep;
    use std::time::Duration;

    #[test]
    fn longer_lifetimes_of_addresses_are_no_changes() {
        let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
        let test = || {
            let mut netlink = Netlink::open().unwrap();
            let index = netlink.link("lo").unwrap().index;
            let addresses = [("192.0.2.1", 24), ("192.0.2.1", 25), ("192.0.2.2", 24), ("2001:db8::1", 64)];
            let addresses = addresses.map(|(addr, prefix_len)| LimitedAddress {
                index,
                addr: addr.parse().unwrap(),
                prefix_len,
                lifetime: 100,
            });
            let (mut of_addresses, mut of_routes) =
                (NetworkMonitor::addresses().unwrap(), NetworkMonitor::routes().unwrap());
            // Linux reports an IPv6 address some time after it has added it.
            let mut change = |what: &str| {
                let mut seen = (false, false);
                eventually(what, || {
                    seen.0 |= of_addresses.read().any;
                    seen.1 |= of_routes.read_routing(0).any;
                    (seen == (true, true)).then_some(())
                });
            };
            for address in &addresses {
                netlink.add_limited_address(address).unwrap();
                change("an address is added");
            }
            let [first, .., last] = addresses;
            netlink.remove_address(index, last.addr, last.prefix_len).unwrap();
            change("an address is removed");
            netlink.extend_address(&last).unwrap();
            change("an address is added again");
            // The removal of an address makes all unknown.
            for address in &addresses[..3] {
                netlink.extend_address(address).unwrap();
                change("an address is unknown");
            }
            // The kernel does not choose a deprecated address as a source.
            let mut deprecated = Command::new("ip");
            deprecated.args("addr change 192.0.2.1/24 dev lo valid_lft 100 preferred_lft 0".split(' '));
            assert!(deprecated.status().unwrap().success());
            change("an address is deprecated");
            netlink.extend_address(&first).unwrap();
            change("an address is preferred again");
            sleep(Duration::from_millis(100));
            (_, _) = (of_addresses.read(), of_routes.read_routing(0));
            for lifetime in [100, 200, 50] {
                for address in addresses {
                    netlink.extend_address(&LimitedAddress { lifetime, ..address }).unwrap();
                }
                sleep(Duration::from_millis(20));
                assert!(!of_addresses.read().any && !of_routes.read_routing(0).any, "extended");
            }
            // One message that is a change among others that are not.
            netlink.extend_address(&last).unwrap();
            netlink.remove_address(index, first.addr, first.prefix_len).unwrap();
            netlink.extend_address(&last).unwrap();
            assert!(of_addresses.read().removed_address);
        };
        netns.run(test).unwrap();
    }

    #[test]
    fn a_bounded_number_of_addresses_is_known() {
        let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
        let test = || {
            let mut netlink = Netlink::open().unwrap();
            let index = netlink.link("lo").unwrap().index;
            let mut monitor = NetworkMonitor::addresses().unwrap();
            for number in 0..=u8::MAX {
                netlink.add_address(index, [10, 0, 0, number].into(), 32).unwrap();
                assert!(monitor.read().any);
                assert_eq!(monitor.known.0.len(), usize::from(number) + 1);
            }
            netlink.add_address(index, [10, 0, 1, 0].into(), 32).unwrap();
            assert!(monitor.read().any);
            assert_eq!(monitor.known.0.len(), 1);
        };
        netns.run(test).unwrap();
    }
}
