//! Network namespace of the host, which ends with the case.

use super::{Daemon, Flow, Platform, Program, ProgramHost, RUN_LIMIT, START_LIMIT, STOP_LIMIT, addresses};
use crate::path::interface;
use crate::side::Side;
use crate::xfrm::Xfrm;
use casemate_interop::{Background, Error, Netns, Output, Result, run};
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::rc::Rc;

/// Namespace with an echo service.
pub(crate) struct NamespacePlatform {
    netns: Rc<Netns>,
    side: Side,
    probe: PathBuf,
    _echo: Background,
}

impl NamespacePlatform {
    /// Creates the platform in `netns`, with the files of the case in `directory`.
    pub(crate) fn new(netns: Rc<Netns>, side: Side, probe: &Path, directory: &Path) -> Result<Self> {
        let mut command = netns.command(probe);
        command.arg("echo");
        let output = directory.join(format!("echo-{}", side.name()));
        let echo = Background::start("probe echo", command, &output)?;
        Ok(Self { netns, side, probe: probe.into(), _echo: echo })
    }
}

impl Platform for NamespacePlatform {
    fn connect_to(&self, router: &Rc<Netns>) -> Result<()> {
        let link =
            format!("link add wire type veth peer name {} netns {}\n", interface(self.side), router.pid());
        self.netns.ip(&link)
    }

    fn bring_up(&self) -> Result<()> {
        // The capture must show single packets. With segmentation offload, the kernel would split large
        // ones only after the capture.
        self.netns.ip("link set wire gso_max_segs 1\n")?;
        self.netns.ip(&addresses(self.side, "wire"))
    }

    fn disconnect(&self, _: &Netns) {}

    fn probe(&self, arguments: &[&str]) -> Result<Output> {
        run(&self.netns, RUN_LIMIT, &self.probe, arguments)
    }

    fn start_flow(&self, from: &str, to: &str) -> Result<Box<dyn Flow>> {
        let mut command = self.netns.command(&self.probe);
        command.args(["flow", from, to]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Box::new(NamespaceFlow { probe: command.spawn().map_err(Error::context("probe flow"))? }))
    }

    fn xfrm(&self) -> Result<Option<Xfrm>> {
        Ok(None)
    }
}

impl ProgramHost for NamespacePlatform {
    fn copy_files(&self, _: &Path) -> Result<()> {
        Ok(())
    }

    fn read(&self, file: &Path) -> String {
        String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
    }

    fn run(&self, program: Program<'_>, arguments: &[&str]) -> Result<Output> {
        let setting = |(name, file): &(&str, &Path)| format!("{name}={}", file.display());
        let settings: Vec<String> = program.environment.iter().map(setting).collect();
        let path = program.path.display().to_string();
        let words = settings.iter().chain([&path]).map(String::as_str);
        run(&self.netns, RUN_LIMIT, "env", &words.chain(arguments.iter().copied()).collect::<Vec<_>>())
    }

    fn start(&self, program: Program<'_>, output: &Path, socket: &Path) -> Result<Box<dyn Daemon>> {
        let mut command = self.netns.command(program.path);
        command.envs(program.environment.iter().copied());
        let name = program.path.file_name().unwrap_or_default().to_string_lossy();
        let mut daemon = Background::start(&name, command, output)?;
        daemon.wait_until(START_LIMIT, |_| UnixStream::connect(socket).is_ok())?;
        Ok(Box::new(daemon))
    }
}

impl Daemon for Background {
    fn stop(self: Box<Self>) -> Result<()> {
        let status = Background::stop(*self, STOP_LIMIT)?;
        if status.success() { Ok(()) } else { Err(Error::new(format!("ended with {status}"))) }
    }
}

/// A `probe flow` on the host.
struct NamespaceFlow {
    probe: Child,
}

impl Flow for NamespaceFlow {
    fn stop(mut self: Box<Self>) -> Result<String> {
        // `probe flow` ends when its standard input ends.
        drop(self.probe.stdin.take());
        let mut output = String::new();
        if let Some(mut stdout) = self.probe.stdout.take() {
            stdout.read_to_string(&mut output).map_err(Error::context("probe flow"))?;
        }
        Ok(output)
    }
}

impl Drop for NamespaceFlow {
    fn drop(&mut self) {
        let _ = self.probe.kill();
        let _ = self.probe.wait();
    }
}
