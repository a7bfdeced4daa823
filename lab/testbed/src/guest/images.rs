//! Kernel and initramfs of the guest, built once and kept in a cache directory.
//!
//! The kernel and its modules have the layout of Debian's package, `boot` and `lib/modules`. Busybox and the
//! other programs come from the host. The initramfs is rebuilt when any part changes.

use super::content::{self, InitrdContent, libraries, read};
use super::cpio::Archive;
use super::modules;
use crate::{Error, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

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
        let busybox = content::file_state(Path::new(BUSYBOX))?;
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
    for module in modules::in_load_order(root, version, &content.modules)? {
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
