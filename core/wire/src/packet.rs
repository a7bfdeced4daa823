//! A packet in a buffer with head room and tail room.
//!
//! ESP and AH work in place: encapsulation grows the packet into the space around it, decapsulation shrinks
//! it. The caller owns the buffer; this module copies and allocates nothing.

use core::ops::Range;

/// A packet in a buffer of the caller: `[ head room | data | tail room ]`.
#[derive(Debug)]
pub struct Packet<'b> {
    buf: &'b mut [u8],
    // Invariant: start <= end <= buf.len(). Every method keeps it.
    start: usize,
    end: usize,
}

/// Error: there is not enough space around the packet, or not enough data in it. The packet is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

impl<'b> Packet<'b> {
    /// Creates a packet from the `len` bytes of `buf` at `start`. Returns `None` if they exceed `buf`.
    #[inline]
    pub fn new(buf: &'b mut [u8], start: usize, len: usize) -> Option<Self> {
        let end = start.checked_add(len)?;
        (end <= buf.len()).then_some(Self { buf, start, end })
    }

    /// Length of the packet in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.end.wrapping_sub(self.start)
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Free bytes before the packet.
    #[inline]
    pub fn head_room(&self) -> usize {
        self.start
    }

    /// Free bytes after the packet.
    #[inline]
    pub fn tail_room(&self) -> usize {
        self.buf.len().saturating_sub(self.end)
    }

    /// Start and end. The invariant makes both minima superfluous, but the compiler does not know it, and two
    /// minima cost less than what `get` would do without them.
    #[inline]
    fn bounds(&self) -> Range<usize> {
        let end = self.end.min(self.buf.len());
        self.start.min(end)..end
    }

    /// Bytes of the packet.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.buf.get(self.bounds()).unwrap_or_default()
    }

    /// Bytes of the packet, mutable.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let bounds = self.bounds();
        self.buf.get_mut(bounds).unwrap_or_default()
    }

    /// The first `N` bytes of the packet; `None` if it is shorter.
    #[inline]
    pub fn first_chunk<const N: usize>(&self) -> Option<&[u8; N]> {
        self.buf.get(self.start..self.end)?.first_chunk()
    }

    /// Bytes of the packet without the first `front` and the last `back`; `None` if it is shorter.
    #[inline]
    pub fn data_between(&self, front: usize, back: usize) -> Option<&[u8]> {
        self.buf.get(self.start.checked_add(front)?..self.end.checked_sub(back)?)
    }

    /// Bytes of the packet from offset `at` on, mutable; `None` if the packet is shorter.
    #[inline]
    pub fn data_mut_from(&mut self, at: usize) -> Option<&mut [u8]> {
        let start = self.start.checked_add(at)?;
        self.buf.get_mut(start..self.end)
    }

    /// Extends the packet by `n` bytes at the front. The new bytes have undefined content.
    #[inline]
    pub fn grow_front(&mut self, n: usize) -> Result<(), NoRoom> {
        self.start = self.start.checked_sub(n).ok_or(NoRoom)?;
        Ok(())
    }

    /// Extends the packet by `N` bytes at the front and returns them for writing.
    #[inline]
    pub fn prepend<const N: usize>(&mut self) -> Result<&mut [u8; N], NoRoom> {
        let start = self.start.checked_sub(N).ok_or(NoRoom)?;
        let front = self.buf.get_mut(start..).and_then(|rest| rest.first_chunk_mut()).ok_or(NoRoom)?;
        self.start = start;
        Ok(front)
    }

    /// Removes `n` bytes from the front; they become head room.
    #[inline]
    pub fn shrink_front(&mut self, n: usize) -> Result<(), NoRoom> {
        let start = self.start.checked_add(n).filter(|&s| s <= self.end).ok_or(NoRoom)?;
        self.start = start;
        Ok(())
    }

    /// Extends the packet by `n` bytes at the end. The new bytes have undefined content.
    #[inline]
    pub fn grow_back(&mut self, n: usize) -> Result<(), NoRoom> {
        let end = self.end.checked_add(n).filter(|&e| e <= self.buf.len()).ok_or(NoRoom)?;
        self.end = end;
        Ok(())
    }

    /// Removes `n` bytes from the end; they become tail room.
    #[inline]
    pub fn shrink_back(&mut self, n: usize) -> Result<(), NoRoom> {
        let end = self.end.checked_sub(n).filter(|&e| e >= self.start).ok_or(NoRoom)?;
        self.end = end;
        Ok(())
    }

    /// Extends the packet at both ends. The new bytes have undefined content.
    #[inline]
    pub fn grow(&mut self, front: usize, back: usize) -> Result<(), NoRoom> {
        let start = self.start.checked_sub(front).ok_or(NoRoom)?;
        let end = self.end.checked_add(back).filter(|&e| e <= self.buf.len()).ok_or(NoRoom)?;
        (self.start, self.end) = (start, end);
        Ok(())
    }

    /// Reduces the packet to its `len` bytes from `at` on. The other bytes become head room and tail room.
    #[inline]
    pub fn narrow(&mut self, at: usize, len: usize) -> Result<(), NoRoom> {
        let start = self.start.checked_add(at).ok_or(NoRoom)?;
        let end = start.checked_add(len).filter(|&e| e <= self.end).ok_or(NoRoom)?;
        (self.start, self.end) = (start, end);
        Ok(())
    }

    /// Sets the length to `len` bytes by truncating or extending the packet at its end.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> Result<(), NoRoom> {
        let end = self.start.checked_add(len).filter(|&e| e <= self.buf.len()).ok_or(NoRoom)?;
        self.end = end;
        Ok(())
    }

    /// Borrows the packet for a shorter time, as another packet over the same buffer.
    #[inline]
    pub fn reborrow(&mut self) -> Packet<'_> {
        Packet { buf: self.buf, start: self.start, end: self.end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_grow_and_shrink_within_their_buffer() {
        let mut storage = [0u8; 16];
        assert!(Packet::new(&mut storage, 10, 7).is_none());
        let mut p = Packet::new(&mut storage, 4, 8).unwrap();
        assert_eq!((p.head_room(), p.len(), p.tail_room()), (4, 8, 4));
        *p.prepend().unwrap() = [9; 4];
        assert!(p.data().starts_with(&[9, 9, 9, 9, 0]));
        p.grow_back(4).unwrap();
        assert_eq!(p.len(), 16);
        assert_eq!(p.grow_front(1), Err(NoRoom));
        assert_eq!(p.grow_back(1), Err(NoRoom));
        assert_eq!(p.shrink_front(17), Err(NoRoom));
        assert_eq!(p.prepend::<1>(), Err(NoRoom));
        assert_eq!(p.narrow(4, 13), Err(NoRoom));
        assert_eq!(p.narrow(usize::MAX, 1), Err(NoRoom));
        p.narrow(4, 8).unwrap();
        assert_eq!((p.head_room(), p.len(), p.tail_room()), (4, 8, 4));
        assert_eq!((p.grow(5, 0), p.grow(0, 5)), (Err(NoRoom), Err(NoRoom)));
        p.grow(4, 4).unwrap();
        assert_eq!(p.len(), 16);
        p.shrink_front(16).unwrap();
        assert!(p.is_empty());
        assert_eq!(p.shrink_back(1), Err(NoRoom));
        assert_eq!(p.set_len(1), Err(NoRoom));
        assert_eq!(p.shrink_back(usize::MAX), Err(NoRoom));
    }
}
