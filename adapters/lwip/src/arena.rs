//! An allocator in memory that was given once: a list of free blocks in order of their addresses, the first that fits.
//!
//! Allocations are few and live long (tables, SAs, policies; none for a packet), so neighbours that become free are joined and
//! the list stays short. Lengths are known when memory comes back, so blocks in use have no header.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr;

/// Blocks begin and end at multiples of this; a free one holds a [`Block`].
const UNIT: usize = 16;

/// What stands at the start of free memory.
struct Block {
    /// Length of this one, with this head; a multiple of [`UNIT`].
    bytes: usize,
    /// The next, at a higher address.
    next: *mut Block,
}

/// The allocator.
pub(crate) struct Arena {
    first: Cell<*mut Block>,
    given: Cell<bool>,
}

// SAFETY: the header says that functions of the library are called by one thread at a time; none but they allocate.
unsafe impl Sync for Arena {}

impl Arena {
    pub(crate) const fn new() -> Self {
        Self { first: Cell::new(ptr::null_mut()), given: Cell::new(false) }
    }

    /// Takes over memory; `false` if it has some already.
    ///
    /// # Safety
    ///
    /// The `bytes` bytes from `memory` on are the arena's alone from now on.
    pub(crate) unsafe fn give(&self, memory: *mut u8, bytes: usize) -> bool {
        if self.given.replace(true) {
            return false;
        }
        let skipped = memory.align_offset(UNIT);
        let bytes = bytes.saturating_sub(skipped) & !(UNIT - 1);
        if bytes > 0 {
            // SAFETY: `skipped` is within what was given, as something is left behind it.
            unsafe { self.insert(memory.add(skipped).cast(), bytes) };
        }
        true
    }

    /// Free bytes.
    pub(crate) fn free(&self) -> usize {
        self.fold(usize::saturating_add)
    }

    /// Length of the longest free block.
    pub(crate) fn largest(&self) -> usize {
        self.fold(usize::max)
    }

    fn fold(&self, join: fn(usize, usize) -> usize) -> usize {
        let (mut total, mut at) = (0, self.first.get());
        while !at.is_null() {
            // SAFETY: what the list names are free blocks with a head.
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
            // SAFETY: `before` is a block of the list.
            unsafe { (*before).next = next };
        }
    }

    /// Makes memory a free block, joined with its neighbours.
    ///
    /// # Safety
    ///
    /// The memory belongs to the arena, is not in use, and begins and ends at multiples of [`UNIT`].
    unsafe fn insert(&self, block: *mut Block, bytes: usize) {
        let (mut before, mut next) = (ptr::null_mut::<Block>(), self.first.get());
        while !next.is_null() && next < block {
            before = next;
            // SAFETY: a block of the list.
            next = unsafe { (*next).next };
        }
        // SAFETY: free and long enough for a head, by contract.
        unsafe { block.write(Block { bytes, next }) };
        self.set_next(before, block);
        // SAFETY: both are blocks of the list now.
        unsafe {
            join(block);
            if !before.is_null() {
                join(before);
            }
        }
    }
}

/// Joins a block with the next one, if that begins where it ends.
///
/// # Safety
///
/// `block` is of the list.
unsafe fn join(block: *mut Block) {
    // SAFETY: by contract; so is the next one, if there is one.
    unsafe {
        let Block { bytes, next } = block.read();
        if !next.is_null() && block.cast::<u8>().wrapping_add(bytes) == next.cast() {
            let Block { bytes: more, next } = next.read();
            block.write(Block { bytes: bytes.saturating_add(more), next });
        }
    }
}

/// What a layout takes up.
fn rounded(layout: Layout) -> Option<usize> {
    layout.size().max(1).checked_next_multiple_of(UNIT)
}

// SAFETY: blocks handed out are in no list, so nobody else gets them; they are long enough and aligned.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(bytes) = rounded(layout) else { return ptr::null_mut() };
        let (mut before, mut at) = (ptr::null_mut::<Block>(), self.first.get());
        while !at.is_null() {
            // SAFETY: a block of the list.
            let block = unsafe { at.read() };
            let front = at.cast::<u8>().align_offset(layout.align().max(UNIT));
            let rest = front.checked_add(bytes).and_then(|used| block.bytes.checked_sub(used));
            if let Some(rest) = rest {
                let found = at.cast::<u8>().wrapping_add(front);
                self.set_next(before, block.next);
                // SAFETY: what is before and behind the part that was found is free, and of whole units, as all lengths are.
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
            // SAFETY: `alloc` gave as many bytes away, and their user is done with them.
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
    fn what_comes_back_is_whole_again() {
        let mut memory = vec![0_u64; 2_048];
        let arena = Arena::new();
        let bytes = memory.len() * 8;
        // SAFETY: the memory is used by nothing else, and lives as long.
        unsafe {
            assert!(arena.give(memory.as_mut_ptr().cast(), bytes));
            assert!(!arena.give(memory.as_mut_ptr().cast(), bytes));
        }
        let whole = arena.free();
        assert!(whole >= bytes - 2 * UNIT && arena.largest() == whole);
        let mut used: Vec<(*mut u8, Layout)> = Vec::new();
        // Sizes and alignments that look random, half of them given back in between.
        for round in 0..10_000_usize {
            let mixed = round.wrapping_mul(2_654_435_761) >> 7;
            if mixed % 5 < 2 && !used.is_empty() {
                let (pointer, layout) = used.swap_remove(mixed % used.len());
                // SAFETY: it came from this arena with this layout, and is used no more.
                unsafe { arena.dealloc(pointer, layout) };
                continue;
            }
            let layout = Layout::from_size_align(mixed % 700, 1 << (mixed % 8)).unwrap();
            // SAFETY: any layout will do here.
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
            // SAFETY: it is ours; what overlapped a head of the list would break it.
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
