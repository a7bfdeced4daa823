//! Reports that the kernel sends when addresses, links, routes or rules change.

use crate::Error;
use netlink_packet_core::{NLM_F_REPLACE, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteAttribute;
use netlink_sys::{Socket, SocketAddr, protocols};
use std::collections::BTreeSet;
use std::io;
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

/// Reports changes of the network configuration of this host.
pub(crate) struct NetworkMonitor(Socket);

/// Longest message that is read as a whole. A longer one has a route with many next hops.
const MAX_MESSAGE: usize = 4_096;
/// Length of the header of a netlink message.
const HEADER_LEN: usize = 16;
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
            monitor.0.add_membership(libc::RTNLGRP_IPV6_RULE)?;
            Ok(monitor)
        };
        open().map_err(|error| Error::new("netlink socket for routes", error))
    }

    fn open(groups: i32) -> io::Result<Self> {
        let mut socket = Socket::new(protocols::NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, groups as u32))?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// What has changed since the last call.
    pub(crate) fn read(&self) -> NetworkChange {
        let mut change = NetworkChange::default();
        // Only the type in the header matters, so the message may be truncated.
        let is_complete = self.read_messages(&mut [0; HEADER_LEN], |message| {
            change.any = true;
            change.removed_address |= kind(message) == Some(libc::RTM_DELADDR);
        });
        if is_complete { change } else { NetworkChange { any: true, removed_address: true } }
    }

    /// What the kernel and other programs have changed since the last call. The changes of the connection
    /// with the port `own` only count as "any".
    pub(crate) fn read_routing(&self, own: u32) -> RoutingChange {
        let mut change = RoutingChange::default();
        let is_complete = self.read_messages(&mut [0; MAX_MESSAGE], |message| change.add(message, own));
        if !is_complete {
            (change.any, change.is_unknown) = (true, true);
        }
        change
    }

    /// Reads all messages that wait, each as far as it fits into the buffer. Returns whether none was lost.
    fn read_messages(&self, buffer: &mut [u8], mut add: impl FnMut(&[u8])) -> bool {
        let mut is_complete = true;
        loop {
            let mut free: &mut [u8] = buffer;
            match self.0.recv(&mut free, 0) {
                Ok(len) => add(buffer.get(..len).unwrap_or(buffer)),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => is_complete = false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return is_complete,
                Err(_) => return false,
            }
        }
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
        self.0.as_fd()
    }
}
