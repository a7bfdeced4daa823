//! The heap: what the linker script leaves of the memory.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{NonNull, addr_of_mut, null_mut};
use linked_list_allocator::Heap;

unsafe extern "C" {
    static mut heap_start: u8;
    static mut heap_end: u8;
}

struct Memory {
    heap: UnsafeCell<Heap>,
    /// Bytes that were asked for and not given back, without what the allocator adds.
    used: UnsafeCell<usize>,
}

// SAFETY: there is one thread.
unsafe impl Sync for Memory {}

#[global_allocator]
static MEMORY: Memory = Memory { heap: UnsafeCell::new(Heap::empty()), used: UnsafeCell::new(0) };

/// Opens the heap. Called once, before anything allocates.
pub(super) fn open() {
    let (start, end) = (addr_of_mut!(heap_start), addr_of_mut!(heap_end));
    // SAFETY: the linker script leaves what lies between to the heap, and nobody else looks at it.
    unsafe { (*MEMORY.heap.get()).init(start, end.addr().saturating_sub(start.addr())) };
}

/// Bytes that are in use.
pub(super) fn used() -> usize {
    // SAFETY: there is one thread.
    unsafe { *MEMORY.used.get() }
}

// SAFETY: the heap's own; no reference to it outlives a call, and there is one thread.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            *self.used.get() = (*self.used.get()).saturating_add(layout.size());
            (*self.heap.get()).allocate_first_fit(layout).map_or(null_mut(), NonNull::as_ptr)
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let Some(pointer) = NonNull::new(pointer) else { return };
        // SAFETY: `alloc` gave it away with this layout.
        unsafe {
            *self.used.get() = (*self.used.get()).saturating_sub(layout.size());
            (*self.heap.get()).deallocate(pointer, layout);
        }
    }
}
