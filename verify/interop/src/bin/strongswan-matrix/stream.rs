//! TCP streams of iperf3 in both directions while something changes, and their longest interruption as the
//! receivers see it.

use casemate_interop::{Error, Result};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The port of iperf3 in `/proc/net/tcp`, and the state of a listening socket.
const PORT: &str = ":1451";
const LISTENING: &str = " 0A ";
const START_LIMIT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Interval of the reports, the shortest one of iperf3.
const INTERVAL: Duration = Duration::from_millis(100);
/// Bits per second in each direction: about 20 packets in each interval. Wireshark reads all of them
/// afterwards.
const BITRATE: &str = "2M";
/// Duration of the streams, and of their undisturbed parts before and between changes.
const DURATION: &str = "5";
pub(crate) const UNDISTURBED: Duration = Duration::from_secs(1);

/// Running streams.
pub(crate) struct Streams {
    server: Running,
    client: Running,
}

impl Streams {
    /// Starts streams between `from`, where `client` runs, and `to`, where `server` runs.
    pub(crate) fn start(server: Command, client: Command, from: &str, to: &str) -> Result<Self> {
        let server = Running::start(server, &["--server", "--one-off", "--json", "--bind", to])?;
        server.wait_until_listening()?;
        let arguments = ["--client", to, "--bind", from, "--bidir", "--bitrate", BITRATE, "--time", DURATION];
        let client = Running::start(client, &[&arguments[..], &["--json"]].concat())?;
        sleep(UNDISTURBED);
        Ok(Self { server, client })
    }

    /// Waits for the end of the streams. Fails if one of them was interrupted for longer than `limit`.
    pub(crate) fn stop(self, limit: Duration) -> Result<String> {
        let (client, server) = (self.client.report()?, self.server.report()?);
        let mut summary = Vec::new();
        for (receiver, report) in [("server", server), ("client", client)] {
            let silent = longest_silence(&report).map_err(Error::context(receiver))?;
            if silent > limit {
                return Err(Error::new(format!("the {receiver} received nothing for {silent:?}")));
            }
            summary.push(format!("{receiver} {silent:?}"));
        }
        Ok(format!("longest interruption: {}", summary.join(", ")))
    }
}

/// An iperf3 that is ended when the value is dropped.
struct Running(Child);

impl Running {
    fn start(mut command: Command, arguments: &[&str]) -> Result<Self> {
        command.args(arguments).args(["--interval", "0.1"]).stdout(Stdio::piped());
        command.spawn().map(Self).map_err(Error::context("iperf3 (Debian package iperf3)"))
    }

    fn wait_until_listening(&self) -> Result<()> {
        let begun = Instant::now();
        let file = format!("/proc/{}/net/tcp", self.0.id());
        let is_listening = |line: &str| line.contains(PORT) && line.contains(LISTENING);
        while !fs::read_to_string(&file).unwrap_or_default().lines().any(is_listening) {
            if begun.elapsed() > START_LIMIT {
                return Err(Error::new("iperf3 does not listen"));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn report(mut self) -> Result<Value> {
        let mut stdout = self.0.stdout.take().ok_or_else(|| Error::new("iperf3 has no output"))?;
        let report = std::io::read_to_string(&mut stdout).map_err(Error::context("iperf3"))?;
        let report: Value = serde_json::from_str(&report).map_err(Error::context("report of iperf3"))?;
        match report.get("error").and_then(Value::as_str) {
            Some(error) => Err(Error::new(format!("iperf3: {error}"))),
            None => Ok(report),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The longest sequence of intervals without received bytes in a report. The interruption itself may be
/// longer by parts of the intervals before and behind.
fn longest_silence(report: &Value) -> Result<Duration> {
    let intervals = report.get("intervals").and_then(Value::as_array);
    let received = |interval: &Value| {
        let streams = interval.get("streams").and_then(Value::as_array);
        let of_receivers =
            streams.into_iter().flatten().filter(|stream| stream.get("sender") == Some(&Value::Bool(false)));
        of_receivers.filter_map(|stream| stream.get("bytes").and_then(Value::as_u64)).sum::<u64>()
    };
    let bytes: Vec<u64> = intervals.into_iter().flatten().map(received).collect();
    let longest = bytes.split(|bytes| *bytes > 0).map(<[u64]>::len).max();
    match longest.map(u32::try_from) {
        Some(Ok(0)) if !bytes.is_empty() => Ok(Duration::ZERO),
        Some(Ok(silent)) if bytes.iter().any(|bytes| *bytes > 0) => Ok(INTERVAL.saturating_mul(silent)),
        _ => Err(Error::new("the report of iperf3 names no received bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(received: &[u64]) -> Value {
        let interval = |bytes: &u64| json!({ "streams": [{ "sender": true, "bytes": 1 }, { "sender": false, "bytes": bytes }] });
        json!({ "intervals": received.iter().map(interval).collect::<Vec<_>>() })
    }

    #[test]
    fn the_longest_silence_is_that_of_the_receiver() {
        let silence = |received: &[u64]| longest_silence(&report(received)).unwrap().as_millis();
        assert_eq!(silence(&[3, 4]), 0);
        assert_eq!(silence(&[3, 0, 1, 0, 0, 2]), 200);
        assert_eq!(silence(&[3, 0, 0, 0]), 300, "the stream does not go on");
        assert!(longest_silence(&report(&[0, 0])).is_err());
        assert!(longest_silence(&json!({})).is_err());
    }
}
