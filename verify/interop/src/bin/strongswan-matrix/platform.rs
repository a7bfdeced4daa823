//! Platform of a side, on which its peer runs and its traffic starts: a namespace of the host, which ends
//! with the case, a guest with its own kernel, or a device with its own stack.

mod guest;
mod tap;

use crate::path::interface;
use crate::peer::{Family, Side};
use crate::xfrm::Xfrm;
use casemate_interop::{Background, Error, Netns, Output, Result, run};
pub(crate) use guest::Guests;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
pub(crate) use tap::DevicePlatform;
pub(crate) use tap::FirmwarePlatform;

/// Limit for a program that ends by itself.
const RUN_LIMIT: Duration = Duration::from_secs(20);
const START_LIMIT: Duration = Duration::from_secs(15);
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Program to run, with its environment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) path: &'a Path,
    /// Names of environment variables, with the files that they refer to.
    pub(crate) environment: &'a [(&'a str, &'a Path)],
}

/// One of the two ends of the path.
pub(crate) trait Platform {
    /// Connects the platform to the router. The interface name in the router is that of `path::interface`.
    fn connect_to(&self, router: &Rc<Netns>) -> Result<()>;

    /// Configures the addresses and routes of the platform, after those of the router. State of earlier
    /// cases is removed.
    fn bring_up(&self) -> Result<()>;

    /// Disconnects devices that must outlive the router.
    fn disconnect(&self, router: &Netns);

    /// Runs lines of `ip -batch`, if the platform is a namespace.
    fn configure(&self, _lines: &str) -> Result<()> {
        Err(Error::new("the addresses of this platform do not change"))
    }

    /// Runs `probe ARGUMENTS` to its end, or an equivalent.
    fn probe(&self, arguments: &[&str]) -> Result<Output>;

    /// Starts `probe flow`.
    fn start_flow(&self, from: &str, to: &str) -> Result<Box<dyn FlowProbe>>;

    /// Returns a command that runs a program of the host, if the platform is a namespace.
    fn command(&self, program: &str) -> Result<Command> {
        Err(Error::new(format!("{program} does not run on this platform")))
    }

    /// Returns the SAs of the kernel on the platform; `None` if the kernel does not process ESP.
    fn xfrm(&self) -> Result<Option<Xfrm>>;
}

/// Platform that runs programs.
pub(crate) trait ProgramHost: Platform {
    /// Makes the files below a directory available on the platform at the same paths.
    fn copy_files(&self, directory: &Path) -> Result<()>;

    /// Returns the contents of a file on the platform, or an empty string if the file does not exist.
    fn read(&self, file: &Path) -> String;

    /// Runs a program to its end.
    fn run(&self, program: Program<'_>, arguments: &[&str]) -> Result<Output>;

    /// Starts a daemon and waits until the Unix socket `socket` accepts connections. The output of the
    /// program goes to the file `output`, in the directory of its other files.
    fn start(&self, program: Program<'_>, output: &Path, socket: &Path) -> Result<Box<dyn Daemon>>;
}

/// Daemon that runs until it is stopped or dropped.
pub(crate) trait Daemon {
    /// Stops the daemon with SIGTERM. Returns an error if its exit status is not 0.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// Flow of echo requests at a constant rate. It ends when the value is dropped.
pub(crate) trait FlowProbe {
    /// Ends the flow and returns the result that `probe flow` prints.
    fn stop(self: Box<Self>) -> Result<String>;
}

/// IP versions with their prefix lengths on the wire.
pub(crate) const FAMILIES: [(Family, u8); 2] = [(Family::V4, 24), (Family::V6, 64)];

/// Returns lines of `ip -batch` that configure the addresses of a platform, on `wire` and on the loopback
/// interface, and its routes.
fn addresses(side: Side, wire: &str) -> String {
    let mut lines = up(wire, "fe80::2");
    for (family, bits) in FAMILIES {
        lines.push_str(&format!("addr add {}/{bits} dev {wire}{}\n", side.wire(family), no_dad(family)));
        lines.push_str(&format!("addr add {} dev lo{}\n", side.behind(family), no_dad(family)));
        lines.push_str(&format!("route add default via {}\n", side.router(family)));
    }
    lines.push_str(&format!("addr add {} dev lo\n", side.second()));
    lines
}

/// Returns a line that brings an interface up with a fixed link-local address, which neighbor discovery
/// needs. For an address that the kernel generates, the kernel would run duplicate address detection.
pub(crate) fn up(interface: &str, address: &str) -> String {
    // In a single line, the kernel would bring the interface up first.
    format!(
        "link set dev {interface} addrgenmode none\nlink set dev {interface} up\n\
         addr add {address}/64 dev {interface} nodad\n"
    )
}

/// Option that disables duplicate address detection, which would delay the first packets.
pub(crate) fn no_dad(family: Family) -> &'static str {
    if family == Family::V6 { " nodad" } else { "" }
}

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

    fn configure(&self, lines: &str) -> Result<()> {
        self.netns.ip(lines)
    }

    fn probe(&self, arguments: &[&str]) -> Result<Output> {
        run(&self.netns, RUN_LIMIT, &self.probe, arguments)
    }

    fn start_flow(&self, from: &str, to: &str) -> Result<Box<dyn FlowProbe>> {
        let mut command = self.netns.command(&self.probe);
        command.args(["flow", from, to]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Box::new(NamespaceFlow { probe: command.spawn().map_err(Error::context("probe flow"))? }))
    }

    fn command(&self, program: &str) -> Result<Command> {
        Ok(self.netns.command(program))
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

impl FlowProbe for NamespaceFlow {
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
