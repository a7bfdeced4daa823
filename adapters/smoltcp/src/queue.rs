//! Frames that wait, in memory that was taken once.

use crate::exchange::Full;
use alloc::vec;
use smoltcp::storage::{PacketBuffer, PacketMetadata};

/// Frames that there was no room for elsewhere.
pub(crate) struct Queue(PacketBuffer<'static, ()>);

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

    /// The oldest frame.
    pub(crate) fn first(&mut self) -> Option<&[u8]> {
        self.0.peek().ok().map(|((), frame)| frame)
    }

    /// Forgets the oldest frame.
    pub(crate) fn drop_first(&mut self) {
        let _ = self.0.dequeue();
    }
}
