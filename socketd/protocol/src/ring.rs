//! A ring with one writer and one reader that do not trust each other.
//!
//! Positions count words and only increase. Each end keeps its own position privately and publishes it.
//! The position of the other end is read from the memory and accepted only if it is possible.

use crate::WORD;
use crate::codec::{HEADER_WORDS, MessageHeader};
use crate::memory::{RingLayout, read, write};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// The other end wrote an impossible value to the shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// The position is beyond the ring, or has moved back.
    Position,
    /// The message is longer than the written part of the ring.
    Length,
    /// The memory is smaller than its layout requires.
    Memory,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Position => "invalid ring position: it is beyond the ring, or has moved back",
            Self::Length => "invalid message length: it exceeds the written part of the ring",
            Self::Memory => "the shared memory is smaller than its layout requires",
        })
    }
}

impl core::error::Error for Violation {}

/// Reason why a message could not be written to a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushError {
    /// The ring has no room now. The reader sends a notification when it has read a message.
    Full,
    /// The message is longer than the ring.
    TooLong,
    /// The reader has violated the protocol.
    Violation(Violation),
}

impl From<Violation> for PushError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

fn word(memory: &[AtomicU64], index: usize) -> Result<&AtomicU64, Violation> {
    memory.get(index).ok_or(Violation::Memory)
}

/// Returns the number of words between two positions, or a violation if it exceeds the ring.
fn distance(layout: RingLayout, from: u64, to: u64) -> Result<usize, Violation> {
    let words = to.wrapping_sub(from);
    if words > layout.len() as u64 { Err(Violation::Position) } else { Ok(words as usize) }
}

/// Returns the length in words of a message with `data` bytes of data.
const fn message_words(data: usize) -> usize {
    data.div_ceil(WORD).saturating_add(HEADER_WORDS)
}

/// The writing end of a ring.
#[derive(Debug)]
pub(crate) struct Writer {
    layout: RingLayout,
    written: u64,
    /// Last read position that the reader published; it only increases.
    read: u64,
}

impl Writer {
    pub(crate) const fn new(layout: RingLayout) -> Self {
        Self { layout, written: 0, read: 0 }
    }

    /// Returns the number of data bytes that a message can carry now, or `None` if not even an empty
    /// message fits.
    pub(crate) fn room(&mut self, memory: &[AtomicU64]) -> Result<Option<usize>, Violation> {
        // The words before this position may be overwritten. They must not be written before the load.
        let read = word(memory, self.layout.read_position())?.load(Ordering::SeqCst);
        // The read position may only increase, and must not pass the write position.
        let (unread, before) =
            (distance(self.layout, read, self.written)?, distance(self.layout, self.read, self.written)?);
        if unread > before {
            return Err(Violation::Position);
        }
        self.read = read;
        let free = self.layout.len().saturating_sub(unread);
        Ok(free.checked_sub(HEADER_WORDS).map(|words| words.saturating_mul(WORD)))
    }

    /// Asks the reader for a notification when it has read a message. The caller must check for room
    /// again afterwards.
    pub(crate) fn request_notification(&self, memory: &[AtomicU64]) -> Result<(), Violation> {
        word(memory, self.layout.waiting_flag())?.store(1, Ordering::SeqCst);
        Ok(())
    }

    /// Writes a message. The reader sees the whole message or nothing.
    pub(crate) fn push(
        &mut self,
        memory: &[AtomicU64],
        header: MessageHeader,
        data: &[u8],
    ) -> Result<(), PushError> {
        if message_words(data.len()) > self.layout.len() {
            return Err(PushError::TooLong);
        }
        if !self.fits(memory, data.len())? {
            self.request_notification(memory)?;
            if !self.fits(memory, data.len())? {
                return Err(PushError::Full);
            }
        }
        let header = header.with_data(u32::try_from(data.len()).map_err(|_| PushError::TooLong)?);
        write(memory, self.layout, self.written, &header.to_bytes())?;
        write(memory, self.layout, self.written.wrapping_add(HEADER_WORDS as u64), data)?;
        self.written = self.written.wrapping_add(message_words(data.len()) as u64);
        word(memory, self.layout.write_position())?.store(self.written, Ordering::Release);
        Ok(())
    }

    fn fits(&mut self, memory: &[AtomicU64], data: usize) -> Result<bool, Violation> {
        Ok(self.room(memory)?.is_some_and(|room| data.next_multiple_of(WORD) <= room))
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub(crate) struct Reader {
    layout: RingLayout,
    read: u64,
    /// The current message: read and not yet removed.
    current: Option<MessageHeader>,
}

impl Reader {
    pub(crate) const fn new(layout: RingLayout) -> Self {
        Self { layout, read: 0, current: None }
    }

    /// Returns the next message without removing it. [`pop`](Self::pop) removes it.
    pub(crate) fn peek(&mut self, memory: &[AtomicU64]) -> Result<Option<MessageHeader>, Violation> {
        if self.current.is_some() {
            return Ok(self.current);
        }
        let written = word(memory, self.layout.write_position())?.load(Ordering::Acquire);
        let unread = distance(self.layout, self.read, written)?;
        if unread == 0 {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_WORDS * WORD];
        read(memory, self.layout, self.read, 0, &mut bytes)?;
        let header = MessageHeader::from_bytes(&bytes);
        if message_words(header.len as usize) > unread {
            return Err(Violation::Length);
        }
        self.current = Some(header);
        Ok(self.current)
    }

    /// Copies the data of the current message from offset `skip`. Returns the number of bytes copied, which
    /// is 0 if the memory does not contain the ring.
    pub(crate) fn read_data(&self, memory: &[AtomicU64], skip: usize, out: &mut [u8]) -> usize {
        let len = self.current.map_or(0, |header| header.len as usize);
        let count = len.saturating_sub(skip).min(out.len());
        let start = self.read.wrapping_add(HEADER_WORDS as u64);
        let Some(out) = out.get_mut(..count) else { return 0 };
        if read(memory, self.layout, start, skip, out).is_ok() { count } else { 0 }
    }

    /// Removes the current message. Returns true if the writer waits for room and must be notified.
    pub(crate) fn pop(&mut self, memory: &[AtomicU64]) -> Result<bool, Violation> {
        let Some(header) = self.current.take() else { return Ok(false) };
        self.read = self.read.wrapping_add(message_words(header.len as usize) as u64);
        word(memory, self.layout.read_position())?.store(self.read, Ordering::SeqCst);
        let wanting = word(memory, self.layout.waiting_flag())?;
        // An unconditional swap would write to the cache line each time.
        Ok(wanting.load(Ordering::SeqCst) != 0 && wanting.swap(0, Ordering::SeqCst) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Request, RequestId, SocketId};
    use crate::{LocalTransport, RingSizes, Transport};
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec;
    use std::vec::Vec;

    fn header(id: u32) -> MessageHeader {
        MessageHeader::from_request(RequestId(id), &Request::Send { socket: SocketId(0) })
    }

    fn data(len: usize, seed: u8) -> Vec<u8> {
        (0..len).map(|n| (n as u8).wrapping_mul(7) ^ seed).collect()
    }

    proptest! {
        /// Compares a ring with a queue: messages arrive in order and complete, and the ring is full only
        /// when it has no room.
        #[test]
        fn a_ring_is_a_queue(
            steps in proptest::collection::vec((any::<bool>(), 0usize..700, any::<u8>()), 0..200)
        ) {
            let sizes = RingSizes::new(6, 6).unwrap();
            let (local, _) = LocalTransport::pair(sizes);
            let (memory, layout) = (local.memory(), sizes.requests());
            let (mut writer, mut reader) = (Writer::new(layout), Reader::new(layout));
            let mut model: VecDeque<(u32, Vec<u8>)> = VecDeque::new();
            let mut used = 0;
            for (number, (put, len, seed)) in steps.into_iter().enumerate() {
                if put {
                    let data = data(len, seed);
                    let result = writer.push(memory, header(number as u32), &data);
                    if message_words(len) > 64 {
                        prop_assert_eq!(result, Err(PushError::TooLong));
                    } else if used + message_words(len) > 64 {
                        prop_assert_eq!(result, Err(PushError::Full));
                    } else {
                        prop_assert_eq!(result, Ok(()));
                        used += message_words(len);
                        model.push_back((number as u32, data));
                    }
                } else {
                    let found = reader.peek(memory).unwrap();
                    prop_assert_eq!(found.map(|header| header.id().0), model.front().map(|(id, _)| *id));
                    let Some((_, expected)) = model.pop_front() else { continue };
                    let mut out = vec![0; expected.len() + 9];
                    prop_assert_eq!(reader.read_data(memory, 0, &mut out), expected.len());
                    prop_assert_eq!(&out[..expected.len()], &expected[..]);
                    reader.pop(memory).unwrap();
                    used -= message_words(expected.len());
                }
            }
        }

        /// A reader of arbitrary words does not panic, returns no message longer than the ring, and
        /// terminates.
        #[test]
        fn arbitrary_memory_is_read(
            words in proptest::collection::vec(prop_oneof![any::<u64>(), 0u64..80], 176),
        ) {
            let sizes = RingSizes::new(6, 6).unwrap();
            let (local, _) = LocalTransport::pair(sizes);
            for (word, value) in local.memory().iter().zip(&words) {
                word.store(*value, Ordering::Relaxed);
            }
            let mut reader = Reader::new(sizes.requests());
            for _ in 0..64 {
                let Ok(Some(header)) = reader.peek(local.memory()) else { break };
                prop_assert!(message_words(header.len as usize) <= 64);
                let mut out = vec![0; 1_000];
                let read = reader.read_data(local.memory(), 3, &mut out);
                prop_assert_eq!(read, (header.len as usize).saturating_sub(3));
                reader.pop(local.memory()).unwrap();
            }
            let mut writer = Writer::new(sizes.requests());
            let _ = writer.push(local.memory(), header(1), &[1; 100]);
        }
    }

    #[test]
    fn impossible_positions_are_violations() {
        let sizes = RingSizes::new(6, 6).unwrap();
        let layout = sizes.requests();
        let set = |index: usize, value: u64| {
            let (local, _) = LocalTransport::pair(sizes);
            local.memory()[index].store(value, Ordering::Relaxed);
            local
        };
        for written in [65, u64::MAX, 1 << 63] {
            let local = set(layout.write_position(), written);
            assert_eq!(Reader::new(layout).peek(local.memory()), Err(Violation::Position), "{written}");
        }
        for read in [1, 64, u64::MAX - 64] {
            let local = set(layout.read_position(), read);
            assert_eq!(Writer::new(layout).room(local.memory()), Err(Violation::Position), "{read}");
        }
        // The read position moves back.
        let (local, _) = LocalTransport::pair(sizes);
        let (mut writer, mut reader) = (Writer::new(layout), Reader::new(layout));
        for id in 0..3 {
            writer.push(local.memory(), header(id), &[]).unwrap();
        }
        reader.peek(local.memory()).unwrap();
        reader.pop(local.memory()).unwrap();
        assert_eq!(writer.room(local.memory()), Ok(Some((64 - 10 - 5) * 8)));
        local.memory()[layout.read_position()].store(0, Ordering::Relaxed);
        assert_eq!(writer.room(local.memory()), Err(Violation::Position));
        // The message is longer than the written part of the ring.
        let (local, _) = LocalTransport::pair(sizes);
        Writer::new(layout).push(local.memory(), header(7), &[0; 8]).unwrap();
        local.memory()[layout.write_position()].store(5, Ordering::Relaxed);
        assert_eq!(Reader::new(layout).peek(local.memory()), Err(Violation::Length));
    }

    #[test]
    fn a_writer_without_room_is_notified() {
        let sizes = RingSizes::new(6, 6).unwrap();
        let (local, _) = LocalTransport::pair(sizes);
        let (memory, layout) = (local.memory(), sizes.responses());
        let (mut writer, mut reader) = (Writer::new(layout), Reader::new(layout));
        writer.push(memory, header(1), &[1; 200]).unwrap();
        writer.push(memory, header(2), &[2; 200]).unwrap();
        assert_eq!(writer.push(memory, header(3), &[3; 200]), Err(PushError::Full));
        reader.peek(memory).unwrap();
        assert_eq!(reader.pop(memory), Ok(true), "the writer waits");
        writer.push(memory, header(3), &[3; 200]).unwrap();
        reader.peek(memory).unwrap();
        assert_eq!(reader.pop(memory), Ok(false), "it does not wait any more");
    }
}
