//! Links, addresses, rules and routes, over a blocking rtnetlink socket.
//!
//! Each request has one reply. Used at the start, at the end and when a path changes, never for a packet.

mod interface_addresses;
mod monitor;
mod rules;

use crate::Error;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

pub(crate) use interface_addresses::{AssignedAddress, EthernetLink, LimitedAddress};
pub(crate) use monitor::{NetworkChange, NetworkMonitor, RoutingChange};
pub use rules::Rule;

/// A connection to the routing tables of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    port: u32,
    sequence: u32,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// MTU in bytes.
    pub mtu: usize,
    /// Whether the link can carry packets: a cable is plugged in, for example.
    pub has_carrier: bool,
}

impl Netlink {
    /// Opens a connection.
    pub fn open() -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(protocols::NETLINK_ROUTE)?;
            let port = socket.bind_auto()?.port_number();
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok((socket, port))
        };
        let (socket, port) = open().map_err(|error| Error::new("netlink socket", error))?;
        Ok(Self { socket, port, sequence: 0 })
    }

    /// Port number of the connection. A [`NetworkMonitor`] knows its changes by that.
    pub(crate) const fn port(&self) -> u32 {
        self.port
    }

    /// The interface of this name.
    pub fn link(&mut self, name: &str) -> Result<Link, Error> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        self.get_link(message).map_err(|error| Error::new(format!("interface {name}"), error))
    }

    /// Index of the interface of this name; `None` if there is no such interface.
    pub(crate) fn index_of(&mut self, name: &str) -> Result<Option<u32>, Error> {
        match self.link(name) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            link => link.map(|link| Some(link.index)),
        }
    }

    /// The interface with this index.
    pub fn link_at(&mut self, index: u32) -> Result<Link, Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.get_link(message).map_err(|error| Error::new(format!("interface {index}"), error))
    }

    /// Whether the interface with this index is a TUN interface.
    pub fn is_tun(&mut self, index: u32) -> Result<bool, Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let replies = self.request(RouteNetlinkMessage::GetLink(message), 0);
        let replies = replies.map_err(|error| Error::new(format!("interface {index}"), error))?;
        let is_tun = |attribute: &LinkAttribute| match attribute {
            LinkAttribute::LinkInfo(infos) => infos.contains(&LinkInfo::Kind(InfoKind::Tun)),
            _ => false,
        };
        Ok(replies.iter().any(|reply| match reply {
            RouteNetlinkMessage::NewLink(link) => link.attributes.iter().any(is_tun),
            _ => false,
        }))
    }

    fn get_link(&mut self, mut message: LinkMessage) -> io::Result<Link> {
        // Skips the statistics, half of the reply, because each new Child SA requests the MTU of a link.
        message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let replies = self.request(RouteNetlinkMessage::GetLink(message), 0)?;
        replies.into_iter().find_map(link_of).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// All interfaces.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let replies = self
            .request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)
            .map_err(|error| Error::new("list of interfaces", error))?;
        Ok(replies.into_iter().filter_map(link_of).collect())
    }

    /// Sets the MTU of an interface and switches it on.
    pub fn set_up(&mut self, index: u32, mtu: usize) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        message.attributes.push(LinkAttribute::Mtu(u32::try_from(mtu).unwrap_or(u32::MAX)));
        self.request(RouteNetlinkMessage::SetLink(message), NLM_F_ACK)
            .map(drop)
            .map_err(|error| Error::new(format!("interface {index} with MTU {mtu}"), error))
    }

    /// Removes an interface, with its addresses and the routes into it.
    pub(crate) fn remove_link(&mut self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.request(RouteNetlinkMessage::DelLink(message), NLM_F_ACK).map(drop)
    }

    /// Creates a veth pair: the interface `name` here and `peer` in the namespace of `other`.
    pub fn add_veth(&mut self, name: &str, peer: &str, other: BorrowedFd<'_>) -> Result<(), Error> {
        let mut peer_end = LinkMessage::default();
        peer_end.attributes.push(LinkAttribute::IfName(peer.into()));
        peer_end.attributes.push(LinkAttribute::NetNsFd(other.as_raw_fd()));
        let mut own_end = LinkMessage::default();
        own_end.attributes.push(LinkAttribute::IfName(name.into()));
        own_end.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer_end))),
        ]));
        self.request(RouteNetlinkMessage::NewLink(own_end), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
            .map(drop)
            .map_err(|error| Error::new(format!("veth {name}"), error))
    }

    /// Adds an address to an interface, without duplicate address detection.
    pub fn add_address(&mut self, index: u32, addr: IpAddr, prefix_len: u8) -> Result<(), Error> {
        let mut message = AddressMessage::default();
        message.header.family = family(addr.is_ipv4());
        message.header.index = index;
        message.header.prefix_len = prefix_len;
        message.attributes.push(AddressAttribute::Local(addr));
        message.attributes.push(AddressAttribute::Address(addr));
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
            .map(drop)
            .map_err(|error| Error::new(format!("address {addr}/{prefix_len}"), error))
    }

    /// Removes an address from an interface.
    pub fn remove_address(&mut self, index: u32, addr: IpAddr, prefix_len: u8) -> Result<(), Error> {
        let mut message = AddressMessage::default();
        message.header.family = family(addr.is_ipv4());
        message.header.index = index;
        message.header.prefix_len = prefix_len;
        message.attributes.push(AddressAttribute::Local(addr));
        self.request(RouteNetlinkMessage::DelAddress(message), NLM_F_ACK)
            .map(drop)
            .map_err(|error| Error::new(format!("removal of address {addr}/{prefix_len}"), error))
    }

    /// All addresses of this host.
    pub fn addresses(&mut self) -> Result<Vec<IpAddr>, Error> {
        Ok(self.addresses_of_links()?.into_iter().map(|(_, addr)| addr).collect())
    }

    /// All addresses of this host, each with the index of an interface that has it.
    pub(crate) fn addresses_of_links(&mut self) -> Result<Vec<(u32, IpAddr)>, Error> {
        self.list_addresses(AddressMessage::default())
    }

    /// The addresses of the interface with this index.
    pub fn addresses_of(&mut self, index: u32) -> Result<Vec<IpAddr>, Error> {
        let mut message = AddressMessage::default();
        message.header.index = index;
        let failed = |error| Error::new(format!("addresses of interface {index}"), error);
        // With strict checks the kernel lists only the addresses of this interface.
        self.socket.set_netlink_get_strict_chk(true).map_err(failed)?;
        let listed = self.list_addresses(message);
        self.socket.set_netlink_get_strict_chk(false).map_err(failed)?;
        Ok(listed?.into_iter().filter(|(link, _)| *link == index).map(|(_, addr)| addr).collect())
    }

    fn list_addresses(&mut self, request: AddressMessage) -> Result<Vec<(u32, IpAddr)>, Error> {
        let replies = self
            .request(RouteNetlinkMessage::GetAddress(request), NLM_F_DUMP)
            .map_err(|error| Error::new("list of addresses", error))?;
        let address = |reply| match reply {
            RouteNetlinkMessage::NewAddress(message) => {
                own_address(&message).map(|addr| (message.header.index, addr))
            }
            _ => None,
        };
        Ok(replies.into_iter().filter_map(address).collect())
    }

    /// The local addresses of interfaces that are switched off and of no other interface. The kernel keeps
    /// them.
    pub(crate) fn addresses_switched_off(&mut self) -> Result<Vec<IpAddr>, Error> {
        let is_off = |reply| match reply {
            RouteNetlinkMessage::NewLink(message) if !message.header.flags.contains(LinkFlags::Up) => {
                Some(message.header.index)
            }
            _ => None,
        };
        let links = self.request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP);
        let links = links.map_err(|error| Error::new("list of interfaces", error))?;
        let off: Vec<u32> = links.into_iter().filter_map(is_off).collect();
        if off.is_empty() {
            return Ok(Vec::new());
        }
        let (mut lost, mut kept) = (Vec::new(), Vec::new());
        for (index, addr) in self.addresses_of_links()? {
            let set = if off.contains(&index) { &mut lost } else { &mut kept };
            set.push(addr);
        }
        lost.retain(|addr| !kept.contains(addr));
        Ok(lost)
    }

    pub(crate) fn add_route(&mut self, route: RouteMessage) -> io::Result<()> {
        self.request(RouteNetlinkMessage::NewRoute(route), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Adds a route, or replaces the one to the same destination.
    pub(crate) fn set_route(&mut self, route: RouteMessage) -> io::Result<()> {
        self.request(RouteNetlinkMessage::NewRoute(route), NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE).map(drop)
    }

    /// All routes of a table.
    pub(crate) fn routes(&mut self, table: u32, v4: bool) -> Result<Vec<RouteMessage>, Error> {
        let failed = |error| Error::new(format!("routes of table {table}"), error);
        // With strict checks the kernel lists only the routes of this table.
        self.socket.set_netlink_get_strict_chk(true).map_err(failed)?;
        let mut message = RouteMessage::default();
        message.header.address_family = family(v4);
        message.attributes.push(RouteAttribute::Table(table));
        let replies = self.request(RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP);
        self.socket.set_netlink_get_strict_chk(false).map_err(failed)?;
        let of_table = |reply| match reply {
            RouteNetlinkMessage::NewRoute(route)
                if route.attributes.contains(&RouteAttribute::Table(table)) =>
            {
                Some(route)
            }
            _ => None,
        };
        match replies {
            // The table has never had a route.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
            replies => Ok(replies.map_err(failed)?.into_iter().filter_map(of_table).collect()),
        }
    }

    pub(crate) fn remove_route(&mut self, route: RouteMessage) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelRoute(route), NLM_F_ACK).map(drop)
    }

    /// Requests one object.
    pub(crate) fn get(&mut self, request: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.request(request, 0)
    }

    /// Sends a request and collects the replies of the kernel, up to its acknowledgement or the end of its
    /// list.
    fn request(&mut self, request: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let single = flags & (NLM_F_DUMP | NLM_F_ACK) == 0;
        let mut replies = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            if self.take_replies(&bytes, &mut replies)? || (single && !replies.is_empty()) {
                return Ok(replies);
            }
        }
    }

    /// Adds the messages of a datagram to the replies. Returns whether the last one was among them.
    fn take_replies(&self, mut bytes: &[u8], replies: &mut Vec<RouteNetlinkMessage>) -> io::Result<bool> {
        while !bytes.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            let len = (message.header.length as usize).next_multiple_of(4).max(4);
            bytes = bytes.get(len..).unwrap_or_default();
            // A reply to an earlier request that ended early.
            if message.header.sequence_number != self.sequence {
                continue;
            }
            match message.payload {
                NetlinkPayload::Error(error) => {
                    return if error.code.is_none() { Ok(true) } else { Err(error.to_io()) };
                }
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::InnerMessage(reply) => replies.push(reply),
                _ => {}
            }
        }
        Ok(false)
    }
}

/// Address family of an IP version.
pub(crate) fn family(v4: bool) -> AddressFamily {
    if v4 { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Whether a route leads into the interface with this index.
pub(crate) fn leads_into(route: &RouteMessage, index: u32) -> bool {
    route.attributes.contains(&RouteAttribute::Oif(index))
}

pub(crate) fn route_address(addr: IpAddr) -> RouteAddress {
    match addr {
        IpAddr::V4(addr) => RouteAddress::Inet(addr),
        IpAddr::V6(addr) => RouteAddress::Inet6(addr),
    }
}

fn link_of(reply: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = reply else { return None };
    let name = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    });
    let mtu = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu as usize),
        _ => None,
    });
    let has_carrier = message.header.flags.contains(LinkFlags::LowerUp);
    Some(Link { index: message.header.index, name: name?, mtu: mtu?, has_carrier })
}

/// The local address of a message. On a point-to-point link `Address` is the remote one, and `Local` is the
/// local one if it is present.
fn own_address(message: &AddressMessage) -> Option<IpAddr> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(addr) => Some(*addr),
        _ => None,
    });
    local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(addr) => Some(*addr),
            _ => None,
        })
    })
}

pub(crate) fn is_unreachable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ESRCH))
}
