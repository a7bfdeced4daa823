//! CPU frequency governors (Linux cpufreq). The original governors are restored even if this process is
//! killed.

use crate::{Error, Result};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Directory of the processors in sysfs.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// Frequency governors of all processors.
#[derive(Debug)]
pub struct Governors {
    /// One for each processor.
    files: Vec<GovernorFile>,
    available: Vec<String>,
}

/// The governor file of a processor in sysfs.
#[derive(Debug)]
struct GovernorFile {
    path: PathBuf,
    /// Governor before this process changed it.
    original: String,
}

/// Permission to set governors. Dropping it restores the original ones.
#[derive(Debug)]
pub struct GovernorGuard {
    files: Vec<PathBuf>,
    restorer: Child,
}

impl Governors {
    /// Detects the governors of this machine. Fails if there are none or they cannot be set.
    pub fn detect() -> Result<Self> {
        Self::in_directory(Path::new(PROCESSORS))
    }

    fn in_directory(directory: &Path) -> Result<Self> {
        let entries = fs::read_dir(directory).map_err(Error::context(directory.display()))?;
        let mut files: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path().join("cpufreq/scaling_governor")).collect();
        files.retain(|file| file.is_file());
        files.sort();
        let first = files.first().ok_or_else(|| {
            Error::new(format!(
                "no frequency governor: no file {}/cpu*/cpufreq/scaling_governor",
                directory.display()
            ))
        })?;
        let available = first.with_file_name("scaling_available_governors");
        let available = fs::read_to_string(&available).map_err(Error::context(available.display()))?;
        for file in &files {
            let opened = fs::File::options().write(true).open(file);
            opened.map_err(Error::context(format!("no frequency governor: {}", file.display())))?;
        }
        let read = |file: PathBuf| {
            let governor = fs::read_to_string(&file).map_err(Error::context(file.display()))?;
            Ok(GovernorFile { path: file, original: governor.trim().to_owned() })
        };
        Ok(Self {
            files: files.into_iter().map(read).collect::<Result<_>>()?,
            available: available.split_whitespace().map(str::to_owned).collect(),
        })
    }

    /// Governors that the machine supports.
    pub fn available(&self) -> &[String] {
        &self.available
    }

    /// Current governor of the first processor.
    pub fn current(&self) -> &str {
        self.files.first().map_or("", |file| &file.original)
    }

    /// Takes control of the governors. A child process waits for the end of this process and restores the
    /// original governors, even if this process is killed.
    pub fn take_control(self) -> Result<GovernorGuard> {
        let mut command = Command::new("sh");
        // `cat` ends when this process closes its standard input. The arguments are pairs of a file and its
        // governor.
        let script = "cat > /dev/null; while [ $# -gt 1 ]; do printf %s \"$2\" > \"$1\"; shift 2; done";
        command.args(["-c", script, "sh"]);
        for file in &self.files {
            command.arg(&file.path).arg(&file.original);
        }
        // A signal from the terminal must end this process only.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        let keeper = command.spawn().map_err(Error::context("sh"))?;
        Ok(GovernorGuard { files: self.files.into_iter().map(|file| file.path).collect(), restorer: keeper })
    }
}

impl GovernorGuard {
    /// Sets the governor of all processors.
    pub fn set(&self, governor: &str) -> Result<()> {
        self.files
            .iter()
            .try_for_each(|file| fs::write(file, governor).map_err(Error::context(file.display())))
    }
}

impl Drop for GovernorGuard {
    fn drop(&mut self) {
        drop(self.restorer.stdin.take());
        let _ = self.restorer.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempDir;

    #[test]
    fn governors_are_restored() {
        let scratch = TempDir::new("governor").unwrap();
        let files = ["cpu0", "cpu1"].map(|cpu| {
            let directory = scratch.path().join(cpu).join("cpufreq");
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("scaling_available_governors"), "performance powersave\n").unwrap();
            directory.join("scaling_governor")
        });
        fs::write(&files[0], "powersave\n").unwrap();
        fs::write(&files[1], "schedutil\n").unwrap();
        let governors = Governors::in_directory(scratch.path()).unwrap();
        assert_eq!((governors.current(), governors.available().len()), ("powersave", 2));
        let governing = governors.take_control().unwrap();
        governing.set("performance").unwrap();
        let read = || files.each_ref().map(|file| fs::read_to_string(file).unwrap());
        assert_eq!(read(), ["performance", "performance"]);
        drop(governing);
        assert_eq!(read(), ["powersave", "schedutil"]);
    }

    #[test]
    fn a_machine_without_governors_is_an_error() {
        let scratch = TempDir::new("no-governor").unwrap();
        let error = Governors::in_directory(scratch.path()).unwrap_err().to_string();
        assert!(error.starts_with("no frequency governor"), "{error}");
    }
}
