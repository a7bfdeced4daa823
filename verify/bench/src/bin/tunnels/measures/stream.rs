//! One TCP stream, by iperf3.

use super::Meter;
use casemate_interop::{Background, Error, Result, run};
use casemate_stage::arena::{Arena, BEHIND};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Time for iperf3's own talk.
const GRACE: Duration = Duration::from_secs(10);

/// What a stream came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    /// Of the payload, as it was received.
    pub(crate) gbit_per_second: f64,
    /// CPU seconds of the tunnel's processes for 10^9 bytes of it.
    pub(crate) cpu_per_gigabyte: f64,
}

pub(crate) fn measure(
    arena: &Arena,
    meter: &Meter<'_>,
    seconds: Duration,
    directory: &Path,
) -> Result<Outcome> {
    let mut command = arena.ends[1].command("iperf3");
    command.args(["--server", "--one-off", "--forceflush", "--bind", BEHIND[1]]);
    let mut server = Background::start("iperf3", command, &directory.join("iperf3"))?;
    server.wait_until(GRACE, |said| said.contains("listening"))?;
    let before = meter.cpu()?;
    let time = seconds.as_secs().to_string();
    let words = ["--client", BEHIND[1], "--bind", BEHIND[0], "--time", &time, "--json"];
    let output = run(&arena.ends[0], seconds + GRACE, "iperf3", &words)?;
    let cpu = meter.cpu()?.saturating_sub(before);
    let (bytes, rate) = received(&output.stdout)
        .ok_or_else(|| Error::new(format!("iperf3 ended with {}: {}", output.status, output.stdout)))?;
    Ok(Outcome { gbit_per_second: rate / 1e9, cpu_per_gigabyte: cpu.as_secs_f64() / (bytes / 1e9) })
}

/// Bytes that arrived, and bits a second, from iperf3's report.
fn received(report: &str) -> Option<(f64, f64)> {
    let report: Value = serde_json::from_str(report).ok()?;
    let sum = report.get("end")?.get("sum_received")?;
    let number = |name: &str| sum.get(name)?.as_f64().filter(|number| *number > 0.0);
    Some((number("bytes")?, number("bits_per_second")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_bytes_is_none() {
        let report =
            |bytes| format!(r#"{{"end":{{"sum_received":{{"bytes":{bytes},"bits_per_second":80}}}}}}"#);
        assert_eq!(received(&report(10)), Some((10.0, 80.0)));
        assert_eq!(received(&report(0)), None);
        assert_eq!(received(r#"{"error":"unable to connect"}"#), None);
        assert_eq!(received("iperf3: error"), None);
    }
}
