//! Where it takes place: a host with the kernel's stack and this program's gateway, and a device at the other end of a cable.

use super::flow::{Count, Flow};
use super::order::PORT;
use super::protection::{DEVICE, HOST, Side, Suite};
use crate::Context;
use casemate_stage::gateway::{Gateway, START_LIMIT};
use casemate_stage::meter::Meter;
use casemate_stage::{Background, Error, Netns, Result};
use std::ffi::OsStr;
use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The cable: a TAP interface, which the device has opened.
pub(super) const TAP: &str = "device0";
/// The gateways' interface.
const GATEWAY: &str = "casemate0";
/// The longest packet of the host in every row, so that segments are of one length: protected, it still fits 1,500 bytes.
pub(super) const MTU: u32 = 1_400;
/// How long a connection may take, and all tries together.
const TRY: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(3);

/// What the device's stack is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// smoltcp, a library of the application.
    Library,
    /// lwIP, a library of the application.
    Lwip,
    /// `casemate stack`, which has smoltcp in it, and the application beside.
    Server,
}

/// A device to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) home: Home,
    pub(super) suite: Suite,
}

/// What a measurement came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    pub(super) count: Count,
    /// CPU time of the device's programs meanwhile.
    pub(super) cpu: Duration,
}

/// The host, and what is needed to start the rest.
pub(super) struct Ground {
    pub(super) host: Netns,
    gateway: Gateway,
    program: PathBuf,
    lwip: Option<PathBuf>,
    pub(super) scratch: PathBuf,
}

/// A device at work, with the host's gateway if anything is protected.
pub(super) struct Site<'g> {
    ground: &'g Ground,
    /// The programs of the device.
    pub(super) device: Vec<Background>,
    _gateway: Option<Background>,
}

impl Ground {
    /// `lwip` is the program with lwIP, where there is one.
    pub(super) fn new(context: &Context, lwip: Option<PathBuf>) -> Result<Self> {
        let host = Netns::new()?;
        host.ip(&format!(
            "tuntap add dev {TAP} mode tap\naddr add {HOST}/24 dev {TAP}\nlink set {TAP} up\n"
        ))?;
        let programs = context.program.parent().ok_or_else(|| Error::new("the program is nowhere"))?;
        Ok(Self {
            host,
            gateway: Gateway::in_directory(programs)?,
            program: context.program.clone(),
            lwip,
            scratch: context.scratch.clone(),
        })
    }

    /// Starts a device, and the host's part of what protects it.
    pub(super) fn enter(&self, subject: Subject) -> Result<Site<'_>> {
        let suite = subject.suite;
        // The server takes no manual keys.
        let negotiates = subject.home == Home::Server && suite.protects();
        self.direct(suite.protects())?;
        let gateway = match (suite.protects(), negotiates) {
            (false, _) => None,
            (true, false) => {
                Some(self.guard(&["--xfrm", &self.write("host.xfrm", &suite.xfrm(Side::Host))?])?)
            }
            (true, true) => {
                let conf = self.write("host.conf", &super::negotiation::configuration(Side::Host, "", ""))?;
                Some(self.guard(&["--config", &conf])?)
            }
        };
        let device = match subject.home {
            Home::Library => vec![self.library(suite)?],
            Home::Lwip => vec![self.lwip(suite)?],
            Home::Server => self.server(suite)?,
        };
        let site = Site::of(self, device, gateway);
        site.connect()?;
        Ok(site)
    }

    /// The host's gateway.
    pub(super) fn guard(&self, arguments: &[&str]) -> Result<Background> {
        let counters = self.scratch.join("counters");
        // Numbers that were used before have nothing to say to this one's keys; a file that is not there is right.
        let _ = std::fs::remove_file(&counters);
        let counters = counters.display().to_string();
        let more = if arguments.contains(&"--xfrm") { vec!["--counters", &counters] } else { Vec::new() };
        let all = arguments.iter().copied().chain(more).chain(["--threads", "1"]);
        let gateway = self.gateway.run_in(&self.host, all, &self.scratch.join("gateway"))?;
        self.host.ip(&format!("link set {GATEWAY} mtu {MTU}\n"))?;
        Ok(gateway)
    }

    /// Leads packets to the device as they are, no longer than those that are protected; or leaves them to the gateway.
    fn direct(&self, is_protected: bool) -> Result<()> {
        let verb = if is_protected { "flush" } else { "replace" };
        let line = match is_protected {
            true => format!("route {verb} {DEVICE}/32\n"),
            false => {
                let segment = MTU - 40;
                format!("route {verb} {DEVICE}/32 dev {TAP} src {HOST} mtu lock {MTU} advmss {segment}\n")
            }
        };
        self.host.ip(&line)
    }

    /// Writes a file for a program.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<String> {
        let file = self.scratch.join(name);
        std::fs::write(&file, text).map_err(Error::in_front(file.display()))?;
        Ok(file.display().to_string())
    }

    /// Starts a program of the device and waits until it says that it is ready.
    pub(super) fn start<A: AsRef<OsStr>>(
        &self,
        name: &str,
        program: &std::path::Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Background> {
        let mut command = self.host.command(program);
        command.args(arguments);
        let mut process = Background::start(name, command, &self.scratch.join(format!("{name}.out")))?;
        process
            .wait_until(START_LIMIT, |said| said.lines().any(|line| line.trim_end().ends_with("ready")))?;
        Ok(process)
    }

    /// The program that has the application and smoltcp in it.
    pub(super) fn device(&self, more: &[&str]) -> Result<Background> {
        let address = format!("{DEVICE}/24");
        let own = ["lab", "device", "--tap", TAP, "--address", &address];
        self.start("library", &self.program, own.iter().chain(more))
    }

    fn library(&self, suite: Suite) -> Result<Background> {
        match suite {
            Suite::Plain => self.device(&["--unguarded"]),
            Suite::Unused => self.device(&[]),
            _ => self.device(&["--xfrm", &self.write("device.xfrm", &suite.xfrm(Side::Device))?]),
        }
    }

    fn lwip(&self, suite: Suite) -> Result<Background> {
        let program = self.lwip.as_ref().ok_or_else(|| Error::new("there is no program with lwIP"))?;
        let config = self.write("device.lwip", &suite.lwip())?;
        let own = ["--tap", TAP, "--config", &config];
        let plain = (suite == Suite::Plain).then_some("--plain");
        self.start("lwip", program, own.into_iter().chain(plain))
    }

    fn server(&self, suite: Suite) -> Result<Vec<Background>> {
        let (address, socket) =
            (format!("{DEVICE}/24"), self.scratch.join("stack.sock").display().to_string());
        let own = ["stack", "--tap", TAP, "--address", &address, "--socket", &socket];
        let conf =
            self.write("device.conf", &super::negotiation::configuration(Side::Device, "", "start"))?;
        let more = if suite.protects() { vec!["--config", &conf] } else { vec!["--clear"] };
        let mut server = self.start("server", &self.program, own.into_iter().chain(more))?;
        if suite.protects() {
            server.wait_until(START_LIMIT, |said| said.contains(super::negotiation::CHILD))?;
        }
        let application = self.start("application", &self.program, ["lab", "device", "--socket", &socket])?;
        Ok(vec![application, server])
    }
}

impl<'g> Site<'g> {
    /// Of programs that stand already.
    pub(super) const fn of(ground: &'g Ground, device: Vec<Background>, gateway: Option<Background>) -> Self {
        Self { ground, device, _gateway: gateway }
    }

    /// One measurement.
    pub(super) fn measure(&self, flow: Flow, size: usize, time: Duration) -> Result<Outcome> {
        let stream = self.connect()?;
        let meter = Meter::new(&self.device);
        let before = meter.cpu()?;
        let count = flow.measure(stream, size, time).map_err(|error| {
            let said: Vec<String> = self.device.iter().map(Background::said).collect();
            Error::new(format!("{flow}, {size} bytes: {error}; {}", said.join(" ")))
        })?;
        Ok(Outcome { count, cpu: meter.cpu()?.saturating_sub(before) })
    }

    /// A connection to the device's application. The first packets may be lost while the cable comes up.
    fn connect(&self) -> Result<TcpStream> {
        let to: SocketAddr = format!("{DEVICE}:{PORT}").parse().map_err(Error::in_front(DEVICE))?;
        let begun = Instant::now();
        loop {
            match self.ground.host.inside(|| TcpStream::connect_timeout(&to, TRY))? {
                Err(_) if begun.elapsed() <= PATIENCE => std::thread::sleep(Duration::from_millis(5)),
                connected => return connected.map_err(Error::in_front(to)),
            }
        }
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        // The application before its server.
        self.device.drain(..).for_each(drop);
    }
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Library => "smoltcp",
            Self::Lwip => "lwIP",
            Self::Server => "stack server",
        })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.home, self.suite)
    }
}
