//! Measurements of a turn.

use casemate_interop::{Background, Error, Result, run};
use casemate_measure::stats::Spread;
use casemate_testbed::Meter;
pub(crate) use casemate_testbed::packet_rate::PacketRate as SmallOutcome;
use casemate_testbed::packet_rate::{self, PORT};
use casemate_testbed::veth_pair::{INNER_ADDRS, VethPair};
use serde_json::Value;
use std::io;
use std::net::UdpSocket;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

/// Time for the start and the control connection of iperf3.
const IPERF_GRACE: Duration = Duration::from_secs(10);

/// Result of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamOutcome {
    /// Received payload.
    pub(crate) gbit_per_second: f64,
    /// CPU seconds of the tunnel's processes per 10^9 bytes of payload.
    pub(crate) cpu_per_gigabyte: f64,
}

pub(crate) fn measure_stream(
    veth: &VethPair,
    meter: &Meter<'_>,
    seconds: Duration,
    directory: &Path,
) -> Result<StreamOutcome> {
    let mut command = veth.ends[1].command("iperf3");
    command.args(["--server", "--one-off", "--forceflush", "--bind", INNER_ADDRS[1]]);
    let mut server = Background::start("iperf3", command, &directory.join("iperf3"))?;
    server.wait_until(IPERF_GRACE, |output_text| output_text.contains("listening"))?;
    let before = meter.cpu_time()?;
    let time = seconds.as_secs().to_string();
    let words = ["--client", INNER_ADDRS[1], "--bind", INNER_ADDRS[0], "--time", &time, "--json"];
    let output = run(&veth.ends[0], seconds + IPERF_GRACE, "iperf3", &words)?;
    let cpu = meter.cpu_time()?.saturating_sub(before);
    let Received { bytes, bits_per_second } = received_totals(&output.stdout)
        .ok_or_else(|| Error::new(format!("iperf3 ended with {}: {}", output.status, output.stdout)))?;
    Ok(StreamOutcome {
        gbit_per_second: bits_per_second / 1e9,
        cpu_per_gigabyte: cpu.as_secs_f64() / (bytes / 1e9),
    })
}

/// What the receiver of a TCP stream has received.
#[derive(Debug, PartialEq)]
struct Received {
    bytes: f64,
    bits_per_second: f64,
}

/// Totals of iperf3's report.
fn received_totals(report: &str) -> Option<Received> {
    let report: Value = serde_json::from_str(report).ok()?;
    let sum = report.get("end")?.get("sum_received")?;
    let number = |name: &str| sum.get(name)?.as_f64().filter(|number| *number > 0.0);
    Some(Received { bytes: number("bytes")?, bits_per_second: number("bits_per_second")? })
}

/// Lengths of the packets, IPv4 header included. Each length is one flow.
const LENGTHS: RangeInclusive<usize> = 64..=256;
/// Difference of two consecutive lengths.
const STEP: usize = 4;
/// Length of the IPv4 and UDP headers.
const HEADERS: usize = 28;
/// Longest time that a full queue may block the sender.
const SEND_TIMEOUT: Duration = Duration::from_millis(20);

pub(crate) fn measure_small_packets(
    veth: &VethPair,
    meter: &Meter<'_>,
    seconds: Duration,
) -> Result<SmallOutcome> {
    packet_rate::measure(veth, meter, seconds, small_packet_sender)
}

fn small_packet_sender() -> io::Result<impl FnMut()> {
    let flow = |length| {
        let socket = UdpSocket::bind((INNER_ADDRS[0], 0))?;
        socket.connect((INNER_ADDRS[1], PORT))?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok((socket, vec![0; length - HEADERS]))
    };
    let flows: Vec<(UdpSocket, Vec<u8>)> = LENGTHS.step_by(STEP).map(flow).collect::<io::Result<_>>()?;
    let mut turn = 0;
    Ok(move || {
        let (socket, bytes) = &flows[turn % flows.len()];
        turn += 1;
        // A packet that cannot be sent counts as lost.
        let _ = socket.send(bytes);
    })
}

/// Number of echoes: five of them are slower than the 99th percentile.
const ECHO_COUNT: u32 = 500;
/// Seconds between two echoes: long enough for processes to fall asleep.
const ECHO_INTERVAL: &str = "0.01";
const ECHO_LIMIT: Duration = Duration::from_secs(20);

/// Result of the echoes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EchoOutcome {
    /// Median round-trip time, in microseconds.
    pub(crate) rtt_us: f64,
    /// 99th percentile of the round-trip times of the answered echoes, in microseconds.
    pub(crate) rtt_p99_us: f64,
    /// Share of the echoes without a reply.
    pub(crate) loss: f64,
    /// CPU time of the tunnel's processes per round trip, in microseconds.
    pub(crate) cpu_us: f64,
}

pub(crate) fn measure_echo(veth: &VethPair, meter: &Meter<'_>) -> Result<EchoOutcome> {
    let before = meter.cpu_time()?;
    let words =
        ["-n", "-c", &ECHO_COUNT.to_string(), "-i", ECHO_INTERVAL, "-I", INNER_ADDRS[0], INNER_ADDRS[1]];
    let output = run(&veth.ends[0], ECHO_LIMIT, "ping", &words)?;
    let cpu = meter.cpu_time()?.saturating_sub(before);
    let round_trip_times = round_trip_times(&output.stdout);
    // On a busy machine, one or two may get lost.
    if round_trip_times.len() * 10 < ECHO_COUNT as usize * 9 {
        return Err(Error::new(format!(
            "only {} of {ECHO_COUNT} echo replies arrived: {}",
            round_trip_times.len(),
            output.stdout
        )));
    }
    let cpu_us = cpu.as_secs_f64() * 1e6 / round_trip_times.len() as f64;
    let loss = 1.0 - round_trip_times.len() as f64 / f64::from(ECHO_COUNT);
    let rtt_p99_us = percentile(&round_trip_times, 99) * 1e3;
    let rtt_us = Spread::of(round_trip_times).map(|spread| spread.median * 1e3).unwrap_or(f64::NAN);
    Ok(EchoOutcome { rtt_us, rtt_p99_us, loss, cpu_us })
}

/// Smallest sample that at least `percent` of 100 samples do not exceed (nearest rank); NaN without samples.
fn percentile(samples: &[f64], percent: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Round-trip times in milliseconds.
fn round_trip_times(output_text: &str) -> Vec<f64> {
    let time = |line: &str| line.split_once("time=")?.1.strip_suffix(" ms")?.parse().ok();
    output_text.lines().filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_without_bytes_is_rejected() {
        let report =
            |bytes| format!(r#"{{"end":{{"sum_received":{{"bytes":{bytes},"bits_per_second":80}}}}}}"#);
        assert_eq!(received_totals(&report(10)), Some(Received { bytes: 10.0, bits_per_second: 80.0 }));
        assert_eq!(received_totals(&report(0)), None);
        assert_eq!(received_totals(r#"{"error":"unable to connect"}"#), None);
        assert_eq!(received_totals("iperf3: error"), None);
    }

    #[test]
    fn percentile_is_the_nearest_rank() {
        let samples: Vec<f64> = (1..=500).rev().map(f64::from).collect();
        assert_eq!(percentile(&samples, 99), 495.0);
        assert_eq!(percentile(&samples, 50), 250.0);
        assert_eq!(percentile(&[7.0], 99), 7.0);
        assert!(percentile(&[], 99).is_nan());
    }

    #[test]
    fn times_of_replies_are_parsed() {
        let output_text = "PING 10.2.0.1 (10.2.0.1) from 10.1.0.1 : 56(84) bytes of data.\n\
                    64 bytes from 10.2.0.1: icmp_seq=1 ttl=64 time=0.250 ms\n\
                    64 bytes from 10.2.0.1: icmp_seq=2 ttl=64 time=12 ms\n\
                    \n--- 10.2.0.1 ping statistics ---\n\
                    3 packets transmitted, 2 received, 33% packet loss, time 20ms\n";
        assert_eq!(round_trip_times(output_text), [0.25, 12.0]);
    }
}
