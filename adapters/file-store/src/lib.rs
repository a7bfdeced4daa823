//! A [`Store`] in a file of one machine (docs/decisions/0141-file-store.md).
//!
//! The file is a redb database. One thread, `file store`, does all I/O. It executes all requests that wait in
//! one transaction of the database, and completes them when that transaction is on the disk: two
//! synchronizations of the file for up to 256 requests. Contents are also in memory, so that reads and
//! watches need no I/O.
//!
//! - A crash, also of the machine, loses no confirmed write and leaves nothing half written.
//! - A damaged file is not opened ([`OpenError::Damaged`]).
//! - A full disk refuses writes ([`StoreError::Refused`]) until there is room again.
//! - When the disk has failed, all requests are completed with [`StoreError::Unavailable`] until the file is
//!   opened again: after a failed synchronization, the kernel may report success for data that it has lost.
//! - Only one process uses a file. All leases of the former process end when the file is opened.
#![forbid(unsafe_code)]

mod database;
mod disk;
mod file;
mod queues;
mod worker;

#[cfg(doc)]
use casemate_store::StoreError;
use casemate_store::{Completion, Request, RequestId, Store, WatchEvent};
use file::Lock;
use queues::Shared;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};
use worker::Worker;

/// Shortest lease of a store in a file.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// Why a file cannot be opened as a store.
#[derive(Debug)]
pub enum OpenError {
    /// The operating system refused an operation, or other users have access to the file.
    Io(PathBuf, io::Error),
    /// Another process uses the file.
    InUse(PathBuf),
    /// The file is damaged, or no store of this version.
    Damaged(PathBuf, String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::InUse(path) => {
                write!(f, "{}: another process uses this store; each instance needs its own", path.display())
            }
            Self::Damaged(path, reason) => write!(
                f,
                "{}: the store is damaged or of an unknown kind: {reason}. Its SAs cannot be continued: move \
                 the file away, and their peers negotiate again",
                path.display()
            ),
        }
    }
}

impl std::error::Error for OpenError {}

/// What the thread of a store calls.
struct Calls {
    on_start: Box<dyn FnOnce() -> io::Result<()> + Send>,
    wake: Box<dyn Fn() + Send>,
}

/// A store in a file. Requests are completed by the thread of the store, which calls the function given to
/// [`FileStore::open`] when there are completions or events.
#[derive(Debug)]
pub struct FileStore {
    shared: Arc<Shared>,
    /// Requests whose completions were not taken.
    pending: HashSet<RequestId>,
    thread: Option<JoinHandle<()>>,
    is_new: bool,
    _lock: Option<Lock>,
}

impl FileStore {
    /// Opens the file, or creates it if it does not exist, and locks it. Deletes the entries that were bound
    /// to a lease. Reads the whole file.
    ///
    /// The thread of the store first calls `on_start`, which for example drops the capabilities of the
    /// thread; an error prevents the start. It calls `wake` after it has added completions or events. `wake`
    /// must return at once; for example it signals an eventfd.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is in use, damaged, a symbolic link, not owned by root or this user, or
    /// accessible to others, or if its directory is writable by others.
    pub fn open(
        path: &Path,
        on_start: impl FnOnce() -> io::Result<()> + Send + 'static,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, OpenError> {
        let lock = Lock::acquire(path)?;
        let (disk, is_new) = file::open_or_create(path, &lock)?;
        let calls = Calls { on_start: Box::new(on_start), wake: Box::new(wake) };
        Self::start(disk, Some(lock), is_new, calls).map_err(|fault| fault.into_error(path))
    }

    fn start<D: disk::Disk>(
        disk: D,
        lock: Option<Lock>,
        is_new: bool,
        Calls { on_start, wake }: Calls,
    ) -> Result<Self, database::OpenFault> {
        let shared = Arc::new(Shared::default());
        let worker = Worker::open(disk, shared.clone(), wake)?;
        let builder = thread::Builder::new().name("file store".into());
        let (report, started) = mpsc::sync_channel(1);
        // The opener waits for the report. After an error, the file is closed first.
        let run = move || match on_start() {
            Ok(()) => {
                let _ = report.send(Ok(()));
                worker.run();
            }
            Err(error) => {
                drop(worker);
                let _ = report.send(Err(error));
            }
        };
        let thread = Some(builder.spawn(run)?);
        started.recv().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))?;
        Ok(Self { shared, pending: HashSet::new(), thread, is_new, _lock: lock })
    }

    /// Whether [`open`](Self::open) created the file: then it is unknown what this machine did before.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Why the store completes all requests with [`StoreError::Unavailable`]; `None` if it does not.
    pub fn failure(&self) -> Option<String> {
        self.shared.lock().failure.clone()
    }
}

impl Store for FileStore {
    fn submit(&mut self, id: RequestId, request: Request) -> Result<(), Request> {
        let is_accepted = request.is_within_limits()
            && self.pending.len() < casemate_store::MAX_PENDING
            && !self.pending.contains(&id);
        if !is_accepted {
            return Err(request);
        }
        self.shared.submit(id, request)?;
        self.pending.insert(id);
        Ok(())
    }

    fn next_completion(&mut self) -> Option<Completion> {
        let completion = self.shared.next_completion()?;
        self.pending.remove(&completion.id);
        Some(completion)
    }

    fn next_event(&mut self) -> Option<WatchEvent> {
        self.shared.next_event()
    }

    fn shortest_lease(&self) -> Duration {
        SHORTEST_LEASE
    }
}

impl Drop for FileStore {
    /// Waits until the requests that were submitted are executed, and closes the file.
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            // The thread catches panics of its own.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
