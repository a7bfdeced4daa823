//! A ring with one writer and one reader, which do not trust each other.
//!
//! Positions count words and never turn back. Each side keeps its own to itself and publishes it; the other's is read from the
//! memory, and believed only if it could be true.

use crate::codec::{HEAD_WORDS, Head};
use crate::layout::Place;
use crate::{WORD, copy};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// The other side has written something into the shared memory that cannot be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// A position further than the ring allows, or one that has gone back.
    Position,
    /// A message longer than what has been written, or than a message may be.
    Length,
    /// The memory is shorter than its layout.
    Memory,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Position => "a position that cannot be: one within the ring was expected",
            Self::Length => "a message longer than what was written: a length within it was expected",
            Self::Memory => "too little shared memory: all of its layout was expected",
        })
    }
}

impl core::error::Error for Violation {}

/// Why a message was not put into a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutError {
    /// There is no room now; the reader will wake this side when there is.
    Full,
    /// It is longer than the ring can ever take.
    TooLong,
    /// The reader breaks the rules.
    Violation(Violation),
}

impl From<Violation> for PutError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

fn word(memory: &[AtomicU64], at: usize) -> Result<&AtomicU64, Violation> {
    memory.get(at).ok_or(Violation::Memory)
}

/// Words between two positions, if there can be so many in this ring.
fn distance(place: Place, from: u64, to: u64) -> Result<usize, Violation> {
    let words = to.wrapping_sub(from);
    if words > place.len() as u64 { Err(Violation::Position) } else { Ok(words as usize) }
}

/// Words of a message with so many bytes of data.
const fn size(data: usize) -> usize {
    data.div_ceil(WORD).saturating_add(HEAD_WORDS)
}

/// The writing side.
#[derive(Debug)]
pub(crate) struct Writer {
    place: Place,
    written: u64,
    /// What the reader said last; it only goes forward.
    read: u64,
}

impl Writer {
    pub(crate) const fn new(place: Place) -> Self {
        Self { place, written: 0, read: 0 }
    }

    /// Bytes of data that a message could have now; `None` if there is not even room for one without data.
    pub(crate) fn room(&mut self, memory: &[AtomicU64]) -> Result<Option<usize>, Violation> {
        // What was read may be written over: the words before it must not be written earlier.
        let read = word(memory, self.place.read())?.load(Ordering::SeqCst);
        // Forward, and not beyond what was written.
        let (unread, before) =
            (distance(self.place, read, self.written)?, distance(self.place, self.read, self.written)?);
        if unread > before {
            return Err(Violation::Position);
        }
        self.read = read;
        let free = self.place.len().saturating_sub(unread);
        Ok(free.checked_sub(HEAD_WORDS).map(|words| words.saturating_mul(WORD)))
    }

    /// Asks the reader to wake us when it has read something. There may be room after all: look again.
    pub(crate) fn want_room(&self, memory: &[AtomicU64]) -> Result<(), Violation> {
        word(memory, self.place.wanting())?.store(1, Ordering::SeqCst);
        Ok(())
    }

    /// Writes a message. The reader sees all of it or nothing.
    pub(crate) fn put(&mut self, memory: &[AtomicU64], head: Head, data: &[u8]) -> Result<(), PutError> {
        if size(data.len()) > self.place.len() {
            return Err(PutError::TooLong);
        }
        if !self.fits(memory, data.len())? {
            self.want_room(memory)?;
            if !self.fits(memory, data.len())? {
                return Err(PutError::Full);
            }
        }
        let head = head.with_data(u32::try_from(data.len()).map_err(|_| PutError::TooLong)?);
        copy::write(memory, self.place, self.written, &head.to_bytes());
        copy::write(memory, self.place, self.written.wrapping_add(HEAD_WORDS as u64), data);
        self.written = self.written.wrapping_add(size(data.len()) as u64);
        word(memory, self.place.written())?.store(self.written, Ordering::Release);
        Ok(())
    }

    fn fits(&mut self, memory: &[AtomicU64], data: usize) -> Result<bool, Violation> {
        Ok(self.room(memory)?.is_some_and(|room| data.next_multiple_of(WORD) <= room))
    }
}

/// The reading side.
#[derive(Debug)]
pub(crate) struct Reader {
    place: Place,
    read: u64,
    /// The message that was found and not yet passed by.
    current: Option<Head>,
}

impl Reader {
    pub(crate) const fn new(place: Place) -> Self {
        Self { place, read: 0, current: None }
    }

    /// The next message, if there is one. It stays the next until it is [passed](Self::pass).
    pub(crate) fn peek(&mut self, memory: &[AtomicU64]) -> Result<Option<Head>, Violation> {
        if self.current.is_some() {
            return Ok(self.current);
        }
        let written = word(memory, self.place.written())?.load(Ordering::Acquire);
        let unread = distance(self.place, self.read, written)?;
        if unread == 0 {
            return Ok(None);
        }
        let mut bytes = [0; HEAD_WORDS * WORD];
        copy::read(memory, self.place, self.read, 0, &mut bytes);
        let head = Head::from_bytes(&bytes);
        if size(head.len as usize) > unread {
            return Err(Violation::Length);
        }
        self.current = Some(head);
        Ok(self.current)
    }

    /// Copies data of the message that was found, from `skip` on; answers how many bytes there were.
    pub(crate) fn copy(&self, memory: &[AtomicU64], skip: usize, out: &mut [u8]) -> usize {
        let len = self.current.map_or(0, |head| head.len as usize);
        let count = len.saturating_sub(skip).min(out.len());
        let at = self.read.wrapping_add(HEAD_WORDS as u64);
        copy::read(memory, self.place, at, skip, out.get_mut(..count).unwrap_or_default());
        count
    }

    /// Goes behind the message that was found. Answers whether the writer waits for that, and is to be woken.
    pub(crate) fn pass(&mut self, memory: &[AtomicU64]) -> Result<bool, Violation> {
        let Some(head) = self.current.take() else { return Ok(false) };
        self.read = self.read.wrapping_add(size(head.len as usize) as u64);
        word(memory, self.place.read())?.store(self.read, Ordering::SeqCst);
        let wanting = word(memory, self.place.wanting())?;
        // A swap would write to the line each time.
        Ok(wanting.load(Ordering::SeqCst) != 0 && wanting.swap(0, Ordering::SeqCst) != 0)
    }
}

#[cfg(test)]
mod tests;
