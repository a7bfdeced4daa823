//! The way down: the device, and frames that it had no room for.

use crate::exchange::{Exchange, Full};
use crate::frame::Link;
use crate::queue::Queue;
use casemate::path::Cut;
use casemate_datapath::HEAD_ROOM;
use casemate_wire::ip::IpVersion;
use core::ops::Range;
use smoltcp::time::Instant;

/// The device, with a buffer for frames that are not written where they are sent from.
pub(crate) struct Outlet<D: Exchange> {
    pub(crate) device: D,
    waiting: Queue,
    spare: D::Buffer,
}

/// Not everything was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// The device had no room, and neither had the queue.
    NoRoom,
    /// The packet cannot be cut so small.
    TooBig,
}

/// Where in a buffer a frame is put: behind the rooms that it will not need any more.
const fn front<D: Exchange>() -> usize {
    D::HEADER.saturating_add(HEAD_ROOM)
}

impl<D: Exchange> Outlet<D> {
    pub(crate) fn new(mut device: D, waiting: Queue) -> Self {
        let spare = device.buffer();
        Self { device, waiting, spare }
    }

    /// Gives the device what waits; whether it took all.
    pub(crate) fn flush(&mut self, now: Instant) -> bool {
        let Self { device, waiting, spare } = self;
        while let Some(frame) = waiting.first() {
            let sent = put(spare.as_mut(), front::<D>(), frame)
                .map_or(Ok(()), |place| device.send_frame(now, spare, place));
            if sent.is_err() {
                return false;
            }
            waiting.drop_first();
        }
        true
    }

    /// Sends the frame in this buffer, behind those that wait. The buffer is an empty one afterwards.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        buffer: &mut D::Buffer,
        frame: Range<usize>,
    ) -> Result<(), Unsent> {
        if self.flush(now) && self.device.send_frame(now, buffer, frame.clone()).is_ok() {
            return Ok(());
        }
        self.waiting.push(buffer.as_ref().get(frame).unwrap_or_default()).map_err(|Full| Unsent::NoRoom)
    }

    /// Sends a copy of a frame.
    pub(crate) fn send_copy(&mut self, now: Instant, frame: &[u8]) -> Result<(), Unsent> {
        if self.flush(now)
            && let Some(place) = put(self.spare.as_mut(), front::<D>(), frame)
            && self.device.send_frame(now, &mut self.spare, place).is_ok()
        {
            return Ok(());
        }
        self.waiting.push(frame).map_err(|Full| Unsent::NoRoom)
    }

    /// Sends a packet in pieces, as far as there is room.
    pub(crate) fn send_cut(
        &mut self,
        now: Instant,
        (link, version): (Link, IpVersion),
        packet: &[u8],
        cut: Cut,
    ) -> Result<(), Unsent> {
        let mut fragments = cut.pieces(packet).map_err(|_| Unsent::TooBig)?;
        let (at, mut sent) = (front::<D>(), Ok(()));
        loop {
            self.flush(now);
            let frame = self.spare.as_mut().get_mut(at..).unwrap_or_default();
            link.write(version, frame);
            let Some(len) = frame.get_mut(link.len()..).and_then(|room| fragments.next(room)) else { break };
            let end = at.saturating_add(link.len()).saturating_add(len);
            if !self.waiting.is_empty() || self.device.send_frame(now, &mut self.spare, at..end).is_err() {
                let frame = self.spare.as_ref().get(at..end).unwrap_or_default();
                sent = sent.and(self.waiting.push(frame).map_err(|Full| Unsent::NoRoom));
            }
        }
        if fragments.is_finished() { sent } else { Err(Unsent::TooBig) }
    }
}

/// Copies a frame into a buffer; where it is then. `None` if it does not fit.
fn put(buffer: &mut [u8], at: usize, frame: &[u8]) -> Option<Range<usize>> {
    let end = at.checked_add(frame.len())?;
    buffer.get_mut(at..end)?.copy_from_slice(frame);
    Some(at..end)
}
