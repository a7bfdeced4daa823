//! Programs of the host that go into an initramfs, with the shared libraries that they need.

use super::cpio::Archive;
use crate::{Error, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a guest has besides its modules and busybox: iproute2, its agent, and programs of the host.
#[derive(Debug, Clone)]
pub struct Content {
    /// Tells the initramfs from others in the same cache.
    pub(super) name: String,
    /// The first program, a shell script that is left nothing to do but to run: see [`new`](Self::new).
    pub(super) agent: String,
    /// Modules of the kernel beside those that every guest has.
    pub(super) modules: Vec<String>,
    /// Path in the guest, and the file of the host that lies there.
    files: Vec<(String, PathBuf)>,
}

impl Content {
    /// With iproute2, this program of the host, and an agent: a script that begins when the network interface is up, and does not end.
    /// When it is ready it writes `0 6`, a line break, `ready` and another one to /dev/vport*p1.
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

    /// With more modules of the kernel, and what these need.
    pub fn with_modules(mut self, names: &[&str]) -> Self {
        self.modules.extend(names.iter().map(|name| (*name).to_owned()));
        self
    }

    /// With more programs and plugins of the host as well, each at the path that it has there. The images are kept under
    /// this name.
    pub fn with(mut self, name: &str, programs: impl IntoIterator<Item = PathBuf>) -> Self {
        self.name = format!("initrd-{name}");
        self.files.extend(programs.into_iter().map(|program| (in_guest(&program), program)));
        self
    }

    /// Adds the programs to the archive, and each library once.
    pub(super) fn add_to(&self, archive: &mut Archive) -> Result<()> {
        archive.file("agent", self.agent.as_bytes());
        let mut seen = Vec::new();
        for (path, program) in &self.files {
            archive.file(path, &read(program)?);
            for library in libraries(program)? {
                if !seen.contains(&library) {
                    archive.file(&in_guest(&library), &read(&library)?);
                    seen.push(library);
                }
            }
        }
        Ok(())
    }

    /// When any of the programs changes, so does this text.
    pub(super) fn stamp(&self) -> Result<String> {
        let mut stamp = format!("{}{}\n", self.agent, self.modules.join(" "));
        for (path, file) in &self.files {
            let _ = writeln!(stamp, "{path} {}", state(file)?);
        }
        Ok(stamp)
    }
}

/// A file's name, size and time of change.
pub(super) fn state(file: &Path) -> Result<String> {
    let metadata = fs::metadata(file).map_err(Error::in_front(file.display()))?;
    let modified = metadata.modified().map_err(Error::in_front(file.display()))?;
    Ok(format!("{} {} {modified:?}", file.display(), metadata.len()))
}

/// The shared libraries of a program or plugin, the loader included; none for a static one.
pub(super) fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().map_err(Error::in_front("ldd"))?;
    let listing = String::from_utf8_lossy(&output.stdout);
    let paths = listing.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(Error::in_front(path.display()))
}

/// A path of the host as the archive names it: relative to the root.
fn in_guest(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches('/').into()
}

fn which(program: &str) -> Result<PathBuf> {
    let directories = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(Path::new);
    let found = directories.iter().map(|directory| directory.join(program)).find(|path| path.exists());
    found.ok_or_else(|| Error::new(format!("no program `{program}` on this machine")))
}
