//! The way of a frame from the stack to the device, and back.

use crate::exchange::Exchange;
use crate::frame::{Content, ETHERNET, Link, header_len};
use crate::outlet::{Outlet, Unsent};
use crate::queue::Queue;
use crate::time::from_smoltcp;
use alloc::boxed::Box;
use alloc::vec;
use casemate::Endpoint;
use casemate::path::{Arrivals, Cut, Leaving, Opened, OutboundPath, Unlocked};
use casemate_crypto::Rng;
use casemate_datapath::{DropReason, HEAD_ROOM, Inbound, Role, TAIL_ROOM, Via};
use casemate_sa::{Instant, Limits};
use casemate_wire::ip;
use casemate_wire::packet::Packet;
use core::ops::Range;
use core::slice;
use smoltcp::phy::{DeviceCapabilities, Medium};

/// What a guarded device is made from.
pub struct Setup {
    /// Data path and IKE. The data path is set up for the device: its MTU, and the role of a host.
    pub endpoint: Endpoint,
    /// Randomness for IVs and keys.
    pub rng: Box<dyn Rng>,
    /// `reassembly_bytes` is the longest packet, in or out; `reassemblies` is how many may be put together at once, once for
    /// protected packets and once for what was inside of others.
    pub limits: Limits,
}

/// Frames that may wait for the device: those of one packet of the greatest length, cut, and a few more.
const WAITING: usize = 64;
/// Answers of our own that may wait for the stack.
const REPLIES: usize = 4;
/// An ICMP error holds no more than this (RFC 4443 section 3.1: the minimum MTU of IPv6).
const REPLY_BYTES: usize = 1_280;

/// Everything but the device and its buffers.
pub(crate) struct Road {
    pub(crate) endpoint: Endpoint,
    pub(crate) rng: Box<dyn Rng>,
    medium: Medium,
    longest: usize,
    outbound: OutboundPath,
    arrivals: Arrivals,
    opened: Opened,
    /// A frame from the stack that does not fit a buffer of the device, with room around it.
    large: Box<[u8]>,
    replies: Queue,
}

/// What became of a frame from the stack.
enum Ready {
    /// A frame that may go.
    Frame(Range<usize>),
    /// A packet that may go in fragments of at most `mtu` bytes.
    TooLong { packet: Range<usize>, link: Link, cut: Cut },
}

/// Where a frame for the stack is.
pub(crate) struct Found {
    pub(crate) place: Range<usize>,
    /// Whether that is in the room for what was put together, and not in the buffer that it came in.
    pub(crate) put_together: bool,
}

impl Road {
    pub(crate) fn new(setup: Setup, device: &DeviceCapabilities) -> Self {
        let Setup { mut endpoint, mut rng, limits } = setup;
        let link_mtu = device.ip_mtu();
        set_up(&mut endpoint, device);
        let longest = limits.reassembly_bytes.clamp(link_mtu, usize::from(u16::MAX));
        let rooms = const { HEAD_ROOM.saturating_add(ETHERNET).saturating_add(TAIL_ROOM) };
        let limits = Limits { reassembly_bytes: longest, ..limits };
        let mut ident = || {
            let mut ident = [0; 4];
            rng.public(&mut ident);
            u32::from_be_bytes(ident)
        };
        let (outbound, opened) = (OutboundPath::host(ident()), Opened::new(&limits, ident()));
        Self {
            endpoint,
            rng,
            medium: device.medium,
            longest,
            outbound,
            arrivals: Arrivals::new(&limits, limits.reassemblies),
            opened,
            large: vec![0; longest.saturating_add(rooms)].into(),
            replies: Queue::new(REPLIES, REPLIES.saturating_mul(REPLY_BYTES)),
        }
    }

    /// Replaces the endpoint.
    pub(crate) fn set_endpoint(&mut self, mut endpoint: Endpoint, device: &DeviceCapabilities) {
        set_up(&mut endpoint, device);
        self.endpoint = endpoint;
    }

    /// Length of the longest frame that the stack may send or get.
    pub(crate) fn longest_frame(&self) -> usize {
        self.longest.saturating_add(header_len(self.medium))
    }

    /// For frames that the device has no room for: as many as one packet of the greatest length becomes, and some more.
    pub(crate) fn queue(&self) -> Queue {
        Queue::new(WAITING, self.longest.saturating_mul(2))
    }

    /// A frame for the stack that nobody sent, into `out`; its length.
    pub(crate) fn next_reply(&mut self, out: &mut [u8]) -> Option<usize> {
        let frame = self.replies.first()?;
        let len = frame.len();
        // What does not fit was never put in: buffers are of one size.
        out.get_mut(..len)?.copy_from_slice(frame);
        self.replies.drop_first();
        Some(len)
    }

    /// Gives up datagrams whose fragments did not come in time.
    pub(crate) fn expire(&mut self, now: Instant) {
        let Self { endpoint, rng, arrivals, opened, .. } = self;
        let mut unlocked = Unlocked { datapath: endpoint.datapath_mut(), rng: &mut **rng };
        arrivals.expire(now, &mut unlocked);
        opened.expire(now, &mut unlocked);
    }

    /// Lets the stack write a frame of `len` bytes, and sends what becomes of it. If it fits, it is written, sealed and sent in
    /// `buffer`, which is an empty one afterwards.
    pub(crate) fn send<D: Exchange, R>(
        &mut self,
        (outlet, buffer): (&mut Outlet<D>, &mut D::Buffer),
        now: smoltcp::time::Instant,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let end = HEAD_ROOM.saturating_add(len);
        let rooms = buffer.as_mut().get_mut(D::HEADER..).unwrap_or_default();
        if rooms.len() < end.saturating_add(TAIL_ROOM) {
            return self.send_large(outlet, now, len, write);
        }
        let written = write(rooms.get_mut(HEAD_ROOM..end).unwrap_or_default());
        match self.prepare(from_smoltcp(now), rooms, len) {
            Some(Ready::Frame(place)) => {
                let place = place.start.saturating_add(D::HEADER)..place.end.saturating_add(D::HEADER);
                let sent = outlet.send(now, buffer, place.clone());
                self.note_unsent(now, sent, buffer.as_ref().get(place).unwrap_or_default());
            }
            Some(Ready::TooLong { packet, link, cut }) => {
                self.send_cut(outlet, now, link, rooms.get(packet).unwrap_or_default(), cut);
            }
            None => {}
        }
        written
    }

    /// The same for a frame that no buffer of the device holds.
    fn send_large<D: Exchange, R>(
        &mut self,
        outlet: &mut Outlet<D>,
        now: smoltcp::time::Instant,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let mut large = core::mem::take(&mut self.large);
        let end = HEAD_ROOM.saturating_add(len);
        let room = large.get_mut(HEAD_ROOM..end).filter(|_| len <= self.longest_frame());
        // A frame longer than what the stack was told of: it writes one, and it is dropped.
        let Some(frame) = room else {
            self.large = large;
            self.note(from_smoltcp(now), DropReason::TooBig, &[]);
            return write(&mut vec![0; len]);
        };
        let written = write(frame);
        match self.prepare(from_smoltcp(now), &mut large, len) {
            Some(Ready::Frame(place)) => {
                let frame = large.get(place).unwrap_or_default();
                let sent = outlet.send_copy(now, frame);
                self.note_unsent(now, sent, frame);
            }
            Some(Ready::TooLong { packet, link, cut }) => {
                self.send_cut(outlet, now, link, large.get(packet).unwrap_or_default(), cut);
            }
            None => {}
        }
        self.large = large;
        written
    }

    /// What becomes of the frame of `len` bytes behind the head room of a buffer; `None` if nothing of it goes.
    fn prepare(&mut self, now: Instant, buffer: &mut [u8], len: usize) -> Option<Ready> {
        let mut packet = Packet::new(buffer, HEAD_ROOM, len)?;
        let link = match Content::of(self.medium, packet.data()) {
            Content::Ip(link) => link,
            Content::Arp => return Some(Ready::Frame(HEAD_ROOM..HEAD_ROOM.saturating_add(len))),
            Content::Other => return None,
        };
        packet.shrink_front(link.len()).ok()?;
        let Self { endpoint, rng, outbound, .. } = self;
        let mut unlocked = Unlocked { datapath: endpoint.datapath_mut(), rng: &mut **rng };
        let cut = match outbound.protect(now, &mut packet, &mut unlocked) {
            Leaving::Send { cut, .. } => cut,
            Leaving::Reply => {
                self.reply(link, &mut packet);
                return None;
            }
            Leaving::Dropped(_) => return None,
        };
        if let Some(cut) = cut {
            let at = packet.head_room();
            let packet = at..at.saturating_add(packet.len());
            return Some(Ready::TooLong { packet, link, cut });
        }
        let version = ip::version(packet.data()).ok()?;
        packet.grow_front(link.len()).ok()?;
        link.write(version, packet.data_mut());
        let at = packet.head_room();
        Some(Ready::Frame(at..at.saturating_add(packet.len())))
    }

    fn send_cut<D: Exchange>(
        &mut self,
        outlet: &mut Outlet<D>,
        now: smoltcp::time::Instant,
        link: Link,
        packet: &[u8],
        cut: Cut,
    ) {
        let Ok(version) = ip::version(packet) else { return };
        let sent = outlet.send_cut(now, (link, version), packet, cut);
        self.note_unsent(now, sent, packet);
    }

    fn note_unsent(&mut self, now: smoltcp::time::Instant, sent: Result<(), Unsent>, packet: &[u8]) {
        let reason = match sent {
            Ok(()) => return,
            Err(Unsent::NoRoom) => DropReason::SendFailed,
            Err(Unsent::TooBig) => DropReason::TooBig,
        };
        self.note(from_smoltcp(now), reason, packet);
    }

    /// An ICMP error for the stack, about a packet of its own.
    fn reply(&mut self, link: Link, packet: &mut Packet<'_>) {
        let Ok(version) = ip::version(packet.data()) else { return };
        if packet.grow_front(link.len()).is_ok() {
            link.reversed().write(version, packet.data_mut());
            // Without room it is not told: such errors may be lost anywhere.
            let _ = self.replies.push(packet.data());
        }
    }

    /// Takes the frame at `place` in `buffer`; where there is one for the stack now, if there is. `whole` is room for what has to
    /// be put together.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        (buffer, mut place): (&mut [u8], Range<usize>),
        whole: &mut [u8],
    ) -> Option<Found> {
        let link = match Content::of(self.medium, buffer.get(place.clone())?) {
            Content::Ip(link) => link,
            Content::Arp => return Some(Found { place, put_together: false }),
            Content::Other => return None,
        };
        place.start = place.start.checked_add(link.len())?;
        let mut put_together = false;
        let packet = buffer.get(place.clone())?;
        if ip::is_fragment(packet) {
            let Self { endpoint, rng, arrivals, .. } = self;
            let mut unlocked = Unlocked { datapath: endpoint.datapath_mut(), rng: &mut **rng };
            let datagram = arrivals.join(now, packet, &mut unlocked).whole()?;
            place = put(datagram.data(), whole, link.len())?;
            put_together = true;
        }
        let opened = if put_together { &mut *whole } else { &mut *buffer };
        let (at, via) = self.open(now, opened, place)?;
        place = at;
        if let Some(via) = via {
            let packet = opened.get(place)?;
            let Self { endpoint, rng, opened, .. } = self;
            let mut unlocked = Unlocked { datapath: endpoint.datapath_mut(), rng: &mut **rng };
            let (datagram, _) = opened.join(now, via, packet, &mut unlocked).whole()?;
            place = put(datagram.data(), whole, link.len())?;
            put_together = true;
        }
        let room = if put_together { whole } else { buffer };
        let packet = room.get(place.clone())?;
        let version = ip::version(packet).ok()?;
        place.start = place.start.checked_sub(link.len())?;
        link.write(version, room.get_mut(place.clone())?);
        Some(Found { place, put_together })
    }

    /// Opens the packet at `place` in a buffer; where there is now one that policy admits, or a fragment that
    /// came through these SAs.
    fn open(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        place: Range<usize>,
    ) -> Option<(Range<usize>, Option<Via>)> {
        let mut packet = Packet::new(buffer, place.start, place.len())?;
        let mut verdict = Inbound::Drop(DropReason::MalformedHeader);
        let datapath = self.endpoint.datapath_mut();
        datapath.inbound(now, slice::from_mut(&mut packet), slice::from_mut(&mut verdict));
        let via = match verdict {
            // IKE goes on to its socket.
            Inbound::Deliver(_) | Inbound::Ike(_) => None,
            Inbound::ReassembleOpened(via) => Some(via),
            // Counted already, or rightly nothing to deliver. What is whole is not asked for again.
            Inbound::Drop(_) | Inbound::Consumed(_) | Inbound::Reassemble => return None,
        };
        let at = packet.head_room();
        Some((at..at.checked_add(packet.len())?, via))
    }

    fn note(&mut self, now: Instant, reason: DropReason, packet: &[u8]) {
        self.endpoint.datapath_mut().note_drop(now, reason, packet);
    }
}

/// Sets up the data path for a host behind this device.
fn set_up(endpoint: &mut Endpoint, device: &DeviceCapabilities) {
    let datapath = endpoint.datapath_mut();
    datapath.set_link_mtu(device.ip_mtu());
    datapath.set_role(Role::Host);
}

/// Copies a datagram to `at` in this room; where it is then.
fn put(datagram: &[u8], room: &mut [u8], at: usize) -> Option<Range<usize>> {
    let end = at.checked_add(datagram.len())?;
    room.get_mut(at..end)?.copy_from_slice(datagram);
    Some(at..end)
}
