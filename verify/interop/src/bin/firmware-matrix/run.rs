//! One case: boot, handshake, traffic, and what the wire saw of it.

use crate::case::{Case, With};
use crate::peer::{Casemate, Kernel, Peer};
use crate::wire::Wire;
use casemate_interop::{Error, FIRMWARE_MAC, Firmware, FirmwareSpec, Result};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The tap that QEMU is plugged into.
pub(crate) const TAP: &str = "tap0";
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// How long requests are counted, in seconds.
const MEASURE: &str = "2";
/// Sizes of echo requests: short ones, and up to many times the MTU.
const SIZES: &str = "1-40 1400 1472 3000 8000";
/// How often the page is fetched over one connection.
const PAGES: &str = "10";
/// Bytes over TCP, to the echo service and back, and to the discard service.
const BULK: &str = "100000";

/// Programs, the image, and where files may be left.
pub(crate) struct Places {
    pub(crate) image: PathBuf,
    pub(crate) casemate: PathBuf,
    pub(crate) probe: PathBuf,
    pub(crate) directory: PathBuf,
    /// Where a guest's kernel and initramfs are kept.
    pub(crate) images: PathBuf,
}

/// What a case measured.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// From the start of QEMU to the answer to the first echo request.
    pub(crate) first_answer: Duration,
    page: String,
    wire: Wire,
    /// Requests a second.
    pub(crate) requests: Option<f64>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wire { ike, esp, .. } = self.wire;
        let first = self.first_answer.as_millis();
        write!(f, "first answer {first} ms after QEMU's start; page: {}; {ike} IKE, {esp} ESP", self.page)?;
        self.requests.map_or(Ok(()), |rate| write!(f, "; {rate:.0} requests/s"))
    }
}

/// Runs a case with its peer. A guest that is booted for it stays in `kernel` if all went well.
pub(crate) fn one(case: &Case, places: &Places, kernel: &mut Option<Kernel>) -> Result<Outcome> {
    match case.peer {
        With::Casemate => between(case, places, &mut Casemate::new(case.family, places)?),
        With::Kernel => {
            let mut booted = match kernel.take() {
                Some(booted) => booted,
                None => Kernel::boot(places)?,
            };
            let outcome = between(case, places, &mut booted)?;
            *kernel = Some(booted);
            Ok(outcome)
        }
    }
}

/// Its files stay when it fails.
fn between(case: &Case, places: &Places, peer: &mut dyn Peer) -> Result<Outcome> {
    let directory = places.directory.join(case.name().replace('/', "-"));
    fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
    peer.start(case, &directory)?;
    let start = Instant::now();
    let spec = FirmwareSpec {
        image: &places.image,
        machine: case.machine.name(),
        tap: TAP,
        mac: FIRMWARE_MAC,
        captures: true,
        words: &case.firmware_file(),
        directory: &directory,
    };
    let mut firmware = Firmware::boot(peer.netns(), spec)?;
    let traffic = exchange(case, peer, &mut firmware, start);
    let traffic = traffic.and_then(|traffic| {
        let wire = Wire::read(&directory.join("wire.pcap"))?;
        wire.judge(case.is_protected())?;
        peer.stop()?;
        demand_silence(case, peer)?;
        Ok(Outcome { wire, ..traffic })
    });
    let outcome = traffic.map_err(|error| explain(&error, &firmware, &directory))?;
    drop(firmware);
    fs::remove_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
    Ok(outcome)
}

fn exchange(case: &Case, peer: &mut dyn Peer, firmware: &mut Firmware, start: Instant) -> Result<Outcome> {
    firmware.wait_until_ready()?;
    peer.establish(case)?;
    ask(case, peer, "ping", "56")?;
    let first_answer = start.elapsed();
    if let Some(suite) = case.suite_said().filter(|suite| !firmware.said().contains(suite)) {
        return Err(Error::new(format!("the firmware does not say `{suite}`")));
    }
    ask(case, peer, "ping", SIZES)?;
    let page = ask(case, peer, "page", PAGES)?;
    ask(case, peer, "tcp", BULK)?;
    ask(case, peer, "discard", BULK)?;
    let rate = |text: String| text.parse::<f64>().map_err(Error::in_front(text));
    let requests = if case.measures { Some(ask(case, peer, "rate", MEASURE).and_then(rate)?) } else { None };
    Ok(Outcome { first_answer, page, wire: Wire::default(), requests })
}

/// `probe COMMAND` from our address to the firmware's, with what else it wants to know.
pub(crate) fn ask(case: &Case, peer: &mut dyn Peer, command: &str, rest: &str) -> Result<String> {
    let words = [command, case.family.ours(), case.family.firmware()];
    let words: Vec<&str> = words.into_iter().chain(rest.split(' ')).collect();
    let output = peer.probe(&words)?;
    let said = output.stdout.trim_end();
    if output.status == 0 { Ok(said.into()) } else { Err(Error::new(format!("{command}: {said}"))) }
}

/// Now that nobody protects packets on our side, the firmware must not answer them.
fn demand_silence(case: &Case, peer: &mut dyn Peer) -> Result<()> {
    match ask(case, peer, "ping", "56") {
        Ok(_) if case.is_protected() => Err(Error::new("clear text was answered")),
        Err(error) if !case.is_protected() => Err(error),
        _ => Ok(()),
    }
}

/// An error with what the machine and its peer said.
pub(crate) fn explain(error: &Error, firmware: &Firmware, directory: &Path) -> Error {
    let log = fs::read_to_string(directory.join("gateway.log")).unwrap_or_default();
    let files = directory.display();
    Error::new(format!("{error}\n--- console:\n{}--- gateway:\n{log}--- files: {files}", firmware.said()))
}
