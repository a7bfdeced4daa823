//! The packet path between stack and device.

use crate::device::BufferDevice;
use crate::from_smoltcp;
use crate::transmit::{ETHERNET_HEADER_LEN, FrameContent, FrameQueue, LinkHeader};
use crate::transmit::{TransmitError, Transmitter, VALID_HEADER, header_len};
use alloc::boxed::Box;
use alloc::vec;
use casemate::Endpoint;
use casemate::path::{
    ExclusiveAccess, FragmentPlan, InboundFragments, OpenedDatagram, OpenedFragments, OutboundAction,
    OutboundPath,
};
use casemate_crypto::Rng;
use casemate_datapath::{DropReason, HEAD_ROOM, Inbound, Outbound, Role, SecPath, TAIL_ROOM};
use casemate_sa::{Instant, Limits};
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip;
use casemate_wire::packet::Packet;
use core::ops::Range;
use core::slice;
use smoltcp::phy::{DeviceCapabilities, Medium};

/// Configuration of an [`IpsecDevice`](crate::IpsecDevice).
pub struct IpsecConfig {
    /// Data path and IKE. The device sets the MTU and the role [`Role::Host`] of the data path.
    pub endpoint: Endpoint,
    /// Random number generator for IVs and keys.
    pub rng: Box<dyn Rng>,
    /// `reassembly_bytes` is the length of the longest packet in either direction. `reassemblies` is the
    /// number of concurrent reassemblies, once for packets from the link and once for fragments that were
    /// received through SAs.
    pub limits: Limits,
}

/// Maximum number of frames that wait for the device: the fragments of one packet of maximum length, and
/// some more.
const MAX_QUEUED_FRAMES: usize = 64;
/// Maximum number of ICMP errors that wait for the stack.
const MAX_QUEUED_ERRORS: usize = 4;
/// Maximum length of an ICMP error (RFC 4443 section 3.1: the minimum MTU of IPv6).
const MAX_ERROR_LEN: usize = 1_280;

const IN_BUFFER: &str = "a prepared frame is inside its buffer";

/// State of the packet path, without the device and its buffers.
pub(crate) struct PacketPath {
    pub(crate) endpoint: Endpoint,
    pub(crate) rng: Box<dyn Rng>,
    medium: Medium,
    longest: usize,
    outbound: OutboundPath,
    inbound: InboundFragments,
    opened: OpenedFragments,
    /// Buffer for a frame of the stack that does not fit a buffer of the device, with head room and tail
    /// room.
    large: Box<[u8]>,
    icmp_errors: FrameQueue,
    /// Link-layer header for the feedback of header compression that is due: to the neighbour from which the
    /// packet came that caused it.
    feedback_link: Option<LinkHeader>,
}

/// An outgoing frame after protection.
enum Prepared {
    /// A frame to send.
    Frame(Range<usize>),
    /// A packet to send in fragments.
    TooLong { packet: Range<usize>, link: LinkHeader, plan: FragmentPlan },
}

/// Position of a received frame for the stack.
pub(crate) struct ReceivedFrame {
    pub(crate) range: Range<usize>,
    /// The frame is in the reassembly buffer, not in the buffer in which it was received.
    pub(crate) is_reassembled: bool,
}

/// A packet after decryption and the policy check.
struct OpenedPacket {
    /// Position in its buffer.
    range: Range<usize>,
    /// The SAs through which a fragment was received. `None`: the packet is whole.
    via: Option<SecPath>,
}

impl PacketPath {
    pub(crate) fn new(setup: IpsecConfig, device: &DeviceCapabilities) -> Self {
        let IpsecConfig { mut endpoint, mut rng, limits } = setup;
        let link_mtu = device.ip_mtu();
        configure_datapath(&mut endpoint, device);
        let longest = limits.reassembly_bytes.clamp(link_mtu, usize::from(u16::MAX));
        let spare_room = const { HEAD_ROOM.saturating_add(ETHERNET_HEADER_LEN).saturating_add(TAIL_ROOM) };
        let limits = Limits { reassembly_bytes: longest, ..limits };
        let mut ident = || {
            let mut ident = [0; 4];
            rng.public(&mut ident);
            u32::from_be_bytes(ident)
        };
        let (outbound, opened) = (OutboundPath::host(ident()), OpenedFragments::new(&limits, ident()));
        Self {
            endpoint,
            rng,
            medium: device.medium,
            longest,
            outbound,
            inbound: InboundFragments::new(&limits, limits.reassemblies),
            opened,
            large: vec![0; longest.saturating_add(spare_room)].into(),
            icmp_errors: FrameQueue::new(MAX_QUEUED_ERRORS, MAX_QUEUED_ERRORS.saturating_mul(MAX_ERROR_LEN)),
            feedback_link: None,
        }
    }

    /// Replaces the endpoint.
    pub(crate) fn set_endpoint(&mut self, mut endpoint: Endpoint, device: &DeviceCapabilities) {
        configure_datapath(&mut endpoint, device);
        self.endpoint = endpoint;
    }

    /// Returns the maximum length of a frame that the stack may send or receive.
    pub(crate) fn longest_frame(&self) -> usize {
        self.longest.saturating_add(header_len(self.medium))
    }

    /// Creates the transmit queue: room for the fragments of one packet of maximum length, and some more.
    pub(crate) fn transmit_queue(&self) -> FrameQueue {
        FrameQueue::new(MAX_QUEUED_FRAMES, self.longest.saturating_mul(2))
    }

    /// Copies the next ICMP error for the stack to `out`, and returns its length.
    pub(crate) fn next_icmp_error(&mut self, out: &mut [u8]) -> Option<usize> {
        let frame = self.icmp_errors.first()?;
        let len = frame.len();
        // All buffers have the same size, so a frame in the queue always fits.
        out.get_mut(..len)?.copy_from_slice(frame);
        self.icmp_errors.drop_first();
        Some(len)
    }

    /// Drops incomplete datagrams after the reassembly timeout.
    pub(crate) fn expire(&mut self, now: Instant) {
        let Self { endpoint, rng, inbound, opened, .. } = self;
        let mut access = ExclusiveAccess { datapath: endpoint.datapath_mut(), rng: &mut **rng };
        inbound.expire(now, &mut access);
        opened.expire(now, &mut access);
    }

    /// Lets the stack write a frame of `len` bytes, protects it and sends it. If the frame fits, this
    /// happens within `buffer`, which is empty afterwards.
    pub(crate) fn send<D: BufferDevice, R>(
        &mut self,
        transmitter: &mut Transmitter<D>,
        buffer: &mut D::Buffer,
        now: smoltcp::time::Instant,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let end = HEAD_ROOM.saturating_add(len);
        let spare_room = buffer.as_mut().get_mut(D::HEADER_LEN..).unwrap_or_default();
        if spare_room.len() < end.saturating_add(TAIL_ROOM) {
            return self.send_large(transmitter, now, len, write);
        }
        let written = write(spare_room.get_mut(HEAD_ROOM..end).or_broken_default(IN_BUFFER));
        match self.prepare(from_smoltcp(now), spare_room, len) {
            Some(Prepared::Frame(range)) => self.send_frame(transmitter, buffer, now, range),
            Some(Prepared::TooLong { packet, link, plan }) => {
                let packet = spare_room.get(packet).or_broken_default(IN_BUFFER);
                self.send_fragments(transmitter, now, link, packet, plan);
            }
            None => {}
        }
        written
    }

    /// Sends the feedback of header compression that is due, in packets of its own (RFC 5795 section 5.2.4).
    /// While frames wait for the device, the feedback waits too. `buffer` is empty afterwards.
    pub(crate) fn send_rohc_feedback<D: BufferDevice>(
        &mut self,
        transmitter: &mut Transmitter<D>,
        buffer: &mut D::Buffer,
        now: smoltcp::time::Instant,
    ) {
        let Some(link) = self.feedback_link else { return };
        while self.endpoint.datapath().has_rohc_feedback() && transmitter.flush(now) {
            let room = buffer.as_mut().get_mut(D::HEADER_LEN..).unwrap_or_default();
            let Some(mut packet) = Packet::new(room, HEAD_ROOM, 0).or_report(IN_BUFFER) else { return };
            let datapath = self.endpoint.datapath_mut();
            let verdict = datapath.next_rohc_feedback(from_smoltcp(now), &mut *self.rng, &mut packet);
            if let Some(Outbound::Send(_)) = verdict
                && let Some(range) = link.add_to(&mut packet)
            {
                self.send_frame(transmitter, buffer, now, range);
            }
        }
    }

    /// Sends the frame at `range`, counted from after the header of the device.
    fn send_frame<D: BufferDevice>(
        &mut self,
        transmitter: &mut Transmitter<D>,
        buffer: &mut D::Buffer,
        now: smoltcp::time::Instant,
        range: Range<usize>,
    ) {
        let range = range.start.saturating_add(D::HEADER_LEN)..range.end.saturating_add(D::HEADER_LEN);
        let sent = transmitter.send(now, buffer, range.clone());
        self.count_unsent(now, sent, buffer.as_ref().get(range).or_broken_default(IN_BUFFER));
    }

    /// Sends a frame that does not fit a buffer of the device, like [`send`](Self::send).
    fn send_large<D: BufferDevice, R>(
        &mut self,
        transmitter: &mut Transmitter<D>,
        now: smoltcp::time::Instant,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let mut large = core::mem::take(&mut self.large);
        let end = HEAD_ROOM.saturating_add(len);
        let room = large.get_mut(HEAD_ROOM..end).filter(|_| len <= self.longest_frame());
        // The frame exceeds the MTU that the stack was given: let the stack write it, and drop it.
        let Some(frame) = room else {
            self.large = large;
            self.count_drop(from_smoltcp(now), DropReason::TooBig, &[]);
            return write(&mut vec![0; len]);
        };
        let written = write(frame);
        match self.prepare(from_smoltcp(now), &mut large, len) {
            Some(Prepared::Frame(range)) => {
                let frame = large.get(range).or_broken_default(IN_BUFFER);
                let sent = transmitter.send_copy(now, frame);
                self.count_unsent(now, sent, frame);
            }
            Some(Prepared::TooLong { packet, link, plan }) => {
                let packet = large.get(packet).or_broken_default(IN_BUFFER);
                self.send_fragments(transmitter, now, link, packet, plan);
            }
            None => {}
        }
        self.large = large;
        written
    }

    /// Protects the frame of `len` bytes after the head room of `buffer`. Returns `None` if nothing is to
    /// be sent.
    fn prepare(&mut self, now: Instant, buffer: &mut [u8], len: usize) -> Option<Prepared> {
        let mut packet = Packet::new(buffer, HEAD_ROOM, len)?;
        let link = match FrameContent::classify(self.medium, packet.data()) {
            FrameContent::Ip(link) => link,
            FrameContent::Arp => return Some(Prepared::Frame(HEAD_ROOM..HEAD_ROOM.saturating_add(len))),
            FrameContent::Other => return None,
        };
        packet.shrink_front(link.len()).ok()?;
        let Self { endpoint, rng, outbound, .. } = self;
        let mut access = ExclusiveAccess { datapath: endpoint.datapath_mut(), rng: &mut **rng };
        let plan = match outbound.protect(now, &mut packet, &mut access) {
            OutboundAction::Send { plan, .. } => plan,
            OutboundAction::Reply => {
                self.queue_icmp_error(link, &mut packet);
                return None;
            }
            OutboundAction::Dropped(_) => return None,
        };
        if let Some(plan) = plan {
            let at = packet.head_room();
            let packet = at..at.saturating_add(packet.len());
            return Some(Prepared::TooLong { packet, link, plan });
        }
        link.add_to(&mut packet).map(Prepared::Frame)
    }

    fn send_fragments<D: BufferDevice>(
        &mut self,
        transmitter: &mut Transmitter<D>,
        now: smoltcp::time::Instant,
        link: LinkHeader,
        packet: &[u8],
        plan: FragmentPlan,
    ) {
        let Some(version) = ip::version(packet).or_report(VALID_HEADER) else { return };
        let sent = transmitter.send_fragments(now, link, version, packet, plan);
        self.count_unsent(now, sent, packet);
    }

    fn count_unsent(&mut self, now: smoltcp::time::Instant, sent: Result<(), TransmitError>, packet: &[u8]) {
        let reason = match sent {
            Ok(()) => return,
            Err(TransmitError::NoRoom) => DropReason::SendFailed,
            Err(TransmitError::TooBig) => DropReason::TooBig,
        };
        self.count_drop(from_smoltcp(now), reason, packet);
    }

    /// Queues an ICMP error for the stack about a packet of the stack.
    fn queue_icmp_error(&mut self, link: LinkHeader, packet: &mut Packet<'_>) {
        let Some(version) = ip::version(packet.data()).or_report(VALID_HEADER) else { return };
        if packet.grow_front(link.len()).is_ok() {
            link.reversed().write(version, packet.data_mut());
            // A full queue drops the error: ICMP errors may be lost.
            let _ = self.icmp_errors.push(packet.data());
        }
    }

    /// Processes the received frame at `range` in `buffer`. Returns the position of a frame for the
    /// stack, if there is one. `reassembled` is the buffer for reassembled packets.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        mut range: Range<usize>,
        reassembled: &mut [u8],
    ) -> Option<ReceivedFrame> {
        let link = match FrameContent::classify(self.medium, buffer.get(range.clone())?) {
            FrameContent::Ip(link) => link,
            FrameContent::Arp => return Some(ReceivedFrame { range, is_reassembled: false }),
            FrameContent::Other => return None,
        };
        range.start = range.start.checked_add(link.len())?;
        let mut is_reassembled = false;
        let packet = buffer.get(range.clone())?;
        if ip::is_fragment(packet) {
            let Self { endpoint, rng, inbound, .. } = self;
            let mut access = ExclusiveAccess { datapath: endpoint.datapath_mut(), rng: &mut **rng };
            let datagram = inbound.push(now, packet, &mut access).whole()?;
            range = copy_to(datagram.data(), reassembled, link.len())?;
            is_reassembled = true;
        }
        let opened = if is_reassembled { &mut *reassembled } else { &mut *buffer };
        let had_feedback = self.endpoint.datapath().has_rohc_feedback();
        let packet = self.open(now, opened, range, link.len());
        // Feedback that still waits keeps its neighbour. If the packet came from another one, its feedback
        // takes the same way.
        if !had_feedback && self.endpoint.datapath().has_rohc_feedback() {
            self.feedback_link = Some(link.reversed());
        }
        let OpenedPacket { range: at, via } = packet?;
        range = at;
        if let Some(via) = via {
            let packet = opened.get(range)?;
            let Self { endpoint, rng, opened, .. } = self;
            let mut access = ExclusiveAccess { datapath: endpoint.datapath_mut(), rng: &mut **rng };
            let OpenedDatagram { packet: datagram, .. } =
                opened.push(now, via, packet, &mut access).whole()?;
            range = copy_to(datagram.data(), reassembled, link.len())?;
            is_reassembled = true;
        }
        let room = if is_reassembled { reassembled } else { buffer };
        let packet = room.get(range.clone())?;
        let version = ip::version(packet).ok()?;
        range.start = range.start.checked_sub(link.len())?;
        link.write(version, room.get_mut(range.clone())?);
        Some(ReceivedFrame { range, is_reassembled })
    }

    /// Decrypts and checks the packet at `range`. Returns the position of a packet that the policy
    /// admits, or of a fragment that was received through SAs. It begins at `link_len` or later, also if a
    /// restored header is longer than what was in front of it.
    fn open(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        range: Range<usize>,
        link_len: usize,
    ) -> Option<OpenedPacket> {
        let room = buffer.get_mut(link_len..)?;
        let mut packet = Packet::new(room, range.start.checked_sub(link_len)?, range.len())?;
        let mut verdict = Inbound::Drop(DropReason::MalformedHeader);
        let datapath = self.endpoint.datapath_mut();
        datapath.inbound(now, slice::from_mut(&mut packet), slice::from_mut(&mut verdict));
        let via = match verdict {
            // IKE messages go to their UDP socket.
            Inbound::Deliver(_) | Inbound::Ike(_) => None,
            Inbound::ReassembleOpened(via) => Some(via),
            // Counted already, or nothing to deliver. A whole packet does not yield `Reassemble`.
            Inbound::Drop(_) | Inbound::Consumed(_) | Inbound::Reassemble => return None,
        };
        let at = packet.head_room().checked_add(link_len)?;
        Some(OpenedPacket { range: at..at.checked_add(packet.len())?, via })
    }

    fn count_drop(&mut self, now: Instant, reason: DropReason, packet: &[u8]) {
        self.endpoint.datapath_mut().record_drop(now, reason, packet);
    }
}

/// Configures the data path of a host for this device.
fn configure_datapath(endpoint: &mut Endpoint, device: &DeviceCapabilities) {
    let datapath = endpoint.datapath_mut();
    datapath.set_link_mtu(device.ip_mtu());
    datapath.set_role(Role::Host);
}

/// Copies a datagram to offset `at` and returns its range.
fn copy_to(datagram: &[u8], room: &mut [u8], at: usize) -> Option<Range<usize>> {
    let end = at.checked_add(datagram.len())?;
    room.get_mut(at..end)?.copy_from_slice(datagram);
    Some(at..end)
}
