//! Debian's kernel for guests: downloads the package and unpacks it into a cache directory, once.

use crate::process::run_reported;
use crate::{Error, Result};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Metapackage that depends on the newest kernel for virtual machines.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
/// Options of apt-get: seconds without data after which it gives up, the number of further attempts, and no
/// change to the user `_apt`, who cannot write to the cache. apt-get would only warn that it stays root.
const DOWNLOAD_OPTIONS: [&str; 3] =
    ["-oAcquire::http::Timeout=30", "-oAcquire::Retries=1", "-oAPT::Sandbox::User=root"];
/// Beginning of the name of a directory that is not complete. The process ID follows.
const PARTIAL: &str = "kernel.partial.";
/// File whose lock is held during a download.
const LOCK: &str = "kernel.lock";

/// Directory of the unpacked kernel in a cache directory. It exists only if it is complete.
pub fn unpacked_kernel(cache: &Path) -> PathBuf {
    cache.join("kernel")
}

/// Fails if a program that downloads or unpacks a package is missing.
pub fn check_download_programs() -> Result<()> {
    Programs::SYSTEM.check()
}

/// Returns the directory of the unpacked kernel, with `boot` and `lib/modules`. Downloads the package with
/// apt-get if the cache does not contain it. `report` receives the lines that show the progress.
///
/// One process at a time downloads to a cache; others wait and use its result.
pub fn obtain_kernel(cache: &Path, report: &dyn Fn(&str)) -> Result<PathBuf> {
    Programs::SYSTEM.obtain(cache, report)
}

/// Directory with Debian's programs.
#[derive(Debug, Clone, Copy)]
struct Programs<'a>(&'a str);

impl Programs<'_> {
    const SYSTEM: Self = Self("/usr/bin");

    fn command(self, program: &str) -> Command {
        Command::new(Path::new(self.0).join(program))
    }

    fn check(self) -> Result<()> {
        let mut programs = ["apt-cache", "apt-get", "dpkg-deb"].iter();
        match programs.find(|program| !Path::new(self.0).join(program).exists()) {
            Some(absent) => {
                let directory = self.0;
                Err(Error::new(format!(
                    "no program {directory}/{absent} of Debian: cannot download a kernel"
                )))
            }
            None => Ok(()),
        }
    }

    fn obtain(self, cache: &Path, report: &dyn Fn(&str)) -> Result<PathBuf> {
        let unpacked = unpacked_kernel(cache);
        if unpacked.exists() {
            return Ok(unpacked);
        }
        self.check()?;
        fs::create_dir_all(cache).map_err(Error::context(cache.display()))?;
        let _lock = lock(cache, report)?;
        if unpacked.exists() {
            // The process that held the lock has downloaded it.
            return Ok(unpacked);
        }
        remove_partial(cache)?;
        let package = self.kernel_package()?;
        let partial = cache.join(format!("{PARTIAL}{}", std::process::id()));
        fs::create_dir(&partial).map_err(Error::context(partial.display()))?;
        let done = self
            .download(&package, &partial, report)
            .and_then(|()| fs::rename(&partial, &unpacked).map_err(Error::context(unpacked.display())));
        if done.is_err() {
            // The error of the download is the one to report. The next download removes what is left.
            let _ = fs::remove_dir_all(&partial);
        }
        done.map(|()| unpacked)
    }

    /// Downloads a package and unpacks it into the empty directory `to`.
    fn download(self, package: &str, to: &Path, report: &dyn Fn(&str)) -> Result<()> {
        let mut command = self.command("apt-get");
        command.arg("-q").args(DOWNLOAD_OPTIONS).args(["download", package]).current_dir(to);
        run_reported(&mut command, report).map_err(|error| {
            Error::new(format!(
                "{error}; check the network, and run `apt-get update` if a package is not found"
            ))
        })?;
        let archive = only_entry(to)?;
        report(&format!("unpack {package}"));
        run_reported(self.command("dpkg-deb").arg("-x").arg(&archive).arg(to), report)?;
        fs::remove_file(&archive).map_err(Error::context(archive.display()))?;
        if !to.join("lib").exists() {
            // From Debian 13 on, all files are below usr.
            std::os::unix::fs::symlink("usr/lib", to.join("lib")).map_err(Error::context(to.display()))?;
        }
        Ok(())
    }

    /// Versioned package that the metapackage depends on.
    fn kernel_package(self) -> Result<String> {
        let missing = |why: &str| {
            Error::new(format!("apt has no package {KERNEL_PACKAGE}: run `apt-get update` on Debian{why}"))
        };
        // apt-cache translates its output.
        let mut command = self.command("apt-cache");
        command.args(["depends", KERNEL_PACKAGE]).env("LC_ALL", "C").env_remove("LANGUAGE");
        let listing = run_reported(&mut command, &|_| {}).map_err(|error| missing(&format!(" ({error})")))?;
        parse_dependency(&listing).ok_or_else(|| missing(""))
    }
}

/// Waits until no other process downloads to the cache. The lock ends with the file or the process.
fn lock(cache: &Path, report: &dyn Fn(&str)) -> Result<File> {
    let path = cache.join(LOCK);
    let file = File::create(&path).map_err(Error::context(path.display()))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            report("wait for the download of another process");
            file.lock()
        }
        Err(TryLockError::Error(error)) => Err(error),
        Ok(()) => Ok(()),
    }
    .map_err(Error::context(path.display()))?;
    Ok(file)
}

/// Removes the directories of processes that were killed. The caller holds the lock.
fn remove_partial(cache: &Path) -> Result<()> {
    let entries = fs::read_dir(cache).map_err(Error::context(cache.display()))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PARTIAL) {
            fs::remove_dir_all(entry.path()).map_err(Error::context(entry.path().display()))?;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests;
