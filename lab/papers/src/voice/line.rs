//! Delay and load on a line of 128 kbit/s, measured in clear and through two gateways: figure 4.
//!
//! The line is a token bucket that holds one packet. It releases a packet when its first bit would leave, so
//! the serialization time is added.

use super::models::{STREAM_RATE, curve, service_time, streams};
use super::traffic::{self, Random};
use crate::Context;
use casemate_calls::packet::Esp;
use casemate_calls::paper::LINE;
use casemate_calls::queue;
use casemate_calls::scheme::parse_suite;
use casemate_measure::report::{Axis, Bound, Claim, Figure, Finding, Part, Point, Samples, Series, Shape};
use casemate_measure::stats::{LEAST_ROUNDS, Spread};
use casemate_sa::Mode;
use casemate_testbed::gateway::Gateway;
use casemate_testbed::gateway::IkeTunnel;
use casemate_testbed::veth_pair::VethPair;
use casemate_testbed::{Background, Error, Result, run, sys};
use casemate_wire::ip::v4;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Length of an unprotected packet in bytes.
const CLEAR_LEN: usize = 90;
const SUITE: &str = "aes128gcm16";
/// Capacity of the line's queue in packets.
const QUEUE: usize = 60;
/// Real-time priority: below the instruments, above everything else.
const GATEWAY: i32 = 10;
const TC_LIMIT: Duration = Duration::from_secs(5);
/// Length of the Ethernet header, which does not count on the line.
const ETHERNET: i32 = 14;
/// A mean delay agrees with the model within this factor.
const TOLERANCE: f64 = 1.25;

/// A protection and its measurements.
struct LinePath {
    name: &'static str,
    /// Length of a packet on the line in bytes.
    len: usize,
    loads: Vec<LoadPoint>,
}

/// Result for one load.
struct LoadPoint {
    /// Packets per second.
    rate: f64,
    /// Mean delay of each round in ms.
    means: Vec<f64>,
    /// The same by the model, with the phases of the round; none above saturation.
    expected: Vec<f64>,
    /// Share of lost packets, from 0 to 1.
    lost: f64,
}

/// Runs the step.
pub(super) fn parts(context: &Context) -> Result<Vec<Part>> {
    let effort = match context.quick {
        true => Effort { loads: &[0.5, 0.9], periods: 3 },
        false => Effort { loads: &[0.2, 0.5, 0.75, 0.85, 0.95, 1.1], periods: 9 },
    };
    context.progress.set_total(2 * effort.loads.len());
    let esp = Esp { sizes: parse_suite(SUITE).map_err(Error::new)?.into(), mode: Mode::Tunnel, encap: false };
    let paths = [("clear", CLEAR_LEN), (SUITE, esp.protected_len(CLEAR_LEN, v4::HEADER_LEN))];
    let paths = paths
        .into_iter()
        .map(|(name, len)| measure(context, name, len, &effort))
        .collect::<Result<Vec<_>>>()?;
    Ok(vec![part(&paths)])
}

/// Extent of the measurement.
struct Effort {
    /// Loads as shares of the line's capacity.
    loads: &'static [f64],
    /// Periods of the streams per round. The first one fills the queue and is not counted.
    periods: u32,
}

fn measure(context: &Context, name: &'static str, len: usize, effort: &Effort) -> Result<LinePath> {
    let veth = VethPair::new()?;
    let directory = context.scratch.join(format!("line-{name}"));
    let _gateways = connect(&veth, context, name != "clear", &directory)?;
    limit_rate(&veth, len)?;
    let period = Duration::from_secs_f64(STREAM_RATE.recip());
    let load = |load: &f64| {
        let count = (load / service_time(len) / STREAM_RATE).round();
        context.progress.advance(&format!("{name}, {:.0} packets per second", count * STREAM_RATE));
        let (mut sent, mut means, mut expected, mut arrived) = (0, Vec::new(), Vec::new(), 0);
        for round in 0..LEAST_ROUNDS as u64 {
            let schedule = traffic::schedule(count as usize, period, effort.periods, &mut Random::new(round));
            let arrivals = traffic::send(&veth, &schedule, CLEAR_LEN, period)?;
            if arrivals.delays.is_empty() {
                return Err(Error::new(format!("no packet arrives, {name}")));
            }
            (sent, arrived) = (sent + arrivals.sent, arrived + arrivals.delays.len());
            let mean = arrivals.delays.iter().sum::<f64>() / arrivals.delays.len() as f64;
            means.push(mean + service_time(len) * 1000.0);
            let model = traffic::expected_delay(&schedule, service_time(len), period);
            expected.extend(model.filter(|_| *load < 1.0).map(|delay| delay * 1000.0));
        }
        Ok(LoadPoint {
            rate: count * STREAM_RATE,
            means,
            expected,
            lost: 1.0 - f64::from(arrived as u32) / f64::from(sent as u32),
        })
    };
    Ok(LinePath { name, len, loads: effort.loads.iter().map(load).collect::<Result<_>>()? })
}

/// Connects the ends without a tunnel, or with gateways that have established one.
fn connect(
    veth: &VethPair,
    context: &Context,
    is_protected: bool,
    directory: &Path,
) -> Result<Vec<Background>> {
    if !is_protected {
        for end in [0, 1] {
            veth.route_via_link(end)?;
        }
        veth.wait_until_connected()?;
        return Ok(Vec::new());
    }
    fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
    let programs = context.program.parent().unwrap_or(Path::new("."));
    let gateway = Gateway::in_directory(programs)?;
    // The gateways inherit this thread's priority. Like machines of their own, they are not delayed by other
    // programs.
    sys::set_fifo_priority(GATEWAY).map_err(Error::context("priority"))?;
    let tunnel = IkeTunnel { suite: SUITE, connection: "", child: "", scheduler: "" };
    let gateways =
        [0, 1].into_iter().map(|end| tunnel.start(&gateway, veth, end, directory)).collect::<Result<_>>()?;
    veth.wait_until_connected()?;
    Ok(gateways)
}

/// Limits the rate of the first end's link.
fn limit_rate(veth: &VethPair, len: usize) -> Result<()> {
    let words = format!(
        "qdisc add dev wire root handle 1: stab overhead -{ETHERNET} linklayer ethernet \
         tbf rate {LINE}bit burst {} limit {}",
        len + 1,
        QUEUE * len
    );
    let words: Vec<&str> = words.split(' ').collect();
    let [sender, _] = &veth.ends;
    let output = run(sender, TC_LIMIT, "tc", &words)?;
    if output.status == 0 { Ok(()) } else { Err(Error::new(format!("tc: {}", output.stdout.trim_end()))) }
}

fn part(paths: &[LinePath]) -> Part {
    let mut series = Vec::new();
    for path in paths {
        let service = service_time(path.len);
        let ms = |delay: Option<f64>| delay.map(|delay| delay * 1000.0);
        series.push(Series::ours(
            format!("{}, measured", path.name),
            Shape::Points,
            path.loads.iter().filter_map(LoadPoint::point),
        ));
        series.push(curve(&format!("{}, streams", path.name), |rate| streams(rate, service)));
        series.push(curve(&format!("{}, M/M/1", path.name), |rate| ms(queue::mm1(rate, service))));
    }
    let samples = paths.iter().flat_map(|path| {
        path.loads.iter().map(|load| Samples {
            name: format!("{}, {:.0} packets per second, mean delay of a round", path.name, load.rate),
            unit: "ms".into(),
            // The phases differ between rounds, so the rounds differ by design.
            repeated: false,
            values: load.means.clone(),
        })
    });
    Part {
        title: "Waiting for a line of 128 kbit/s, measured".into(),
        text: format!(
            "Streams of {STREAM_RATE:.0} packets per second at random phases, IP packets of {CLEAR_LEN} \
                 bytes, over a token bucket of 128 kbit/s with space for {QUEUE} packets; in clear, and \
                 through a tunnel of two gateways with {SUITE}, which makes them {} bytes long. A point \
                 is the median of rounds with different phases, with minimum and maximum. Findings compare each \
                 round with the model of its own phases.",
            paths.last().map_or(0, |path| path.len)
        ),
        figures: vec![Figure {
            title: "Figure 4: delay and load".into(),
            caption:
                "Left the protected packets, right those in clear. Lines are models, points are measured."
                    .into(),
            x: Axis::linear("packets a second"),
            y: Axis::log("mean delay, ms"),
            series,
        }],
        findings: paths.iter().map(finding).collect(),
        samples: samples.collect(),
        ..Part::default()
    }
}

impl LoadPoint {
    fn point(&self) -> Option<Point> {
        let Spread { median, min: least, max: most, .. } = Spread::of(self.means.iter().copied())?;
        Some(Point::with_range(self.rate, median, least, most))
    }
}

const CLEAR: Claim<'static> = Claim {
    what: "the model of the line predicts the delay, clear",
    paper: "fairly well",
    holds: Bound::Within(1.0 / TOLERANCE, TOLERANCE),
    agrees: "Packets wait for the line only, and the model describes the line.",
    differs: "Packets also wait elsewhere.",
};
const PROTECTED: Claim<'static> = Claim {
    what: "protected packets wait longer than the model of the line predicts",
    paper: "yes: the time before the engine is unknown",
    holds: Bound::Above(TOLERANCE),
    agrees: "Packets also wait before an engine.",
    differs: "Although two gateways are in the path, the delay is that of the line: the waiting time before the \
              engine is negligible. On the paper's routers it was not.",
};

fn finding(path: &LinePath) -> Finding {
    let below = || path.loads.iter().filter(|load| !load.expected.is_empty());
    let ratio = |load: &LoadPoint| {
        let ratio = Spread::of_ratios(load.means.iter().copied(), load.expected.iter().copied())?;
        let [measured, model] = [&load.means, &load.expected].map(|all| Spread::of(all.iter().copied()));
        let (measured, model) = (measured?.median, model?.median);
        Some((format!("{measured:.1} ms at {:.0}/s (model {model:.1})", load.rate), ratio))
    };
    let (texts, ratios): (Vec<String>, Vec<Spread>) = below().filter_map(ratio).unzip();
    let lost = below().map(|load| load.lost).fold(0.0, f64::max);
    let ours = format!("{}; {:.1} % lost below saturation", texts.join(", "), lost * 100.0);
    if path.name == "clear" { CLEAR.judge(ours, &ratios) } else { PROTECTED.judge(ours, &ratios) }
}
