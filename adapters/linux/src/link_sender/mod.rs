//! The link sender: protected packets leave through a packet socket, with the Ethernet address of the next
//! hop, past the kernel's IP output. That takes less than half of the time of a raw socket.
//!
//! It sends only what the kernel would send in the same way: whole ESP, AH and UDP packets without options
//! or extension headers, to a known neighbour on an Ethernet interface, while no packet filter or IPsec
//! policy of this host applies to sent packets ([`HostRules`]). All other packets leave through the raw
//! socket ([`RawSender`](crate::raw_socket::RawSender)), and so does a packet that cannot be sent here.
//!
//! A next hop is used for a second. Then at least 32 packets leave through the raw socket before it is looked
//! up again, which shows the kernel that the neighbour is in use. A change of links, addresses, routes, rules
//! or neighbours ends the use of a next hop at once: the kernel's messages are read before each run of
//! packets. docs/decisions/0076-link-sender.md compares the alternatives.

mod change_monitor;
mod destinations;
mod host_rules;
mod next_hop;
#[cfg(test)]
pub(crate) mod tests;
mod xfrm;

use crate::netlink::Netlink;
use crate::raw_socket::{AddressedPacket, SEND_BUFFER};
use crate::sys::{self, LinkPacket};
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
use casemate_datapath::SaId;
use casemate_sa::Instant;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto, v4, version};
use change_monitor::ChangeMonitor;
use destinations::Destinations;
pub use host_rules::LinkSending;
pub(crate) use host_rules::{HostRules, Permission};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

const _: () = assert!(BATCH <= u128::BITS as usize, "SentPackets has a bit for each packet of a batch");

/// A packet to send.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'p> {
    pub(crate) packet: AddressedPacket<'p>,
    /// Its outermost SA; `None` for a packet in clear.
    pub(crate) sa: Option<SaId>,
}

/// The packets of a run that were sent: bit n for packet n.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SentPackets(u128);

impl SentPackets {
    #[inline]
    fn add(&mut self, index: u8) {
        self.0 |= 1u128.checked_shl(index.into()).unwrap_or(0);
    }

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn contains(self, index: usize) -> bool {
        u32::try_from(index)
            .ok()
            .and_then(|index| self.0.checked_shr(index))
            .is_some_and(|bits| bits & 1 == 1)
    }
}

/// Sends packets to next hops.
pub(crate) struct LinkSender {
    socket: Socket,
    netlink: Netlink,
    mark: u32,
    changes: ChangeMonitor,
    destinations: Destinations,
    permission: Arc<Permission>,
    /// Number of the current run.
    run: u64,
}

impl LinkSender {
    /// Opens the sockets. The packets carry `mark` and are sent while `permission` allows it.
    pub(crate) fn open(mark: u32, permission: Arc<Permission>) -> Result<Self, Error> {
        let open = || {
            // With protocol 0 the socket receives nothing.
            let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?;
            socket.set_mark(mark)?;
            sys::enlarge_send_buffer(&socket, SEND_BUFFER)?;
            Ok((socket, ChangeMonitor::open()?))
        };
        let (socket, changes) = open().map_err(|error| Error::new("packet socket to send", error))?;
        let (netlink, destinations) = (Netlink::open()?, Destinations::new());
        Ok(Self { socket, netlink, mark, changes, destinations, permission, run: 0 })
    }

    /// Sends the packets of a run that can be sent here, without waiting. Of each destination, these are the
    /// first packets of the run: if the others are sent next, all packets keep their order. Packets to
    /// destinations for which `is_isolated` returns `true` are not sent.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        run: &[Outgoing<'_>],
        is_isolated: impl Fn(IpAddr) -> bool,
    ) -> SentPackets {
        let mut sent = SentPackets::default();
        if !self.permission.allows_esp_and_ah() {
            return sent;
        }
        self.destinations.review(now);
        let mut groups = run.chunk_by(|a, b| a.packet.dst == b.packet.dst).filter_map(<[_]>::first);
        // A single packet to a peer that is not busy needs no system call here.
        if groups.any(|first| self.destinations.has_next_hop(now, first.packet.dst)) {
            self.read_changes();
        }
        self.run = self.run.wrapping_add(1);
        let mut packets: ArrayVec<LinkPacket<'_>, BATCH> = ArrayVec::new();
        let mut indices: ArrayVec<u8, BATCH> = ArrayVec::new();
        let mut index = 0u8;
        for group in run.chunk_by(|a, b| a.packet.dst == b.packet.dst) {
            let before = packets.len();
            self.collect(now, group, &is_isolated, &mut packets);
            let count = u8::try_from(packets.len().saturating_sub(before)).unwrap_or(0);
            indices.extend(index..index.saturating_add(count));
            index = index.saturating_add(u8::try_from(group.len()).unwrap_or(u8::MAX));
        }
        let mut done = 0usize;
        while let Some(rest) = packets.get(done..).filter(|rest| !rest.is_empty()) {
            match sys::send_to_links(self.socket.as_fd(), rest) {
                Ok(count) if count > 0 => done = done.saturating_add(count),
                // The raw socket sends the rest, and handles the error if it has one, too.
                _ => {
                    let failed = indices.get(done).and_then(|index| run.get(usize::from(*index)));
                    failed.into_iter().for_each(|failed| self.destinations.suspend(now, failed.packet.dst));
                    break;
                }
            }
        }
        indices.iter().take(done).for_each(|index| sent.add(*index));
        sent
    }

    /// Adds the first packets of a group with one destination that can be sent here.
    #[inline]
    fn collect<'p>(
        &mut self,
        now: Instant,
        group: &[Outgoing<'p>],
        is_isolated: &impl Fn(IpAddr) -> bool,
        packets: &mut ArrayVec<LinkPacket<'p>, BATCH>,
    ) {
        let Some(dst) = group.first().map(|first| first.packet.dst) else { return };
        let is_protected = |outgoing: &&Outgoing<'_>| outgoing.sa.is_some();
        if !group.iter().any(|outgoing| is_protected(&outgoing)) {
            return self.destinations.note_raw(dst, self.run);
        }
        let Some(destination) = self.destinations.entry(dst) else { return };
        let next_hop = destination.next_hop(now, self.run).filter(|_| !is_isolated(dst));
        let permission = &*self.permission;
        let collected = next_hop.map_or(0, |hop| {
            let before = packets.len();
            let fits = |outgoing: &&Outgoing<'_>| {
                is_protected(outgoing)
                    && outgoing.packet.bytes.len() <= hop.mtu
                    && may_send(outgoing.packet.bytes, permission)
            };
            let leading = group.iter().take_while(fits);
            packets.extend(leading.map(|outgoing| LinkPacket { bytes: outgoing.packet.bytes, to: hop.to }));
            packets.len().saturating_sub(before)
        });
        if collected == group.len() {
            return;
        }
        let raw = group.iter().skip(collected).filter(is_protected).count();
        if destination.add_raw(now, self.run, raw) {
            self.look_up(now, dst);
        }
    }

    /// Looks up the next hop of a destination. It is used from the next run on, once changes that happened
    /// meanwhile were read.
    #[cold]
    fn look_up(&mut self, now: Instant, dst: IpAddr) {
        // Older changes are not about the result.
        self.read_changes();
        let next_hop = next_hop::look_up(&mut self.netlink, dst, self.mark);
        if let Some(destination) = self.destinations.entry(dst) {
            destination.set_next_hop(now, next_hop);
        }
        self.destinations.note_raw(dst, self.run);
    }

    /// Reads the changes of the network configuration, even if nothing is sent, so that they do not fill the
    /// buffer of the socket.
    pub(crate) fn read_changes(&mut self) {
        let Self { changes, destinations, .. } = self;
        if changes.read(|neighbour| destinations.forget(neighbour)) {
            destinations.clear();
        }
    }
}

/// Whether a packet is a whole ESP, AH or UDP packet without options or extension headers, of a protocol that
/// may be sent now.
#[inline]
fn may_send(packet: &[u8], permission: &Permission) -> bool {
    let protocol = match version(packet) {
        Ok(IpVersion::V4) => Ipv4::parse(packet)
            .ok()
            .filter(|ip| ip.header_len() == v4::HEADER_LEN && !ip.is_fragment())
            .map(|ip| ip.protocol()),
        Ok(IpVersion::V6) => Ipv6::parse(packet).ok().map(|ip| ip.next_header()),
        Err(_) => None,
    };
    match protocol {
        Some(proto::ESP | proto::AH) => true,
        Some(proto::UDP) => permission.allows_udp(),
        _ => false,
    }
}
