//! Gateways with manual keys, and measured downloads between the ends of a veth pair.

use casemate_testbed::Meter;
use casemate_testbed::gateway::Gateway;
use casemate_testbed::tcp_transfer::Transfer;
use casemate_testbed::veth_pair::VethPair;
use casemate_testbed::{Background, Error, Result, sys};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Minimum warm-up time for TCP.
const WARM_UP: Duration = Duration::from_millis(80);
/// Maximum time without progress: TCP retransmits after 200 ms, then after twice that.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Result of a measured download.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observation {
    /// Received TCP payload in bytes, or number of received files.
    pub(crate) bytes: f64,
    /// Duration of the measurement.
    pub(crate) elapsed: Duration,
    /// CPU time of the gateways.
    pub(crate) cpu: Duration,
    /// CPU time of sender and receiver, which are this process.
    pub(crate) hosts: Duration,
    /// Context switches of the gateways.
    pub(crate) switches: f64,
}

/// Measures a TCP transfer for `time`, after a warm-up of a third of that, and for longer if nothing arrives.
/// `programs` are the gateways.
pub(crate) fn watch(veth: &VethPair, programs: &[Background], time: Duration) -> Result<Observation> {
    let transfer = Transfer::start(veth)?;
    watch_counter(|| Ok(transfer.received()), programs, time)
}

/// Measures a running download. `received` returns the number of bytes or files received so far.
pub(crate) fn watch_counter(
    received: impl Fn() -> Result<u64>,
    programs: &[Background],
    time: Duration,
) -> Result<Observation> {
    let meter = Meter::new(programs);
    std::thread::sleep((time / 3).max(WARM_UP));
    let (start, received_before) = (Instant::now(), received()?);
    let (switches_before, cpu_before, hosts_before) =
        (meter.context_switches()?, meter.cpu_time()?, own_cpu()?);
    std::thread::sleep(time);
    while received()? == received_before && start.elapsed() < time + STALL_TIMEOUT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let bytes = received()?.saturating_sub(received_before) as f64;
    let seen = Observation {
        bytes,
        elapsed: start.elapsed(),
        switches: meter.context_switches()?.saturating_sub(switches_before) as f64,
        cpu: meter.cpu_time()?.saturating_sub(cpu_before),
        hosts: own_cpu()?.saturating_sub(hosts_before),
    };
    if bytes == 0.0 {
        let said: Vec<String> = programs.iter().map(Background::output).collect();
        return Err(Error::new(format!("nothing arrives: {}", said.join(" "))));
    }
    Ok(seen)
}

/// CPU time of this process so far.
fn own_cpu() -> Result<Duration> {
    sys::process_cpu_time(std::process::id()).map_err(Error::context("this process"))
}

/// Starts the gateway of one end with manual keys. `text` contains lines for `ip xfrm`, `more` contains
/// further arguments.
pub(crate) fn start_gateway(
    gateway: &Gateway,
    veth: &VethPair,
    end: usize,
    text: &str,
    more: &[&str],
    scratch: &Path,
) -> Result<Background> {
    let counters = scratch.join(format!("counters{end}"));
    // Counters of previous SAs must not apply to the new keys. The file may not exist.
    let _ = fs::remove_file(&counters);
    let own: [OsString; 4] =
        ["--xfrm".into(), write_xfrm(end, text, scratch)?.into(), "--counters".into(), counters.into()];
    gateway.start(veth, end, own.into_iter().chain(more.iter().map(Into::into)), scratch)
}

/// Writes the `ip xfrm` file of one end and returns its path.
pub(crate) fn write_xfrm(end: usize, text: &str, scratch: &Path) -> Result<PathBuf> {
    let file = scratch.join(format!("{end}.xfrm"));
    fs::write(&file, text).map_err(Error::context(file.display()))?;
    Ok(file)
}
