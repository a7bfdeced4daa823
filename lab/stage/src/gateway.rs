//! `casemate run` at one end of an arena.

#![expect(clippy::indexing_slicing, reason = "an end is 0 or 1")]

use crate::arena::Arena;
use crate::{Background, Error, Mask, Netns, Result, run};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a program may take until it is ready.
pub const START_LIMIT: Duration = Duration::from_secs(10);

/// The program, and which provider of algorithms it is to find.
#[derive(Debug, Clone)]
pub struct Gateway {
    program: PathBuf,
    /// Variables of its environment.
    environment: Vec<(&'static str, OsString)>,
}

impl Gateway {
    /// The program `casemate` in this directory, with every provider that it finds.
    pub fn in_directory(programs: &Path) -> Result<Self> {
        let program = programs.join("casemate");
        if !program.is_file() {
            return Err(Error::new(format!("{} is not there", program.display())));
        }
        Ok(Self { program, environment: Vec::new() })
    }

    /// The same without Intel's library: a file of its name in `directory` that is no library comes first.
    pub fn without_intels_library(mut self, directory: &Path) -> Result<Self> {
        let directory = directory.join("none");
        fs::create_dir_all(&directory)
            .and_then(|()| fs::write(directory.join("libIPSec_MB.so.1"), ""))
            .map_err(Error::in_front(directory.display()))?;
        self.environment.push(("LD_LIBRARY_PATH", directory.into()));
        Ok(self)
    }

    /// The same without the processor's instructions for AES, and so without Intel's library, which needs them.
    pub fn without_aes_instructions(self, directory: &Path) -> Result<Self> {
        let mut gateway = self.without_intels_library(directory)?;
        let variable = Mask::NO_AES.map(Mask::variable);
        gateway.environment.extend(variable.map(|(name, value)| (name, value.into())));
        Ok(gateway)
    }

    /// Why packets were dropped at an end, with how many were.
    pub fn drops(&self, arena: &Arena, end: usize) -> Result<Vec<(String, u64)>> {
        let output = run(&arena.ends[end], START_LIMIT, &self.program, &["status", "--json"])?;
        let status: Value = serde_json::from_str(&output.stdout).map_err(|_| {
            Error::new(format!("casemate status ended with {}: {}", output.status, output.stdout))
        })?;
        let drops = status["drops"].as_object().into_iter().flatten();
        let drops = drops.map(|(reason, count)| (reason.clone(), count.as_u64().unwrap_or_default()));
        Ok(drops.filter(|(_, count)| *count > 0).collect())
    }

    /// Starts it with these arguments and waits until it is ready. What it prints goes to the file `END` in `directory`.
    pub fn run<A: AsRef<OsStr>>(
        &self,
        arena: &Arena,
        end: usize,
        arguments: impl IntoIterator<Item = A>,
        directory: &Path,
    ) -> Result<Background> {
        self.run_in(&arena.ends[end], arguments, &directory.join(end.to_string()))
    }

    /// The same in any namespace; what it prints goes to the file `output`.
    pub fn run_in<A: AsRef<OsStr>>(
        &self,
        netns: &Netns,
        arguments: impl IntoIterator<Item = A>,
        output: &Path,
    ) -> Result<Background> {
        let mut command = netns.command(&self.program);
        command.arg("run").args(arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut process = Background::start("casemate", command, output)?;
        process.wait_until(START_LIMIT, |said| said.lines().any(|line| line.trim_end() == "ready"))?;
        Ok(process)
    }
}
