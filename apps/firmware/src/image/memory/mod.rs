//! The fixed memory layout: the image with its stacks, followed by the heap. boot/paging.rs enforces the
//! permissions of each part.

mod functions;

use crate::BootError;
use crate::boot::StartInfo;
use crate::console::println;
use core::ops::Range;
use core::ptr::addr_of;
use linked_list_allocator::LockedHeap;

/// Size of the heap in bytes. Tables, buffers and rings are allocated at the start, and IKE allocates
/// memory for its exchanges.
const HEAP: u64 = 16 << 20;
const PAGE: u64 = 4096;

/// The lock is never contended: there is one processor, and the interrupt handler does not allocate.
#[global_allocator]
static ALLOCATOR: LockedHeap = LockedHeap::empty();

// Symbols of the linker script. Only their addresses are used.
unsafe extern "C" {
    static image_start: u8;
    static text_end: u8;
    static rodata_end: u8;
    static image_end: u8;
}

/// The parts of the memory, page-aligned.
pub(crate) struct MemoryLayout {
    pub(crate) code: Range<u64>,
    pub(crate) constants: Range<u64>,
    data: Range<u64>,
    heap: Range<u64>,
}

impl MemoryLayout {
    /// Returns the range of the linked image.
    pub(crate) const fn image(&self) -> Range<u64> {
        self.code.start..self.data.end
    }
}

/// Returns the memory layout.
pub(crate) fn layout() -> MemoryLayout {
    let start = addr_of!(image_start) as u64;
    let [text, constants, end] = [addr_of!(text_end), addr_of!(rodata_end), addr_of!(image_end)]
        .map(|end| (end as u64).next_multiple_of(PAGE));
    MemoryLayout {
        code: start..text,
        constants: text..constants,
        data: constants..end,
        heap: end..end.saturating_add(HEAP),
    }
}

/// Prints the layout and initialises the heap.
pub(crate) fn init_heap(info: &StartInfo) -> Result<(), BootError> {
    let MemoryLayout { code, constants, data, heap } = layout();
    let (start, heap_start, heap_end) = (code.start, heap.start, heap.end);
    for (name, part) in [
        ("code: read, execute", code),
        ("constants: read", constants),
        ("data, stacks: read, write", data),
        ("heap: read, write", heap),
    ] {
        let Range { start, end } = part;
        println!("memory: {start:#010x}-{end:#010x} {:>6} KiB {name}", end.saturating_sub(start) / 1024);
    }
    if !info.has_ram(start, heap_end) {
        return Err("the machine has less memory than the layout needs");
    }
    if info.has_file(start, heap_end) {
        return Err("the configuration file overlaps the heap: the machine needs more memory");
    }
    // SAFETY: the range after the image is memory, as checked above, and contains nothing that the loader
    // has placed. The heap is initialised once.
    unsafe { ALLOCATOR.lock().init(heap_start as *mut u8, HEAP as usize) };
    Ok(())
}

/// Prints the heap usage.
pub(crate) fn print_heap_usage() {
    // Release the lock before printing: formatting may allocate.
    let (used, size) = {
        let heap = ALLOCATOR.lock();
        (heap.used(), heap.size())
    };
    println!("heap: {} of {} KiB taken", used / 1024, size / 1024);
}
