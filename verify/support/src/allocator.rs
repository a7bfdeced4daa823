//! Allocator for tests of memory use: it counts, and shows the contents of blocks before they are freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The system allocator with counters for each thread. A program installs it with `#[global_allocator]`.
#[derive(Debug)]
pub struct TestAllocator {
    block_len: fn(usize) -> usize,
    on_free: Option<fn(&FreedBlock)>,
}

/// A block of memory that is about to be freed.
#[derive(Debug)]
pub struct FreedBlock {
    start: *mut u8,
    layout: Layout,
}

impl FreedBlock {
    /// Returns the length in bytes.
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// Returns the alignment in bytes.
    pub fn align(&self) -> usize {
        self.layout.align()
    }

    /// Returns the contents, each byte when it is read.
    #[expect(unsafe_code, reason = "reads memory for which there is no reference any more")]
    pub fn bytes(&self) -> impl Iterator<Item = u8> + Clone + '_ {
        // SAFETY: the block is still allocated and was zeroed by `alloc`, so each of its bytes is readable
        // and initialised. The read is volatile, because the compiler may treat freed contents as unread.
        (0..self.size()).map(|at| unsafe { self.start.add(at).read_volatile() })
    }

    /// Returns whether all bytes are zero.
    pub fn is_wiped(&self) -> bool {
        self.bytes().all(|byte| byte == 0)
    }
}

impl TestAllocator {
    /// Returns an allocator that counts the requested bytes.
    pub const fn new() -> Self {
        Self { block_len: |size| size, on_free: None }
    }

    /// Returns an allocator that counts `block_len` of each requested size, for the overhead of an allocator.
    pub const fn with_block_len(block_len: fn(usize) -> usize) -> Self {
        Self { block_len, on_free: None }
    }

    /// Returns an allocator that calls `on_free` before it frees a block. `on_free` must not allocate.
    pub const fn with_check(on_free: fn(&FreedBlock)) -> Self {
        Self { block_len: |size| size, on_free: Some(on_free) }
    }

    // A thread that ends may free memory after its counters were destroyed. A thread may free memory that
    // another thread allocated: the sum of all threads is right.
    fn count_allocated(&self, size: usize) {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get().wrapping_add(1)));
        let _ = IN_USE.try_with(|in_use| {
            in_use.set(in_use.get().wrapping_add((self.block_len)(size)));
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(in_use.get())));
        });
    }

    fn count_freed(&self, size: usize) {
        let _ = IN_USE.try_with(|in_use| in_use.set(in_use.get().wrapping_sub((self.block_len)(size))));
    }
}

impl Default for TestAllocator {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: every call goes to the system allocator with the same layout, and counting does not allocate.
#[expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]
unsafe impl GlobalAlloc for TestAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count_allocated(layout.size());
        match self.on_free {
            // SAFETY: the caller guarantees the contract of `GlobalAlloc`.
            None => unsafe { System.alloc(layout) },
            // SAFETY: as above. The memory is zeroed, because `FreedBlock` reads all of it.
            Some(_) => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.count_allocated(layout.size());
        // SAFETY: the caller guarantees the contract of `GlobalAlloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if let Some(on_free) = self.on_free {
            on_free(&FreedBlock { start, layout });
        }
        self.count_freed(layout.size());
        // SAFETY: the block came from this allocator with this layout.
        unsafe { System.dealloc(start, layout) }
    }
}

/// Result of a call whose allocations were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted<R> {
    /// What the call returned.
    pub result: R,
    /// Number of allocations of this thread during the call. A reallocation is one allocation.
    pub allocations: usize,
}

/// Calls `run` and counts its allocations.
pub fn count_allocations<R>(run: impl FnOnce() -> R) -> Counted<R> {
    let before = ALLOCATIONS.get();
    let result = run();
    Counted { result, allocations: ALLOCATIONS.get().wrapping_sub(before) }
}

/// Returns the number of bytes that this thread has allocated and not freed. It is negative if the thread
/// freed more than it allocated.
pub fn bytes_in_use() -> i64 {
    IN_USE.get().cast_signed() as i64
}

/// Result of a call whose memory was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeakMemory<R> {
    /// What the call returned.
    pub result: R,
    /// Peak of the bytes that this thread allocated in addition during the call.
    pub peak_bytes: usize,
}

/// Calls `run` and measures its peak memory.
pub fn peak_memory<R>(run: impl FnOnce() -> R) -> PeakMemory<R> {
    let before = IN_USE.get();
    PEAK.set(before);
    let result = run();
    PeakMemory { result, peak_bytes: PEAK.get().saturating_sub(before) }
}
