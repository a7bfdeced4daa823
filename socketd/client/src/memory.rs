//! Memory shared by two processes.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

/// A mapping of shared memory.
#[derive(Debug)]
pub struct SharedMemory {
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the pointer refers to memory that stays mapped while the value lives, and that is only accessed
// as atomics.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; atomics may be used by several threads at the same time.
unsafe impl Sync for SharedMemory {}

/// Seals that fix the size of the file: an access to a page beyond the end of the file would kill the
/// process.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl SharedMemory {
    /// Creates shared memory of `words` words, all zero. Returns it with a file descriptor for the other
    /// process.
    pub fn create(words: usize) -> io::Result<(Self, OwnedFd)> {
        let file =
            memfd_create("casemate-socketd-protocol", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, size(words)? as u64)?;
        fcntl_add_seals(&file, SIZE_SEALS)?;
        Ok((Self::map(file.as_fd(), words)?, file))
    }

    /// Maps shared memory of `words` words that another process has created. Returns an error unless its
    /// size is sealed and sufficient.
    pub fn open(file: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let bytes = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
        if !fcntl_get_seals(file)?.contains(SIZE_SEALS) || bytes < size(words)? as u64 {
            let what = format!(
                "shared memory of {bytes} bytes: {} bytes with a sealed size were expected",
                size(words)?
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Self::map(file, words)
    }

    fn map(file: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        // Map all pages now, so that no page fault happens or fails later.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses an unused address, so no other memory is replaced. Both callers
        // ensure that the file has at least this size and that its size is sealed.
        let memory = unsafe {
            mmap(ptr::null_mut(), size(words)?, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0)?
        };
        let words_at = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { words: words_at, count: words })
    }

    /// Returns the words. The other process may change them at any time.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, has this length, is initialised with zeros, and exists
        // until the value is dropped. Every bit pattern is a valid AtomicU64. Concurrent access by the
        // other process is a race between atomics at worst.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no reference outlives the value. An error cannot
        // be handled.
        let _ = unsafe { munmap(self.words.as_ptr().cast(), self.count.saturating_mul(8)) };
    }
}

fn size(words: usize) -> io::Result<usize> {
    words.checked_mul(8).filter(|size| *size > 0).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn both_mappings_show_the_same_memory_and_its_size_is_sealed() {
        let (one, file) = SharedMemory::create(1_000).unwrap();
        let other = SharedMemory::open(file.as_fd(), 1_000).unwrap();
        assert!(one.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        one.words()[999].store(7, Ordering::Release);
        assert_eq!((other.words().len(), other.words()[999].load(Ordering::Acquire)), (1_000, 7));
        for size in [0, 4_096, 1 << 20] {
            assert!(ftruncate(&file, size).is_err(), "{size}");
        }
        drop(one);
        assert_eq!(other.words()[999].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn memory_without_a_sealed_size_is_refused() {
        let (_memory, file) = SharedMemory::create(10).unwrap();
        assert!(SharedMemory::open(file.as_fd(), 11).is_err());
        let loose = memfd_create("loose", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&loose, 80).unwrap();
        assert!(SharedMemory::open(loose.as_fd(), 10).is_err());
        assert!(SharedMemory::create(0).is_err() && SharedMemory::create(usize::MAX).is_err());
    }
}
