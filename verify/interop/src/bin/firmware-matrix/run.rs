//! One case: boot, handshake, traffic, and what the wire saw of it.

use crate::case::{Case, Family};
use crate::gateway::Gateway;
use crate::machine::{self, Firmware, TAP};
use crate::wire::Wire;
use casemate_interop::{Error, Netns, Result, run};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);
/// How long requests are counted, in seconds.
const MEASURE: &str = "2";
/// Sizes of echo requests: short ones, and up to many times the MTU.
const SIZES: &str = "1-40 1400 1472 3000 8000";
/// Bytes over TCP, to the echo service and back, and to the discard service.
const BULK: &str = "100000";

/// Programs, the image, and where files may be left.
pub(crate) struct Places {
    pub(crate) image: PathBuf,
    pub(crate) casemate: PathBuf,
    pub(crate) probe: PathBuf,
    pub(crate) directory: PathBuf,
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

/// Runs a case. Its files stay when it fails.
pub(crate) fn one(case: &Case, places: &Places) -> Result<Outcome> {
    let directory = places.directory.join(case.name().replace('/', "-"));
    fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
    let netns = namespace(case.family)?;
    let mut gateway = Gateway::start(&netns, case, &places.casemate, &directory)?;
    let start = Instant::now();
    let mut firmware = Firmware::boot(&netns, case, &places.image, &directory)?;
    let traffic = exchange(case, places, &netns, &mut gateway, &mut firmware, start);
    let traffic = traffic.and_then(|traffic| {
        let wire = Wire::read(&machine::capture(&directory))?;
        wire.judge(case.is_protected())?;
        gateway.map_or(Ok(()), Gateway::stop)?;
        demand_silence(case, places, &netns)?;
        Ok(Outcome { wire, ..traffic })
    });
    let outcome = traffic.map_err(|error| explain(&error, &firmware, &directory))?;
    drop(firmware);
    fs::remove_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
    Ok(outcome)
}

/// Our side of the link. Addresses that the kernel would make by itself are none of it.
fn namespace(family: Family) -> Result<Netns> {
    let netns = Netns::new()?;
    let nodad = if family == Family::V6 { " nodad" } else { "" };
    netns.ip(&format!(
        "tuntap add dev {TAP} mode tap\nlink set {TAP} addrgenmode none\nlink set {TAP} up\naddr add {}/{} dev {TAP}{nodad}\n",
        family.ours(),
        family.prefix()
    ))?;
    Ok(netns)
}

fn exchange(
    case: &Case,
    places: &Places,
    netns: &Netns,
    gateway: &mut Option<Gateway>,
    firmware: &mut Firmware,
    start: Instant,
) -> Result<Outcome> {
    firmware.wait_until_ready()?;
    if let Some(gateway) = gateway {
        gateway.establish(netns, case, &places.casemate)?;
    }
    ask(case, places, netns, "ping", "56")?;
    let first_answer = start.elapsed();
    ask(case, places, netns, "ping", SIZES)?;
    let page = ask(case, places, netns, "page", "1")?;
    ask(case, places, netns, "tcp", BULK)?;
    ask(case, places, netns, "discard", BULK)?;
    let rate = |text: String| text.parse::<f64>().map_err(Error::in_front(text));
    let requests =
        if case.measures { Some(ask(case, places, netns, "rate", MEASURE).and_then(rate)?) } else { None };
    Ok(Outcome { first_answer, page, wire: Wire::default(), requests })
}

/// `probe COMMAND` from our address to the firmware's, with what else it wants to know.
fn ask(case: &Case, places: &Places, netns: &Netns, command: &str, rest: &str) -> Result<String> {
    let words = [command, case.family.ours(), case.family.firmware()];
    let words: Vec<&str> = words.into_iter().chain(rest.split(' ')).collect();
    demand(command, run(netns, LIMIT, &places.probe, &words)?)
}

fn demand(what: &str, output: casemate_interop::Output) -> Result<String> {
    let said = output.stdout.trim_end();
    if output.status == 0 { Ok(said.into()) } else { Err(Error::new(format!("{what}: {said}"))) }
}

/// Now that nobody protects packets on our side, the firmware must not answer them.
fn demand_silence(case: &Case, places: &Places, netns: &Netns) -> Result<()> {
    match ask(case, places, netns, "ping", "56") {
        Ok(_) if case.is_protected() => Err(Error::new("clear text was answered")),
        Err(error) if !case.is_protected() => Err(error),
        _ => Ok(()),
    }
}

fn explain(error: &Error, firmware: &Firmware, directory: &Path) -> Error {
    let log = fs::read_to_string(directory.join("gateway.log")).unwrap_or_default();
    let files = directory.display();
    Error::new(format!("{error}\n--- console:\n{}--- gateway:\n{log}--- files: {files}", firmware.said()))
}
