//! Testbeds: hosts in network namespaces, links between them, and programs that run on them.
//!
//! [`Netns`] is a network namespace that ends with its owner. [`run`] and [`Background`] run programs in it.
//! A [`VethPair`](veth_pair::VethPair) joins two namespaces, and a [`Gateway`](gateway::Gateway) is `casemate
//! run` in one of them. [`Guest`] is a Linux kernel under QEMU without hardware virtualisation; its ESP and
//! AH are available even if the host's kernel has none. [`Firmware`] is Casemate without an operating system
//! under QEMU. [`build_in_checkout`] and [`obtain_kernel`] obtain their images. Dropping a value releases
//! everything that it has created.

mod checkout_build;
pub mod file_downloads;
mod firmware;
pub mod gateway;
pub mod governor;
mod guest;
mod kernel_package;
mod netns;
pub mod packet_rate;
mod process;
pub mod slow_process;
pub mod sys;
pub mod tcp_transfer;
pub mod veth_pair;

pub use checkout_build::{build_in_checkout, find_cargo, find_checkout};
pub use firmware::{Firmware, FirmwareSpec};
pub use gateway::CpuFeatureMask;
pub use guest::{Guest, GuestImages, GuestNetwork, InitrdContent};
pub use kernel_package::{check_download_programs, obtain_kernel, unpacked_kernel};
pub use netns::{Netns, is_root};
pub use process::{Background, Meter, Output, run};
pub use sys::Tun;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fmt, fs};

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error message that names the object and the cause.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// Creates an error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Returns a function that prefixes another error with `context`.
    pub fn context<E: fmt::Display>(context: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{context}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Number of temporary directories that this process has tried to create.
static TEMP_DIRS: AtomicU32 = AtomicU32::new(0);
/// Maximum of [`TEMP_DIRS`], so that a search for a free name ends.
const MAX_TEMP_DIRS: u32 = 100_000;

/// A temporary directory, which is removed with its contents on drop.
///
/// It is in the temporary directory of the system, because the path of a Unix socket has a maximum length.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates an empty directory with `name` in its path. It skips the directories of a killed process that
    /// had the same process ID.
    pub fn new(name: &str) -> Result<Self> {
        loop {
            let count = TEMP_DIRS.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("casemate-{name}-{}-{count}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && count < MAX_TEMP_DIRS => {}
                Err(error) => return Err(Error::context(path.display())(error)),
            }
        }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file in the directory. The file need not exist.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{}: cannot remove the directory: {error}", self.0.display());
        }
    }
}

/// Writes an executable shell script. The program `install` writes it: a child of another thread could
/// inherit a descriptor of this process, and Linux does not execute a file that is open for writing.
#[cfg(test)]
fn write_script(path: &Path, script: &str) {
    let text = path.with_extension("text");
    fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
    let install = std::process::Command::new("install").args(["-m", "755"]).args([&text, path]).status();
    assert!(install.unwrap().success());
    fs::remove_file(text).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_empty_at_first_and_removed_on_drop() {
        let (one, other) = (TempDir::new("scratch").unwrap(), TempDir::new("scratch").unwrap());
        assert_ne!(one.path(), other.path());
        fs::create_dir(one.file("deep")).unwrap();
        fs::write(one.file("deep/file"), "text").unwrap();
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
        let paths = [one.path(), other.path()].map(Path::to_path_buf);
        drop((one, other));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn directory_is_removed_after_a_panic() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let fails = move || {
            let scratch = TempDir::new("scratch-fails").unwrap();
            fs::write(scratch.file("file"), "text").unwrap();
            sender.send(scratch.path().to_path_buf()).unwrap();
            panic!("expected panic");
        };
        assert!(std::thread::spawn(fails).join().is_err());
        assert!(!receiver.recv().unwrap().exists());
    }

    #[test]
    fn directory_of_a_killed_process_is_not_reused() {
        let next = TEMP_DIRS.load(Ordering::Relaxed);
        let left = std::env::temp_dir().join(format!("casemate-scratch-left-{}-{next}", std::process::id()));
        fs::create_dir(&left).unwrap();
        let scratch = TempDir::new("scratch-left").unwrap();
        assert_ne!(scratch.path(), left);
        fs::remove_dir(left).unwrap();
    }
}
