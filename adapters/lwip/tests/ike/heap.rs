//! Counts what is allocated: how much there is, and the most that there was.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a look at what goes and comes. Each thread counts for itself.
struct Counting;

fn taken(bytes: usize) {
    IN_USE.set(IN_USE.get().wrapping_add(bytes));
    // A thread may give back what another one took.
    MOST.set(MOST.get().max(IN_USE.get()));
}

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(rounded(layout));
        // SAFETY: the caller's promise on `layout` is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.set(IN_USE.get().wrapping_sub(rounded(layout)));
        // SAFETY: `at` came from `alloc` above with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

/// What the library's own allocator takes for it.
fn rounded(layout: Layout) -> usize {
    layout.size().max(1).next_multiple_of(16)
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes in use.
pub(crate) fn in_use() -> usize {
    IN_USE.get()
}

/// What `act` answers, and by how much more was in use meanwhile than before, at most.
pub(crate) fn peak<R>(act: impl FnOnce() -> R) -> (R, usize) {
    let before = in_use();
    MOST.set(before);
    let done = act();
    (done, MOST.get().saturating_sub(before))
}
