//! The guest's kernel and initramfs, built once and kept in a cache directory.
//!
//! The kernel is Debian's cloud kernel, downloaded by apt-get; the rest comes from the host: busybox, and programs with their
//! libraries. Everything is rebuilt when one of its parts changes.

use super::content::{self, Content, libraries, read};
use super::cpio::Archive;
use super::modules::{self, run_bytes};
use crate::{Error, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const INIT: &str = include_str!("init.sh");
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
const BUSYBOX: &str = "/bin/busybox";

/// Files to boot from.
#[derive(Debug, Clone)]
pub struct Images {
    /// The kernel.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initrd: PathBuf,
}

impl Images {
    /// Builds the images in `cache`, unless they are there and fresh.
    pub fn build(cache: &Path, content: &Content) -> Result<Self> {
        fs::create_dir_all(cache).map_err(Error::in_front(cache.display()))?;
        let root = unpacked_kernel(cache)?;
        let version = only_entry(&root.join("lib/modules"))?;
        let images =
            Self { kernel: root.join(format!("boot/vmlinuz-{version}")), initrd: cache.join(&content.name) };
        let busybox = content::state(Path::new(BUSYBOX))?;
        let stamp = format!("{version}\n{INIT}\n{busybox}\n{}", content.stamp()?);
        let stamp_file = cache.join(format!("{}.stamp", content.name));
        if images.initrd.exists() && fs::read_to_string(&stamp_file).is_ok_and(|old| old == stamp) {
            return Ok(images);
        }
        let archive = archive(&root, &version, content)?;
        let partial = cache.join(format!("{}.{}", content.name, std::process::id()));
        fs::write(&partial, archive).map_err(Error::in_front(partial.display()))?;
        fs::rename(&partial, &images.initrd).map_err(Error::in_front(images.initrd.display()))?;
        fs::write(&stamp_file, stamp).map_err(Error::in_front(stamp_file.display()))?;
        Ok(images)
    }
}

fn archive(root: &Path, version: &str, content: &Content) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for directory in ["proc", "sys", "dev", "tmp", "run", "etc", "sbin"] {
        archive.directory(directory);
    }
    if !libraries(Path::new(BUSYBOX))?.is_empty() {
        return Err(Error::new(format!("{BUSYBOX} is not static; install busybox-static")));
    }
    archive.file("init", INIT.as_bytes());
    archive.file("bin/busybox", &read(Path::new(BUSYBOX))?);
    content.add_to(&mut archive)?;
    let mut order = String::new();
    for module in modules::in_order(root, version)? {
        archive.file(&format!("modules/{}", module.name), &module.content);
        let _ = writeln!(order, "{}", module.name);
    }
    archive.file("modules/order", order.as_bytes());
    Ok(archive.finish())
}

/// The kernel package, unpacked below the cache. Downloaded once.
fn unpacked_kernel(cache: &Path) -> Result<PathBuf> {
    let unpacked = cache.join("kernel");
    if unpacked.exists() {
        return Ok(unpacked);
    }
    let partial = cache.join(format!("kernel.{}", std::process::id()));
    fs::create_dir_all(&partial).map_err(Error::in_front(partial.display()))?;
    let package = kernel_package()?;
    run_bytes(Command::new("apt-get").args(["-q", "download", &package]).current_dir(&partial))?;
    let deb = partial.join(only_entry(&partial)?);
    run_bytes(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&partial))?;
    fs::remove_file(&deb).map_err(Error::in_front(deb.display()))?;
    if !partial.join("lib").exists() {
        // From Debian 13 on everything is below usr.
        std::os::unix::fs::symlink("usr/lib", partial.join("lib"))
            .map_err(Error::in_front(partial.display()))?;
    }
    match fs::rename(&partial, &unpacked) {
        // Somebody else was faster; theirs is as good.
        Err(_) if unpacked.exists() => fs::remove_dir_all(&partial),
        renamed => renamed,
    }
    .map_err(Error::in_front(unpacked.display()))?;
    Ok(unpacked)
}

/// The versioned package that the cloud kernel's metapackage stands for.
fn kernel_package() -> Result<String> {
    let listing = run_bytes(Command::new("apt-cache").args(["depends", KERNEL_PACKAGE]))?;
    let listing = String::from_utf8_lossy(&listing);
    let mut depends = listing.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let package = depends.find(|name| name.starts_with("linux-image-"));
    package
        .map(String::from)
        .ok_or_else(|| Error::new(format!("apt does not know {KERNEL_PACKAGE}: apt-get update?")))
}

fn only_entry(directory: &Path) -> Result<String> {
    let mut entries = fs::read_dir(directory).map_err(Error::in_front(directory.display()))?;
    let entry = entries.next().and_then(std::result::Result::ok);
    let name = entry.map(|entry| entry.file_name().to_string_lossy().into_owned());
    name.ok_or_else(|| Error::new(format!("{} is empty", directory.display())))
}
