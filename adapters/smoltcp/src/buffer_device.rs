//! The device below IPsec: a network device that exchanges buffers.

use alloc::boxed::Box;
use alloc::vec;
use casemate_datapath::{HEAD_ROOM, TAIL_ROOM};
use core::ops::Range;
use smoltcp::phy::{Device, DeviceCapabilities, RxToken as _, TxToken as _};
use smoltcp::time::Instant;

/// A network device that exchanges buffers: a full buffer for an empty one, and vice versa.
///
/// Packets are protected and unprotected in these buffers. A driver that uses the buffers of its DMA
/// rings implements this trait, and no packet is copied. Each smoltcp [`Device`] implements it too, with
/// one copy per received and per sent frame: smoltcp shows a received frame only during a call, and must
/// know the length of a frame before it is protected.
pub trait BufferDevice {
    /// A packet buffer. All buffers of a device have the same length, at least `HEADER_LEN + HEAD_ROOM +
    /// max_transmission_unit + TAIL_ROOM`. A packet that does not fit is protected in another buffer and
    /// copied.
    type Buffer: AsRef<[u8]> + AsMut<[u8]>;

    /// Number of bytes that the device writes in front of each sent frame, in the same buffer.
    const HEADER_LEN: usize;

    /// Returns the same as [`Device::capabilities`].
    fn device_capabilities(&self) -> DeviceCapabilities;

    /// Allocates an empty buffer for the caller. Used at the start only.
    fn allocate_buffer(&mut self) -> Self::Buffer;

    /// Exchanges an empty buffer for the buffer of the next received frame, and returns the position of
    /// the frame in it. The range may be empty; the caller ignores such a frame.
    fn receive_frame(&mut self, now: Instant, buffer: &mut Self::Buffer) -> Option<Range<usize>>;

    /// Exchanges the buffer of a frame for an empty one and sends the frame. The frame begins at
    /// [`HEADER_LEN`](Self::HEADER_LEN) or later.
    fn send_frame(
        &mut self,
        now: Instant,
        buffer: &mut Self::Buffer,
        frame: Range<usize>,
    ) -> Result<(), DeviceFull>;
}

/// The device has no room for the frame now; the buffer was not exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceFull;

impl<D: Device> BufferDevice for D {
    type Buffer = Box<[u8]>;

    const HEADER_LEN: usize = 0;

    fn device_capabilities(&self) -> DeviceCapabilities {
        Device::capabilities(self)
    }

    fn allocate_buffer(&mut self) -> Box<[u8]> {
        let rooms = const { HEAD_ROOM.saturating_add(TAIL_ROOM) };
        vec![0; Device::capabilities(self).max_transmission_unit.saturating_add(rooms)].into()
    }

    fn receive_frame(&mut self, now: Instant, buffer: &mut Box<[u8]>) -> Option<Range<usize>> {
        let (token, _) = Device::receive(self, now)?;
        // Ignore a frame that is longer than the device's MTU.
        let copy = |frame: &[u8]| {
            buffer.get_mut(..frame.len()).map_or(0..0, |room| {
                room.copy_from_slice(frame);
                0..frame.len()
            })
        };
        Some(token.consume(copy))
    }

    fn send_frame(
        &mut self,
        now: Instant,
        buffer: &mut Box<[u8]>,
        frame: Range<usize>,
    ) -> Result<(), DeviceFull> {
        let token = Device::transmit(self, now).ok_or(DeviceFull)?;
        let frame = buffer.get(frame).unwrap_or_default();
        token.consume(frame.len(), |out| out.copy_from_slice(frame));
        Ok(())
    }
}
