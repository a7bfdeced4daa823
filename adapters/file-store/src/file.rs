//! The file of a store: creation, the lock, and who may have access to it.
//!
//! Entries are keys and addresses of tunnels, so other users may neither read nor replace the file. A file
//! that this module creates gets its name when it is a complete, empty database: an empty file is damaged.

use crate::OpenError;
use crate::database;
use crate::disk::FileDisk;
use casemate_private_file::{self as private_file, OthersAccess};
use rustix::fs::Advice;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

/// The lock of a store, held until it is dropped. It is on a file beside the store, which is kept.
/// The store itself is locked, too, when it is open.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Locks the store at this path for this process.
    pub(crate) fn acquire(path: &Path) -> Result<Self, OpenError> {
        let failed = |error| OpenError::Io(path.into(), error);
        private_file::check_parent(private_file::directory_of(path)).map_err(failed)?;
        let mut options = File::options();
        let file = open_private(
            &private_file::with_suffix(path, ".lock"),
            options.write(true).create(true).truncate(false),
        )
        .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.into())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// Opens the file, or creates it. Returns whether it was created.
pub(crate) fn open_or_create(path: &Path, _lock: &Lock) -> Result<(FileDisk, bool), OpenError> {
    let failed = |error| OpenError::Io(path.into(), error);
    match open(path) {
        Err(OpenError::Io(_, error)) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened.map(|disk| (disk, false)),
    }
    let temporary = private_file::with_suffix(path, ".new");
    // A crash may have left this file. The new file must not be a link to another place.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    create(path, &temporary).inspect_err(|_| {
        // Otherwise a full disk would keep this file. The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    })?;
    Ok((open(path)?, true))
}

fn create(path: &Path, temporary: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::Io(path.into(), error);
    let mut options = File::options();
    let file = open_private(temporary, options.read(true).write(true).create_new(true)).map_err(failed)?;
    let copy = file.try_clone().map_err(failed)?;
    database::create(FileDisk(file)).map_err(|fault| fault.into_error(path))?;
    copy.sync_all().and_then(|()| fs::rename(temporary, path)).map_err(failed)?;
    // The name must be on the disk, too.
    File::open(private_file::directory_of(path)).and_then(|directory| directory.sync_all()).map_err(failed)
}

/// Opens the file and locks it, too: without the file of the lock, a second process must not get it.
fn open(path: &Path) -> Result<FileDisk, OpenError> {
    let failed = |error| OpenError::Io(path.into(), error);
    let file = open_private(path, File::options().read(true).write(true)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path.into())),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    // The kernel may have pages in memory that a former process failed to synchronize. What is read must be
    // what the disk has.
    file.sync_all().map_err(failed)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| failed(error.into()))?;
    Ok(FileDisk(file))
}

/// Opens the file, which these options may create. Other users have no access.
fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    private_file::open(path, options, OthersAccess::None)
}
