//! Testbed: a host with the kernel's stack and a Casemate gateway, and a device at the other end of a cable.

use super::flow::PORT;
use super::flow::{Count, Flow};
use super::protection::{DEVICE, HOST, Side, Suite};
use crate::Context;
use casemate_testbed::Meter;
use casemate_testbed::gateway::{Gateway, START_TIMEOUT};
use casemate_testbed::{Background, Error, Netns, Result};
use std::ffi::OsStr;
use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The cable: a TAP interface that the device opens.
pub(super) const TAP: &str = "device0";
/// Interface of the gateway.
const GATEWAY_INTERFACE: &str = "casemate0";
/// Longest packet of the host in every row, for equal segment lengths. Protected packets still fit 1,500
/// bytes.
pub(super) const MTU: u32 = 1_400;
/// Time limit of one connection attempt, and of all attempts.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// TCP/IP stack of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StackKind {
    /// smoltcp as a library of the application.
    Library,
    /// The same on a link that loses this share of the frames in each direction, in percent.
    Lossy(u8),
    /// lwIP as a library of the application, with IPsec inside IP.
    Lwip,
    /// lwIP with IPsec below IP.
    LwipBelow,
    /// `casemate stack` with smoltcp, and an application as its client.
    Server,
}

/// A device and a protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) stack: StackKind,
    pub(super) suite: Suite,
}

/// Result of one measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) count: Count,
    /// CPU time of the device's programs during the measurement.
    pub(super) cpu: Duration,
}

/// The host, and the programs to start.
pub(super) struct Testbed {
    pub(super) host: Netns,
    gateway: Gateway,
    program: PathBuf,
    lwip: Option<PathBuf>,
    pub(super) scratch: PathBuf,
}

/// A running device, with the host's gateway if packets are protected.
pub(super) struct RunningDevice<'g> {
    testbed: &'g Testbed,
    /// Programs of the device.
    pub(super) device: Vec<Background>,
    _gateway: Option<Background>,
}

impl StackKind {
    /// Whether connections wait for retransmissions.
    pub(super) const fn loses_packets(self) -> bool {
        matches!(self, Self::Lossy(1..))
    }
}

impl Testbed {
    /// Creates the host. `lwip` is the program with lwIP, for devices with it.
    pub(super) fn new(context: &Context, lwip: Option<PathBuf>) -> Result<Self> {
        let host = Netns::new()?;
        host.ip(&format!(
            "tuntap add dev {TAP} mode tap\naddr add {HOST}/24 dev {TAP}\nlink set {TAP} up\n"
        ))?;
        let programs =
            context.program.parent().ok_or_else(|| Error::new("the path of the program has no directory"))?;
        Ok(Self {
            host,
            gateway: Gateway::in_directory(programs)?,
            program: context.program.clone(),
            lwip,
            scratch: context.scratch.clone(),
        })
    }

    /// Starts a device and, if necessary, the gateway of the host.
    pub(super) fn start_device(&self, case: Case) -> Result<RunningDevice<'_>> {
        let suite = case.suite;
        // The stack server does not support manual keys.
        let negotiates = case.stack == StackKind::Server && suite.protects();
        self.set_route(suite.protects())?;
        let gateway = match (suite.protects(), negotiates) {
            (false, _) => None,
            (true, false) => {
                Some(self.start_gateway(&["--xfrm", &self.write("host.xfrm", &suite.xfrm(Side::Host))?])?)
            }
            (true, true) => {
                let conf = self.write("host.conf", &swanctl_conf(Side::Host, "", ""))?;
                Some(self.start_gateway(&["--config", &conf])?)
            }
        };
        let device = match case.stack {
            StackKind::Library => vec![self.smoltcp_device(suite, &[])?],
            StackKind::Lossy(percent) => vec![self.smoltcp_device(suite, &["--lose", &percent.to_string()])?],
            StackKind::Lwip => vec![self.lwip_device(suite, None)?],
            StackKind::LwipBelow => vec![self.lwip_device(suite, Some("--below"))?],
            StackKind::Server => self.stack_server(suite)?,
        };
        let site = RunningDevice::of(self, device, gateway);
        site.connect()?;
        Ok(site)
    }

    /// Starts the gateway of the host.
    pub(super) fn start_gateway(&self, arguments: &[&str]) -> Result<Background> {
        let counters = self.scratch.join("counters");
        // Counters of previous SAs must not apply to the new keys. The file may not exist.
        let _ = std::fs::remove_file(&counters);
        let counters = counters.display().to_string();
        let more = if arguments.contains(&"--xfrm") { vec!["--counters", &counters] } else { Vec::new() };
        let all = arguments.iter().copied().chain(more).chain(["--threads", "1"]);
        let gateway = self.gateway.start_in(&self.host, all, &self.scratch.join("gateway"))?;
        self.host.ip(&format!("link set {GATEWAY_INTERFACE} mtu {MTU}\n"))?;
        Ok(gateway)
    }

    /// Routes packets to the device directly, with the MTU of protected packets, or removes that route in
    /// favour of the gateway.
    fn set_route(&self, is_protected: bool) -> Result<()> {
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

    /// Writes a file and returns its path.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<String> {
        let file = self.scratch.join(name);
        std::fs::write(&file, text).map_err(Error::context(file.display()))?;
        Ok(file.display().to_string())
    }

    /// Starts a program of the device and waits until it is ready.
    pub(super) fn start_program<A: AsRef<OsStr>>(
        &self,
        name: &str,
        program: &std::path::Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Background> {
        let mut command = self.host.command(program);
        command.args(arguments);
        let mut process = Background::start(name, command, &self.scratch.join(format!("{name}.out")))?;
        process.wait_until(START_TIMEOUT, |output| {
            output.lines().any(|line| line.trim_end().ends_with("ready"))
        })?;
        Ok(process)
    }

    /// Starts the program that contains the application and smoltcp.
    pub(super) fn start_smoltcp_device(&self, more: &[&str]) -> Result<Background> {
        let address = format!("{DEVICE}/24");
        let own = ["lab", "device", "--tap", TAP, "--address", &address];
        self.start_program("library", &self.program, own.iter().chain(more))
    }

    fn smoltcp_device(&self, suite: Suite, more: &[&str]) -> Result<Background> {
        let xfrm = self.write("device.xfrm", &suite.xfrm(Side::Device))?;
        let own: &[&str] = match suite {
            Suite::Plain => &["--unguarded"],
            Suite::Unused => &[],
            _ => &["--xfrm", &xfrm],
        };
        self.start_smoltcp_device(&[own, more].concat())
    }

    fn lwip_device(&self, suite: Suite, placement: Option<&str>) -> Result<Background> {
        let program =
            self.lwip.as_ref().ok_or_else(|| Error::new("this testbed has no program with lwIP"))?;
        let config = self.write("device.lwip", &suite.lwip())?;
        let own = ["--tap", TAP, "--config", &config];
        let plain = (suite == Suite::Plain).then_some("--plain");
        self.start_program("lwip", program, own.into_iter().chain(plain).chain(placement))
    }

    fn stack_server(&self, suite: Suite) -> Result<Vec<Background>> {
        let (address, socket) =
            (format!("{DEVICE}/24"), self.scratch.join("stack.sock").display().to_string());
        let own = ["stack", "--tap", TAP, "--address", &address, "--socket", &socket];
        let conf = self.write("device.conf", &swanctl_conf(Side::Device, "", "start"))?;
        let more = if suite.protects() { vec!["--config", &conf] } else { vec!["--clear"] };
        let mut server = self.start_program("server", &self.program, own.into_iter().chain(more))?;
        if suite.protects() {
            server.wait_until(START_TIMEOUT, |output| output.contains(CHILD))?;
        }
        let application =
            self.start_program("application", &self.program, ["lab", "device", "--socket", &socket])?;
        Ok(vec![application, server])
    }
}

impl<'g> RunningDevice<'g> {
    /// Wraps programs that are already running.
    pub(super) const fn of(
        testbed: &'g Testbed,
        device: Vec<Background>,
        gateway: Option<Background>,
    ) -> Self {
        Self { testbed, device, _gateway: gateway }
    }

    /// Makes one measurement.
    pub(super) fn measure(&self, flow: Flow, size: usize, time: Duration) -> Result<Sample> {
        let stream = self.connect()?;
        let meter = Meter::new(&self.device);
        let before = meter.cpu_time()?;
        let count = flow.measure(stream, size, time).map_err(|error| {
            let output: Vec<String> = self.device.iter().map(Background::output).collect();
            Error::new(format!("{flow}, {size} bytes: {error}; {}", output.join(" ")))
        })?;
        Ok(Sample { count, cpu: meter.cpu_time()?.saturating_sub(before) })
    }

    /// Connects to the application of the device. The first packets may be lost until the cable is up.
    fn connect(&self) -> Result<TcpStream> {
        let to: SocketAddr = format!("{DEVICE}:{PORT}").parse().map_err(Error::context(DEVICE))?;
        let start = Instant::now();
        loop {
            match self.testbed.host.run_in(|| TcpStream::connect_timeout(&to, CONNECT_TIMEOUT))? {
                Err(_) if start.elapsed() <= CONNECT_LIMIT => std::thread::sleep(Duration::from_millis(5)),
                connected => return connected.map_err(Error::context(to)),
            }
        }
    }
}

impl Drop for RunningDevice<'_> {
    fn drop(&mut self) {
        // The application must end before its server.
        self.device.drain(..).for_each(drop);
    }
}

impl fmt::Display for StackKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Library => "smoltcp",
            Self::Lossy(percent) => return write!(f, "smoltcp, {percent} % lost"),
            Self::Lwip => "lwIP",
            Self::LwipBelow => "lwIP, below IP",
            Self::Server => "stack server",
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.stack, self.suite)
    }
}

/// Names of the connection and its child.
pub(super) const CONNECTION: &str = "device";
pub(super) const CHILD: &str = "traffic";
/// Default key exchange method.
pub(super) const METHOD: &str = "x25519";

/// Returns `swanctl.conf` of one side, with one Child SA in transport mode. `child` contains more lines for
/// the child, such as `rekey_time = 1s`; `start` is its `start_action` or empty.
pub(super) fn swanctl_conf(side: Side, child: &str, start: &str) -> String {
    swanctl_conf_with(side, METHOD, child, start)
}

/// Returns `swanctl.conf` with this key exchange method.
pub(super) fn swanctl_conf_with(side: Side, method: &str, child: &str, start: &str) -> String {
    let (local, remote) = if side == Side::Host { (HOST, DEVICE) } else { (DEVICE, HOST) };
    let start = if start.is_empty() { "none" } else { start };
    format!(
        "connections {{\n {CONNECTION} {{\n version = 2\n local_addrs = {local}\n remote_addrs = {remote}\n \
         proposals = aes128-sha256-{method}\n \
         local {{\n auth = psk\n id = {local}\n }}\n remote {{\n auth = psk\n id = {remote}\n }}\n \
         children {{\n {CHILD} {{\n mode = transport\n local_ts = {local}/32\n remote_ts = {remote}/32\n \
         esp_proposals = aes128gcm16\n start_action = {start}\n {child}\n }}\n }}\n }}\n}}\n\
         secrets {{\n ike-1 {{\n secret = \"protects nothing\"\n }}\n}}\n"
    )
}
