//! Transmission: the link-layer frame of an IP packet, the device, and a queue for frames when the device has
//! no room.

use crate::device::{BufferDevice, DeviceFull};
use alloc::vec;
use casemate::path::FragmentPlan;
use casemate_datapath::HEAD_ROOM;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::{self, IpVersion};
use casemate_wire::packet::Packet;
use core::ops::Range;
use smoltcp::phy::Medium;
use smoltcp::storage::{PacketBuffer, PacketMetadata};
use smoltcp::time::Instant;

/// The device with a transmit queue and a spare buffer.
pub(crate) struct Transmitter<D: BufferDevice> {
    pub(crate) device: D,
    queue: FrameQueue,
    spare: D::Buffer,
}

/// A frame or packet was not sent completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransmitError {
    /// Neither the device nor the queue had room.
    NoRoom,
    /// The packet cannot be fragmented to the MTU.
    TooBig,
}

pub(crate) const VALID_HEADER: &str = "the data path returns packets with valid headers";
const FRAME_IN_BUFFER: &str = "a frame to send is inside its buffer";

/// Offset at which a copied frame is placed in a buffer, after the header of the device and the unused
/// head room.
const fn front<D: BufferDevice>() -> usize {
    D::HEADER_LEN.saturating_add(HEAD_ROOM)
}

impl<D: BufferDevice> Transmitter<D> {
    pub(crate) fn new(mut device: D, queue: FrameQueue) -> Self {
        let spare = device.allocate_buffer();
        Self { device, queue, spare }
    }

    /// Sends waiting frames. Returns true if none is left.
    pub(crate) fn flush(&mut self, now: Instant) -> bool {
        let Self { device, queue, spare } = self;
        while let Some(frame) = queue.first() {
            let range = copy_to(spare.as_mut(), front::<D>(), frame);
            // A frame that does not fit would block all others; it is removed.
            if range.is_some_and(|range| device.send_frame(now, spare, range).is_err()) {
                return false;
            }
            queue.drop_first();
        }
        true
    }

    /// Sends the frame in `buffer`, or queues it if other frames wait. Afterwards `buffer` is empty.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        buffer: &mut D::Buffer,
        frame: Range<usize>,
    ) -> Result<(), TransmitError> {
        if self.flush(now) && self.device.send_frame(now, buffer, frame.clone()).is_ok() {
            return Ok(());
        }
        let frame = buffer.as_ref().get(frame).or_broken_default(FRAME_IN_BUFFER);
        self.queue.push(frame).map_err(|DeviceFull| TransmitError::NoRoom)
    }

    /// Sends a copy of a frame.
    pub(crate) fn send_copy(&mut self, now: Instant, frame: &[u8]) -> Result<(), TransmitError> {
        if self.flush(now)
            && let Some(range) = copy_to(self.spare.as_mut(), front::<D>(), frame)
            && self.device.send_frame(now, &mut self.spare, range).is_ok()
        {
            return Ok(());
        }
        self.queue.push(frame).map_err(|DeviceFull| TransmitError::NoRoom)
    }

    /// Sends a packet in fragments, as far as there is room. `version` is the IP version of the packet.
    pub(crate) fn send_fragments(
        &mut self,
        now: Instant,
        link: LinkHeader,
        version: IpVersion,
        packet: &[u8],
        plan: FragmentPlan,
    ) -> Result<(), TransmitError> {
        let mut fragments = plan.fragments(packet).map_err(|_| TransmitError::TooBig)?;
        let (at, mut sent) = (front::<D>(), Ok(()));
        loop {
            self.flush(now);
            let frame = self.spare.as_mut().get_mut(at..).unwrap_or_default();
            link.write(version, frame);
            let Some(len) = frame.get_mut(link.len()..).and_then(|room| fragments.next(room)) else { break };
            let end = at.saturating_add(link.len()).saturating_add(len);
            if !self.queue.is_empty() || self.device.send_frame(now, &mut self.spare, at..end).is_err() {
                let frame = self.spare.as_ref().get(at..end).or_broken_default(FRAME_IN_BUFFER);
                sent = sent.and(self.queue.push(frame).map_err(|DeviceFull| TransmitError::NoRoom));
            }
        }
        if fragments.is_finished() { sent } else { Err(TransmitError::TooBig) }
    }
}

/// Copies a frame to offset `at` of a buffer and returns its range. It fits, because a frame is not longer
/// than the MTU, and a buffer has room for the MTU after `at` ([`BufferDevice::Buffer`]).
fn copy_to(buffer: &mut [u8], at: usize, frame: &[u8]) -> Option<Range<usize>> {
    let end = at.saturating_add(frame.len());
    let room = buffer.get_mut(at..end).or_report("a buffer of the device has room for a frame of the MTU")?;
    room.copy_from_slice(frame);
    Some(at..end)
}

/// A FIFO of frames.
pub(crate) struct FrameQueue(PacketBuffer<'static, ()>);

impl FrameQueue {
    /// Allocates room for `frames` frames with a total of `bytes` bytes.
    pub(crate) fn new(frames: usize, bytes: usize) -> Self {
        Self(PacketBuffer::new(vec![PacketMetadata::EMPTY; frames], vec![0; bytes]))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, frame: &[u8]) -> Result<(), DeviceFull> {
        self.0.enqueue(frame.len(), ()).map_err(|_| DeviceFull)?.copy_from_slice(frame);
        Ok(())
    }

    /// Returns the oldest frame.
    pub(crate) fn first(&mut self) -> Option<&[u8]> {
        self.0.peek().ok().map(|((), frame)| frame)
    }

    /// Removes the oldest frame.
    pub(crate) fn drop_first(&mut self) {
        self.0.dequeue().or_report("the queue has a frame to remove");
    }
}

/// Length of an Ethernet header.
pub(crate) const ETHERNET_HEADER_LEN: usize = 14;

/// Link-layer header of an IP packet: Ethernet, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LinkHeader {
    Ethernet { to: [u8; 6], from: [u8; 6] },
    Bare,
}

/// Content of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FrameContent {
    /// An IP packet after this header.
    Ip(LinkHeader),
    /// ARP, which IPsec does not process.
    Arp,
    /// Any other protocol.
    Other,
}

const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xDD];

/// Returns the length of the link-layer header for a medium.
pub(crate) const fn header_len(medium: Medium) -> usize {
    match medium {
        Medium::Ethernet => ETHERNET_HEADER_LEN,
        _ => 0,
    }
}

impl FrameContent {
    pub(crate) fn classify(medium: Medium, frame: &[u8]) -> Self {
        match medium {
            Medium::Ip => Self::Ip(LinkHeader::Bare),
            Medium::Ethernet => Self::classify_ethernet(frame).unwrap_or(Self::Other),
            #[allow(unreachable_patterns, reason = "another crate may enable other media of smoltcp")]
            _ => Self::Other,
        }
    }

    fn classify_ethernet(frame: &[u8]) -> Option<Self> {
        let (to, rest) = frame.split_first_chunk::<6>()?;
        let (from, rest) = rest.split_first_chunk::<6>()?;
        Some(match *rest.first_chunk::<2>()? {
            IPV4 | IPV6 => Self::Ip(LinkHeader::Ethernet { to: *to, from: *from }),
            ARP => Self::Arp,
            _ => Self::Other,
        })
    }
}

impl LinkHeader {
    /// Returns the header of a frame in the opposite direction.
    pub(crate) const fn reversed(self) -> Self {
        match self {
            Self::Ethernet { to, from } => Self::Ethernet { to: from, from: to },
            Self::Bare => Self::Bare,
        }
    }

    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Ethernet { .. } => ETHERNET_HEADER_LEN,
            Self::Bare => 0,
        }
    }

    /// Writes the header in front of a protected packet. Returns the position of the frame in its buffer.
    pub(crate) fn add_to(self, packet: &mut Packet<'_>) -> Option<Range<usize>> {
        let version = ip::version(packet.data()).or_report(VALID_HEADER)?;
        packet.grow_front(self.len()).or_report("the head room has room for the link-layer header")?;
        self.write(version, packet.data_mut());
        let at = packet.head_room();
        Some(at..at.saturating_add(packet.len()))
    }

    /// Writes the header for a packet of this IP version. The EtherType follows the packet itself,
    /// because the IP version outside of a tunnel may differ from the version inside.
    pub(crate) fn write(self, version: IpVersion, out: &mut [u8]) {
        let Self::Ethernet { to, from } = self else { return };
        let kind = match version {
            IpVersion::V4 => IPV4,
            IpVersion::V6 => IPV6,
        };
        for (byte, value) in out.iter_mut().zip(to.into_iter().chain(from).chain(kind)) {
            *byte = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_classified_by_ethertype() {
        let frame = |kind: [u8; 2]| [&[1; 6][..], &[2; 6], &kind, &[0x45]].concat();
        for kind in [IPV4, IPV6] {
            let FrameContent::Ip(link) = FrameContent::classify(Medium::Ethernet, &frame(kind)) else {
                panic!("an IP packet")
            };
            let mut header = [0; ETHERNET_HEADER_LEN];
            link.reversed().write(IpVersion::V6, &mut header);
            assert_eq!(header, [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0x86, 0xDD]);
        }
        assert!(matches!(FrameContent::classify(Medium::Ethernet, &frame(ARP)), FrameContent::Arp));
        // A VLAN tag, LLDP, and truncated frames.
        for other in [frame([0x81, 0]), frame([0x88, 0xCC]), frame(IPV4)[..13].to_vec(), [].to_vec()] {
            assert!(matches!(FrameContent::classify(Medium::Ethernet, &other), FrameContent::Other));
        }
        assert!(matches!(FrameContent::classify(Medium::Ip, &[]), FrameContent::Ip(LinkHeader::Bare)));
    }
}
