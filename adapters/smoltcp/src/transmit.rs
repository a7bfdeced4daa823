//! Transmission: the device, and a queue for frames when the device has no room.

use crate::buffer_device::{BufferDevice, DeviceFull};
use crate::frame::LinkHeader;
use alloc::vec;
use casemate::path::FragmentPlan;
use casemate_datapath::HEAD_ROOM;
use casemate_wire::ip::IpVersion;
use core::ops::Range;
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
            let sent = copy_to(spare.as_mut(), front::<D>(), frame)
                .map_or(Ok(()), |range| device.send_frame(now, spare, range));
            if sent.is_err() {
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
        self.queue
            .push(buffer.as_ref().get(frame).unwrap_or_default())
            .map_err(|DeviceFull| TransmitError::NoRoom)
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

    /// Sends a packet in fragments, as far as there is room.
    pub(crate) fn send_fragments(
        &mut self,
        now: Instant,
        (link, version): (LinkHeader, IpVersion),
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
                let frame = self.spare.as_ref().get(at..end).unwrap_or_default();
                sent = sent.and(self.queue.push(frame).map_err(|DeviceFull| TransmitError::NoRoom));
            }
        }
        if fragments.is_finished() { sent } else { Err(TransmitError::TooBig) }
    }
}

/// Copies a frame to offset `at` of a buffer and returns its range. Returns `None` if it does not fit.
fn copy_to(buffer: &mut [u8], at: usize, frame: &[u8]) -> Option<Range<usize>> {
    let end = at.checked_add(frame.len())?;
    buffer.get_mut(at..end)?.copy_from_slice(frame);
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
        let _ = self.0.dequeue();
    }
}
