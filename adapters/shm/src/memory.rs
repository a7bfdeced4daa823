//! Memory that two processes have.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

/// Shared memory, mapped.
#[derive(Debug)]
pub struct Memory {
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the pointer is to memory that stays mapped as long as the value lives and is used as atomics only.
unsafe impl Send for Memory {}
// SAFETY: as above; atomics may be used from several threads at a time.
unsafe impl Sync for Memory {}

/// A file whose size stays as it is: touching a page behind a file's end would kill the process that does.
const FIXED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Memory {
    /// New memory of so many words, all zeros, and a descriptor by which another process can have it too.
    pub fn create(words: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("casemate-rings", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, size(words)? as u64)?;
        fcntl_add_seals(&file, FIXED)?;
        Ok((Self::map(file.as_fd(), words)?, file))
    }

    /// Memory of so many words that another process has created.
    pub fn open(file: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let bytes = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
        if !fcntl_get_seals(file)?.contains(FIXED) || bytes < size(words)? as u64 {
            let what = format!("shared memory of {bytes} bytes: {} that stay were expected", size(words)?);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Self::map(file, words)
    }

    fn map(file: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        // All pages at once: so that there is no fault, and none that fails, later.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses a free place, so that no memory of ours is replaced. The file is at least so long and its
        // size is sealed; both callers see to it.
        let memory = unsafe {
            mmap(ptr::null_mut(), size(words)?, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0)?
        };
        let words_at = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { words: words_at, count: words })
    }

    /// The words. The other process may change them at any moment.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, so many words long, initialised (with zeros) and stays until the value is
        // dropped. Any bytes are a valid AtomicU64, and what the other process does to it is a race between atomics at worst.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it outlives the value. Nothing can be done about an error.
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
    fn both_ends_see_the_same_and_nobody_can_cut_it() {
        let (one, file) = Memory::create(1_000).unwrap();
        let other = Memory::open(file.as_fd(), 1_000).unwrap();
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
    fn memory_that_could_vanish_is_refused() {
        let (_memory, file) = Memory::create(10).unwrap();
        assert!(Memory::open(file.as_fd(), 11).is_err());
        let loose = memfd_create("loose", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&loose, 80).unwrap();
        assert!(Memory::open(loose.as_fd(), 10).is_err());
        assert!(Memory::create(0).is_err() && Memory::create(usize::MAX).is_err());
    }
}
