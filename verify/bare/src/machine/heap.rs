//! The heap: the memory that the linker script leaves.

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
    /// Number of allocated bytes, without the overhead of the allocator.
    used: UnsafeCell<usize>,
}

// SAFETY: there is only one thread.
unsafe impl Sync for Memory {}

#[global_allocator]
static MEMORY: Memory = Memory { heap: UnsafeCell::new(Heap::empty()), used: UnsafeCell::new(0) };

/// Initialises the heap. Must be called once, before the first allocation.
pub(super) fn open() {
    let (start, end) = (addr_of_mut!(heap_start), addr_of_mut!(heap_end));
    // SAFETY: the linker script reserves this range for the heap, and no other code accesses it.
    unsafe { (*MEMORY.heap.get()).init(start, end.addr().saturating_sub(start.addr())) };
}

/// Returns the number of allocated bytes.
pub(super) fn used() -> usize {
    // SAFETY: there is only one thread.
    unsafe { *MEMORY.used.get() }
}

// SAFETY: forwards to the heap; no reference to it outlives a call, and there is only one thread.
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
        // SAFETY: `alloc` returned the pointer for this layout.
        unsafe {
            *self.used.get() = (*self.used.get()).saturating_sub(layout.size());
            (*self.heap.get()).deallocate(pointer, layout);
        }
    }
}
