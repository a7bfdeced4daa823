//! A virtqueue and the buffers that the card currently owns.

use super::nic::Buffer;
use casemate_wire::invariant::OrBroken;
use core::mem::{forget, replace};
use core::ops::Range;
use core::sync::atomic::{Ordering, fence};
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::Transport;
use virtio_drivers::{Hal, Result};

/// Number of queue entries.
const ENTRIES: usize = 64;

const IS_USED: &str = "the token is that of the next used buffer";

/// The queue of one direction.
pub(super) struct Ring<H: Hal> {
    queue: VirtQueue<H, ENTRIES>,
    number: u16,
    /// Buffers owned by the card, by token, with the range that was passed to the card.
    in_flight: [Option<(Buffer, Range<usize>)>; ENTRIES],
    count: usize,
}

impl<H: Hal> Ring<H> {
    pub(super) fn new(transport: &mut impl Transport, number: u16) -> Result<Self> {
        let mut queue = VirtQueue::new(transport, number, false, false)?;
        // Disable interrupts.
        queue.set_dev_notify(false);
        Ok(Self { queue, number, in_flight: [const { None }; ENTRIES], count: 0 })
    }

    /// Returns whether the card owns no buffer.
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Notifies the card of new buffers, if it has requested notifications.
    pub(super) fn notify(&self, transport: &mut impl Transport) {
        // The card checks for buffers after it has requested notifications; the driver checks for a
        // request after it has added a buffer. Without the fence both checks could fail (virtio 1.2
        // section 2.7.13.4.1).
        fence(Ordering::SeqCst);
        if self.queue.should_notify() {
            transport.notify(self.number);
        }
    }

    /// Passes a buffer to the card to receive into. Returns the buffer if the queue is full.
    pub(super) fn add_receive_buffer(&mut self, mut buffer: Buffer) -> core::result::Result<(), Buffer> {
        let room = buffer.as_mut();
        let range = 0..room.len();
        // SAFETY: the buffer is allocated on the heap and does not move. It is kept under its token until
        // the card returns it.
        match unsafe { self.queue.add(&[], &mut [room]) } {
            Ok(token) => self.keep(token, buffer, range),
            Err(_) => return Err(buffer),
        }
        Ok(())
    }

    /// Exchanges an empty buffer for the next received one. Returns the received length.
    pub(super) fn exchange_received(&mut self, empty: &mut Buffer) -> Option<usize> {
        let token = self.queue.peek_used()?;
        let (mut full, _) = self.take(token)?;
        // SAFETY: this is the buffer that was added under this token.
        let len = unsafe { self.queue.pop_used(token, &[], &mut [full.as_mut()]) }.or_broken(IS_USED, 0);
        let added = self.add_receive_buffer(replace(empty, full));
        added.or_report("the queue has room for a buffer after one was removed");
        usize::try_from(len).ok()
    }

    /// Passes part of a buffer to the card to send. Returns the buffer if the queue is full.
    pub(super) fn add_send_buffer(
        &mut self,
        buffer: Buffer,
        range: Range<usize>,
    ) -> core::result::Result<(), Buffer> {
        let Some(frame) = buffer.as_ref().get(range.clone()) else { return Err(buffer) };
        // SAFETY: as above.
        match unsafe { self.queue.add(&[frame], &mut []) } {
            Ok(token) => self.keep(token, buffer, range),
            Err(_) => return Err(buffer),
        }
        Ok(())
    }

    /// Takes back the next buffer that the card has sent.
    pub(super) fn take_sent(&mut self) -> Option<Buffer> {
        let token = self.queue.peek_used()?;
        let (buffer, range) = self.take(token)?;
        let frame = buffer.as_ref().get(range).or_broken_default("a frame in flight is inside its buffer");
        // SAFETY: these are the bytes that were added under this token.
        unsafe { self.queue.pop_used(token, &[frame], &mut []) }.or_report(IS_USED);
        Some(buffer)
    }

    fn keep(&mut self, token: u16, buffer: Buffer, range: Range<usize>) {
        match self.in_flight.get_mut(usize::from(token)).or_report("a token is below the queue's size") {
            Some(entry) => {
                *entry = Some((buffer, range));
                self.count = self.count.saturating_add(1);
            }
            // The card still uses the buffer, so it must not be freed.
            None => forget(buffer),
        }
    }

    fn take(&mut self, token: u16) -> Option<(Buffer, Range<usize>)> {
        let taken = self.in_flight.get_mut(usize::from(token))?.take()?;
        self.count = self.count.checked_sub(1).or_broken("the buffers in flight are counted", 0);
        Some(taken)
    }
}
