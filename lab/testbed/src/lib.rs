//! Testbeds: hosts in network namespaces, links between them, and programs that run on them.
//!
//! [`Netns`] is a network namespace that ends with its owner. [`run`] and [`Background`] run programs in it.
//! A [`VethPair`](veth_pair::VethPair) joins two namespaces, and a [`Gateway`](gateway::Gateway) is `casemate
//! run` in one of them. [`Guest`] is a Linux kernel under QEMU without hardware virtualisation; its ESP and
//! AH are available even if the host's kernel has none. [`Firmware`] is Casemate without an operating system
//! under QEMU. Dropping a value releases everything that it has created.

mod firmware;
pub mod gateway;
pub mod governor;
mod guest;
mod netns;
pub mod packet_rate;
mod process;
pub mod sys;
pub mod tcp_transfer;
pub mod veth_pair;

pub use firmware::{Firmware, FirmwareSpec};
pub use gateway::CpuFeatureMask;
pub use guest::{Guest, GuestImages, GuestNetwork, InitrdContent};
pub use netns::{Netns, is_root};
pub use process::{Background, Meter, Output, run};
pub use sys::Tun;

use std::fmt;
use std::path::{Path, PathBuf};

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

/// A temporary directory that is removed on drop. It is below /tmp because the path of a Unix socket must be
/// short.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates a directory for the program of this name.
    pub fn new(program: &str) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("casemate-{program}.{}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
        Ok(Self(directory))
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A directory that cannot be removed does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
