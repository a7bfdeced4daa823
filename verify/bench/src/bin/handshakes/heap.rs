//! What this thread holds on the heap, counted allocation by allocation.
//!
//! AWS-LC allocates beside this, through C. What an SA keeps of it lies in boxes of Rust; the rest is gone when its call returns.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count.
struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

thread_local! {
    static IN_USE: Cell<i64> = const { Cell::new(0) };
}

/// Bytes of the heap that this thread has taken and not given back.
pub(crate) fn in_use() -> i64 {
    IN_USE.get()
}

/// What glibc's allocator takes for `size` bytes: a word in front, a multiple of 16, at least 32.
const fn chunk(size: usize) -> i64 {
    let chunk = (size + 8).next_multiple_of(16);
    if chunk < 32 { 32 } else { chunk as i64 }
}

fn count(bytes: i64) {
    // A thread that ends may free when its count is gone already.
    let _ = IN_USE.try_with(|in_use| in_use.set(in_use.get() + bytes));
}

// SAFETY: every call goes on to the system's allocator as it is; counting does not allocate.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(chunk(layout.size()));
        // SAFETY: the caller's promises are those that the system asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(chunk(layout.size()));
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-chunk(layout.size()));
        // SAFETY: as for `alloc`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(chunk(new_size) - chunk(layout.size()));
        // SAFETY: as for `alloc`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted() {
        let before = in_use();
        let mut bytes: Vec<u8> = Vec::with_capacity(25);
        assert_eq!(in_use() - before, 48);
        bytes.reserve_exact(1_000);
        assert_eq!(in_use() - before, 1_008);
        drop(bytes);
        assert_eq!(in_use() - before, 0);
        let zeroed = vec![0u8; 24];
        assert_eq!(in_use() - before, 32);
        drop(zeroed);
        assert_eq!(in_use() - before, 0);
    }
}
