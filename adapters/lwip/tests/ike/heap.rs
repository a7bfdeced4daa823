//! A counting allocator: current and peak memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

/// The system allocator with a counter per thread.
struct Counting;

fn taken(bytes: usize) {
    IN_USE.set(IN_USE.get().wrapping_add(bytes));
    // A thread may free memory that another thread allocated.
    MOST.set(MOST.get().max(IN_USE.get()));
}

// SAFETY: forwards every call to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(rounded(layout));
        // SAFETY: the caller guarantees the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.set(IN_USE.get().wrapping_sub(rounded(layout)));
        // SAFETY: `at` came from `alloc` above with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Returns the size of the block that the library's own allocator would use.
fn rounded(layout: Layout) -> usize {
    layout.size().max(1).next_multiple_of(16)
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the number of allocated bytes.
pub(crate) fn in_use() -> usize {
    IN_USE.get()
}

/// Calls `act`. Returns its result and the peak of additionally allocated bytes.
pub(crate) fn peak<R>(act: impl FnOnce() -> R) -> (R, usize) {
    let before = in_use();
    MOST.set(before);
    let done = act();
    (done, MOST.get().saturating_sub(before))
}
