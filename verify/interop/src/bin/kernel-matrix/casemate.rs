//! Casemate as a peer: `casemate run` in a namespace, smoltcp (`casemate-device`), and lwIP.

use crate::case::{Case, Family, Mode, Peer, Protocol, Sa};
use crate::link::SECOND_TAP;
use crate::xfrm::{self, Side};
use casemate_interop::{ENCAP_PORT, Error, Netns, Output, Result, run};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(5);
const STOP_LIMIT: Duration = Duration::from_secs(5);
const STATUS_LIMIT: Duration = Duration::from_secs(10);

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

    fn padded(&mut self) -> Result<Option<u64>> {
        let Output { status, stdout } = run(self.netns, STATUS_LIMIT, &self.program, &["status", "--json"])?;
        if status != 0 {
            return Err(Error::new(format!("casemate status: {}", stdout.trim_end())));
        }
        let value: Value = serde_json::from_str(&stdout).map_err(Error::context("casemate status --json"))?;
        let packets = value.pointer("/batch_padding/packets").and_then(Value::as_u64);
        packets.map(Some).ok_or_else(|| Error::new(format!("no `batch_padding.packets` in {stdout}")))
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

/// The bridge forwards frames after the kernel has noticed the carrier of its port.
const SETTLING: Duration = Duration::from_secs(2);

/// Running device program.
pub(crate) struct Device {
    program: casemate_interop::Device,
    directory: PathBuf,
    keys: fn(&Case) -> String,
}

/// Command of the smoltcp device in `netns`.
pub(crate) fn smoltcp(netns: &Netns, program: &Path) -> Command {
    let mut command = netns.command(program);
    command.args(["--tap", SECOND_TAP, "--mac", Side::Ours.mac(), "--neighbour", Side::Guest.mac()]);
    for address in addresses() {
        command.arg("--address").arg(address);
    }
    command
}

/// Addresses of a device. Those behind tunnels come first: they are the sources if no other address is
/// nearer.
pub(crate) fn addresses() -> impl Iterator<Item = String> {
    [(Family::V4, 24, 32), (Family::V6, 64, 128)].into_iter().flat_map(|(family, link, behind)| {
        let (near, far) = (Side::Ours.link(family), Side::Ours.behind(family));
        [format!("{far}/{behind}"), format!("{near}/{link}")]
    })
}

impl Device {
    /// Device that `command` starts, with the file of each case in `directory`; `keys` returns its
    /// contents.
    pub(crate) fn start(command: Command, directory: &Path, keys: fn(&Case) -> String) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
        let program = casemate_interop::Device::start(command, &directory.join("log"))?;
        std::thread::sleep(SETTLING);
        Ok(Self { program, directory: directory.into(), keys })
    }
}

impl Peer for Device {
    fn start(&mut self, case: &Case) -> Result<()> {
        let file = self.directory.join("keys");
        fs::write(&file, (self.keys)(case)).map_err(Error::context(file.display()))?;
        self.program.execute_ok(&format!("keys {}", file.display())).map(drop)
    }

    fn probe(&mut self, arguments: &str) -> Result<Output> {
        self.program.execute(arguments)
    }

    fn stop(&mut self, _: &Case) -> Result<()> {
        match self.program.execute_ok("drops")?.as_str() {
            "nothing dropped" => Ok(()),
            other => Err(Error::new(format!("the device {other}"))),
        }
    }
}

/// Whether a device can run a case: its stack sends no bursts.
pub(crate) fn is_for_devices(case: &Case) -> bool {
    case.bursts.is_none()
}

/// Algorithms that the library for devices does not contain.
const LEGACY: [&str; 3] = ["md5", "des", "3des"];

/// Whether a device with lwIP can run a case: the library has to contain its algorithms.
pub(crate) fn is_for_lwip(case: &Case) -> bool {
    is_for_devices(case)
        && case.sas.iter().all(|sa| !sa.suite.name.split('-').any(|part| LEGACY.contains(&part)))
}

/// Command of the program in `netns`. Writes its configuration to `directory`.
pub(crate) fn command(netns: &Netns, program: &Path, is_below: bool, directory: &Path) -> Result<Command> {
    fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
    let file = directory.join("config");
    // An interface of lwIP has one IPv4 address: the one on the link comes first.
    let mut addresses: Vec<String> = addresses().collect();
    addresses.reverse();
    let lines: String = addresses.iter().map(|address| format!("address {address}\n")).collect();
    let text = format!("{lines}neighbour {}\nunmatched bypass\n", Side::Guest.mac());
    fs::write(&file, text).map_err(Error::context(file.display()))?;
    let mut command = netns.command(program);
    command.args(["--console", "--tap", SECOND_TAP, "--mac", Side::Ours.mac(), "--config"]).arg(file);
    if is_below {
        command.arg("--below");
    }
    Ok(command)
}

/// Configuration of the program for a case.
pub(crate) fn lines(case: &Case) -> String {
    let mut text = String::from("unmatched bypass\n");
    for (layer, sa) in case.sas.iter().enumerate() {
        for from in [Side::Ours, Side::Guest] {
            text.push_str(&state(case, layer, sa, from));
        }
    }
    text.push_str(&policy(case, Side::Ours));
    text.push_str(&policy(case, Side::Guest));
    text
}

fn direction(from: Side) -> &'static str {
    if from == Side::Ours { "out" } else { "in" }
}

fn state(case: &Case, layer: usize, sa: &Sa, from: Side) -> String {
    let (src, dst) = (from.link(case.outer), from.other().link(case.outer));
    let Sa { protocol, mode, window, used, .. } = sa;
    let mut line = format!(
        "sa {} {protocol} {mode} src {src} dst {dst} spi {:#x} suite {} window {window} last {used}",
        direction(from),
        xfrm::spi(layer, from),
        sa.suite.name,
    );
    if sa.esn {
        line.push_str(" esn");
    }
    if sa.encap {
        let _ = write!(line, " udp {ENCAP_PORT}");
    }
    if sa.protocol == Protocol::Ah {
        // Default alignment of Linux.
        line.push_str(" align8");
    }
    for (name, key) in xfrm::keys(case, layer, sa, from) {
        let _ = write!(line, " {name} {key}");
    }
    line.push('\n');
    line
}

fn policy(case: &Case, from: Side) -> String {
    let (src, dst) = (from.user(case), from.other().user(case));
    let mut line = format!("policy {} src {src} dst {dst} priority 100 protect", direction(from));
    for (layer, sa) in case.sas.iter().enumerate() {
        let around = if layer > 0 { " around" } else { "" };
        let _ = write!(line, "{around} {} {}", sa.protocol, sa.mode);
        if case.is_tunnel() || sa.mode == Mode::Tunnel {
            let _ = write!(line, " from {} to {}", from.link(case.outer), from.other().link(case.outer));
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    #[test]
    fn cases_with_missing_algorithms_are_excluded() {
        let cases = case::all().into_iter().filter(is_for_devices);
        let (known, unknown): (Vec<_>, Vec<_>) = cases.partition(is_for_lwip);
        assert!(unknown.iter().all(|case| case.name.contains("md5") || case.name.contains("des")));
        assert_eq!((known.len(), unknown.len()), (317, 24));
    }

    #[test]
    fn bundle_is_configured() {
        let case =
            case::all().into_iter().find(|case| case.name == "ah+esp/aes128-sha1+sha1/tunnel/v4").unwrap();
        let text = lines(&case);
        assert!(text.contains(
            "policy out src 10.99.1.1 dst 10.99.2.1 priority 100 protect esp tunnel from 10.9.0.1 to 10.9.0.2 around ah \
             transport from 10.9.0.1 to 10.9.0.2\n"
        ));
        assert!(text.contains(
            "sa in ah transport src 10.9.0.2 dst 10.9.0.1 spi 0x1102 suite sha1 window 64 last 0 align8"
        ));
    }
}
