//! Paths of the files of an instance: its journal, its protected traffic and its control socket.
//!
//! An instance is named after its network namespace and its TUN interface. No two live instances share both:
//! the kernel creates an interface only once, wherever instances keep their files. The number of a namespace
//! may be used again, so the journal contains a `NetnsId`, too.

use crate::private_file::{self, SERVICE_DIRECTORY};
use crate::{Error, sys};
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The files of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    directory: PathBuf,
    /// Prefix of the file names, which identifies the network namespace.
    prefix: String,
    tun: String,
}

impl Instance {
    /// The instance with this TUN interface in the current network namespace. Creates the directory for its
    /// files.
    pub fn new(tun: &str) -> Result<Self, Error> {
        let (prefix, tun) = (namespace_prefix()?, tun.to_owned());
        let mut refusal = None;
        for directory in directories() {
            match prepare(&directory) {
                Ok(()) => return Ok(Self { directory, prefix, tun }),
                Err(error) => refusal = refusal.or(Some(Error::new(directory.display().to_string(), error))),
            }
        }
        Err(refusal.unwrap_or_else(|| Error::other("run-time directory", "there is none")))
    }

    /// An instance with files in this directory.
    #[cfg(test)]
    pub(crate) fn at(directory: &Path, tun: &str) -> Self {
        Self { directory: directory.into(), prefix: namespace_prefix().unwrap(), tun: tun.into() }
    }

    /// The instances of the current network namespace that have a control socket, running or not.
    pub fn all() -> Result<Vec<Self>, Error> {
        Self::with_file(SOCKET)
    }

    /// The instances of the current network namespace that have a journal: they run, or have ended without
    /// undoing their changes.
    pub fn with_journal() -> Result<Vec<Self>, Error> {
        Self::with_file(JOURNAL)
    }

    /// The instances of the current network namespace that have a file with this suffix.
    fn with_file(suffix: &str) -> Result<Vec<Self>, Error> {
        let prefix = namespace_prefix()?;
        let mut instances: Vec<Self> = Vec::new();
        // Another user owns the other directories, and could offer a control socket of their own there.
        for directory in directories().into_iter().filter(|directory| check(directory).is_ok()) {
            for name in file_names(&directory)? {
                let tun = name.strip_suffix(suffix).and_then(|stem| stem.strip_prefix(&prefix));
                let (directory, prefix) = (&directory, &prefix);
                instances.extend(tun.map(|tun| Self {
                    directory: directory.clone(),
                    prefix: prefix.clone(),
                    tun: tun.into(),
                }));
            }
        }
        Ok(instances)
    }

    /// Name of the TUN interface.
    pub fn tun(&self) -> &str {
        &self.tun
    }

    /// Path of the control socket.
    pub fn control_socket(&self) -> PathBuf {
        self.file(SOCKET)
    }

    /// Path of the journal.
    pub fn journal(&self) -> PathBuf {
        self.file(JOURNAL)
    }

    /// Paths of the journals of other instances in the same directory and network namespace. An error if the
    /// directory cannot be read.
    pub(crate) fn other_journals(&self) -> Result<Vec<PathBuf>, Error> {
        let names = file_names(&self.directory)?.into_iter();
        let journals = names.filter(|name| name.starts_with(&self.prefix) && name.ends_with(JOURNAL));
        let paths = journals.map(|name| self.directory.join(name));
        Ok(paths.filter(|path| *path != self.journal()).collect())
    }

    /// Directory of files that survive a reboot: the state directory of the service, or `/var/lib/casemate`
    /// for a program of root. If it does not exist or other users may enter it, the directory of the journal,
    /// whose files survive the end of the process only.
    pub fn lasting_directory(&self) -> PathBuf {
        let of_root = || (self.directory == Path::new(SERVICE_DIRECTORY)).then(|| LASTING.into());
        let lasting = std::env::var_os(STATE_DIRECTORY).map(PathBuf::from).or_else(of_root);
        let is_usable = |directory: &PathBuf| directory.is_absolute() && check(directory).is_ok();
        lasting.filter(is_usable).unwrap_or_else(|| self.directory.clone())
    }

    /// Path of the file of protected traffic.
    pub(crate) fn protected_traffic_file(&self) -> PathBuf {
        self.file(PROTECTED_TRAFFIC)
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.file_in(&self.directory, suffix)
    }

    /// Path of a file of this instance in a directory.
    pub(crate) fn file_in(&self, directory: &Path, suffix: &str) -> PathBuf {
        directory.join(format!("{}{}{suffix}", self.prefix, self.tun))
    }
}

/// Variable with the state directory of a service (systemd.exec(5)).
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";
/// The same directory, for a program that is not started as a service.
const LASTING: &str = "/var/lib/casemate";

const SOCKET: &str = ".sock";
const JOURNAL: &str = ".journal";
const PROTECTED_TRAFFIC: &str = ".promises";

/// Prefix of the file names: the inode number of a live namespace is unique.
fn namespace_prefix() -> Result<String, Error> {
    const PATH: &str = "/proc/thread-self/ns/net";
    let metadata = fs::metadata(PATH).map_err(|error| Error::new(PATH, error))?;
    Ok(format!("net{}-", metadata.ino()))
}

/// Candidates for the directory, the usual one first. The others are for users who are root only in their own
/// namespace.
fn directories() -> Vec<PathBuf> {
    let mut directories = vec![PathBuf::from(SERVICE_DIRECTORY)];
    directories.extend(std::env::var_os("XDG_RUNTIME_DIR").map(|base| Path::new(&base).join("casemate")));
    directories.push(std::env::temp_dir().join(format!("casemate-{}", sys::effective_user())));
    directories
}

/// Creates the directory, or checks the existing one.
fn prepare(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check(directory)
}

/// Checks that only root and this user can enter the directory, and that no other user can replace it.
pub(crate) fn check(directory: &Path) -> io::Result<()> {
    private_file::check_directory(directory)?;
    directory.parent().map_or(Ok(()), private_file::check_parent)
}

/// Names of the files in a directory. A directory that does not exist contains nothing.
fn file_names(directory: &Path) -> Result<Vec<String>, Error> {
    let read = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            // The names of our files are UTF-8.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(|error| Error::new(directory.display().to_string(), error)),
    }
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// First word of its line in a journal.
const WORD: &str = "namespace";

/// Identifies a network namespace for ever.
///
/// The inode number of a namespace (`/proc/self/ns/net`) is used again after the namespace has ended, so it
/// does not suffice. The kernel also gives each namespace a number that it does not use again until the next
/// boot (SO_NETNS_COOKIE, Linux 5.14). Together with the number of the boot (`boot_id`) it is unique.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetnsId {
    boot: String,
    cookie: u64,
}

impl NetnsId {
    /// The namespace of the calling thread; `None` if the kernel does not tell.
    pub(crate) fn present() -> Result<Option<Self>, Error> {
        let boot = match fs::read_to_string(BOOT_ID) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            boot => boot.map_err(|error| Error::new(BOOT_ID, error))?.trim().to_owned(),
        };
        let cookie = UnixDatagram::unbound().and_then(|socket| sys::netns_cookie(socket.as_fd()));
        match cookie {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
            cookie => {
                let cookie = cookie.map_err(|error| Error::new("SO_NETNS_COOKIE", error))?;
                Ok(Some(Self { boot, cookie }))
            }
        }
    }
}

impl fmt::Display for NetnsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD} {} {}", self.boot, self.cookie)
    }
}

impl FromStr for NetnsId {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            [WORD, boot, cookie] => {
                Ok(Self { boot: (*boot).into(), cookie: cookie.parse().map_err(|_| ())? })
            }
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;

    #[test]
    fn a_shared_directory_is_rejected() {
        let scratch = casemate_test_support::TempDir::new("instance").unwrap();
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

    #[test]
    #[ignore = "a_state_directory_of_others_is_not_used starts it as a process of its own"]
    fn prints_its_lasting_directory() {
        let instance = Instance::at(Path::new("/nowhere/run"), "tun5");
        println!("lasting: {}", instance.lasting_directory().display());
    }

    #[test]
    fn a_state_directory_of_others_is_not_used() {
        let scratch = casemate_test_support::TempDir::new("lasting").unwrap();
        let state = scratch.file("state");
        let lasting_with = |state: &str| {
            let program = casemate_test_support::Program::new(std::env::current_exe().unwrap())
                .args([
                    "--ignored",
                    "--exact",
                    "--nocapture",
                    "instance::tests::prints_its_lasting_directory",
                ])
                .env(STATE_DIRECTORY, state);
            let output = String::from_utf8(program.output().stdout).unwrap();
            let (_, found) = output.split_once("lasting: ").unwrap_or_else(|| panic!("{output}"));
            found.lines().next().unwrap().to_owned()
        };
        let path = state.to_str().unwrap();
        assert_eq!(lasting_with(path), "/nowhere/run", "it does not exist");
        prepare(&state).unwrap();
        assert_eq!(lasting_with(path), path);
        assert_eq!(lasting_with("state"), "/nowhere/run");
        fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(lasting_with(path), "/nowhere/run");
    }

    #[test]
    fn namespaces_are_unique_and_stable() {
        let Some(here) = NetnsId::present().unwrap() else {
            return casemate_test_support::skip("SO_NETNS_COOKIE: this kernel has none");
        };
        assert_eq!(here.to_string().parse(), Ok(here.clone()));
        assert_eq!(NetnsId::present().unwrap().as_ref(), Some(&here));
        for line in ["", "namespace", "namespace x", "namespace x y", "namespace x 1 2", "guard x 1"] {
            assert!(line.parse::<NetnsId>().is_err(), "{line}");
        }
        let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
        assert_ne!(netns.run(NetnsId::present).unwrap().unwrap(), Some(here));
    }
}
