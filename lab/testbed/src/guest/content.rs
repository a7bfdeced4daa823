//! Programs of the host in an initramfs, with the shared libraries that they need.

use super::cpio::Archive;
use crate::{Error, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Content of an initramfs besides modules and busybox: iproute2, the agent, and programs of the host.
#[derive(Debug, Clone)]
pub struct InitrdContent {
    /// File name of the initramfs in the cache.
    pub(super) name: String,
    /// The agent, a shell script that init executes last: see [`new`](Self::new).
    pub(super) agent: String,
    /// Kernel modules in addition to those of every guest.
    pub(super) modules: Vec<String>,
    /// Path in the guest, and file on the host.
    files: Vec<(String, PathBuf)>,
}

impl InitrdContent {
    /// Creates an initramfs with iproute2, one program of the host, and an agent. The agent is a script that
    /// starts when the network interface is up and never ends. It reports that it is ready by writing two
    /// lines to /dev/vport*p1: `0 6` and `ready`.
    pub fn new(agent: &str, program: (&str, &Path)) -> Result<Self> {
        let (path, program) = program;
        let files = vec![("sbin/ip".into(), which("ip")?), (path.into(), program.into())];
        Ok(Self {
            name: "initrd".into(),
            agent: format!("#!/bin/busybox sh\n{agent}"),
            modules: Vec::new(),
            files,
        })
    }

    /// Adds kernel modules and their dependencies.
    pub fn with_modules(mut self, names: &[&str]) -> Self {
        self.modules.extend(names.iter().map(|name| (*name).to_owned()));
        self
    }

    /// Adds programs and plugins of the host at the same paths. The initramfs is cached under `name`.
    pub fn with_programs(mut self, name: &str, programs: impl IntoIterator<Item = PathBuf>) -> Self {
        self.name = format!("initrd-{name}");
        self.files.extend(programs.into_iter().map(|program| (guest_path(&program), program)));
        self
    }

    /// Adds the programs to the archive, and each library once.
    pub(super) fn add_to(&self, archive: &mut Archive) -> Result<()> {
        archive.add_file("agent", self.agent.as_bytes());
        let mut seen = Vec::new();
        for (path, program) in &self.files {
            archive.add_file(path, &read(program)?);
            for library in libraries(program)? {
                if !seen.contains(&library) {
                    archive.add_file(&guest_path(&library), &read(&library)?);
                    seen.push(library);
                }
            }
        }
        Ok(())
    }

    /// Fingerprint of the content. It changes when any of the files changes.
    pub(super) fn stamp(&self) -> Result<String> {
        let mut stamp = format!("{}{}\n", self.agent, self.modules.join(" "));
        for (path, file) in &self.files {
            let _ = writeln!(stamp, "{path} {}", file_state(file)?);
        }
        Ok(stamp)
    }
}

/// Name, size and modification time of a file.
pub(super) fn file_state(file: &Path) -> Result<String> {
    let metadata = fs::metadata(file).map_err(Error::context(file.display()))?;
    let modified = metadata.modified().map_err(Error::context(file.display()))?;
    Ok(format!("{} {} {modified:?}", file.display(), metadata.len()))
}

/// Shared libraries of a program or plugin, including the loader; empty for a static program.
pub(super) fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().map_err(Error::context("ldd"))?;
    let listing = String::from_utf8_lossy(&output.stdout);
    let paths = listing.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(Error::context(path.display()))
}

/// Path in the archive of a file on the host: relative to the root.
fn guest_path(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches('/').into()
}

fn which(program: &str) -> Result<PathBuf> {
    let directories = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(Path::new);
    let found = directories.iter().map(|directory| directory.join(program)).find(|path| path.exists());
    found.ok_or_else(|| Error::new(format!("no program `{program}` on this machine")))
}
