//! Overhead of IKE, which the paper leaves for later: time and bytes of a handshake, and effect of rekeying
//! on a transfer.

use super::flow::Flow;
use super::flow::MAX_MESSAGE_LEN;
use super::protection::Side;
use super::testbed::{CHILD, METHOD, swanctl_conf, swanctl_conf_with};
use super::testbed::{RunningDevice, Testbed};
use crate::Context;
use casemate_measure::report::{Axis, Figure, Part, Point, Samples, Series, Shape, Table};
use casemate_measure::stats::{LEAST_ROUNDS, Spread};
use casemate_testbed::{Error, Result};
use std::time::Duration;

/// Time limit for all handshakes of a session.
const LIMIT: Duration = Duration::from_secs(20);
/// Compared transfers: without rekeying, and with rekeying every second.
const REKEYING: [(&str, &str); 2] =
    [("one pair of keys", ""), ("new keys every second", "rekey_time = 1s\n rand_time = 0s")];

/// Measured handshake.
struct Handshake {
    /// Duration in milliseconds.
    time: f64,
    bytes: f64,
}

/// Measured transfer.
struct RekeyTransfer {
    /// Throughput in Mb/s.
    rate: f64,
    /// Longest time without received data, in milliseconds.
    pause: f64,
    /// Number of rekeyings.
    rekeyed: f64,
}

/// Runs the step.
pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let testbed = Testbed::new(context, None)?;
    let rounds = LEAST_ROUNDS;
    let (methods, count): (&[&str], u32) = match context.quick {
        true => (&[METHOD, "modp2048"], 1),
        false => (&[METHOD, "ecp256", "modp2048", "modp3072"], 5),
    };
    // Keys are renewed every second, so transfers of the short form would be too short.
    let rekeying: &[_] = if context.quick { &[] } else { &REKEYING };
    context.progress.set_total(rounds * (methods.len() + rekeying.len()));
    let watch = context.time.mul_f64(0.6) / u32::try_from(rounds * REKEYING.len()).unwrap_or(u32::MAX);
    let mut handshakes: Vec<Vec<Handshake>> = methods.iter().map(|_| Vec::new()).collect();
    let mut transfers: [Vec<RekeyTransfer>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (method, all) in methods.iter().zip(&mut handshakes) {
            context.progress.advance(method);
            all.extend(negotiate(&testbed, method, count)?);
        }
        for ((name, child), all) in rekeying.iter().zip(&mut transfers) {
            context.progress.advance(name);
            all.push(transfer(&testbed, child, watch.max(Duration::from_millis(1_500)))?);
        }
    }
    Ok(vec![part(methods, &handshakes, &transfers)])
}

/// Establishes a connection repeatedly with one key exchange method.
fn negotiate(testbed: &Testbed, method: &str, count: u32) -> Result<Vec<Handshake>> {
    let [host, device] = [Side::Host, Side::Device].map(|side| swanctl_conf_with(side, method, "", ""));
    let _gateway = testbed.start_gateway(&["--config", &testbed.write("host.conf", &host)?])?;
    let file = testbed.write("device.conf", &device)?;
    let mut device =
        testbed.start_smoltcp_device(&["--config", &file, "--handshakes", &count.to_string()])?;
    let done = |output: &str| {
        output.matches("handshake ").count() >= count as usize || output.contains("handshake failed")
    };
    device.wait_until(LIMIT, done)?;
    let output = device.output();
    let handshakes: Vec<Handshake> = output.lines().filter_map(read).collect();
    match output.lines().find(|line| line.contains("handshake failed")) {
        Some(line) => Err(Error::new(format!("{method}: {line}"))),
        None => Ok(handshakes),
    }
}

/// Parses a line of the device: `handshake 1234 us 567 bytes`.
fn read(line: &str) -> Option<Handshake> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["handshake", time, "us", bytes, "bytes"] = words[..] else { return None };
    Some(Handshake { time: time.parse::<f64>().ok()? / 1e3, bytes: bytes.parse().ok()? })
}

/// Transfers data from the device, with or without rekeying.
fn transfer(testbed: &Testbed, child: &str, time: Duration) -> Result<RekeyTransfer> {
    let host = testbed.write("host.conf", &swanctl_conf(Side::Host, "", ""))?;
    let gateway = testbed.start_gateway(&["--config", &host])?;
    let file = testbed.write("device.conf", &swanctl_conf(Side::Device, child, "start"))?;
    let mut device = testbed.start_smoltcp_device(&["--config", &file])?;
    let count_children = |output: &str| output.lines().filter(|line| line.contains(CHILD)).count();
    device.wait_until(LIMIT, |output| count_children(output) > 0)?;
    let running = RunningDevice::of(testbed, vec![device], Some(gateway));
    let sample = running.measure(Flow::DeviceSends, MAX_MESSAGE_LEN, time)?;
    let established: usize = running.device.iter().map(|device| count_children(&device.output())).sum();
    Ok(RekeyTransfer {
        rate: sample.count.units * 8.0 / 1e6 / sample.count.elapsed.as_secs_f64(),
        pause: sample.count.pause.as_secs_f64() * 1e3,
        rekeyed: established.saturating_sub(1) as f64,
    })
}

fn part(methods: &[&str], handshakes: &[Vec<Handshake>], transfers: &[Vec<RekeyTransfer>; 2]) -> Part {
    let of = |all: &Vec<Handshake>, quantity: fn(&Handshake) -> f64| Spread::of(all.iter().map(quantity));
    let text =
        |spread: Option<Spread>, digits| spread.map_or_else(|| "-".into(), |spread| spread.text(digits));
    let rows = methods.iter().zip(handshakes).map(|(method, all)| {
        vec![
            (*method).into(),
            text(of(all, |one| one.time), 2),
            text(of(all, |one| one.bytes), 0),
            all.len().to_string(),
        ]
    });
    let columns = ["Key exchange", "Time, ms", "Bytes in frames, both ways", "Handshakes"];
    let exchanges = Table {
        title: "IKE_SA_INIT and IKE_AUTH".into(),
        columns: columns.map(Into::into).into(),
        rows: rows.collect(),
    };
    let bars = (0..).zip(handshakes).filter_map(|(place, all)| {
        let Spread { median, min: least, max: most, .. } = of(all, |one| one.time)?;
        Some(Point::with_range(f64::from(place), median, least, most))
    });
    let figure = Figure {
        title: "Time of a handshake".into(),
        caption: "Time on the device from the command until the Child SA is established. The paper has \
             no such figure."
            .into(),
        x: Axis::names("key exchange method", methods.iter().copied()),
        y: Axis::linear("ms"),
        series: vec![Series::ours("smoltcp device and gateway", Shape::Bars, bars)],
    };
    let samples = methods.iter().zip(handshakes).flat_map(|(method, all)| {
        let values = |quantity: fn(&Handshake) -> f64| all.iter().map(quantity).collect();
        [
            Samples::repeated(format!("handshake, {method}: time"), "ms", values(|one| one.time)),
            Samples::repeated(format!("handshake, {method}: frames"), "bytes", values(|one| one.bytes)),
        ]
    });
    Part {
        title: "What IKE adds".into(),
        text: TEXT.into(),
        figures: vec![figure],
        tables: std::iter::once(exchanges).chain(keys(transfers)).collect(),
        samples: samples.chain(transfer_samples(transfers)).collect(),
        ..Part::default()
    }
}

/// Table of the transfers; `None` without any.
fn keys(transfers: &[Vec<RekeyTransfer>; 2]) -> Option<Table> {
    let measured = REKEYING.iter().zip(transfers).filter(|(_, all)| !all.is_empty());
    let rows = measured.map(|((name, _), all)| {
        let text = |quantity: fn(&RekeyTransfer) -> f64, digits| {
            Spread::of(all.iter().map(quantity)).map_or_else(|| "-".into(), |spread| spread.text(digits))
        };
        vec![(*name).into(), text(|one| one.rate, 0), text(|one| one.pause, 1), text(|one| one.rekeyed, 0)]
    });
    let columns = ["Transfer", "Throughput, Mb/s", "Longest pause, ms", "Times that keys became new"];
    let table = Table {
        title: "Rekeying during a transfer from the device".into(),
        columns: columns.map(Into::into).into(),
        rows: rows.collect(),
    };
    (!table.rows.is_empty()).then_some(table)
}

fn transfer_samples(transfers: &[Vec<RekeyTransfer>; 2]) -> impl Iterator<Item = Samples> {
    let measured = REKEYING.iter().zip(transfers).filter(|(_, all)| !all.is_empty());
    measured.flat_map(|((name, _), all)| {
        let pause = all.iter().map(|one| one.pause).collect();
        [
            Samples::repeated(
                format!("{name}: throughput"),
                "Mb/s",
                all.iter().map(|one| one.rate).collect(),
            ),
            // The maximum of many pauses does not characterise the machine.
            Samples { repeated: false, ..Samples::repeated(format!("{name}: longest pause"), "ms", pause) },
        ]
    })
}

const TEXT: &str = "The paper used manual keys and leaves the overhead of IKE for later, so there are no \
     numbers to compare with. The device, with smoltcp, initiates IKEv2 to the gateway of the host: \
     IKE_SA_INIT and IKE_AUTH with a pre-shared key, and AES-128-GCM for ESP. Bytes are those of Ethernet \
     frames in both directions. The connection is closed between two handshakes. In the full form, the device \
     then sends as fast as it can, once without rekeying and once with rekeying every second, which is thousands of \
     times more often than usual.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_handshake_lines_are_parsed() {
        let handshake = read("handshake 1500 us 900 bytes").unwrap();
        assert_eq!((handshake.time, handshake.bytes), (1.5, 900.0));
        for other in ["handshake failed: no", "handshake 1500 us 900", "ready", ""] {
            assert!(read(other).is_none(), "{other}");
        }
    }
}
