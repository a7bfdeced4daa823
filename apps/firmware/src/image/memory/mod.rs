//! The memory plan, which is fixed: the image, with its stacks in it, and behind it the heap. What may be done with each part
//! is enforced by boot/paging.rs.

mod functions;
mod hoard;

pub(crate) use hoard::Hoard;

use crate::Trouble;
use crate::boot::StartInfo;
use crate::console::say;
use core::ops::Range;
use core::ptr::addr_of;
use linked_list_allocator::LockedHeap;

/// Bytes of the heap: tables, buffers and rings, which are taken at the start, and what IKE needs for its exchanges.
const HEAP: u64 = 16 << 20;
const PAGE: u64 = 4096;

/// The lock is never waited for: there is one processor and no interrupt.
#[global_allocator]
static ALLOCATOR: LockedHeap = LockedHeap::empty();

// Their addresses are what the linker script says; nothing is stored there.
unsafe extern "C" {
    static image_start: u8;
    static text_end: u8;
    static rodata_end: u8;
    static image_end: u8;
}

/// The parts of memory, each from one page's beginning to another's.
pub(crate) struct Parts {
    pub(crate) code: Range<u64>,
    pub(crate) constants: Range<u64>,
    data: Range<u64>,
    heap: Range<u64>,
}

impl Parts {
    /// What the image was linked to.
    pub(crate) const fn image(&self) -> Range<u64> {
        self.code.start..self.data.end
    }
}

/// The plan.
pub(crate) fn parts() -> Parts {
    let start = addr_of!(image_start) as u64;
    let [text, constants, end] = [addr_of!(text_end), addr_of!(rodata_end), addr_of!(image_end)]
        .map(|end| (end as u64).next_multiple_of(PAGE));
    Parts {
        code: start..text,
        constants: text..constants,
        data: constants..end,
        heap: end..end.saturating_add(HEAP),
    }
}

/// Prints the plan, and opens the heap.
pub(crate) fn set_up(info: &StartInfo) -> Result<(), Trouble> {
    let Parts { code, constants, data, heap } = parts();
    let (start, heap_start, heap_end) = (code.start, heap.start, heap.end);
    for (name, part) in [
        ("code: read, execute", code),
        ("constants: read", constants),
        ("data, stacks: read, write", data),
        ("heap: read, write", heap),
    ] {
        let Range { start, end } = part;
        say!("memory: {start:#010x}-{end:#010x} {:>6} KiB {name}", end.saturating_sub(start) / 1024);
    }
    if !info.has_ram(start, heap_end) {
        return Err("there is less memory than the plan needs");
    }
    if info.has_file(start, heap_end) {
        return Err("the configuration lies where the heap is to be: more memory would help");
    }
    // SAFETY: behind the image and behind what the loader has put there lies nothing, and the machine has memory there. The
    // heap is opened once.
    unsafe { ALLOCATOR.lock().init(heap_start as *mut u8, HEAP as usize) };
    Ok(())
}

/// How full the heap is.
pub(crate) fn say_heap() {
    // The lock is not held while it is told: to format may take memory.
    let (used, size) = {
        let heap = ALLOCATOR.lock();
        (heap.used(), heap.size())
    };
    say!("heap: {} of {} KiB taken", used / 1024, size / 1024);
}
