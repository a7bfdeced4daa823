//! Governors of the processors' frequencies (the kernel's cpufreq), which are put back whatever happens to us.

use crate::{Error, Result};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where the kernel shows the processors.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// The governors of all processors.
#[derive(Debug)]
pub struct Governors {
    /// The file of each processor, with what stood there.
    files: Vec<(PathBuf, String)>,
    available: Vec<String>,
}

/// Governors that may be set. Dropping it puts back what was there.
#[derive(Debug)]
pub struct Governing {
    files: Vec<PathBuf>,
    keeper: Child,
}

impl Governors {
    /// Those of this machine; an error when there are none, or they cannot be set.
    pub fn here() -> Result<Self> {
        Self::below(Path::new(PROCESSORS))
    }

    fn below(directory: &Path) -> Result<Self> {
        let entries = fs::read_dir(directory).map_err(Error::in_front(directory.display()))?;
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
        let available = fs::read_to_string(&available).map_err(Error::in_front(available.display()))?;
        for file in &files {
            let opened = fs::File::options().write(true).open(file);
            opened.map_err(Error::in_front(format!("no frequency governor: {}", file.display())))?;
        }
        let read = |file: PathBuf| {
            let governor = fs::read_to_string(&file).map_err(Error::in_front(file.display()))?;
            Ok((file, governor.trim().to_owned()))
        };
        Ok(Self {
            files: files.into_iter().map(read).collect::<Result<_>>()?,
            available: available.split_whitespace().map(str::to_owned).collect(),
        })
    }

    /// Those that can be chosen.
    pub fn available(&self) -> &[String] {
        &self.available
    }

    /// The one that stands there, of the first processor.
    pub fn current(&self) -> &str {
        self.files.first().map_or("", |(_, governor)| governor)
    }

    /// Allows governors to be set. A process of its own waits for us to go away, and puts them back then, even when we are killed.
    pub fn govern(self) -> Result<Governing> {
        let mut command = Command::new("sh");
        // `cat` ends when our end of its standard input closes. The words behind are a file and its governor, again and again.
        let script = "cat > /dev/null; while [ $# -gt 1 ]; do printf %s \"$2\" > \"$1\"; shift 2; done";
        command.args(["-c", script, "sh"]);
        for (file, governor) in &self.files {
            command.arg(file).arg(governor);
        }
        // What ends us from a terminal must not end it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        let keeper = command.spawn().map_err(Error::in_front("sh"))?;
        Ok(Governing { files: self.files.into_iter().map(|(file, _)| file).collect(), keeper })
    }
}

impl Governing {
    /// Sets one for all processors.
    pub fn set(&self, governor: &str) -> Result<()> {
        self.files
            .iter()
            .try_for_each(|file| fs::write(file, governor).map_err(Error::in_front(file.display())))
    }
}

impl Drop for Governing {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn what_was_there_is_put_back() {
        let scratch = Scratch::new("governor").unwrap();
        let files = ["cpu0", "cpu1"].map(|cpu| {
            let directory = scratch.path().join(cpu).join("cpufreq");
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("scaling_available_governors"), "performance powersave\n").unwrap();
            directory.join("scaling_governor")
        });
        fs::write(&files[0], "powersave\n").unwrap();
        fs::write(&files[1], "schedutil\n").unwrap();
        let governors = Governors::below(scratch.path()).unwrap();
        assert_eq!((governors.current(), governors.available().len()), ("powersave", 2));
        let governing = governors.govern().unwrap();
        governing.set("performance").unwrap();
        let read = || files.each_ref().map(|file| fs::read_to_string(file).unwrap());
        assert_eq!(read(), ["performance", "performance"]);
        drop(governing);
        assert_eq!(read(), ["powersave", "schedutil"]);
    }

    #[test]
    fn a_machine_without_governors_says_so() {
        let scratch = Scratch::new("no-governor").unwrap();
        let error = Governors::below(scratch.path()).unwrap_err().to_string();
        assert!(error.starts_with("no frequency governor"), "{error}");
    }
}
