//! The guest's kernel and initramfs, built once and kept in a cache directory.
//!
//! The kernel and its modules lie as Debian's package has them, in `boot` and `lib/modules`; the rest comes from the host: busybox, and
//! programs with their libraries. Everything is rebuilt when one of its parts changes.

use super::content::{self, Content, libraries, read};
use super::cpio::Archive;
use super::modules;
use crate::{Error, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const INIT: &str = include_str!("init.sh");
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
    /// Builds the images in `cache`, unless they are there and fresh, with the kernel below `root`.
    pub fn build(root: &Path, cache: &Path, content: &Content) -> Result<Self> {
        fs::create_dir_all(cache).map_err(Error::in_front(cache.display()))?;
        let version = version(root)?;
        let images =
            Self { kernel: root.join(format!("boot/vmlinuz-{version}")), initrd: cache.join(&content.name) };
        let busybox = content::state(Path::new(BUSYBOX))?;
        let stamp = format!("{version}\n{INIT}\n{busybox}\n{}", content.stamp()?);
        let stamp_file = cache.join(format!("{}.stamp", content.name));
        if images.initrd.exists() && fs::read_to_string(&stamp_file).is_ok_and(|old| old == stamp) {
            return Ok(images);
        }
        let archive = archive(root, &version, content)?;
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
    for module in modules::in_order(root, version, &content.modules)? {
        archive.file(&format!("modules/{}", module.name), &module.content);
        let _ = writeln!(order, "{}", module.name);
    }
    archive.file("modules/order", order.as_bytes());
    Ok(archive.finish())
}

/// Of the kernel below `root` that has modules there; any, if there are several.
fn version(root: &Path) -> Result<String> {
    let modules = root.join("lib/modules");
    let entries = fs::read_dir(&modules).map_err(Error::in_front(modules.display()))?;
    let mut names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let found = names.find(|name| root.join(format!("boot/vmlinuz-{name}")).is_file());
    let missing = || Error::new(format!("{}: no kernel boot/vmlinuz-* with its lib/modules", root.display()));
    found.ok_or_else(missing)
}
