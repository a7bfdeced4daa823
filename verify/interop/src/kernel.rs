//! The guest's kernel, Debian's cloud kernel, and its initramfs with `probe` as the agent.

use crate::{Error, Result};
use casemate_stage::{Content, Images};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
/// `probe` takes scripts from the host.
const AGENT: &str = "exec probe serve /dev/vport*p1\n";

/// What a guest has that takes scripts: iproute2, and `probe`, this crate's program of that name.
pub fn with_probe(probe: &Path) -> Result<Content> {
    Content::new(AGENT, ("bin/probe", probe))
}

/// Builds the images in `cache`, unless they are there and fresh. The kernel is downloaded by apt-get, once.
pub fn build_images(cache: &Path, content: &Content) -> Result<Images> {
    fs::create_dir_all(cache).map_err(Error::in_front(cache.display()))?;
    Images::build(&unpacked_kernel(cache)?, cache, content)
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
    run(Command::new("apt-get").args(["-q", "download", &package]).current_dir(&partial))?;
    let deb = partial.join(only_entry(&partial)?);
    run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&partial))?;
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
    let listing = run(Command::new("apt-cache").args(["depends", KERNEL_PACKAGE]))?;
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

/// Runs a command that has to succeed and returns what it printed.
fn run(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().map_err(Error::in_front(format!("{command:?}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::new(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim_end())))
}
