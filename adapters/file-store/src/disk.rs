//! The storage below the database, and a record of what failed there.
//!
//! redb reports an error once, and then only that there was one. What the store does next depends on the
//! operation that failed, so that [`Recorded`] notes it between redb and the storage.

use redb::StorageBackend;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A place for a database: a file, or a simulated disk in tests.
pub(crate) trait Disk: Send + 'static {
    /// Access to the storage.
    type Backend: StorageBackend;

    /// Returns access to the storage. The access of before is closed.
    fn backend(&self) -> io::Result<Self::Backend>;
}

/// What failed since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The storage has no room.
    is_full: AtomicBool,
    /// An operation failed for another reason, or a synchronization for any reason.
    is_broken: AtomicBool,
}

impl Faults {
    /// Whether nothing but a lack of room was reported, so that the storage has what it had before.
    pub(crate) fn is_only_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed) && !self.is_broken.load(Ordering::Relaxed)
    }

    fn note<T>(&self, result: io::Result<T>, is_sync: bool) -> io::Result<T> {
        if let Err(error) = &result {
            let no_room = matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
            );
            let fault = if no_room && !is_sync { &self.is_full } else { &self.is_broken };
            fault.store(true, Ordering::Relaxed);
        }
        result
    }
}

/// Storage whose errors are noted.
#[derive(Debug)]
pub(crate) struct Recorded<B> {
    backend: B,
    faults: Arc<Faults>,
}

impl<B> Recorded<B> {
    pub(crate) const fn new(backend: B, faults: Arc<Faults>) -> Self {
        Self { backend, faults }
    }
}

impl<B: StorageBackend> StorageBackend for Recorded<B> {
    fn len(&self) -> io::Result<u64> {
        self.faults.note(self.backend.len(), false)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.faults.note(self.backend.read(offset, out), false)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults.note(self.backend.set_len(len), false)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.faults.note(self.backend.sync_data(), true)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.faults.note(self.backend.write(offset, data), false)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }
}

/// A file that this process has locked.
#[derive(Debug)]
pub(crate) struct FileDisk(pub(crate) File);

impl Disk for FileDisk {
    type Backend = FileBackend;

    fn backend(&self) -> io::Result<FileBackend> {
        Ok(FileBackend(self.0.try_clone()?))
    }
}

/// Access to a [`FileDisk`].
#[derive(Debug)]
pub(crate) struct FileBackend(File);

impl StorageBackend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    /// A file that grows gets its blocks at once: otherwise a full disk would fail a write in the middle of a
    /// transaction.
    fn set_len(&self, len: u64) -> io::Result<()> {
        let before = self.len()?;
        let Some(more) = len.checked_sub(before).filter(|more| *more > 0) else { return self.0.set_len(len) };
        match rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), before, more) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => self.0.set_len(len),
            Err(error) => {
                // What was allocated before the error is given back. The first error is the one to report.
                let _ = self.0.set_len(before);
                Err(error.into())
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}
