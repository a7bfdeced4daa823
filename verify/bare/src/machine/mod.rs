//! Start-up code of the boards: from reset to the program, and exit; heap and stack, as the linker script
//! divides the memory.
//!
//! The only unsafe code of this crate. There is one processor, no interrupt and no second thread. The peak
//! of the stack is known because the stack is filled with a pattern at the start: bytes that were overwritten
//! were in use.

mod board;

use crate::Board;
#[cfg(all(feature = "pi", target_arch = "arm", not(target_feature = "mclass")))]
pub use board::{microseconds, read_words, spin};
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::panic::PanicInfo;
use core::ptr::{NonNull, addr_of, addr_of_mut, null_mut};
use linked_list_allocator::Heap;

unsafe extern "Rust" {
    /// Defined by [`program`](crate::program). Returns true on success.
    safe fn casemate_program(board: &Board) -> bool;
}

/// Called by the board's start-up code, which has set up the stack only.
extern "C" fn begin() -> ! {
    paint_stack();
    open_heap();
    let passed = casemate_program(&Board { print, heap: heap_used, stack: stack_peak });
    board::exit(passed)
}

fn print(text: &str) {
    text.bytes().for_each(board::put);
}

/// Prints the panic message in the self-test only. In the other images, formatting code would be measured.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    #[cfg(feature = "selftest")]
    print(&alloc::format!("{info}"));
    #[cfg(not(feature = "selftest"))]
    let _ = info;
    print("\npanic\n");
    board::exit(false)
}

unsafe extern "C" {
    static mut heap_start: u8;
    static mut heap_end: u8;
    static mut stack_lowest: u8;
    static stack_top: u8;
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
fn open_heap() {
    let (start, end) = (addr_of_mut!(heap_start), addr_of_mut!(heap_end));
    // SAFETY: the linker script reserves this range for the heap, and no other code accesses it.
    unsafe { (*MEMORY.heap.get()).init(start, end.addr().saturating_sub(start.addr())) };
}

/// Returns the number of allocated bytes.
fn heap_used() -> usize {
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

/// Pattern of stack memory that was not used yet.
const PAINT: u8 = 0xA5;
/// Number of bytes below the filling function that are not filled: its own frame and a red zone.
const MARGIN: usize = 512;

/// Fills the stack below the current frame with the pattern.
#[inline(never)]
fn paint_stack() {
    let here = 0_u8;
    let lowest = addr_of_mut!(stack_lowest);
    let bytes = addr_of!(here).addr().saturating_sub(lowest.addr()).saturating_sub(MARGIN);
    for at in 0..bytes {
        // SAFETY: the memory between the end of the stack and this frame is not in use.
        unsafe { lowest.add(at).write_volatile(PAINT) };
    }
}

/// Returns the number of bytes from the top of the stack to the lowest overwritten byte.
fn stack_peak() -> usize {
    let lowest = addr_of!(stack_lowest);
    let bytes = addr_of!(stack_top).addr().saturating_sub(lowest.addr());
    // SAFETY: the whole range is memory of the stack.
    let untouched = (0..bytes).take_while(|at| unsafe { lowest.add(*at).read_volatile() } == PAINT).count();
    bytes.saturating_sub(untouched)
}
