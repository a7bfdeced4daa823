//! A byte stream with its offset, and the byte order of its fields.

use super::{CaptureError, MAX_BLOCK};
use std::io::{self, Read};

/// Byte order of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The four-byte field at offset `at` of `bytes`.
    pub(super) fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        bytes.get(at..)?.first_chunk().map(|field| self.u32(*field))
    }

    /// The two-byte field at offset `at` of `bytes`.
    pub(super) fn u16_at(self, bytes: &[u8], at: usize) -> Option<u16> {
        bytes.get(at..)?.first_chunk().map(|field| self.u16(*field))
    }
}

pub(super) struct Input<R> {
    source: R,
    offset: u64,
}

impl<R: Read> Input<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, offset: 0 }
    }

    /// Number of bytes read so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the magic number at the start of the file.
    pub(super) fn fill_magic(&mut self, magic: &mut [u8; 4]) -> Result<(), CaptureError> {
        match self.fill_some(magic)? {
            0 => Err(CaptureError::Empty),
            4 => Ok(()),
            _ => Err(CaptureError::Alien(*magic)),
        }
    }

    /// Fills `bytes` with the beginning of a structure; returns `false` if the file ends right before it.
    pub(super) fn fill_or_end(&mut self, bytes: &mut [u8], what: &'static str) -> Result<bool, CaptureError> {
        let offset = self.offset;
        match self.fill_some(bytes)? {
            0 => Ok(false),
            n if n == bytes.len() => Ok(true),
            _ => Err(CaptureError::Truncated { offset, what }),
        }
    }

    /// Fills `bytes` with a part of a structure that began at `start`.
    pub(super) fn fill(
        &mut self,
        bytes: &mut [u8],
        start: u64,
        what: &'static str,
    ) -> Result<(), CaptureError> {
        if self.fill_some(bytes)? == bytes.len() {
            return Ok(());
        }
        Err(CaptureError::Truncated { offset: start, what })
    }

    /// Replaces `bytes` with the next `len` bytes. The buffer grows only with data that the file
    /// contains, whatever `len` claims.
    pub(super) fn take(
        &mut self,
        bytes: &mut Vec<u8>,
        len: usize,
        start: u64,
        what: &'static str,
    ) -> Result<(), CaptureError> {
        bytes.clear();
        if len > MAX_BLOCK {
            return Err(CaptureError::Malformed {
                offset: start,
                rule: "a length of at most 16 MiB was expected",
            });
        }
        let limit = u64::try_from(len).unwrap_or(u64::MAX);
        let read = self.source.by_ref().take(limit).read_to_end(bytes)?;
        self.advance(read);
        if read == len { Ok(()) } else { Err(CaptureError::Truncated { offset: start, what }) }
    }

    /// Reads until `bytes` is full or the file ends.
    fn fill_some(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0usize;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.source.read(rest) {
                Ok(0) => break,
                Ok(n) => filled = filled.saturating_add(n),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.advance(filled);
        Ok(filled)
    }

    fn advance(&mut self, bytes: usize) {
        self.offset = self.offset.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}
