//! Kernel and initramfs of the guest, built once and kept in a cache directory.
//!
//! The kernel and its modules, in load order, have the layout of Debian's package, `boot` and `lib/modules`.
//! Busybox and the other programs, with the shared libraries that they need, come from the host. The
//! initramfs is a cpio archive in the `newc` format (Linux, Documentation/driver-api/early-userspace/buffer-
//! format.rst). It is rebuilt when any part changes.

use crate::{Error, Result};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const INIT: &str = include_str!("init.sh");
const BUSYBOX: &str = "/bin/busybox";

/// Files from which the guest boots.
#[derive(Debug, Clone)]
pub struct GuestImages {
    /// Kernel.
    pub kernel: PathBuf,
    /// Initramfs.
    pub initrd: PathBuf,
}

impl GuestImages {
    /// Builds the initramfs in `cache` unless it is up to date. `root` contains the kernel.
    pub fn build(root: &Path, cache: &Path, content: &InitrdContent) -> Result<Self> {
        fs::create_dir_all(cache).map_err(Error::context(cache.display()))?;
        let version = kernel_version(root)?;
        let images =
            Self { kernel: root.join(format!("boot/vmlinuz-{version}")), initrd: cache.join(&content.name) };
        let busybox = file_state(Path::new(BUSYBOX))?;
        let stamp = format!("{version}\n{INIT}\n{busybox}\n{}", content.stamp()?);
        let stamp_file = cache.join(format!("{}.stamp", content.name));
        if images.initrd.exists() && fs::read_to_string(&stamp_file).is_ok_and(|old| old == stamp) {
            return Ok(images);
        }
        let archive = build_archive(root, &version, content)?;
        let partial = cache.join(format!("{}.{}", content.name, std::process::id()));
        fs::write(&partial, archive).map_err(Error::context(partial.display()))?;
        fs::rename(&partial, &images.initrd).map_err(Error::context(images.initrd.display()))?;
        fs::write(&stamp_file, stamp).map_err(Error::context(stamp_file.display()))?;
        Ok(images)
    }
}

fn build_archive(root: &Path, version: &str, content: &InitrdContent) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for directory in ["proc", "sys", "dev", "tmp", "run", "etc", "sbin"] {
        archive.add_directory(directory);
    }
    if !libraries(Path::new(BUSYBOX))?.is_empty() {
        return Err(Error::new(format!("{BUSYBOX} is not static; install busybox-static")));
    }
    archive.add_file("init", INIT.as_bytes());
    archive.add_file("bin/busybox", &read(Path::new(BUSYBOX))?);
    content.add_to(&mut archive)?;
    let mut order = String::new();
    for module in in_load_order(root, version, &content.modules)? {
        archive.add_file(&format!("modules/{}", module.name), &module.content);
        let _ = writeln!(order, "{}", module.name);
    }
    archive.add_file("modules/order", order.as_bytes());
    Ok(archive.finish())
}

/// Version of the kernel below `root` that has modules there; any of them if there are several.
fn kernel_version(root: &Path) -> Result<String> {
    let modules = root.join("lib/modules");
    let entries = fs::read_dir(&modules).map_err(Error::context(modules.display()))?;
    let mut names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let found = names.find(|name| root.join(format!("boot/vmlinuz-{name}")).is_file());
    let missing = || Error::new(format!("{}: no kernel boot/vmlinuz-* with its lib/modules", root.display()));
    found.ok_or_else(missing)
}

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// An archive under construction. Parent directories are added automatically.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds an executable file. `path` is relative to the root.
    pub(super) fn add_file(&mut self, path: &str, content: &[u8]) {
        self.add_parents(path);
        self.write_entry(path, FILE, content);
    }

    /// Adds an empty directory.
    pub(super) fn add_directory(&mut self, path: &str) {
        self.add_parents(path);
        if self.directories.insert(path.to_owned()) {
            self.write_entry(path, DIRECTORY, &[]);
        }
    }

    /// Returns the finished archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.write_entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn add_parents(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.add_directory(parent);
        }
    }

    fn write_entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries = self.entries.wrapping_add(1);
        let name_size = path.len().wrapping_add(1);
        // Magic, inode, mode, uid, gid, links, mtime, size, four device numbers, name size, checksum
        // (unused).
        let header = format!(
            "070701{:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}\
             {name_size:08x}{:08x}",
            self.entries,
            0,
            0,
            1,
            0,
            content.len(),
            0,
            0,
            0,
            0,
            0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Modules that every guest loads, besides their dependencies. Built-in modules are skipped.
const BASE_MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "xfrm_user",
    "esp4",
    "esp6",
    "ah4",
    "ah6",
    "drbg",
    "authenc",
    "authencesn",
    "echainiv",
    "seqiv",
    "ecb",
    "ctr",
    "gcm",
    "ccm",
    "cmac",
    "xcbc",
    "crypto_null",
    "des_generic",
    "sha512_generic",
    "chacha_generic",
    "poly1305_generic",
    "chacha20poly1305",
    "ghash_generic",
];

/// A kernel module.
pub(super) struct Module {
    /// File name.
    pub(super) name: String,
    /// Uncompressed content.
    pub(super) content: Vec<u8>,
}

/// Returns the modules of every guest and `more`, for the kernel `version` below `root`, each after its
/// dependencies.
pub(super) fn in_load_order(root: &Path, version: &str, more: &[String]) -> Result<Vec<Module>> {
    // An installed kernel has modules.dep; a package that was only unpacked does not.
    if !root.join("lib/modules").join(version).join("modules.dep").exists() {
        run(Command::new("/sbin/depmod").arg("-b").arg(root).arg(version))?;
    }
    let mut paths: Vec<String> = Vec::new();
    for name in BASE_MODULES.iter().copied().chain(more.iter().map(String::as_str)) {
        let mut command = Command::new("/sbin/modprobe");
        command.args(["--show-depends", "-S", version, "-d"]).arg(root).arg(name);
        // A newer kernel may have the module built in or renamed. If it is missing, the test cases that need
        // it fail and name it.
        for line in run(&mut command).unwrap_or_default().lines() {
            let path = line.strip_prefix("insmod ").map(|path| path.trim().to_owned());
            paths.extend(path.filter(|path| !paths.contains(path)));
        }
    }
    paths.iter().map(|path| read_module(Path::new(path))).collect()
}

fn read_module(path: &Path) -> Result<Module> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let content = match path.extension().and_then(|extension| extension.to_str()) {
        // Modules are compressed since Debian 13.
        Some("xz") => run_bytes(Command::new("xz").args(["--decompress", "--stdout"]).arg(path))?,
        _ => fs::read(path).map_err(Error::context(path.display()))?,
    };
    Ok(Module { name: format!("{}.ko", name.trim_end_matches(".ko")), content })
}

fn run(command: &mut Command) -> Result<String> {
    run_bytes(command).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a command that must succeed and returns its standard output.
pub(super) fn run_bytes(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().map_err(Error::context(format!("{command:?}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::new(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim_end())))
}

/// Content of an initramfs besides modules and busybox: iproute2, the agent, and programs of the host.
#[derive(Debug, Clone)]
pub struct InitrdContent {
    /// File name of the initramfs in the cache.
    pub(super) name: String,
    /// The agent, a shell script that init executes last: see [`new`](Self::new).
    pub(super) agent: String,
    /// Kernel modules in addition to those of every guest.
    pub(super) modules: Vec<String>,
    programs: Vec<GuestProgram>,
}

/// Program of the guest.
#[derive(Debug, Clone)]
struct GuestProgram {
    /// Path in the guest, without the leading slash.
    path: String,
    /// File on the host.
    source: PathBuf,
}

impl InitrdContent {
    /// Creates an initramfs with iproute2, the file `program` of the host at `path`, and an agent. The agent
    /// is a script that starts when the network interface is up and never ends. It reports that it is ready
    /// by writing two lines to /dev/vport*p1: `0 6` and `ready`.
    pub fn new(agent: &str, path: &str, program: &Path) -> Result<Self> {
        let programs = vec![
            GuestProgram { path: "sbin/ip".into(), source: which("ip")? },
            GuestProgram { path: path.into(), source: program.into() },
        ];
        Ok(Self {
            name: "initrd".into(),
            agent: format!("#!/bin/busybox sh\n{agent}"),
            modules: Vec::new(),
            programs,
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
        let programs = programs.into_iter();
        self.programs.extend(programs.map(|source| GuestProgram { path: guest_path(&source), source }));
        self
    }

    /// Adds the programs to the archive, and each library once.
    pub(super) fn add_to(&self, archive: &mut Archive) -> Result<()> {
        archive.add_file("agent", self.agent.as_bytes());
        let mut seen = Vec::new();
        for GuestProgram { path, source } in &self.programs {
            archive.add_file(path, &read(source)?);
            for library in libraries(source)? {
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
        for GuestProgram { path, source } in &self.programs {
            let _ = writeln!(stamp, "{path} {}", file_state(source)?);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_parents_come_first() {
        let mut archive = Archive::default();
        archive.add_file("a/b/one", b"1");
        archive.add_file("a/b/two", b"22222");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<_> = text.split("070701").skip(1).map(|entry| &entry[104..]).collect();
        let starts: Vec<_> = names.iter().map(|name| name.split('\0').next().unwrap()).collect();
        assert_eq!(starts, ["a", "a/b", "a/b/one", "a/b/two", "TRAILER!!!"]);
    }
}
