//! What is below the guard: a device that exchanges buffers.

use alloc::boxed::Box;
use alloc::vec;
use casemate_datapath::{HEAD_ROOM, TAIL_ROOM};
use core::ops::Range;
use smoltcp::phy::{Device, DeviceCapabilities, RxToken as _, TxToken as _};
use smoltcp::time::Instant;

/// A network device that exchanges buffers: for a full one it gets an empty one, and the other way round.
///
/// Packets are opened and sealed in these buffers, so for a driver whose buffers are those of its rings nothing is copied.
/// Such a driver implements this trait. Every smoltcp [`Device`] has it already, at the price of one copy in and one copy
/// out: it shows frames only for a moment, and wants to know the length of a frame before it is sealed.
pub trait Exchange {
    /// A buffer. It has the same length as all others of the device, at least
    /// `HEADER + HEAD_ROOM + max_transmission_unit + TAIL_ROOM`: what does not fit is sealed elsewhere and copied.
    type Buffer: AsRef<[u8]> + AsMut<[u8]>;

    /// Bytes that the device writes in front of each frame that it sends, in the same buffer.
    const HEADER: usize;

    /// What [`Device::capabilities`] says.
    fn device_capabilities(&self) -> DeviceCapabilities;

    /// A buffer that is not the device's yet, to begin with.
    fn buffer(&mut self) -> Self::Buffer;

    /// Exchanges an empty buffer for that of the next frame; where the frame is in it. A frame that is of no use may be an
    /// empty one.
    fn take_frame(&mut self, now: Instant, buffer: &mut Self::Buffer) -> Option<Range<usize>>;

    /// Exchanges the buffer of a frame for an empty one, and sends the frame. It begins at [`HEADER`](Self::HEADER) or later.
    fn send_frame(
        &mut self,
        now: Instant,
        buffer: &mut Self::Buffer,
        frame: Range<usize>,
    ) -> Result<(), Full>;
}

/// There is no room for the frame now; nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl<D: Device> Exchange for D {
    type Buffer = Box<[u8]>;

    const HEADER: usize = 0;

    fn device_capabilities(&self) -> DeviceCapabilities {
        Device::capabilities(self)
    }

    fn buffer(&mut self) -> Box<[u8]> {
        let rooms = const { HEAD_ROOM.saturating_add(TAIL_ROOM) };
        vec![0; Device::capabilities(self).max_transmission_unit.saturating_add(rooms)].into()
    }

    fn take_frame(&mut self, now: Instant, buffer: &mut Box<[u8]>) -> Option<Range<usize>> {
        let (token, _) = Device::receive(self, now)?;
        // A frame longer than the device said it would be is none of ours.
        let copy = |frame: &[u8]| {
            buffer.get_mut(..frame.len()).map_or(0..0, |room| {
                room.copy_from_slice(frame);
                0..frame.len()
            })
        };
        Some(token.consume(copy))
    }

    fn send_frame(&mut self, now: Instant, buffer: &mut Box<[u8]>, frame: Range<usize>) -> Result<(), Full> {
        let token = Device::transmit(self, now).ok_or(Full)?;
        let frame = buffer.get(frame).unwrap_or_default();
        token.consume(frame.len(), |out| out.copy_from_slice(frame));
        Ok(())
    }
}
