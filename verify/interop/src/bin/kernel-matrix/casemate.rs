//! Casemate as a peer: `casemate run` in a namespace, with one process for each case.

use crate::case::Case;
use crate::case::Peer;
use crate::xfrm::{self, Side};
use casemate_interop::{Error, Netns, Output, Result};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(5);
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Gateway process and its files.
pub(crate) struct Casemate<'a> {
    netns: &'a Netns,
    program: PathBuf,
    probe: PathBuf,
    directory: PathBuf,
    running: Option<Child>,
    echo: Child,
}

impl<'a> Casemate<'a> {
    /// Gateway in `netns`, with the files of each case in `directory`.
    pub(crate) fn new(netns: &'a Netns, program: &Path, probe: &Path, directory: &Path) -> Result<Self> {
        let echo = netns.command(probe).arg("echo").spawn().map_err(Error::context("probe echo"))?;
        let (program, probe, directory) = (program.into(), probe.into(), directory.into());
        Ok(Self { netns, program, probe, directory, running: None, echo })
    }

    /// File of the current case. Each case creates its files anew.
    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn said(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// Waits for the line that reports that traffic is protected.
    fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            if self.said().lines().any(|line| line.trim_end() == "ready") {
                return Ok(());
            }
            if let Some(status) = self.running.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                return Err(Error::new(format!("casemate exited at once, {status}: {}", self.said())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(Error::new(format!("casemate is not ready after {} s: {}", START_LIMIT.as_secs(), self.said())))
    }
}

impl Peer for Casemate<'_> {
    fn start(&mut self, case: &Case) -> Result<()> {
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::context(self.directory.display())(error));
            }
            _ => fs::create_dir_all(&self.directory).map_err(Error::context(self.directory.display()))?,
        }
        let file = self.file("xfrm");
        fs::write(&file, xfrm::lines(case, Side::Ours)).map_err(Error::context(file.display()))?;
        let log = File::create(self.file("log")).map_err(Error::context("log"))?;
        let errors = log.try_clone().map_err(Error::context("log"))?;
        let mut command = self.netns.command(&self.program);
        command.args(["run", "--xfrm"]).arg(file);
        if case.needs_counters() {
            command.arg("--counters").arg(self.file("counters"));
        }
        let child = command.stdout(log).stderr(errors).spawn();
        self.running = Some(child.map_err(Error::context(self.program.display()))?);
        self.wait_until_ready()
    }

    fn probe(&mut self, arguments: &str) -> Result<Output> {
        let mut command = self.netns.command(&self.probe);
        let output = command.args(arguments.split(' ')).output().map_err(Error::context("probe"))?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Output { status: output.status.code().unwrap_or(-1), stdout })
    }

    fn stop(&mut self, _: &Case) -> Result<()> {
        let Some(mut child) = self.running.take() else { return Ok(()) };
        let start = Instant::now();
        terminate(&child);
        while start.elapsed() < STOP_LIMIT {
            match child.try_wait().map_err(Error::context("casemate"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(Error::new(format!("casemate exited with {status}: {}", self.said())));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        kill(&mut child);
        Err(Error::new(format!("casemate does not exit on SIGTERM: {}", self.said())))
    }
}

impl Drop for Casemate<'_> {
    fn drop(&mut self) {
        kill(&mut self.echo);
        if let Some(child) = self.running.as_mut() {
            kill(child);
        }
    }
}

fn terminate(child: &Child) {
    let pid = child.id().to_string();
    // The caller detects a process that has exited by itself.
    let _ = Command::new("sh").args(["-c", "kill -TERM $0", &pid]).stderr(Stdio::null()).status();
}

fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
