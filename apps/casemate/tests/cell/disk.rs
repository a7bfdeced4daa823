//! Space for the data of the servers: a quota, or a small disk of each server, which can be filled.
//!
//! A disk is a file system in memory, in a mount namespace of its own. It ends with the test.

use crate::testnet::Host;
use casemate_test_support::{Process, Program};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much space each server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Unlimited,
    /// Bytes of data, at which a server refuses writes.
    Quota(usize),
    /// Size of a disk in MiB.
    Disk(usize),
}

impl Space {
    /// Options of a server.
    pub(crate) fn options(self) -> Vec<String> {
        match self {
            Self::Quota(bytes) => vec!["--quota-backend-bytes".into(), bytes.to_string()],
            Self::Unlimited | Self::Disk(_) => Vec::new(),
        }
    }
}

/// The disk of a server.
pub(crate) struct Disk {
    /// Holds the mount namespace.
    holder: Process,
    /// Where it is mounted.
    directory: PathBuf,
}

impl Disk {
    /// Mounts a disk for the data of a server, if it is to have one.
    pub(crate) fn mount(host: &Host, space: Space) -> Option<Self> {
        let Space::Disk(size) = space else { return None };
        let directory = host.file("disk");
        fs::create_dir(&directory).unwrap();
        let script = "mount -t tmpfs -o size=$1 tmpfs \"$2\" && mkdir \"$2/data\" && chmod 700 \"$2/data\" && \
                      echo ready && exec sleep 3600";
        let program = Program::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
            .arg(format!("{size}m"))
            .arg(&directory);
        let mut holder = program.log_to(&host.file("mount")).start_with(|command| host.netns.spawn(command));
        holder.wait_for_line("ready", Duration::from_secs(10));
        Some(Self { holder, directory })
    }

    /// Where the server finds the data.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// A program that sees the disk.
    pub(crate) fn program(&self, path: &Path) -> Program {
        Program::new("nsenter").arg(format!("--mount=/proc/{}/ns/mnt", self.holder.pid())).arg(path)
    }

    /// The file that fills the disk, as the test sees it.
    fn filler(&self) -> PathBuf {
        let inside = self.directory.join("filler");
        Path::new(&format!("/proc/{}/root", self.holder.pid())).join(inside.strip_prefix("/").unwrap())
    }

    /// Fills the disk.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.filler()).unwrap();
        let block = [b'f'; 4_096];
        while file.write_all(&block).is_ok() {}
    }

    /// Makes the space free again.
    pub(crate) fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}
