//! Frames that wait, in memory that was taken once.

use alloc::vec;
use smoltcp::phy::{Device, TxToken as _};
use smoltcp::storage::{PacketBuffer, PacketMetadata};
use smoltcp::time::Instant;

/// Frames that the device had no room for.
pub(crate) struct Queue(PacketBuffer<'static, ()>);

/// There is no room for the frame; it was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

impl Queue {
    /// Room for as many frames, of as many bytes together.
    pub(crate) fn new(frames: usize, bytes: usize) -> Self {
        Self(PacketBuffer::new(vec![PacketMetadata::EMPTY; frames], vec![0; bytes]))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, frame: &[u8]) -> Result<(), Full> {
        self.0.enqueue(frame.len(), ()).map_err(|_| Full)?.copy_from_slice(frame);
        Ok(())
    }

    /// Takes the oldest frame out, into `out`; its length.
    pub(crate) fn pop(&mut self, out: &mut [u8]) -> Option<usize> {
        let ((), frame) = self.0.dequeue().ok()?;
        // What does not fit was never put in: buffers are of one size.
        out.get_mut(..frame.len())?.copy_from_slice(frame);
        Some(frame.len())
    }

    /// Gives the device what it takes.
    pub(crate) fn flush<D: Device>(&mut self, device: &mut D, now: Instant) {
        while !self.0.is_empty() {
            let Some(token) = device.transmit(now) else { return };
            let Ok(((), frame)) = self.0.dequeue() else { return };
            token.consume(frame.len(), |out| out.copy_from_slice(frame));
        }
    }

    /// Gives the device a frame, behind those that wait.
    pub(crate) fn send<D: Device>(&mut self, device: &mut D, now: Instant, frame: &[u8]) -> Result<(), Full> {
        self.flush(device, now);
        if self.0.is_empty()
            && let Some(token) = device.transmit(now)
        {
            token.consume(frame.len(), |out| out.copy_from_slice(frame));
            return Ok(());
        }
        self.push(frame)
    }
}
