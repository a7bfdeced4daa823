//! One interface with its virtual addresses: packet sockets that announce them and see whether another host
//! uses them, and the requests to the kernel that add, extend and remove them.

use super::frames::{self, AddressUse, ETHERTYPE_ARP, MacAddress};
use crate::netlink::{EthernetLink, LimitedAddress, Netlink};
use crate::packet_socket::ETHERTYPE_V6;
use crate::{Error, socket_filter, sys};
use arrayvec::ArrayVec;
use casemate_sa::Instant;
use casemate_wire::invariant::OrBroken;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

/// Frames that are read from a socket at once, at most.
const MAX_FRAMES: usize = 32;
/// The start of a frame that is read: an advertisement with some options, or ARP.
const FRAME_LEN: usize = 128;
/// Reads that empty a socket which receives nothing any more. A socket has room for fewer frames.
const MAX_READS: usize = 256;

/// A virtual address of an interface.
#[derive(Debug)]
pub(super) struct Assigned {
    pub(super) addr: IpAddr,
    prefix_len: u8,
    /// The kernel may have it.
    may_exist: bool,
    /// It could not be extended, and that was reported.
    extension_failed: bool,
    /// When its use by another host was reported last.
    pub(super) conflict_at: Option<Instant>,
}

/// An interface with virtual addresses. The packet sockets exist for the IP versions of the addresses.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    index: u32,
    pub(super) addresses: Vec<Assigned>,
    arp: Option<Socket>,
    advertisements: Option<Socket>,
    /// The addresses could not be announced, and that was reported.
    pub(super) announcement_failed: bool,
}

impl Interface {
    /// Opens the sockets for these addresses, with their prefix lengths, of an interface.
    pub(super) fn open(name: &str, addresses: &[(IpAddr, u8)], netlink: &mut Netlink) -> Result<Self, Error> {
        let EthernetLink { index, forwards_ipv6, .. } = netlink.ethernet_link(name)?;
        let has = |v4: bool| addresses.iter().any(|(addr, _)| addr.is_ipv4() == v4);
        if has(false) && forwards_ipv6.is_none() {
            let expected = format!("IPv6 is disabled: expected net.ipv6.conf.{name}.disable_ipv6 = 0");
            return Err(Error::other(format!("interface {name}"), expected));
        }
        let socket = |v4: bool, ethertype| {
            let socket = has(v4).then(|| open_socket(ethertype, index)).transpose();
            socket.map_err(|error| Error::new(format!("packet socket on interface {name}"), error))
        };
        let assigned = |(addr, prefix_len): &(IpAddr, u8)| Assigned {
            addr: *addr,
            prefix_len: *prefix_len,
            may_exist: false,
            extension_failed: false,
            conflict_at: None,
        };
        Ok(Self {
            name: name.into(),
            index,
            addresses: addresses.iter().map(assigned).collect(),
            arp: socket(true, ETHERTYPE_ARP)?,
            advertisements: socket(false, ETHERTYPE_V6)?,
            announcement_failed: false,
        })
    }

    fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.arp.iter().chain(&self.advertisements)
    }

    /// Readable when another host may use an address, or the interface was switched off.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets().map(AsFd::as_fd)
    }

    /// Forgets what was reported, for a new holding of the addresses.
    pub(super) fn reset_reports(&mut self) {
        self.announcement_failed = false;
        for assigned in &mut self.addresses {
            (assigned.extension_failed, assigned.conflict_at) = (false, None);
        }
    }

    /// Receives frames about the addresses from now on.
    pub(super) fn start_receiving(&self) -> Result<(), Error> {
        let addrs = self.addresses.iter().map(|assigned| assigned.addr);
        let (mut v4, mut v6): (Vec<Ipv4Addr>, Vec<Ipv6Addr>) = (Vec::new(), Vec::new());
        addrs.for_each(|addr| match addr {
            IpAddr::V4(addr) => v4.push(addr),
            IpAddr::V6(addr) => v6.push(addr),
        });
        self.set_filters(&socket_filter::arp_from(&v4), &socket_filter::advertisements_of(&v6))
    }

    /// Receives nothing any more, and forgets what was received.
    pub(super) fn stop_receiving(&self) -> Result<(), Error> {
        let nothing = socket_filter::nothing();
        self.set_filters(&nothing, &nothing)?;
        for _ in 0..MAX_READS {
            if self.receive(|_| {}) == 0 {
                break;
            }
        }
        Ok(())
    }

    fn set_filters(&self, arp: &[SockFilter], advertisements: &[SockFilter]) -> Result<(), Error> {
        let set = |socket: &Option<Socket>, filter| {
            socket.as_ref().map_or(Ok(()), |socket| socket.attach_filter(filter))
        };
        set(&self.arp, arp)
            .and_then(|()| set(&self.advertisements, advertisements))
            .map_err(|error| Error::new(format!("filter of a packet socket on {}", self.name), error))
    }

    /// Reads frames that have arrived, at most [`MAX_FRAMES`] from each socket, and passes what they show to
    /// `each`. Returns their number.
    pub(super) fn receive(&self, mut each: impl FnMut(AddressUse)) -> usize {
        let mut total = 0usize;
        for socket in self.sockets() {
            let mut storage = [[0; FRAME_LEN]; MAX_FRAMES];
            let mut lens = [0; MAX_FRAMES];
            let mut buffers: ArrayVec<&mut [u8], MAX_FRAMES> =
                storage.iter_mut().map(|frame| frame.as_mut_slice()).collect();
            // The error that the interface was switched off clears itself; extending the addresses or
            // announcing them reports what does not work.
            let count = sys::receive_batch(socket.as_fd(), &mut buffers, None, &mut lens).unwrap_or(0);
            drop(buffers);
            total = total.saturating_add(count);
            for (frame, len) in storage.iter().zip(lens).take(count) {
                let frame = frame.get(..len).or_broken_default("a frame is no longer than its buffer");
                frames::address_use(frame).into_iter().for_each(&mut each);
            }
        }
        total
    }

    /// Sends an announcement of each address, with the present Ethernet address of the interface.
    pub(super) fn announce(&self, netlink: &mut Netlink) -> Result<(), Error> {
        let EthernetLink { mac, forwards_ipv6, .. } = netlink.ethernet_link(&self.name)?;
        let (mac, is_router) = (MacAddress(mac), forwards_ipv6 == Some(true));
        self.send_for_each("announcement of", |addr| match addr {
            IpAddr::V4(addr) => frames::arp_announcement(addr, mac),
            IpAddr::V6(addr) => frames::advertisement(addr, mac, is_router),
        })
    }

    /// Asks whether another host has one of the addresses.
    pub(super) fn probe(&self, netlink: &mut Netlink) -> Result<(), Error> {
        let mac = MacAddress(netlink.ethernet_link(&self.name)?.mac);
        self.send_for_each("probe for", |addr| match addr {
            IpAddr::V4(addr) => frames::arp_probe(addr, mac),
            IpAddr::V6(addr) => frames::solicitation(addr, mac),
        })
    }

    fn send_for_each(&self, what: &str, frame: impl Fn(IpAddr) -> Vec<u8>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for &Assigned { addr, .. } in &self.addresses {
            let socket = if addr.is_ipv4() { &self.arp } else { &self.advertisements };
            let sent = socket.as_ref().map_or(Ok(0), |socket| socket.send(&frame(addr)));
            let failed = |error| Error::new(format!("{what} {addr} on {}", self.name), error);
            outcome = outcome.and(sent.map(drop).map_err(failed));
        }
        outcome
    }

    /// Adds the addresses for `lifetime` seconds. After an error the kernel may have some of them.
    pub(super) fn add(&mut self, lifetime: u32, netlink: &mut Netlink) -> Result<(), Error> {
        let Self { name, index, addresses, .. } = self;
        addresses.iter_mut().try_for_each(|assigned| {
            assigned.may_exist = true;
            let added = netlink.add_limited_address(&assigned.with_lifetime(*index, lifetime));
            added.map_err(|error| Error::new(assigned.describe(name), error))
        })
    }

    /// Lets the addresses exist for `lifetime` seconds from now on. Passes each address for which that is not
    /// possible for the first time since it was, and the error, to `failed`.
    pub(super) fn extend(
        &mut self,
        lifetime: u32,
        netlink: &mut Netlink,
        mut failed: impl FnMut(IpAddr, Error),
    ) {
        let Self { name, index, addresses, .. } = self;
        for assigned in addresses {
            let extended = netlink.extend_address(&assigned.with_lifetime(*index, lifetime));
            let was_reported = std::mem::replace(&mut assigned.extension_failed, extended.is_err());
            if let Some(error) = extended.err().filter(|_| !was_reported) {
                let what = format!("extension of {}", assigned.describe(name));
                failed(assigned.addr, Error::new(what, error));
            }
        }
    }

    /// Removes the addresses that the kernel may have.
    pub(super) fn remove(&mut self, netlink: &mut Netlink) -> Result<(), Error> {
        let mut outcome = Ok(());
        for assigned in self.addresses.iter_mut().filter(|assigned| assigned.may_exist) {
            let removed = netlink.remove_limited_address(self.index, assigned.addr, assigned.prefix_len);
            assigned.may_exist = removed.is_err();
            outcome = outcome.and(removed);
        }
        outcome
    }
}

impl Assigned {
    fn with_lifetime(&self, index: u32, lifetime: u32) -> LimitedAddress {
        LimitedAddress { index, addr: self.addr, prefix_len: self.prefix_len, lifetime }
    }

    fn describe(&self, interface: &str) -> String {
        format!("virtual address {}/{} on {interface}", self.addr, self.prefix_len)
    }
}

/// A socket for whole frames of an interface. It receives nothing until its filter changes.
fn open_socket(ethertype: u16, index: u32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
    socket.attach_filter(&socket_filter::nothing())?;
    socket.set_nonblocking(true)?;
    sys::bind_packet(socket.as_fd(), ethertype, index)?;
    Ok(socket)
}
