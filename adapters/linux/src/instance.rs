//! Where an instance keeps the files that others look for: its journal and its control socket.
//!
//! An instance is named after its network namespace and its TUN interface. No two living ones share these: the
//! kernel makes an interface once, wherever instances keep their files. The number of a namespace may be used
//! again, so the journal says more (`namespace.rs`).

use crate::{Error, private, sys};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The files of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    directory: PathBuf,
    stem: String,
}

impl Instance {
    /// The instance with this TUN interface in the present network namespace. Makes the directory for its files.
    pub fn new(tun: &str) -> Result<Self, Error> {
        let stem = format!("{}{tun}", namespace_prefix()?);
        let mut refusal = None;
        for directory in directories() {
            match prepare(&directory) {
                Ok(()) => return Ok(Self { directory, stem }),
                Err(error) => refusal = refusal.or(Some(Error::new(directory.display().to_string(), error))),
            }
        }
        Err(refusal.unwrap_or_else(|| Error::other("run-time directory", "there is none")))
    }

    /// With files of its own choice.
    #[cfg(test)]
    pub(crate) fn at(directory: &Path, tun: &str) -> Self {
        Self { directory: directory.into(), stem: format!("{}{tun}", namespace_prefix().unwrap()) }
    }

    /// The instances of the present network namespace that have a control socket, running or not.
    pub fn all() -> Result<Vec<Self>, Error> {
        let prefix = namespace_prefix()?;
        let mut instances: Vec<Self> = Vec::new();
        // Others are another user's, who could pass off a server as an instance.
        for directory in directories().into_iter().filter(|directory| check(directory).is_ok()) {
            for name in file_names(&directory) {
                let stem = name.strip_suffix(SOCKET).filter(|stem| stem.starts_with(&prefix));
                instances.extend(stem.map(|stem| Self { directory: directory.clone(), stem: stem.into() }));
            }
        }
        Ok(instances)
    }

    /// Name of its TUN interface.
    pub fn tun(&self) -> &str {
        self.stem.split_once('-').map_or("", |(_, tun)| tun)
    }

    /// Its control socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(format!("{}{SOCKET}", self.stem))
    }

    /// What it changed in the system.
    pub fn journal(&self) -> PathBuf {
        self.directory.join(format!("{}{JOURNAL}", self.stem))
    }

    /// The journals of other instances in the same directory and network namespace.
    pub(crate) fn other_journals(&self) -> Vec<PathBuf> {
        let prefix = self.stem.split_inclusive('-').next().unwrap_or_default();
        let own = format!("{}{JOURNAL}", self.stem);
        let names = file_names(&self.directory).into_iter();
        let others = names.filter(|name| name.starts_with(prefix) && name.ends_with(JOURNAL) && *name != own);
        others.map(|name| self.directory.join(name)).collect()
    }

    /// The traffic that it has promised to keep off the wire in clear.
    pub(crate) fn promises(&self) -> PathBuf {
        self.directory.join(format!("{}{PROMISES}", self.stem))
    }
}

const SOCKET: &str = ".sock";
const JOURNAL: &str = ".journal";
const PROMISES: &str = ".promises";

/// A living namespace is known by the number of its file.
fn namespace_prefix() -> Result<String, Error> {
    const PATH: &str = "/proc/thread-self/ns/net";
    let metadata = fs::metadata(PATH).map_err(|error| Error::new(PATH, error))?;
    Ok(format!("net{}-", metadata.ino()))
}

/// Where the files may be, the usual place first. The others are for users who are root in their own namespace only.
fn directories() -> Vec<PathBuf> {
    let mut directories = vec![PathBuf::from("/run/casemate")];
    directories.extend(std::env::var_os("XDG_RUNTIME_DIR").map(|base| Path::new(&base).join("casemate")));
    directories.push(std::env::temp_dir().join(format!("casemate-{}", sys::effective_user())));
    directories
}

/// Makes the directory, or checks the one that is there.
fn prepare(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check(directory)
}

/// Checks that only root and this user can enter the directory, and that no other user can put another one in its place.
fn check(directory: &Path) -> io::Result<()> {
    private::check_directory(directory)?;
    directory.parent().map_or(Ok(()), private::check_parent)
}

fn file_names(directory: &Path) -> Vec<String> {
    // A directory that is not there holds nothing.
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_directory_is_refused() {
        let scratch = casemate_scratch::Scratch::new("instance");
        let base = scratch.file("base");
        prepare(&base).unwrap();
        prepare(&base).unwrap();
        let mut permissions = fs::metadata(&base).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
        fs::set_permissions(&base, permissions).unwrap();
        assert!(prepare(&base).is_err());
        let link = scratch.file("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        assert!(prepare(&link).is_err());
    }
}
