//! The time there and back while nothing else flows, by ping.

use super::Meter;
use casemate_interop::{Error, Result, run};
use casemate_measure::spread::Spread;
use casemate_stage::arena::{Arena, BEHIND};
use std::time::Duration;

/// Echoes, and seconds between them: so long that processes fall asleep in between.
const COUNT: u32 = 200;
const INTERVAL: &str = "0.01";
const LIMIT: Duration = Duration::from_secs(15);

/// What the echoes came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    /// The median, in microseconds.
    pub(crate) rtt_us: f64,
    /// CPU time of the tunnel's processes for one echo, there and back, in microseconds.
    pub(crate) cpu_us: f64,
}

pub(crate) fn measure(arena: &Arena, meter: &Meter<'_>) -> Result<Outcome> {
    let before = meter.cpu()?;
    let words = ["-n", "-c", &COUNT.to_string(), "-i", INTERVAL, "-I", BEHIND[0], BEHIND[1]];
    let output = run(&arena.ends[0], LIMIT, "ping", &words)?;
    let cpu = meter.cpu()?.saturating_sub(before);
    let times = times(&output.stdout);
    // One or two may get lost on a busy machine.
    if times.len() * 10 < COUNT as usize * 9 {
        return Err(Error::new(format!("{} of {COUNT} echoes came back: {}", times.len(), output.stdout)));
    }
    let cpu_us = cpu.as_secs_f64() * 1e6 / times.len() as f64;
    let rtt_us = Spread::of(times).map(|spread| spread.median * 1e3).unwrap_or(f64::NAN);
    Ok(Outcome { rtt_us, cpu_us })
}

/// The milliseconds of every echo.
fn times(said: &str) -> Vec<f64> {
    let time = |line: &str| line.split_once("time=")?.1.strip_suffix(" ms")?.parse().ok();
    said.lines().filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_replies() {
        let said = "PING 10.2.0.1 (10.2.0.1) from 10.1.0.1 : 56(84) bytes of data.\n\
                    64 bytes from 10.2.0.1: icmp_seq=1 ttl=64 time=0.250 ms\n\
                    64 bytes from 10.2.0.1: icmp_seq=2 ttl=64 time=12 ms\n\
                    \n--- 10.2.0.1 ping statistics ---\n\
                    3 packets transmitted, 2 received, 33% packet loss, time 20ms\n";
        assert_eq!(times(said), [0.25, 12.0]);
    }
}
