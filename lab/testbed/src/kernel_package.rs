//! Debian's kernel for guests: downloads the package and unpacks it into a cache directory, once.

use crate::process::run_reported;
use crate::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Metapackage that depends on the newest kernel for virtual machines.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
/// Programs of Debian that download and unpack a package.
const PROGRAMS: [&str; 3] = ["apt-cache", "apt-get", "dpkg-deb"];
/// Seconds without data after which apt-get gives up.
const DOWNLOAD_TIMEOUT: &str = "Acquire::http::Timeout=30";

/// Directory of the unpacked kernel in a cache directory. It exists only if it is complete.
pub fn unpacked_kernel(cache: &Path) -> PathBuf {
    cache.join("kernel")
}

/// Returns the directory of the unpacked kernel, with `boot` and `lib/modules`. Downloads the package with
/// apt-get if the cache does not contain it. `report` receives the lines that show the progress.
pub fn obtain_kernel(cache: &Path, report: &dyn Fn(&str)) -> Result<PathBuf> {
    let unpacked = unpacked_kernel(cache);
    if unpacked.exists() {
        return Ok(unpacked);
    }
    if let Some(absent) = PROGRAMS.iter().find(|program| !is_installed(program)) {
        return Err(Error::new(format!("no program {absent}, which Debian has: cannot download a kernel")));
    }
    let package = kernel_package()?;
    let partial = cache.join(format!("kernel.{}", std::process::id()));
    fs::create_dir_all(&partial).map_err(Error::context(partial.display()))?;
    let done = download(&package, &partial, report).and_then(|()| publish(&partial, &unpacked));
    if done.is_err() {
        // The error of the download is the one to report.
        let _ = fs::remove_dir_all(&partial);
    }
    done.map(|()| unpacked)
}

/// Downloads a package and unpacks it into the directory `to`.
fn download(package: &str, to: &Path, report: &dyn Fn(&str)) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-o", DOWNLOAD_TIMEOUT, "download", package]).current_dir(to);
    run_reported(&mut command, report)?;
    let archive = only_entry(to)?;
    report(&format!("unpacks {package}"));
    run_reported(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(to), report)?;
    fs::remove_file(&archive).map_err(Error::context(archive.display()))?;
    if !to.join("lib").exists() {
        // From Debian 13 on, all files are below usr.
        std::os::unix::fs::symlink("usr/lib", to.join("lib")).map_err(Error::context(to.display()))?;
    }
    Ok(())
}

/// Renames the complete directory. Another process may have been faster; its result is the same.
fn publish(partial: &Path, unpacked: &Path) -> Result<()> {
    match fs::rename(partial, unpacked) {
        Err(_) if unpacked.exists() => fs::remove_dir_all(partial),
        renamed => renamed,
    }
    .map_err(Error::context(unpacked.display()))
}

/// Versioned package that the metapackage depends on.
fn kernel_package() -> Result<String> {
    let missing = |why: &str| {
        Error::new(format!("apt has no package {KERNEL_PACKAGE}: run `apt-get update` on Debian{why}"))
    };
    let listing = run_reported(Command::new("apt-cache").args(["depends", KERNEL_PACKAGE]), &|_| {})
        .map_err(|error| missing(&format!(" ({error})")))?;
    parse_dependency(&listing).ok_or_else(|| missing(""))
}

/// Kernel package in the output of `apt-cache depends`.
fn parse_dependency(listing: &str) -> Option<String> {
    let mut depends = listing.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    depends.find(|name| name.starts_with("linux-image-")).map(String::from)
}

/// Path of the only file in a directory.
fn only_entry(directory: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(directory).map_err(Error::context(directory.display()))?;
    let entry = entries.next().and_then(std::result::Result::ok);
    let path = entry.map(|entry| entry.path());
    path.ok_or_else(|| Error::new(format!("{} is empty", directory.display())))
}

fn is_installed(program: &str) -> bool {
    Path::new("/usr/bin").join(program).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempDir;

    #[test]
    fn a_cached_kernel_is_not_downloaded_again() {
        let cache = TempDir::new("kernel-cache").unwrap();
        fs::create_dir(unpacked_kernel(cache.path())).unwrap();
        let report = |line: &str| panic!("it works although the kernel is cached: {line}");
        assert_eq!(obtain_kernel(cache.path(), &report).unwrap(), cache.file("kernel"));
    }

    #[test]
    fn versioned_package_is_found_in_the_dependencies() {
        let listing = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        assert_eq!(parse_dependency(listing).unwrap(), "linux-image-6.1.0-56-cloud-amd64");
        assert_eq!(parse_dependency("linux-image-cloud-amd64\n  Breaks: other\n"), None);
    }

    #[test]
    fn a_failed_download_leaves_nothing_behind() {
        let to = TempDir::new("kernel-fails").unwrap();
        let error = download("no-such-package-of-debian", to.path(), &|_| {}).unwrap_err().to_string();
        assert!(error.starts_with("apt-get"), "{error}");
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
    }
}
