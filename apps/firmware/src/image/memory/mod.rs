//! The memory plan, which is fixed: the image, with its stacks in it, and behind it the heap.

mod functions;

use crate::Trouble;
use crate::boot::StartInfo;
use crate::console::say;
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

/// Prints the plan, and opens the heap.
pub(crate) fn set_up(info: &StartInfo) -> Result<(), Trouble> {
    let start = addr_of!(image_start) as u64;
    let text = addr_of!(text_end) as u64;
    let constants = addr_of!(rodata_end) as u64;
    let end = addr_of!(image_end) as u64;
    let heap = end.next_multiple_of(PAGE);
    let heap_end = heap.saturating_add(HEAP);
    let parts = [
        ("code", start, text),
        ("constants", text, constants),
        ("data, stacks", constants, end),
        ("heap", heap, heap_end),
    ];
    for (name, from, to) in parts {
        say!("memory: {from:#010x}-{to:#010x} {:>6} KiB {name}", to.saturating_sub(from) / 1024);
    }
    if !info.has_ram(start, heap_end) {
        return Err("there is less memory than the plan needs");
    }
    if info.has_file(start, heap_end) {
        return Err("the configuration lies where the heap is to be: more memory would help");
    }
    // SAFETY: behind the image and behind what the loader has put there lies nothing, and the machine has memory there. The
    // heap is opened once.
    unsafe { ALLOCATOR.lock().init(heap as *mut u8, HEAP as usize) };
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
