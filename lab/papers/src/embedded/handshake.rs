//! What IKE adds, which the paper left for later: the time and the bytes of a handshake, and what new keys do to a transfer.

use super::flow::Flow;
use super::ground::{Ground, Site};
use super::negotiation::{CHILD, METHOD, configuration, with_method};
use super::order::LONGEST;
use super::protection::Side;
use crate::Context;
use casemate_measure::spread::Spread;
use casemate_report::{Axis, Figure, Part, Point, Samples, Series, Shape, Table};
use casemate_stage::{Error, Result};
use std::time::Duration;

/// How long all handshakes of a session may take.
const LIMIT: Duration = Duration::from_secs(20);
/// The transfers that are compared: without new keys, and with new ones every second.
const REKEYING: [(&str, &str); 2] =
    [("one pair of keys", ""), ("new keys every second", "rekey_time = 1s\n rand_time = 0s")];

/// A handshake.
struct Handshake {
    /// Milliseconds.
    time: f64,
    bytes: f64,
}

/// What a transfer came to.
struct Transfer {
    /// Mb/s.
    rate: f64,
    /// The longest time in which nothing came, in milliseconds.
    pause: f64,
    /// How often keys were new.
    rekeyed: f64,
}

/// The step.
pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let ground = Ground::new(context, None)?;
    let (methods, count, rounds): (&[&str], u32, usize) = match context.quick {
        true => (&[METHOD, "modp2048"], 3, 1),
        false => (&[METHOD, "ecp256", "modp2048", "modp3072"], 7, 3),
    };
    context.progress.expect(rounds * (methods.len() + REKEYING.len()));
    let watch = context.time.mul_f64(0.6) / u32::try_from(rounds * REKEYING.len()).unwrap_or(u32::MAX);
    let mut handshakes: Vec<Vec<Handshake>> = methods.iter().map(|_| Vec::new()).collect();
    let mut transfers: [Vec<Transfer>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (method, all) in methods.iter().zip(&mut handshakes) {
            context.progress.next(method);
            all.extend(negotiate(&ground, method, count)?);
        }
        for ((name, child), all) in REKEYING.iter().zip(&mut transfers) {
            context.progress.next(name);
            all.push(transfer(&ground, child, watch.max(Duration::from_millis(1_500)))?);
        }
    }
    Ok(vec![part(methods, &handshakes, &transfers)])
}

/// Sets a connection up again and again, with one key exchange method.
fn negotiate(ground: &Ground, method: &str, count: u32) -> Result<Vec<Handshake>> {
    let [host, device] = [Side::Host, Side::Device].map(|side| with_method(side, method, "", ""));
    let _gateway = ground.guard(&["--config", &ground.write("host.conf", &host)?])?;
    let file = ground.write("device.conf", &device)?;
    let mut device = ground.device(&["--config", &file, "--handshakes", &count.to_string()])?;
    let done = |said: &str| {
        said.matches("handshake ").count() >= count as usize || said.contains("handshake failed")
    };
    device.wait_until(LIMIT, done)?;
    let said = device.said();
    let handshakes: Vec<Handshake> = said.lines().filter_map(read).collect();
    match said.lines().find(|line| line.contains("handshake failed")) {
        Some(line) => Err(Error::new(format!("{method}: {line}"))),
        None => Ok(handshakes),
    }
}

/// A line of the device: `handshake 1234 us 567 bytes`.
fn read(line: &str) -> Option<Handshake> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["handshake", time, "us", bytes, "bytes"] = words[..] else { return None };
    Some(Handshake { time: time.parse::<f64>().ok()? / 1e3, bytes: bytes.parse().ok()? })
}

/// The device sends while keys are as they are, or become new.
fn transfer(ground: &Ground, child: &str, time: Duration) -> Result<Transfer> {
    let host = ground.write("host.conf", &configuration(Side::Host, "", ""))?;
    let gateway = ground.guard(&["--config", &host])?;
    let file = ground.write("device.conf", &configuration(Side::Device, child, "start"))?;
    let mut device = ground.device(&["--config", &file])?;
    let ups = |said: &str| said.lines().filter(|line| line.contains(CHILD)).count();
    device.wait_until(LIMIT, |said| ups(said) > 0)?;
    let site = Site::of(ground, vec![device], Some(gateway));
    let outcome = site.measure(Flow::DeviceSends, LONGEST, time)?;
    let said: usize = site.device.iter().map(|device| ups(&device.said())).sum();
    Ok(Transfer {
        rate: outcome.count.units * 8.0 / 1e6 / outcome.count.elapsed.as_secs_f64(),
        pause: outcome.count.pause.as_secs_f64() * 1e3,
        rekeyed: said.saturating_sub(1) as f64,
    })
}

fn part(methods: &[&str], handshakes: &[Vec<Handshake>], transfers: &[Vec<Transfer>; 2]) -> Part {
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
        let Spread { median, least, most } = of(all, |one| one.time)?;
        Some(Point::between(f64::from(place), median, least, most))
    });
    let figure = Figure {
        title: "Time of a handshake".into(),
        caption: "From the command until the Child SA stands, on the device. The paper has no such figure."
            .into(),
        x: Axis::names("key exchange method", methods.iter().copied()),
        y: Axis::linear("ms"),
        series: vec![Series::ours("smoltcp device and the gateway", Shape::Bars, bars)],
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
        tables: vec![exchanges, keys(transfers)],
        samples: samples.chain(transfer_samples(transfers)).collect(),
        ..Part::default()
    }
}

fn keys(transfers: &[Vec<Transfer>; 2]) -> Table {
    let rows = REKEYING.iter().zip(transfers).map(|((name, _), all)| {
        let text = |quantity: fn(&Transfer) -> f64, digits| {
            Spread::of(all.iter().map(quantity)).map_or_else(|| "-".into(), |spread| spread.text(digits))
        };
        vec![(*name).into(), text(|one| one.rate, 0), text(|one| one.pause, 1), text(|one| one.rekeyed, 0)]
    });
    let columns = ["Transfer", "Throughput, Mb/s", "Longest pause, ms", "Times that keys became new"];
    Table {
        title: "New keys during a transfer from the device".into(),
        columns: columns.map(Into::into).into(),
        rows: rows.collect(),
    }
}

fn transfer_samples(transfers: &[Vec<Transfer>; 2]) -> impl Iterator<Item = Samples> {
    REKEYING.iter().zip(transfers).flat_map(|((name, _), all)| {
        let pause = all.iter().map(|one| one.pause).collect();
        [
            Samples::repeated(
                format!("{name}: throughput"),
                "Mb/s",
                all.iter().map(|one| one.rate).collect(),
            ),
            // The longest of many is no measure of the machine.
            Samples { repeated: false, ..Samples::repeated(format!("{name}: longest pause"), "ms", pause) },
        ]
    })
}

const TEXT: &str = "The paper used manual keys, and leaves IKE and its overhead for later; there are no numbers to compare with. The device, with smoltcp, \
    initiates IKEv2 to the gateway of the host: IKE_SA_INIT and IKE_AUTH with a shared key and AES-128-GCM for ESP. Bytes are those of Ethernet frames, both \
    ways. Between two handshakes the connection is closed. Then the device sends as fast as it can, once with one pair of keys and once with new \
    ones every second, which is thousands of times more often than anybody does.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_of_handshakes_count() {
        let handshake = read("handshake 1500 us 900 bytes").unwrap();
        assert_eq!((handshake.time, handshake.bytes), (1.5, 900.0));
        for other in ["handshake failed: no", "handshake 1500 us 900", "ready", ""] {
            assert!(read(other).is_none(), "{other}");
        }
    }
}
