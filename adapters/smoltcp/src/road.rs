//! The way of a frame from the stack to the device, and back.

use crate::frame::{Content, ETHERNET, Link, header_len};
use crate::queue::Queue;
use crate::time::from_smoltcp;
use alloc::boxed::Box;
use alloc::vec;
use casemate::Endpoint;
use casemate_crypto::Rng;
use casemate_datapath::fragment::{self, Fragments};
use casemate_datapath::reassembly::{Reassembler, Reassembly};
use casemate_datapath::{Datapath, Direction, DropReason, HEAD_ROOM, Inbound, Outbound, Sealed, TAIL_ROOM};
use casemate_sa::{Instant, Limits};
use casemate_wire::ip::{self, IpVersion, Ipv4};
use casemate_wire::packet::Packet;
use core::ops::Range;
use core::slice;
use core::time::Duration;
use smoltcp::phy::{Device, DeviceCapabilities, Medium};

/// What a guarded device is made from.
pub struct Setup {
    /// Data path and IKE. [`Datapath::set_link_mtu`] is called with the device's MTU.
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

/// Everything but the device, and the frame on its way up.
pub(crate) struct Road {
    pub(crate) endpoint: Endpoint,
    pub(crate) rng: Box<dyn Rng>,
    medium: Medium,
    link_mtu: usize,
    longest: usize,
    /// Of packets as they come from the wire.
    arrivals: Reassembler,
    /// Of packets that were admitted and are fragments still: their source cut them before somebody protected them.
    admitted: Reassembler,
    /// A frame from the stack, with room around it.
    outgoing: Box<[u8]>,
    /// A fragment of it.
    fragment: Box<[u8]>,
    waiting: Queue,
    replies: Queue,
    next_ident: u32,
    /// When datagrams were given up last.
    expired: Instant,
}

/// How often what waits for fragments is looked at.
const EXPIRY: Duration = Duration::from_secs(1);

impl Road {
    pub(crate) fn new(setup: Setup, device: &DeviceCapabilities) -> Self {
        let Setup { mut endpoint, rng, limits } = setup;
        let link_mtu = device.ip_mtu();
        endpoint.datapath_mut().set_link_mtu(link_mtu);
        let longest = limits.reassembly_bytes.clamp(link_mtu, usize::from(u16::MAX));
        let rooms = const { HEAD_ROOM.saturating_add(ETHERNET).saturating_add(TAIL_ROOM) };
        let reassembler = || Reassembler::new(limits.reassemblies, longest);
        let mut road = Self {
            endpoint,
            rng,
            medium: device.medium,
            link_mtu,
            longest,
            arrivals: reassembler(),
            admitted: reassembler(),
            outgoing: vec![0; longest.saturating_add(rooms)].into(),
            fragment: vec![0; link_mtu.saturating_add(ETHERNET)].into(),
            waiting: Queue::new(WAITING, longest.saturating_mul(2)),
            replies: Queue::new(REPLIES, REPLIES.saturating_mul(REPLY_BYTES)),
            next_ident: 0,
            expired: Instant::ZERO,
        };
        let mut ident = [0; 4];
        road.rng.public(&mut ident);
        road.next_ident = u32::from_be_bytes(ident);
        road
    }

    /// Length of the longest frame that the stack may send or get.
    pub(crate) fn longest_frame(&self) -> usize {
        self.longest.saturating_add(header_len(self.medium))
    }

    /// Gives the device what waits for it; whether it took all.
    pub(crate) fn flush<D: Device>(&mut self, device: &mut D, now: smoltcp::time::Instant) -> bool {
        self.waiting.flush(device, now);
        self.waiting.is_empty()
    }

    /// A frame for the stack that nobody sent, into `out`; its length.
    pub(crate) fn next_reply(&mut self, out: &mut [u8]) -> Option<usize> {
        self.replies.pop(out)
    }

    /// Gives up datagrams whose fragments did not come in time.
    pub(crate) fn expire(&mut self, now: Instant) {
        if now.since(self.expired) < EXPIRY {
            return;
        }
        self.expired = now;
        let late = self.arrivals.expire(now).saturating_add(self.admitted.expire(now));
        for _ in 0..late {
            self.endpoint.datapath_mut().note_drop(now, DropReason::FragmentTimeout, &[]);
        }
    }

    /// Lets the stack write a frame of `len` bytes, and sends what becomes of it.
    pub(crate) fn send<D: Device, R>(
        &mut self,
        device: &mut D,
        now: smoltcp::time::Instant,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let mut outgoing = core::mem::take(&mut self.outgoing);
        let end = HEAD_ROOM.saturating_add(len);
        // A frame longer than what the stack was told of: it writes one, and it is dropped.
        let (written, sent) = match outgoing.get_mut(HEAD_ROOM..end) {
            Some(frame) if len <= self.longest_frame() => (write(frame), true),
            _ => (write(&mut vec![0; len]), false),
        };
        if sent {
            self.protect(device, now, &mut outgoing, len);
        } else {
            self.note(from_smoltcp(now), DropReason::TooBig, &[]);
        }
        self.outgoing = outgoing;
        written
    }

    fn protect<D: Device>(
        &mut self,
        device: &mut D,
        now: smoltcp::time::Instant,
        outgoing: &mut [u8],
        len: usize,
    ) {
        let Some(mut packet) = Packet::new(outgoing, HEAD_ROOM, len) else { return };
        let link = match Content::of(self.medium, packet.data()) {
            Content::Ip(link) => link,
            Content::Arp => return self.emit(device, now, packet.data(), packet.data()),
            Content::Other => return,
        };
        if packet.shrink_front(link.len()).is_err() {
            return;
        }
        let time = from_smoltcp(now);
        self.number(packet.data_mut());
        let datapath = self.endpoint.datapath_mut();
        datapath.clamp_mss(time, packet.data_mut(), Direction::Outbound);
        // The stack never cuts: whatever its DF bit says, it left that to us.
        match datapath.outbound_reassembled(time, &mut *self.rng, &mut packet) {
            Outbound::Send(Sealed { fragment_to, .. }) => {
                self.emit_packet(device, now, (link, &mut packet), fragment_to.map(usize::from));
            }
            Outbound::Bypass => {
                let too_long = (packet.len() > self.link_mtu).then_some(self.link_mtu);
                self.emit_packet(device, now, (link, &mut packet), too_long);
            }
            Outbound::Reply(_) => self.reply(link, &mut packet),
            // The data path has counted it; a whole datagram is not asked for again.
            Outbound::Drop(_) | Outbound::Reassemble => {}
        }
    }

    /// An IPv4 packet without identification gets one, before AH covers it: its fragments would not be told apart otherwise
    /// (RFC 6864 section 4.1).
    fn number(&mut self, packet: &mut [u8]) {
        if ip::version(packet) != Ok(IpVersion::V4) {
            return;
        }
        if let Ok(mut ip) = Ipv4::parse(packet)
            && ip.ident() == 0
        {
            self.next_ident = self.next_ident.wrapping_add(1);
            // The lower half, and never 0.
            ip.set_ident((self.next_ident as u16).max(1));
            ip.fill_checksum();
        }
    }

    /// Sends a packet that is ready, in fragments of at most `cut` bytes if it is too long.
    fn emit_packet<D: Device>(
        &mut self,
        device: &mut D,
        now: smoltcp::time::Instant,
        (link, packet): (Link, &mut Packet<'_>),
        cut: Option<usize>,
    ) {
        let Ok(version) = ip::version(packet.data()) else { return };
        let Some(mtu) = cut else {
            let packet_at = link.len();
            if packet.grow_front(packet_at).is_ok() {
                link.write(version, packet.data_mut());
                let inside = packet.data().get(packet_at..).unwrap_or_default();
                self.emit(device, now, packet.data(), inside);
            }
            return;
        };
        fragment::permit(packet.data_mut());
        self.emit_fragments(device, now, (link, version), packet.data(), mtu.min(self.link_mtu));
    }

    fn emit_fragments<D: Device>(
        &mut self,
        device: &mut D,
        now: smoltcp::time::Instant,
        (link, version): (Link, IpVersion),
        packet: &[u8],
        mtu: usize,
    ) {
        self.next_ident = self.next_ident.wrapping_add(1);
        let mut buffer = core::mem::take(&mut self.fragment);
        match Fragments::new(packet, mtu, self.next_ident) {
            Ok(mut fragments) => {
                link.write(version, &mut buffer);
                while let Some(len) = buffer.get_mut(link.len()..).and_then(|room| fragments.next(room)) {
                    let frame = buffer.get(..link.len().saturating_add(len)).unwrap_or_default();
                    self.emit(device, now, frame, packet);
                }
                if !fragments.is_finished() {
                    self.note(from_smoltcp(now), DropReason::TooBig, packet);
                }
            }
            Err(_) => self.note(from_smoltcp(now), DropReason::TooBig, packet),
        }
        self.fragment = buffer;
    }

    /// Sends a frame. `packet` is what it is part of.
    fn emit<D: Device>(&mut self, device: &mut D, now: smoltcp::time::Instant, frame: &[u8], packet: &[u8]) {
        if self.waiting.send(device, now, frame).is_err() {
            self.note(from_smoltcp(now), DropReason::SendFailed, packet);
        }
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

    /// Takes the frame of `len` bytes at the start of `buffer`; where in it there is now one for the stack, if there is.
    pub(crate) fn receive(&mut self, now: Instant, buffer: &mut [u8], len: usize) -> Option<Range<usize>> {
        let link = match Content::of(self.medium, buffer.get(..len)?) {
            Content::Ip(link) => link,
            Content::Arp => return Some(0..len),
            Content::Other => return None,
        };
        let at = link.len();
        let mut size = len.checked_sub(at)?;
        if ip::is_fragment(buffer.get(at..len)?) {
            size = put_together(
                &mut self.arrivals,
                self.endpoint.datapath_mut(),
                now,
                (&mut *buffer, at),
                size,
            )?;
        }
        let mut packet = Packet::new(buffer, at, size)?;
        let mut verdict = Inbound::Drop(DropReason::MalformedHeader);
        let datapath = self.endpoint.datapath_mut();
        datapath.inbound(now, slice::from_mut(&mut packet), slice::from_mut(&mut verdict));
        match verdict {
            // IKE goes on to its socket.
            Inbound::Deliver(_) | Inbound::Ike(_) => {}
            // Counted already, or rightly nothing to deliver. What is whole is not asked for again.
            Inbound::Drop(_) | Inbound::Consumed(_) | Inbound::Reassemble => return None,
        }
        let (mut at, mut size) = (packet.head_room(), packet.len());
        if ip::is_fragment(packet.data()) {
            size = put_together(&mut self.admitted, datapath, now, (&mut *buffer, at), size)?;
        }
        let end = at.checked_add(size)?;
        datapath.clamp_mss(now, buffer.get_mut(at..end)?, Direction::Inbound);
        let version = ip::version(buffer.get(at..end)?).ok()?;
        at = at.checked_sub(link.len())?;
        link.write(version, buffer.get_mut(at..end)?);
        Some(at..end)
    }

    fn note(&mut self, now: Instant, reason: DropReason, packet: &[u8]) {
        self.endpoint.datapath_mut().note_drop(now, reason, packet);
    }
}

/// Takes the fragment of `size` bytes in a buffer. If its datagram is whole with it, that stands there then; its length.
fn put_together(
    reassembler: &mut Reassembler,
    datapath: &mut Datapath,
    now: Instant,
    (buffer, at): (&mut [u8], usize),
    size: usize,
) -> Option<usize> {
    let fragment = buffer.get(at..at.checked_add(size)?)?;
    match reassembler.push(now, fragment) {
        Reassembly::Held => None,
        Reassembly::Dropped(error) => {
            datapath.note_drop(now, error.drop_reason(), fragment);
            None
        }
        Reassembly::Whole(whole) => {
            let room = buffer.get_mut(at..)?.get_mut(..whole.len())?;
            room.copy_from_slice(whole.data());
            Some(whole.len())
        }
    }
}
