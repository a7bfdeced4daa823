//! Virtual addresses: the addresses of a cell that only the gateway which owns it has
//! (docs/decisions/0140-cells.md).
//!
//! [`VirtualAddresses::take`] adds them to their interfaces and announces them; the neighbours send to this
//! host from then on. The kernel has them with a lifetime, which [`VirtualAddresses::poll`] extends, and
//! removes them by itself if this process is killed, crashes or is stopped: with Linux 6.18, up to 0.4
//! seconds after the lifetime (64 addresses, lifetimes of 1 to 5 seconds).
//!
//! **What Linux does with such addresses**
//!
//! - When the last IPv4 address of an interface goes, all IPv4 routes through the interface go with it, in
//!   all tables, and so does every route whose preferred source is an address that goes. Give each interface
//!   an address of the host, too.
//! - The first IPv4 address of a subnet is the primary one; the others are removed with it unless
//!   `net.ipv4.conf.*.promote_secondaries` is 1, which systemd sets. Let the host have its own address in the
//!   subnet before this program starts, or set the parameter.
//! - The connected route of a virtual IPv6 address has the metric 512. With that of other addresses, 256,
//!   Linux would have one route for both, and the address of the host, if it has a lifetime as with SLAAC or
//!   DHCPv6, would lose its connected route together with the virtual one.
//! - The newest IPv6 address of a prefix is the source of what the host itself sends there. Programs that
//!   must not use the virtual one, such as a client of etcd, bind to an address of the host.
//! - Each extension of a lifetime is reported to monitors of addresses, as if the address were new. The
//!   engine ignores such reports, apart from the link sender, which looks its next hops up again.
//! - When the addresses go, SAs with MOBIKE whose local address is among them move to another address of this
//!   host. A host that hands them over ends its use of these SAs first.
//!
//! **Limits.** Ethernet interfaces that exist when the addresses are opened; one that is removed and created
//! again needs a new [`VirtualAddresses`]. At most [`MAX_ADDRESSES`] addresses. A host on the same link can
//! forge what [`AddressEvent::Conflict`] reports: check the ownership of the cell before you act on it.

mod checks;
mod frames;
mod interface;
#[cfg(test)]
mod tests;

use crate::Error;
use crate::netlink::{AssignedAddress, Netlink};
use casemate_sa::Instant;
use checks::{check, foreign};
pub use frames::MacAddress;
use interface::Interface;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

/// Most addresses of a host.
pub const MAX_ADDRESSES: usize = 16;
/// Shortest lifetime. The kernel counts in seconds.
pub const MIN_LIFETIME: Duration = Duration::from_secs(1);
/// Longest lifetime. An address that ends later belongs to another program, such as a DHCP client.
pub const MAX_LIFETIME: Duration = Duration::from_secs(300);

/// Extensions per lifetime.
const EXTENSIONS: u32 = 4;
/// When the addresses are announced again, after they were taken: messages may be lost, switches may not
/// forward yet, and a host that has just lost the addresses may still answer for them.
const FIRST_ANNOUNCEMENTS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
/// Time between later announcements.
const ANNOUNCEMENT_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two checks whether the kernel delivers packets to the addresses.
const DELIVERY_CHECK_INTERVAL: Duration = Duration::from_micros(500);
/// Checks for all addresses together, at most: 50 ms. An interface that is switched off never delivers.
const MAX_DELIVERY_CHECKS: u32 = 100;
/// Time between two events about the use of an address by other hosts. After each of them this host defends
/// the addresses by announcing them. RFC 5227 section 2.4 allows one defence in 10 s (DEFEND_INTERVAL),
/// because two hosts might defend an address without end. In a cell, a former owner ends when it learns that
/// it has lost its lease.
const CONFLICT_INTERVAL: Duration = Duration::from_secs(1);

/// An address that moves between the hosts of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualAddress {
    /// The address: unicast, and not the first or last one of an IPv4 subnet of more than two.
    pub addr: IpAddr,
    /// Length of the prefix of its subnet, in bits: 1 to 32, or 1 to 128.
    pub prefix_len: u8,
    /// Name of the Ethernet interface that has it.
    pub interface: String,
}

impl fmt::Display for VirtualAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "virtual address {}/{} on {}", self.addr, self.prefix_len, self.interface)
    }
}

/// What has happened to the addresses.
#[derive(Debug)]
pub enum AddressEvent {
    /// Another host uses an address of this host (RFC 5227 section 2.4). At most one event per address and
    /// second.
    Conflict {
        /// The address.
        address: IpAddr,
        /// The Ethernet address of the other host, as it says.
        mac: MacAddress,
    },
    /// The lifetime of an address could not be extended. It ends unless a later attempt succeeds. Reported
    /// once until one does.
    NotExtended {
        /// The address.
        address: IpAddr,
        /// Why not.
        error: Error,
    },
    /// Addresses could not be announced. Reported once until an attempt succeeds.
    NotAnnounced {
        /// Name of the interface.
        interface: String,
        /// Why not.
        error: Error,
    },
    /// This process was stopped for longer than the lifetime: the kernel has removed the addresses, and
    /// another host may have them. What is left of them is removed. Before they are taken back, find out who
    /// owns the cell, or [`probe`](VirtualAddresses::probe) for them.
    Expired {
        /// Whether that was possible. If not, the kernel removes them when their lifetime is over.
        removed: Result<(), Error>,
    },
}

/// The virtual addresses of this host: none of them, or all.
///
/// Dropping the value leaves the addresses to their lifetime, as a crash does, because a host that stops
/// without an orderly end has nothing else either. An orderly end calls [`give_up`](Self::give_up).
#[derive(Debug)]
pub struct VirtualAddresses {
    interfaces: Vec<Interface>,
    netlink: Netlink,
    /// The Ethernet addresses of this host, as far as they are known.
    own_macs: Vec<MacAddress>,
    lifetime: Duration,
    held: Option<Held>,
}

/// When the addresses were taken, and what is due.
#[derive(Debug, Clone, Copy)]
struct Held {
    taken_at: Instant,
    /// Not after the kernel began to count their lifetime.
    extended_at: Instant,
    announce_at: Instant,
}

impl VirtualAddresses {
    /// Opens the sockets for 1 to [`MAX_ADDRESSES`] addresses. The kernel is to have an address for
    /// `lifetime`, [`MIN_LIFETIME`] to [`MAX_LIFETIME`], rounded up to seconds, after each extension.
    ///
    /// Removes what a former run has left: addresses of these values that end within [`MAX_LIFETIME`], on
    /// any interface. An error, before anything is changed, if an interface does not exist, is no Ethernet
    /// interface or has no IPv6; if an address is given twice or cannot be the address of a host; and if the
    /// host has one of them for longer: such an address was configured by the administrator or by another
    /// program and would not move.
    ///
    /// Needs CAP_NET_ADMIN and CAP_NET_RAW, like [`take`](Self::take) and the other functions.
    pub fn open(addresses: Vec<VirtualAddress>, lifetime: Duration) -> Result<Self, Error> {
        check(&addresses, lifetime)?;
        let mut netlink = Netlink::open()?;
        let mut by_interface: BTreeMap<String, Vec<(IpAddr, u8)>> = BTreeMap::new();
        for VirtualAddress { addr, prefix_len, interface } in addresses {
            by_interface.entry(interface).or_default().push((addr, prefix_len));
        }
        let open = |(name, addresses): (&String, &Vec<_>)| Interface::open(name, addresses, &mut netlink);
        let interfaces = by_interface.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let mut virtual_addresses = Self { interfaces, netlink, own_macs: Vec::new(), lifetime, held: None };
        virtual_addresses.remove_leftovers()?;
        Ok(virtual_addresses)
    }

    /// Readable when [`poll`](Self::poll) has frames to read.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.interfaces.iter().flat_map(Interface::descriptors)
    }

    /// Whether this host has the addresses.
    pub const fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Adds the addresses and announces them. Does nothing if this host has them.
    ///
    /// After an error, such as an address that the administrator has configured meanwhile, this host has
    /// none of them. Waits until Linux delivers packets to IPv6 addresses, usually for less than a
    /// millisecond, 50 at most. A failed announcement is no error: it is repeated, and [`poll`](Self::poll)
    /// reports it.
    pub fn take(&mut self, now: Instant) -> Result<(), Error> {
        if self.held.is_some() {
            return Ok(());
        }
        self.remove_leftovers()?;
        if let Err(error) = self.add() {
            // What remains after an error here ends with its lifetime.
            let _ = self.give_up();
            return Err(error);
        }
        self.await_delivery();
        for interface in &mut self.interfaces {
            interface.reset_reports();
            let _ = interface.announce(&mut self.netlink);
        }
        self.held = Some(Held { taken_at: now, extended_at: now, announce_at: next_announcement(now, now) });
        Ok(())
    }

    fn add(&mut self) -> Result<(), Error> {
        let (lifetime, netlink) = (whole_seconds(self.lifetime), &mut self.netlink);
        self.interfaces.iter_mut().try_for_each(|interface| {
            interface.start_receiving()?;
            interface.add(lifetime, netlink)
        })
    }

    /// Name of an interface of the addresses that cannot carry packets now: its cable is unplugged, it is
    /// switched off, or it does not exist any more.
    pub fn without_carrier(&mut self) -> Option<&str> {
        let Self { interfaces, netlink, .. } = self;
        let is_up = |interface: &Interface, netlink: &mut Netlink| {
            netlink.link(&interface.name).is_ok_and(|link| link.has_carrier)
        };
        interfaces.iter().find(|interface| !is_up(interface, netlink)).map(|interface| &*interface.name)
    }

    /// Waits until the kernel delivers packets to the addresses: Linux begins to do so for an IPv6 address
    /// some time after it has added it. What neighbours sent on an earlier announcement would be lost.
    fn await_delivery(&mut self) {
        let Self { interfaces, netlink, .. } = self;
        let mut is_ready = |addr| netlink.route_to(addr, 0).ok().flatten().is_some_and(|to| to.is_local);
        let addrs = interfaces.iter().flat_map(|interface| &interface.addresses).map(|own| own.addr);
        let mut checks = MAX_DELIVERY_CHECKS;
        for addr in addrs.filter(IpAddr::is_ipv6) {
            while checks > 0 && !is_ready(addr) {
                thread::sleep(DELIVERY_CHECK_INTERVAL);
                checks = checks.saturating_sub(1);
            }
        }
    }

    /// Asks whether another host has one of the addresses, which this host does not have (RFC 5227 section
    /// 2.1.1, RFC 4862 section 5.4.2). [`poll`](Self::poll) reports an answer as
    /// [`AddressEvent::Conflict`].
    pub fn probe(&mut self) -> Result<(), Error> {
        let Self { interfaces, netlink, .. } = self;
        interfaces.iter().try_for_each(|interface| {
            interface.start_receiving()?;
            interface.probe(netlink)
        })
    }

    /// When [`poll`](Self::poll) is due, at the latest; `None` while this host does not have the addresses.
    pub fn next_timeout(&self) -> Option<Instant> {
        let held = self.held?;
        Some(held.announce_at.min(self.extend_at(held)))
    }

    fn extend_at(&self, held: Held) -> Instant {
        held.extended_at.after(self.lifetime / EXTENSIONS)
    }

    /// Reads frames of other hosts, extends the lifetime of the addresses and announces them, as far as that
    /// is due. Call it only while this host owns the cell, or probes. Reads a bounded number of frames; the
    /// descriptors stay readable if more wait.
    pub fn poll(&mut self, now: Instant) -> Vec<AddressEvent> {
        let mut events = Vec::new();
        self.receive(now, &mut events);
        let Some(held) = &mut self.held else { return events };
        if !events.is_empty() {
            held.announce_at = now;
        }
        let held = *held;
        if now.since(held.extended_at) >= self.lifetime {
            return vec![AddressEvent::Expired { removed: self.give_up() }];
        }
        if now >= self.extend_at(held) {
            self.extend(now, &mut events);
        }
        if now >= held.announce_at {
            self.announce(now, &mut events);
        }
        events
    }

    /// Reports other hosts that use the addresses. Also empties the sockets while nothing is held.
    fn receive(&mut self, now: Instant, events: &mut Vec<AddressEvent>) {
        let Self { interfaces, netlink, own_macs, .. } = self;
        for interface in interfaces {
            let mut uses = Vec::new();
            interface.receive(|used| uses.push(used));
            for used in uses {
                if own_macs.contains(&used.mac) {
                    continue;
                }
                let Some(assigned) = interface.addresses.iter_mut().find(|own| own.addr == used.addr) else {
                    continue;
                };
                if assigned.conflict_at.is_some_and(|at| now.since(at) < CONFLICT_INTERVAL) {
                    continue;
                }
                // If they cannot be listed, the address counts as that of another host.
                let listed = netlink.ethernet_addresses().unwrap_or_default();
                *own_macs = listed.into_iter().map(MacAddress).collect();
                if !own_macs.contains(&used.mac) {
                    assigned.conflict_at = Some(now);
                    events.push(AddressEvent::Conflict { address: used.addr, mac: used.mac });
                }
            }
        }
    }

    fn extend(&mut self, now: Instant, events: &mut Vec<AddressEvent>) {
        let lifetime = whole_seconds(self.lifetime);
        for interface in &mut self.interfaces {
            interface.extend(lifetime, &mut self.netlink, |address, error| {
                events.push(AddressEvent::NotExtended { address, error });
            });
        }
        self.held = self.held.map(|held| Held { extended_at: now, ..held });
    }

    fn announce(&mut self, now: Instant, events: &mut Vec<AddressEvent>) {
        for interface in &mut self.interfaces {
            let announced = interface.announce(&mut self.netlink);
            let was_reported = std::mem::replace(&mut interface.announcement_failed, announced.is_err());
            if let Some(error) = announced.err().filter(|_| !was_reported) {
                events.push(AddressEvent::NotAnnounced { interface: interface.name.clone(), error });
            }
        }
        let next = |held: Held| Held { announce_at: next_announcement(held.taken_at, now), ..held };
        self.held = self.held.map(next);
    }

    /// Removes the addresses at once. Does nothing if this host has none of them. All are tried; after an
    /// error the next call tries those again that are left, and the kernel removes them when their lifetime
    /// is over.
    pub fn give_up(&mut self) -> Result<(), Error> {
        self.held = None;
        let removed = self.interfaces.iter_mut().map(|interface| interface.remove(&mut self.netlink));
        let removed = removed.fold(Ok(()), Result::and);
        self.interfaces.iter().map(Interface::stop_receiving).fold(removed, Result::and)
    }

    /// Removes the addresses that a former run has left. An error, before one is removed, if the host has
    /// one of the addresses for another reason.
    fn remove_leftovers(&mut self) -> Result<(), Error> {
        let own = |addr| self.interfaces.iter().any(|one| one.addresses.iter().any(|own| own.addr == addr));
        let mut present = self.netlink.assigned_addresses()?;
        present.retain(|address| own(address.addr));
        for address in &present {
            if let Some(reason) = foreign(address) {
                let name = self.netlink.link_at(address.index)?.name;
                let what = format!("virtual address {}: interface {name} has it", address.addr);
                return Err(Error::other(what, reason));
            }
        }
        present.into_iter().try_for_each(|AssignedAddress { index, addr, prefix_len, .. }| {
            self.netlink.remove_limited_address(index, addr, prefix_len)
        })
    }
}

fn whole_seconds(lifetime: Duration) -> u32 {
    let seconds = lifetime.as_secs().saturating_add(u64::from(lifetime.subsec_nanos() > 0));
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

/// When addresses that were taken at `taken_at` and were announced `now` are announced again.
fn next_announcement(taken_at: Instant, now: Instant) -> Instant {
    let first = FIRST_ANNOUNCEMENTS.iter().map(|delay| taken_at.after(*delay)).find(|at| *at > now);
    first.unwrap_or_else(|| now.after(ANNOUNCEMENT_INTERVAL))
}
