//! The file /etc/resolv.conf, for a host on which no program manages name servers.
//!
//! The changed file takes the place of the former one, which gets the name `resolv.conf.casemate`: the kernel
//! exchanges the two names at once, so the former file keeps its contents, owner and mode, and a symbolic
//! link stays one. The process that changed the file holds a lock on it. So a later run can tell what a
//! killed run has left, also after a reboot, when there is no journal any more.
//!
//! The first lines of the changed file have a checksum. A file that does not match belongs to another
//! program, and is left alone. If another program has only added lines, they are kept in the former file.
//!
//! In a container the file is often a mount, whose name the kernel does not exchange. Then the former file is
//! a copy, and the contents change in place.

use super::DnsSettings;
use crate::Error;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MARK: &str = "# Casemate has set the name servers of its tunnels here.";
const CHECKSUM: &str = "# checksum ";
const WAS_ABSENT: &str = "# There was no such file before.";
/// Lines that Casemate writes, at most, besides its mark.
const MAX_OWN_LINES: usize = 64;
/// Longest file that is read, in bytes.
const MAX_LEN: u64 = 64 << 10;
/// Time for the end of a killed process that holds the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The lines of these settings: servers, and domains for names of one label. The file cannot limit servers to
/// domains, so they are asked for all names.
pub(super) fn lines(settings: &DnsSettings) -> String {
    let mut text = String::new();
    for server in &settings.servers {
        let _ = writeln!(text, "nameserver {server}");
    }
    if !settings.domains.is_empty() {
        let domains: Vec<&str> = settings.domains.iter().map(|domain| domain.as_str()).collect();
        let _ = writeln!(text, "search {}", domains.join(" "));
    }
    text
}

/// The file, and the names that it has meanwhile.
#[derive(Debug)]
pub(super) struct ResolvConf {
    path: PathBuf,
    /// The former file, while the changed one is in its place.
    former: PathBuf,
    /// Name for the contents that are being written.
    fresh: PathBuf,
    /// What remains of the former file if another program has replaced the changed one.
    kept: PathBuf,
    /// The changed file, locked.
    lock: Option<File>,
}

/// Whose file this is.
enum Owner {
    /// There is no file.
    Absent,
    /// Casemate wrote it, and no other program has changed it.
    Casemate {
        was_absent: bool,
    },
    /// Casemate wrote it, and another program has added these lines.
    Extended {
        was_absent: bool,
        added: String,
    },
    Other,
}

impl ResolvConf {
    /// The file of this host.
    pub(super) fn of_system() -> Self {
        Self::in_directory(super::etc())
    }

    fn in_directory(directory: &Path) -> Self {
        let path = |name: &str| directory.join(name);
        Self {
            path: path("resolv.conf"),
            former: path("resolv.conf.casemate"),
            fresh: path("resolv.conf.casemate-new"),
            kept: path("resolv.conf.before-casemate"),
            lock: None,
        }
    }

    /// Writes the settings. An error if another process of Casemate has changed the file, or another program
    /// has changed it since.
    pub(super) fn set(&mut self, settings: &DnsSettings) -> Result<(), Error> {
        let owner = self.owner()?;
        match (&owner, &self.lock) {
            (Owner::Casemate { was_absent }, Some(_)) => self.replace_own(settings, *was_absent),
            (Owner::Casemate { .. }, None) => {
                // What a killed run has left, or the file of another instance.
                self.restore_former()?;
                match self.owner()? {
                    Owner::Casemate { .. } => {
                        Err(self.error("another instance of Casemate has set its name servers"))
                    }
                    _ => self.set(settings),
                }
            }
            (_, Some(_)) => Err(self.error("another program has changed it")),
            (Owner::Absent, None) => self.replace(settings, true),
            (Owner::Extended { .. }, None) => {
                self.restore_former()?;
                match self.owner()? {
                    Owner::Extended { .. } => Err(self.error("another program has changed it")),
                    _ => self.set(settings),
                }
            }
            (Owner::Other, None) => self.replace(settings, false),
        }
    }

    /// Puts the former file back, if this process has changed it. Returns a warning if another program has
    /// changed the file meanwhile; then it stays, unless lines were only added.
    pub(super) fn restore(&mut self) -> Result<Option<String>, Error> {
        match self.lock.take() {
            Some(_lock) => self.put_back(),
            None => Ok(None),
        }
    }

    /// Puts the former file back that a killed run has left. Does nothing if a live process has changed it.
    pub(super) fn restore_former(&self) -> Result<Option<String>, Error> {
        if let Owner::Casemate { .. } | Owner::Extended { .. } = self.owner()? {
            match self.lock_file()? {
                Some(_lock) => self.put_back(),
                None => Ok(None),
            }
        } else {
            // Killed between two steps, or another program has replaced the file.
            match owner_of(&self.former).map_err(|error| failed(&self.former, error))? {
                Owner::Absent => Ok(None),
                Owner::Casemate { .. } => remove(&self.former).map(|()| None),
                Owner::Extended { .. } | Owner::Other => self.put_back(),
            }
        }
    }

    fn owner(&self) -> Result<Owner, Error> {
        owner_of(&self.path).map_err(|error| failed(&self.path, error))
    }

    /// Locks the file, once a process that is about to end has released it; `None` if a live process holds
    /// it.
    fn lock_file(&self) -> Result<Option<File>, Error> {
        let file = File::open(&self.path).map_err(|error| failed(&self.path, error))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(error)) => return Err(failed(&self.path, error)),
                Err(TryLockError::WouldBlock) if start.elapsed() > LOCK_TIMEOUT => return Ok(None),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Puts the settings in the place of a file of the system.
    fn replace(&mut self, settings: &DnsSettings, was_absent: bool) -> Result<(), Error> {
        // Something that a run between two steps has left.
        remove(&self.former)?;
        let file = write(&self.former, &self.contents(settings, was_absent))?;
        let done = if was_absent {
            fs::rename(&self.former, &self.path)
        } else {
            renameat_with(CWD, &self.former, CWD, &self.path, RenameFlags::EXCHANGE).map_err(io::Error::from)
        };
        match done {
            Ok(()) => self.lock = Some(file),
            Err(error) => {
                let _ = fs::remove_file(&self.former);
                if error.kind() != ErrorKind::ResourceBusy {
                    return Err(failed(&self.path, error));
                }
                self.lock = Some(self.replace_contents(settings)?);
            }
        }
        Ok(())
    }

    /// Writes the settings into a file that is a mount, after its contents were copied. Returns the locked
    /// file.
    fn replace_contents(&self, settings: &DnsSettings) -> Result<File, Error> {
        let opened = OpenOptions::new().read(true).write(true).open(&self.path);
        let file = opened.map_err(|error| failed(&self.path, error))?;
        file.try_lock().map_err(|error| failed(&self.path, error.into()))?;
        let copied = fs::copy(&self.path, &self.fresh).and_then(|_| File::open(&self.fresh)?.sync_all());
        let renamed = copied.and_then(|()| fs::rename(&self.fresh, &self.former));
        renamed.map_err(|error| failed(&self.former, error))?;
        let written = fs::write(&self.path, self.contents(settings, false)).and_then(|()| file.sync_all());
        written.map_err(|error| {
            // The first error is the one to report.
            let _ = take_place(&self.former, &self.path);
            failed(&self.path, error)
        })?;
        Ok(file)
    }

    /// Puts the settings in the place of former ones.
    fn replace_own(&mut self, settings: &DnsSettings, was_absent: bool) -> Result<(), Error> {
        let file = write(&self.fresh, &self.contents(settings, was_absent))?;
        if take_place(&self.fresh, &self.path)? {
            self.lock = Some(file);
        }
        Ok(())
    }

    fn contents(&self, settings: &DnsSettings, was_absent: bool) -> String {
        let mut body = if was_absent {
            format!("{WAS_ABSENT}\n")
        } else {
            format!("# The former file is {}.\n", self.former.display())
        };
        body.push_str("# It is restored at the end of `casemate run`, or with `casemate cleanup`.\n");
        body.push_str(&lines(settings));
        format!("{MARK}\n{CHECKSUM}{}\n{body}", checksum(&body))
    }

    /// Puts the former file back.
    fn put_back(&self) -> Result<Option<String>, Error> {
        remove(&self.fresh)?;
        let former = fs::symlink_metadata(&self.former);
        let is_there = former.is_ok();
        match self.owner()? {
            Owner::Casemate { was_absent: true } => remove(&self.path).map(|()| None),
            Owner::Casemate { was_absent: false } if is_there => {
                take_place(&self.former, &self.path).map(|_| None)
            }
            Owner::Casemate { was_absent: false } => {
                self.set_contents("")?;
                Ok(Some(format!(
                    "{}: another program has removed this file, which had the name servers before the \
                     tunnels, so {} has none now: write them into it again",
                    self.former.display(),
                    self.path.display()
                )))
            }
            Owner::Extended { was_absent: true, added } => self.set_contents(&added).map(|()| None),
            Owner::Extended { was_absent: false, added } if former.is_ok_and(|former| former.is_file()) => {
                let opened = OpenOptions::new().append(true).open(&self.former);
                let appended = opened.and_then(|mut file| file.write_all(added.as_bytes()));
                appended.map_err(|error| failed(&self.former, error))?;
                take_place(&self.former, &self.path).map(|_| None)
            }
            Owner::Absent | Owner::Other | Owner::Extended { .. } => {
                if fs::symlink_metadata(&self.former).is_err() {
                    return Ok(Some(format!(
                        "{}: another program has changed it, so it stays",
                        self.path.display()
                    )));
                }
                fs::rename(&self.former, &self.kept).map_err(|error| failed(&self.former, error))?;
                Ok(Some(format!(
                    "{}: another program has changed it, so it stays; the file before the tunnels is {}",
                    self.path.display(),
                    self.kept.display()
                )))
            }
        }
    }

    /// Replaces the file by one with these contents.
    fn set_contents(&self, contents: &str) -> Result<(), Error> {
        write(&self.fresh, contents)?;
        take_place(&self.fresh, &self.path).map(drop)
    }

    fn error(&self, reason: &str) -> Error {
        Error::other(self.path.display().to_string(), reason)
    }
}

fn owner_of(path: &Path) -> io::Result<Owner> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Owner::Absent),
        metadata => metadata?,
    };
    if !metadata.is_file() {
        return Ok(Owner::Other);
    }
    let mut text = Vec::new();
    File::open(path)?.take(MAX_LEN).read_to_end(&mut text)?;
    Ok(parse(&String::from_utf8_lossy(&text)).unwrap_or(Owner::Other))
}

/// `None` if Casemate has not written this text.
fn parse(text: &str) -> Option<Owner> {
    let (sum, body) =
        text.strip_prefix(MARK)?.strip_prefix('\n')?.strip_prefix(CHECKSUM)?.split_once('\n')?;
    let was_absent = body.starts_with(WAS_ABSENT);
    if sum == checksum(body) {
        return Some(Owner::Casemate { was_absent });
    }
    // Where the lines of Casemate end is only known by the checksum.
    let ends =
        body.match_indices('\n').take(MAX_OWN_LINES).map(|(end, _)| body.split_at(end.saturating_add(1)));
    let mut added = ends.filter(|(own, _)| sum == checksum(own)).map(|(_, added)| added.to_owned());
    added.next().map(|added| Owner::Extended { was_absent, added })
}

fn checksum(body: &str) -> String {
    Sha256::digest(body.as_bytes()).iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Writes a new file that everyone may read, and locks it.
fn write(path: &Path, contents: &str) -> Result<File, Error> {
    remove(path)?;
    let created = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
    let written = created.and_then(|mut file| {
        file.try_lock().map_err(io::Error::from)?;
        file.write_all(contents.as_bytes())?;
        file.sync_all()?;
        Ok(file)
    });
    written.map_err(|error| failed(path, error))
}

/// Gives `from` the name `to`, or, if that is a mount, moves its contents there. Returns whether it is the
/// file `from` that has the name now.
fn take_place(from: &Path, to: &Path) -> Result<bool, Error> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            fs::copy(from, to).map_err(|error| failed(to, error))?;
            remove(from).map(|()| false)
        }
        renamed => renamed.map(|()| true).map_err(|error| failed(to, error)),
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(path, error)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::new(path.display().to_string(), error)
}

#[cfg(test)]
mod tests;
