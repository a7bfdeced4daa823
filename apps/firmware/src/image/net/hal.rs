//! What the virtio driver wants of the machine. Physical and virtual addresses are the same here.

use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

/// The machine.
pub(crate) struct Machine;

/// Up to here boot/entry.rs has mapped addresses.
const MAPPED: u64 = 4 << 30;

fn layout(pages: usize) -> Option<Layout> {
    Layout::from_size_align(pages.checked_mul(PAGE_SIZE)?, PAGE_SIZE).ok().filter(|layout| layout.size() > 0)
}

// SAFETY: memory comes from the heap, zeroed and aligned, and is nobody else's until it is given back; addresses are mapped
// to themselves, so a pointer is what the device sees.
unsafe impl Hal for Machine {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        // SAFETY: the layout is not empty.
        let memory = layout(pages).and_then(|layout| NonNull::new(unsafe { alloc_zeroed(layout) }));
        // The driver takes address 0 for "there is none".
        memory.map_or((0, NonNull::dangling()), |memory| (memory.addr().get() as PhysAddr, memory))
    }

    unsafe fn dma_dealloc(_: PhysAddr, memory: NonNull<u8>, pages: usize) -> i32 {
        let Some(layout) = layout(pages) else { return -1 };
        // SAFETY: the caller gives back what `dma_alloc` gave, with as many pages.
        unsafe { dealloc(memory.as_ptr(), layout) };
        0
    }

    #[allow(
        clippy::panic,
        reason = "the driver leaves no other way to refuse, and it happens before any packet"
    )]
    unsafe fn mmio_phys_to_virt(address: PhysAddr, size: usize) -> NonNull<u8> {
        let end = address.saturating_add(size as u64);
        match NonNull::new(address as *mut u8) {
            Some(pointer) if end <= MAPPED => pointer,
            _ => panic!("the network card's registers at {address:#x} lie above 4 GiB"),
        }
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        buffer.cast::<u8>().addr().get() as PhysAddr
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}
