//! Kernel of the guest (Debian's cloud kernel), and its initramfs with `probe` as the agent.

use crate::{Error, Result};
use casemate_testbed::{GuestImages, InitrdContent};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
/// `probe` executes scripts of the host.
const AGENT: &str = "exec probe serve /dev/vport*p1\n";

/// Contents of a guest that executes scripts: iproute2, and the program `probe` of this crate.
pub fn with_probe(probe: &Path) -> Result<InitrdContent> {
    InitrdContent::new(AGENT, "bin/probe", probe)
}

/// Builds the images in `cache`, unless they are up to date. apt-get downloads the kernel once.
pub fn build_images(cache: &Path, content: &InitrdContent) -> Result<GuestImages> {
    fs::create_dir_all(cache).map_err(Error::context(cache.display()))?;
    GuestImages::build(&unpacked_kernel(cache)?, cache, content)
}

/// Kernel package, unpacked in the cache. Downloads it once.
fn unpacked_kernel(cache: &Path) -> Result<PathBuf> {
    let unpacked = cache.join("kernel");
    if unpacked.exists() {
        return Ok(unpacked);
    }
    let partial = cache.join(format!("kernel.{}", std::process::id()));
    fs::create_dir_all(&partial).map_err(Error::context(partial.display()))?;
    let package = kernel_package()?;
    run(Command::new("apt-get").args(["-q", "download", &package]).current_dir(&partial))?;
    let deb = partial.join(only_entry(&partial)?);
    run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&partial))?;
    fs::remove_file(&deb).map_err(Error::context(deb.display()))?;
    if !partial.join("lib").exists() {
        // From Debian 13 on, all files are below usr.
        std::os::unix::fs::symlink("usr/lib", partial.join("lib"))
            .map_err(Error::context(partial.display()))?;
    }
    match fs::rename(&partial, &unpacked) {
        // Another process was faster, and its result is the same.
        Err(_) if unpacked.exists() => fs::remove_dir_all(&partial),
        renamed => renamed,
    }
    .map_err(Error::context(unpacked.display()))?;
    Ok(unpacked)
}

/// Versioned package that the metapackage of the cloud kernel depends on.
fn kernel_package() -> Result<String> {
    let listing = run(Command::new("apt-cache").args(["depends", KERNEL_PACKAGE]))?;
    let listing = String::from_utf8_lossy(&listing);
    let mut depends = listing.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let package = depends.find(|name| name.starts_with("linux-image-"));
    package
        .map(String::from)
        .ok_or_else(|| Error::new(format!("apt has no package {KERNEL_PACKAGE}; run apt-get update")))
}

fn only_entry(directory: &Path) -> Result<String> {
    let mut entries = fs::read_dir(directory).map_err(Error::context(directory.display()))?;
    let entry = entries.next().and_then(std::result::Result::ok);
    let name = entry.map(|entry| entry.file_name().to_string_lossy().into_owned());
    name.ok_or_else(|| Error::new(format!("{} is empty", directory.display())))
}

/// Runs a command that has to succeed, and returns its output.
fn run(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().map_err(Error::context(format!("{command:?}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::new(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim_end())))
}

/// Returns the error counters of `/proc/net/xfrm_stat` that differ between two readings, with their later
/// values. They cannot be reset.
pub fn changed_counters(before: &str, after: &str) -> Vec<String> {
    let changed = after.lines().filter(|line| !before.lines().any(|old| old == *line));
    changed.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_counters_are_listed() {
        let before = "XfrmInError   \t0\nXfrmInNoPols 2\n";
        assert_eq!(changed_counters(before, "XfrmInError   \t1\nXfrmInNoPols 2\n"), ["XfrmInError 1"]);
        assert!(changed_counters(before, before).is_empty());
    }
}
