//! Run of one case: boot, handshake, traffic, and the check of the capture.

use crate::case::{Case, With};
use crate::peer::{Casemate, Kernel, Peer};
use crate::wire::Wire;
use casemate_interop::{Background, Error, FIRMWARE_MAC, Firmware, FirmwareSpec, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fmt, fs};

/// TAP interface of the firmware.
pub(crate) const TAP: &str = "tap0";
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// Duration of the measurement of requests, in seconds.
const MEASURE: &str = "2";
/// Sizes of echo requests: short ones, and up to several times the MTU.
const SIZES: &str = "1-40 1400 1472 3000 8000";
/// Number of fetches of the page over one connection.
const PAGES: &str = "10";
/// Bytes over TCP to the echo service and back, and to the discard service.
const BULK: &str = "100000";

/// Programs, image and directories.
pub(crate) struct Files {
    pub(crate) image: PathBuf,
    pub(crate) casemate: PathBuf,
    pub(crate) probe: PathBuf,
    pub(crate) directory: PathBuf,
    /// Cache of the guest's kernel and initramfs.
    pub(crate) images: PathBuf,
}

/// Results of a case.
#[derive(Debug, Clone)]
pub(crate) struct CaseOutcome {
    /// Time from the start of QEMU to the reply to the first echo request.
    pub(crate) first_answer: Duration,
    page: String,
    wire: Wire,
    /// Requests per second.
    pub(crate) requests: Option<f64>,
}

impl fmt::Display for CaseOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wire { ike, esp, .. } = self.wire;
        let first = self.first_answer.as_millis();
        write!(f, "first reply {first} ms after QEMU's start; page: {}; {ike} IKE, {esp} ESP", self.page)?;
        self.requests.map_or(Ok(()), |rate| write!(f, "; {rate:.0} requests/s"))
    }
}

/// Runs a case with its peer. If the case passes, a booted guest is kept in `kernel`.
pub(crate) fn one(case: &Case, files: &Files, kernel: &mut Option<Kernel>) -> Result<CaseOutcome> {
    match case.peer {
        With::Casemate => between(case, files, &mut Casemate::new(case.family, files)?),
        With::Kernel => {
            let mut booted = match kernel.take() {
                Some(booted) => booted,
                None => Kernel::boot(files)?,
            };
            let outcome = between(case, files, &mut booted)?;
            *kernel = Some(booted);
            Ok(outcome)
        }
    }
}

/// Runs a case. Its files are kept if it fails.
fn between(case: &Case, files: &Files, peer: &mut dyn Peer) -> Result<CaseOutcome> {
    let directory = files.directory.join(case.name().replace('/', "-"));
    fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
    peer.start(case, &directory)?;
    let start = Instant::now();
    let spec = FirmwareSpec {
        image: &files.image,
        machine: case.machine.name(),
        tap: TAP,
        mac: FIRMWARE_MAC,
        capture: true,
        config: &case.firmware_file(),
        directory: &directory,
    };
    let mut firmware = Firmware::boot(peer.netns(), spec)?;
    let traffic = exchange(case, peer, &mut firmware, start);
    let traffic = traffic.and_then(|traffic| {
        let wire = Wire::read(&directory.join("wire.pcap"))?;
        wire.judge(case.is_protected())?;
        peer.stop()?;
        demand_silence(case, peer)?;
        Ok(CaseOutcome { wire, ..traffic })
    });
    let outcome = traffic.map_err(|error| explain(&error, &firmware, &directory))?;
    drop(firmware);
    fs::remove_dir_all(&directory).map_err(Error::context(directory.display()))?;
    Ok(outcome)
}

fn exchange(
    case: &Case,
    peer: &mut dyn Peer,
    firmware: &mut Firmware,
    start: Instant,
) -> Result<CaseOutcome> {
    firmware.wait_until_ready()?;
    peer.establish(case)?;
    if let Some(suite) = case.suite_said().filter(|_| case.loss.is_some()) {
        // The last response may be lost.
        firmware.wait_until(LIMIT, |said| said.contains(&suite))?;
    }
    ask(case, peer, "ping", "56")?;
    let first_answer = start.elapsed();
    if let Some(suite) = case.suite_said().filter(|suite| !firmware.console_output().contains(suite)) {
        return Err(Error::new(format!("the firmware did not print `{suite}`")));
    }
    ask(case, peer, "ping", SIZES)?;
    let page = ask(case, peer, "page", PAGES)?;
    ask(case, peer, "tcp", BULK)?;
    ask(case, peer, "discard", BULK)?;
    if case.rohc {
        judge_rohc(&firmware.status()?)?;
    }
    let rate = |text: String| text.parse::<f64>().map_err(Error::context(text));
    let requests = if case.measures { Some(ask(case, peer, "rate", MEASURE).and_then(rate)?) } else { None };
    Ok(CaseOutcome { first_answer, page, wire: Wire::default(), requests })
}

/// Checks the firmware's status: headers of both directions were compressed to less than a half, and all
/// restored.
fn judge_rohc(status: &str) -> Result<()> {
    let lines: Vec<&str> = status.lines().filter(|line| line.starts_with("rohc: ")).collect();
    let is_good = |line: &&str| {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        matches!(numbers[..], [packets, after, before, 0] if packets > 0 && after.saturating_mul(2) < before)
    };
    match &lines[..] {
        [received, sent] if [received, sent].into_iter().all(is_good) => Ok(()),
        _ => Err(Error::new(format!("headers were not compressed, or not restored: {status}"))),
    }
}

/// Runs `probe COMMAND` from our address to the firmware's, with further arguments.
pub(crate) fn ask(case: &Case, peer: &mut dyn Peer, command: &str, rest: &str) -> Result<String> {
    let words = [command, case.family.ours(), case.family.firmware()];
    let words: Vec<&str> = words.into_iter().chain(rest.split(' ')).collect();
    let output = peer.probe(&words)?;
    let said = output.stdout.trim_end();
    if output.status == 0 { Ok(said.into()) } else { Err(Error::new(format!("{command}: {said}"))) }
}

/// Checks that the firmware does not reply to clear text, after the peer has stopped its protection.
fn demand_silence(case: &Case, peer: &mut dyn Peer) -> Result<()> {
    match ask(case, peer, "ping", "56") {
        Ok(_) if case.is_protected() => Err(Error::new("the firmware replied to clear text")),
        Err(error) if !case.is_protected() => Err(error),
        _ => Ok(()),
    }
}

/// Error with the output of the firmware and of its peer.
pub(crate) fn explain(error: &Error, firmware: &Firmware, directory: &Path) -> Error {
    let log = fs::read_to_string(directory.join("gateway.log")).unwrap_or_default();
    let files = directory.display();
    Error::new(format!(
        "{error}\n--- console:\n{}--- gateway:\n{log}--- files: {files}",
        firmware.console_output()
    ))
}

const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Input with which the firmware must stop, and what it must print. The code is that of a page fault (Intel
/// SDM volume 3, section 4.7): write to a present page (0x3), execution of a present page (0x11), or write to
/// an absent page (0x2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopCase {
    name: &'static str,
    /// Command line of the image.
    command_line: &'static [u8],
    /// File loaded with the image.
    file: &'static [u8],
    printed: &'static str,
}

impl StopCase {
    /// A violation of the memory protection, which the processor must detect.
    const fn fault(name: &'static str, file: &'static [u8], printed: &'static str) -> Self {
        Self { name, command_line: b"", file, printed }
    }
}

pub(crate) const STOP_CASES: [StopCase; 7] = [
    StopCase::fault("fault/write-code", b"address=10.9.0.2/24 fault=write-code\n", FAULT_3),
    StopCase::fault("fault/write-constants", b"address=10.9.0.2/24 fault=write-constants\n", FAULT_3),
    StopCase::fault("fault/run-heap", b"address=10.9.0.2/24 fault=run-heap\n", FAULT_11),
    StopCase::fault("fault/run-stack", b"address=10.9.0.2/24 fault=run-stack\n", FAULT_11),
    StopCase::fault("fault/fill-stack", b"address=10.9.0.2/24 fault=fill-stack\n", FAULT_2),
    StopCase {
        name: "refuse/command-line",
        command_line: b"address=10.9.0.2/24 psk=\xff",
        file: b"",
        printed: "error: the command line is not UTF-8",
    },
    StopCase {
        name: "refuse/file",
        command_line: b"address=10.9.0.2/24",
        file: b"psk=\xff\n",
        printed: "error: the file loaded with the image is not UTF-8",
    },
];

const FAULT_2: &str = "exception 14 (page fault), error code 0x2:";
const FAULT_3: &str = "exception 14 (page fault), error code 0x3:";
const FAULT_11: &str = "exception 14 (page fault), error code 0x11:";

impl StopCase {
    pub(crate) fn name(self) -> String {
        format!("pc/{}", self.name)
    }

    /// Boots the firmware, and waits until it stops with the expected message.
    pub(crate) fn run(self, files: &Files) -> Result<String> {
        fs::create_dir_all(&files.directory).map_err(Error::context(files.directory.display()))?;
        let name = self.name.replace('/', "-");
        let path = |suffix: &str| files.directory.join(format!("{name}.{suffix}"));
        let (file, log) = (path("conf"), path("log"));
        fs::write(&file, self.file).map_err(Error::context(file.display()))?;
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-machine", "pc", "-accel", "tcg", "-cpu", "max", "-m", "64", "-nodefaults"]);
        command.args(["-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"]);
        command.arg("-kernel").arg(&files.image);
        if !self.file.is_empty() {
            command.arg("-initrd").arg(&file);
        }
        if !self.command_line.is_empty() {
            command.arg("-append").arg(OsStr::from_bytes(self.command_line));
        }
        let mut qemu = Background::start("qemu", command, &log)?;
        let waited = qemu.wait_until(STOP_LIMIT, |said| said.contains(self.printed));
        // QEMU may have exited between two checks.
        if !qemu.output().contains(self.printed) {
            waited?;
        }
        drop(qemu);
        for file in [file, log] {
            fs::remove_file(&file).map_err(Error::context(file.display()))?;
        }
        Ok(self.printed.into())
    }
}
