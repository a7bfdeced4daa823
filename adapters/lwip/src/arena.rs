//! First-fit allocator in a fixed memory block, with a free list in address order.
//!
//! Allocations are few and long-lived (tables, SAs, policies; none per packet). Adjacent free blocks are
//! merged, so the list stays short. Allocated blocks have no header, because `dealloc` gets the size.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr;

/// Alignment and granularity of blocks in bytes; a free block holds a [`Block`].
const UNIT: usize = 16;

/// Header of a free block.
struct Block {
    /// Size of the block in bytes including this header; a multiple of [`UNIT`].
    bytes: usize,
    /// The next free block, at a higher address.
    next: *mut Block,
}

/// The allocator.
pub(crate) struct Arena {
    first: Cell<*mut Block>,
    given: Cell<bool>,
}

// SAFETY: the header requires that only one thread at a time calls the library, and only the library
// allocates.
unsafe impl Sync for Arena {}

impl Arena {
    pub(crate) const fn new() -> Self {
        Self { first: Cell::new(ptr::null_mut()), given: Cell::new(false) }
    }

    /// Takes over the memory. Returns false if the arena has memory already.
    ///
    /// # Safety
    ///
    /// From now on only the arena may use the `bytes` bytes at `memory`.
    pub(crate) unsafe fn give(&self, memory: *mut u8, bytes: usize) -> bool {
        if self.given.replace(true) {
            return false;
        }
        let skipped = memory.align_offset(UNIT);
        let bytes = bytes.saturating_sub(skipped) & !(UNIT - 1);
        if bytes > 0 {
            // SAFETY: `skipped` is within the memory, because some memory is left after it.
            unsafe { self.insert(memory.add(skipped).cast(), bytes) };
        }
        true
    }

    /// Returns the number of free bytes.
    pub(crate) fn free(&self) -> usize {
        self.fold(usize::saturating_add)
    }

    /// Returns the size of the largest free block.
    pub(crate) fn largest(&self) -> usize {
        self.fold(usize::max)
    }

    fn fold(&self, join: fn(usize, usize) -> usize) -> usize {
        let (mut total, mut at) = (0, self.first.get());
        while !at.is_null() {
            // SAFETY: the list contains only free blocks with a header.
            let block = unsafe { at.read() };
            total = join(total, block.bytes);
            at = block.next;
        }
        total
    }

    fn set_next(&self, before: *mut Block, next: *mut Block) {
        if before.is_null() {
            self.first.set(next);
        } else {
            // SAFETY: `before` is in the list.
            unsafe { (*before).next = next };
        }
    }

    /// Adds memory to the free list and merges it with adjacent blocks.
    ///
    /// # Safety
    ///
    /// The memory belongs to the arena, is unused, and begins and ends at multiples of [`UNIT`].
    unsafe fn insert(&self, block: *mut Block, bytes: usize) {
        let (mut before, mut next) = (ptr::null_mut::<Block>(), self.first.get());
        while !next.is_null() && next < block {
            before = next;
            // SAFETY: the block is in the list.
            next = unsafe { (*next).next };
        }
        // SAFETY: guaranteed by the caller: the memory is free and has room for a header.
        unsafe { block.write(Block { bytes, next }) };
        self.set_next(before, block);
        // SAFETY: both blocks are in the list now.
        unsafe {
            join(block);
            if !before.is_null() {
                join(before);
            }
        }
    }
}

/// Merges a block with the next one if they are adjacent.
///
/// # Safety
///
/// `block` is in the list.
unsafe fn join(block: *mut Block) {
    // SAFETY: guaranteed by the caller; the next block, if there is one, is in the list too.
    unsafe {
        let Block { bytes, next } = block.read();
        if !next.is_null() && block.cast::<u8>().wrapping_add(bytes) == next.cast() {
            let Block { bytes: more, next } = next.read();
            block.write(Block { bytes: bytes.saturating_add(more), next });
        }
    }
}

/// Returns the number of bytes that a layout occupies.
fn rounded(layout: Layout) -> Option<usize> {
    layout.size().max(1).checked_next_multiple_of(UNIT)
}

// SAFETY: allocated blocks are not in the list, so they are not allocated twice; they are large enough
// and aligned.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(bytes) = rounded(layout) else { return ptr::null_mut() };
        let (mut before, mut at) = (ptr::null_mut::<Block>(), self.first.get());
        while !at.is_null() {
            // SAFETY: the block is in the list.
            let block = unsafe { at.read() };
            let front = at.cast::<u8>().align_offset(layout.align().max(UNIT));
            let rest = front.checked_add(bytes).and_then(|used| block.bytes.checked_sub(used));
            if let Some(rest) = rest {
                let found = at.cast::<u8>().wrapping_add(front);
                self.set_next(before, block.next);
                // SAFETY: the parts before and after the allocation are free, and their sizes are
                // multiples of the unit.
                unsafe {
                    if front > 0 {
                        self.insert(at, front);
                    }
                    if rest > 0 {
                        self.insert(found.add(bytes).cast(), rest);
                    }
                }
                return found;
            }
            before = at;
            at = block.next;
        }
        ptr::null_mut()
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if let Some(bytes) = rounded(layout) {
            // SAFETY: `alloc` returned this number of bytes, and they are not used any more.
            unsafe { self.insert(pointer.cast(), bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn freed_memory_is_merged_completely() {
        let mut memory = vec![0_u64; 2_048];
        let arena = Arena::new();
        let bytes = memory.len() * 8;
        // SAFETY: the memory is not used otherwise and outlives the arena.
        unsafe {
            assert!(arena.give(memory.as_mut_ptr().cast(), bytes));
            assert!(!arena.give(memory.as_mut_ptr().cast(), bytes));
        }
        let whole = arena.free();
        assert!(whole >= bytes - 2 * UNIT && arena.largest() == whole);
        let mut used: Vec<(*mut u8, Layout)> = Vec::new();
        // Pseudo-random sizes and alignments; about half of the blocks are freed in between.
        for round in 0..10_000_usize {
            let mixed = round.wrapping_mul(2_654_435_761) >> 7;
            if mixed % 5 < 2 && !used.is_empty() {
                let (pointer, layout) = used.swap_remove(mixed % used.len());
                // SAFETY: the pointer came from this arena with this layout and is not used afterwards.
                unsafe { arena.dealloc(pointer, layout) };
                continue;
            }
            let layout = Layout::from_size_align(mixed % 700, 1 << (mixed % 8)).unwrap();
            // SAFETY: any layout is valid here.
            let pointer = unsafe { arena.alloc(layout) };
            if pointer.is_null() {
                assert!(!used.is_empty());
                continue;
            }
            assert_eq!(pointer.align_offset(layout.align()), 0);
            let end = pointer.wrapping_add(layout.size());
            assert!(
                used.iter()
                    .all(|(other, taken)| end <= *other || other.wrapping_add(taken.size()) <= pointer)
            );
            // SAFETY: the block belongs to the test. An overlap with a header of the list would corrupt
            // the list.
            unsafe { pointer.write_bytes(0xAB, layout.size()) };
            used.push((pointer, layout));
        }
        for (pointer, layout) in used {
            // SAFETY: as above.
            unsafe { arena.dealloc(pointer, layout) };
        }
        assert_eq!((arena.free(), arena.largest()), (whole, whole));
    }
}
