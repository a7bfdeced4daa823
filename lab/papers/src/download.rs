//! A large file over TCP from one end of an arena to the other, watched for a while.

use casemate_stage::arena::Arena;
use casemate_stage::meter::Meter;
use casemate_stage::transfer::Transfer;
use casemate_stage::{Background, Error, Result, sys};
use std::time::{Duration, Instant};

/// The least time in which TCP finds its pace.
const WARM_UP: Duration = Duration::from_millis(80);
/// For how long nothing may arrive: TCP waits 200 ms for what was lost, then twice that.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Payload of TCP that arrived.
    pub(crate) bytes: f64,
    /// For how long it was watched.
    pub(crate) elapsed: Duration,
    /// CPU time of the programs that protect.
    pub(crate) cpu: Duration,
    /// CPU time of the sender and the receiver, which are this process.
    pub(crate) hosts: Duration,
    /// Context switches of the programs that protect.
    pub(crate) switches: f64,
}

/// Watches for so long, after a third of that in which TCP finds its pace, and for longer if nothing arrives. `programs` are those that
/// protect.
pub(crate) fn watch(arena: &Arena, programs: &[Background], time: Duration) -> Result<Seen> {
    let transfer = Transfer::begin(arena)?;
    watch_other(|| Ok(transfer.received()), programs, time)
}

/// The same for a file that goes on its way by itself. `received` says how much of it has arrived so far.
pub(crate) fn watch_other(
    received: impl Fn() -> Result<u64>,
    programs: &[Background],
    time: Duration,
) -> Result<Seen> {
    let meter = Meter::new(programs);
    std::thread::sleep((time / 3).max(WARM_UP));
    let begun = (Instant::now(), received()?, meter.switches()?, meter.cpu()?, own_cpu()?);
    std::thread::sleep(time);
    while received()? == begun.1 && begun.0.elapsed() < time + PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let bytes = received()?.saturating_sub(begun.1) as f64;
    let seen = Seen {
        bytes,
        elapsed: begun.0.elapsed(),
        switches: meter.switches()?.saturating_sub(begun.2) as f64,
        cpu: meter.cpu()?.saturating_sub(begun.3),
        hosts: own_cpu()?.saturating_sub(begun.4),
    };
    if bytes == 0.0 {
        let said: Vec<String> = programs.iter().map(Background::said).collect();
        return Err(Error::new(format!("nothing arrives: {}", said.join(" "))));
    }
    Ok(seen)
}

/// CPU time of this process so far.
fn own_cpu() -> Result<Duration> {
    sys::cpu_time_of(std::process::id()).map_err(Error::in_front("this process"))
}
