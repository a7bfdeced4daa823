//! A ring that the card and we pass buffers through, and the buffers that are in it.

use super::nic::Buffer;
use core::mem::replace;
use core::ops::Range;
use core::sync::atomic::{Ordering, fence};
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::Transport;
use virtio_drivers::{Hal, Result};

/// Entries of a ring.
const ENTRIES: usize = 64;

/// One direction.
pub(super) struct Ring<H: Hal> {
    queue: VirtQueue<H, ENTRIES>,
    number: u16,
    /// What the card has, each buffer under the token by which it is known, and which part of it.
    lent: [Option<(Buffer, Range<usize>)>; ENTRIES],
    count: usize,
}

impl<H: Hal> Ring<H> {
    pub(super) fn new(transport: &mut impl Transport, number: u16) -> Result<Self> {
        let mut queue = VirtQueue::new(transport, number, false, false)?;
        // No interrupts.
        queue.set_dev_notify(false);
        Ok(Self { queue, number, lent: [const { None }; ENTRIES], count: 0 })
    }

    /// Whether the card has no buffer.
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Tells the card that there is something for it, if it wants to know.
    pub(super) fn wake(&self, transport: &mut impl Transport) {
        // The card looks for buffers after it has said that it wants to be woken; we look after the buffer is there. Without the
        // fence both could miss each other (virtio 1.2 section 2.7.13.4.1).
        fence(Ordering::SeqCst);
        if self.queue.should_notify() {
            transport.notify(self.number);
        }
    }

    /// Gives the card a buffer to receive into, or back if the ring is full.
    pub(super) fn lend_to_fill(&mut self, mut buffer: Buffer) -> core::result::Result<(), Buffer> {
        let room = buffer.as_mut();
        let place = 0..room.len();
        // SAFETY: the buffer is on the heap and stays there: it is kept under the token until the card gives it back.
        match unsafe { self.queue.add(&[], &mut [room]) } {
            Ok(token) => self.keep(token, buffer, place),
            Err(_) => return Err(buffer),
        }
        Ok(())
    }

    /// Exchanges an empty buffer for the next one that the card has filled; how much of it.
    pub(super) fn exchange_filled(&mut self, empty: &mut Buffer) -> Option<usize> {
        let token = self.queue.peek_used()?;
        let (mut full, _) = self.take(token)?;
        // SAFETY: this is the buffer that was lent under the token.
        let len = unsafe { self.queue.pop_used(token, &[], &mut [full.as_mut()]) }.unwrap_or(0);
        // There is room in the ring: that of the buffer that left it.
        let _ = self.lend_to_fill(replace(empty, full));
        usize::try_from(len).ok()
    }

    /// Gives the card this part of a buffer to send, or the buffer back if the ring is full.
    pub(super) fn lend_to_send(
        &mut self,
        buffer: Buffer,
        place: Range<usize>,
    ) -> core::result::Result<(), Buffer> {
        let Some(frame) = buffer.as_ref().get(place.clone()) else { return Err(buffer) };
        // SAFETY: as above.
        match unsafe { self.queue.add(&[frame], &mut []) } {
            Ok(token) => self.keep(token, buffer, place),
            Err(_) => return Err(buffer),
        }
        Ok(())
    }

    /// Takes back the next buffer that the card has sent.
    pub(super) fn take_sent(&mut self) -> Option<Buffer> {
        let token = self.queue.peek_used()?;
        let (buffer, place) = self.take(token)?;
        let frame = buffer.as_ref().get(place).unwrap_or_default();
        // SAFETY: these are the bytes that were lent under the token. That they are found again is all that can be wrong.
        let _ = unsafe { self.queue.pop_used(token, &[frame], &mut []) };
        Some(buffer)
    }

    fn keep(&mut self, token: u16, buffer: Buffer, place: Range<usize>) {
        if let Some(entry) = self.lent.get_mut(usize::from(token)) {
            *entry = Some((buffer, place));
            self.count = self.count.saturating_add(1);
        }
    }

    fn take(&mut self, token: u16) -> Option<(Buffer, Range<usize>)> {
        let taken = self.lent.get_mut(usize::from(token))?.take()?;
        self.count = self.count.saturating_sub(1);
        Some(taken)
    }
}
