//! Opening of a journal file: its lock, and whether its contents are about the current network namespace.

use super::contents::{Contents, Damage, FIRST_LINE, read};
use super::file_error;
use super::undo::has_guard;
use crate::Error;
use crate::instance::{Instance, NetnsId};
use crate::private_file::{self, OthersAccess};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The file of an instance, locked and read, but not changed yet.
pub(super) struct OpenedFile {
    instance: Instance,
    file: File,
    contents: Contents,
    here: Option<NetnsId>,
    origin: Origin,
}

impl OpenedFile {
    /// Opens, locks and reads the file. An error if another process has the lock.
    pub(super) fn open(instance: &Instance) -> Result<Self, Error> {
        let path = instance.journal();
        let Some(mut file) = lock(&path)? else {
            let reason = "another instance with this TUN interface is running in this network namespace";
            return Err(Error::other(path.display().to_string(), reason));
        };
        let contents = read(&mut file, &path)?;
        let here = NetnsId::present()?;
        let origin = origin(&contents, here.as_ref(), instance)?;
        Ok(Self { instance: instance.clone(), file, contents, here, origin })
    }

    /// An error if a line is damaged, unless the namespace of the journal has ended.
    pub(super) fn refuse_damage(&self) -> Result<(), Error> {
        if self.origin == Origin::Elsewhere || self.contents.damage.is_empty() {
            return Ok(());
        }
        Err(self.damage_error(&format!(
            "It is unknown what the former run changed, and nothing was changed now: `casemate cleanup \
             --tun {}` undoes the rest and says what to check",
            self.instance.tun()
        )))
    }

    fn damage_error(&self, advice: &str) -> Error {
        let reason = format!("{}. {advice}", self.contents.damage);
        Error::other(self.instance.journal().display().to_string(), reason)
    }

    /// Prepares the file for new lines. Returns the instance, the file, and the contents about the current
    /// namespace.
    pub(super) fn start(mut self) -> Result<(Instance, File, Contents), Error> {
        match self.origin {
            Origin::Here => {}
            Origin::Elsewhere => {
                (self.contents.entries, self.contents.damage) = (Vec::new(), Damage::default());
            }
            Origin::Unknown => {
                return Err(self.damage_error(
                    "It is unknown whether this file is about the current network namespace, so nothing was \
                     undone: remove it when nothing of its instance is left",
                ));
            }
        }
        self.put_right().map_err(|error| {
            let path = self.instance.journal();
            if self.contents.entries.is_empty() && self.contents.damage.is_empty() {
                // Otherwise a file without contents would stay. The first error is the one to report.
                let _ = fs::remove_file(&path);
            }
            file_error(&path, error)
        })?;
        Ok((self.instance, self.file, self.contents))
    }

    /// Removes an incomplete line, which would corrupt the next one, and everything about another namespace.
    fn put_right(&mut self) -> io::Result<()> {
        let is_kept = self.origin == Origin::Here && self.contents.len > 0;
        self.file.set_len(if is_kept { self.contents.len } else { 0 })?;
        let first = if is_kept { String::new() } else { format!("{FIRST_LINE}\n") };
        let namespace = self.here.as_ref().filter(|_| !is_kept || self.contents.namespace.is_none());
        let namespace = namespace.map_or(String::new(), |namespace| format!("{namespace}\n"));
        self.file.write_all((first + &namespace).as_bytes())
    }
}

/// Where the changes of a journal were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// In the current network namespace.
    Here,
    /// In a namespace that has ended.
    Elsewhere,
    /// The line that names the namespace may be damaged.
    Unknown,
}

/// Where the changes were made. If the journal or the kernel does not tell, the guard in the journal shows
/// it.
fn origin(contents: &Contents, here: Option<&NetnsId>, instance: &Instance) -> Result<Origin, Error> {
    let is_damaged = !contents.damage.is_empty();
    let is_here = match (&contents.namespace, here) {
        (Some(there), Some(here)) => return Ok(if there == here { Origin::Here } else { Origin::Elsewhere }),
        // The line of the guard may be damaged, too.
        _ => (is_damaged || contents.names_guard()) && has_guard(instance.tun())?,
    };
    Ok(match (is_here, is_damaged) {
        (true, _) => Origin::Here,
        (false, false) => Origin::Elsewhere,
        (false, true) => Origin::Unknown,
    })
}

/// Opens and locks a journal; `None` if its owner is alive.
pub(super) fn lock(path: &Path) -> Result<Option<File>, Error> {
    // The owner may have removed the file before it released the lock. Then this file is not the one at the
    // path any more.
    for _ in 0..16 {
        let file = private_file::open(
            path,
            File::options().read(true).append(true).create(true),
            OthersAccess::None,
        )
        .map_err(|error| file_error(path, error))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(file_error(path, error)),
            Ok(()) => {}
        }
        let locked = file.metadata().map_err(|error| file_error(path, error))?.ino();
        if std::fs::metadata(path).is_ok_and(|there| there.ino() == locked) {
            return Ok(Some(file));
        }
    }
    Err(Error::other(path.display().to_string(), "another process keeps removing this file"))
}
