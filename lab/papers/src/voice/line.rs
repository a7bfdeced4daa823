//! Figure 4, measured: delay and load on a line of 128 kbit/s, in clear and through two gateways.
//!
//! The line is a token bucket that holds one packet. It lets a packet out when its first bit would leave, so the time of sending is added.

use super::models::{STREAM, curve, service, streams};
use super::traffic::{self, Random};
use crate::Context;
use casemate_calls::packet::Esp;
use casemate_calls::paper::LINE;
use casemate_calls::queue;
use casemate_calls::suite::suite;
use casemate_measure::spread::Spread;
use casemate_report::{Agreement, Axis, Figure, Finding, Part, Point, Samples, Series, Shape};
use casemate_sa::Mode;
use casemate_stage::arena::Arena;
use casemate_stage::gateway::Gateway;
use casemate_stage::negotiated::Tunnel;
use casemate_stage::{Background, Error, Result, run, sys};
use casemate_wire::ip::v4;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Length of a packet before it is protected, in bytes.
const CLEAR: usize = 90;
const SUITE: &str = "aes128gcm16";
/// Packets that the line's queue has room for.
const QUEUE: usize = 60;
/// Periods of the streams in a round; the first fills the queue and is not counted.
const PERIODS: u32 = 9;
/// Behind the instruments, before everything else.
const GATEWAY: i32 = 10;
const TC_LIMIT: Duration = Duration::from_secs(5);
/// Ethernet's header, which is none of the line's.
const ETHERNET: i32 = 14;
/// Mean delays agree with the model within so much of it, or so many ms.
const NEAR: f64 = 0.25;
const NEAR_MS: f64 = 2.0;

/// One way to send, and what came out.
struct Way {
    name: &'static str,
    /// Bytes of a packet on the line.
    len: usize,
    loads: Vec<Load>,
}

/// What a load came to.
struct Load {
    /// Packets a second.
    rate: f64,
    /// Mean delay of each round, in ms.
    means: Vec<f64>,
    /// Of 1.
    lost: f64,
}

/// The part.
pub(super) fn parts(context: &Context) -> Result<Vec<Part>> {
    let (loads, rounds): (&[f64], u64) = match context.quick {
        true => (&[0.5, 0.95], 2),
        false => (&[0.2, 0.5, 0.75, 0.85, 0.9, 0.95, 1.1], 6),
    };
    context.progress.expect(2 * loads.len());
    let esp = Esp { sizes: suite(SUITE).map_err(Error::new)?.into(), mode: Mode::Tunnel, encap: false };
    let ways = [("clear", CLEAR), (SUITE, esp.protected_len(CLEAR, v4::HEADER_LEN))];
    let ways = ways
        .into_iter()
        .map(|(name, len)| measure(context, name, len, loads, rounds))
        .collect::<Result<Vec<_>>>()?;
    Ok(vec![part(&ways)])
}

fn measure(context: &Context, name: &'static str, len: usize, loads: &[f64], rounds: u64) -> Result<Way> {
    let arena = Arena::new()?;
    let directory = context.scratch.join(format!("line-{name}"));
    let _gateways = connect(&arena, context, name != "clear", &directory)?;
    shape(&arena, len)?;
    let period = Duration::from_secs_f64(STREAM.recip());
    let load = |load: &f64| {
        let count = (load / service(len) / STREAM).round();
        context.progress.next(&format!("{name}, {:.0} packets a second", count * STREAM));
        let (mut sent, mut means, mut arrived) = (0, Vec::new(), 0);
        for round in 0..rounds {
            let due = traffic::streams(count as usize, period, PERIODS, &mut Random::new(round));
            let heard = traffic::send(&arena, &due, CLEAR, period)?;
            if heard.delays.is_empty() {
                return Err(Error::new(format!("no packet arrives, {name}")));
            }
            (sent, arrived) = (sent + heard.sent, arrived + heard.delays.len());
            let mean = heard.delays.iter().sum::<f64>() / heard.delays.len() as f64;
            means.push(mean + service(len) * 1000.0);
        }
        Ok(Load {
            rate: count * STREAM,
            means,
            lost: 1.0 - f64::from(arrived as u32) / f64::from(sent as u32),
        })
    };
    Ok(Way { name, len, loads: loads.iter().map(load).collect::<Result<_>>()? })
}

/// Both ends without a tunnel, or with gateways that have set one up.
fn connect(
    arena: &Arena,
    context: &Context,
    is_protected: bool,
    directory: &Path,
) -> Result<Vec<Background>> {
    if !is_protected {
        for end in [0, 1] {
            arena.route_over_link(end)?;
        }
        arena.wait_until_connected()?;
        return Ok(Vec::new());
    }
    fs::create_dir_all(directory).map_err(Error::in_front(directory.display()))?;
    let programs = context.program.parent().unwrap_or(Path::new("."));
    let gateway = Gateway::in_directory(programs)?;
    // Gateways start with this thread's priority: as on machines of their own, nobody else is served before them.
    sys::run_before_others(GATEWAY).map_err(Error::in_front("priority"))?;
    let tunnel = Tunnel { suite: SUITE, child: "", scheduler: "" };
    let gateways =
        [0, 1].into_iter().map(|end| tunnel.start(&gateway, arena, end, directory)).collect::<Result<_>>()?;
    arena.wait_until_connected()?;
    Ok(gateways)
}

/// Makes a line of the first end's way out.
fn shape(arena: &Arena, len: usize) -> Result<()> {
    let words = format!(
        "qdisc add dev wire root handle 1: stab overhead -{ETHERNET} linklayer ethernet tbf rate {LINE}bit burst {} limit {}",
        len + 1,
        QUEUE * len
    );
    let words: Vec<&str> = words.split(' ').collect();
    let [sender, _] = &arena.ends;
    let output = run(sender, TC_LIMIT, "tc", &words)?;
    if output.status == 0 { Ok(()) } else { Err(Error::new(format!("tc: {}", output.stdout.trim_end()))) }
}

fn part(ways: &[Way]) -> Part {
    let mut series = Vec::new();
    for way in ways {
        let service = service(way.len);
        let ms = |delay: Option<f64>| delay.map(|delay| delay * 1000.0);
        series.push(Series::ours(
            format!("{}, measured", way.name),
            Shape::Points,
            way.loads.iter().filter_map(Load::point),
        ));
        series.push(curve(&format!("{}, streams", way.name), |rate| streams(rate, service)));
        series.push(curve(&format!("{}, M/M/1", way.name), |rate| ms(queue::mm1(rate, service))));
    }
    let samples = ways.iter().flat_map(|way| {
        way.loads.iter().map(|load| Samples {
            name: format!("{}, {:.0} packets a second, mean delay of a round", way.name, load.rate),
            unit: "ms".into(),
            // Each round has phases of its own, so that rounds differ by nature.
            repeated: false,
            values: load.means.clone(),
        })
    });
    Part {
        title: "Waiting for a line of 128 kbit/s, measured".into(),
        text: format!(
            "Streams of {STREAM:.0} packets a second at random phases, IP packets of {CLEAR} bytes, over a token bucket of 128 kbit/s that has room \
             for {QUEUE} packets; in clear, and through a tunnel of two gateways with {SUITE}, where they are {} bytes long. A point is the median of \
             rounds with other phases.",
            ways.last().map_or(0, |way| way.len)
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
        findings: ways.iter().map(finding).collect(),
        samples: samples.collect(),
        ..Part::default()
    }
}

impl Load {
    fn point(&self) -> Option<Point> {
        let Spread { median, least, most } = Spread::of(self.means.iter().copied())?;
        Some(Point::between(self.rate, median, least, most))
    }
}

fn finding(way: &Way) -> Finding {
    let pairs: Vec<(f64, f64, f64)> = way
        .loads
        .iter()
        .filter_map(|load| Some((load.rate, load.point()?.y, streams(load.rate, service(way.len))?)))
        .collect();
    let is_near = pairs.iter().all(|(_, got, model)| (got - model).abs() <= (NEAR * model).max(NEAR_MS));
    let told: Vec<String> = pairs
        .iter()
        .map(|(rate, got, model)| format!("{got:.1} ms at {rate:.0}/s (model {model:.1})"))
        .collect();
    let lost = way
        .loads
        .iter()
        .filter(|load| load.rate * service(way.len) < 1.0)
        .map(|load| load.lost)
        .fold(0.0, f64::max);
    let is_clear = way.name == "clear";
    let why = match (is_clear, is_near) {
        (true, true) => "The line is the only place where packets wait, and the model is of the line.",
        (false, true) => {
            "Two gateways are in the way, and the delay is still that of the line: what packets wait before the engine is too little to be seen, \
             so nothing is unknown. On the paper's routers it was not."
        }
        (_, false) => "Packets wait elsewhere too, or the phases of these rounds were not typical.",
    };
    Finding {
        what: format!("the model of the line gives the delay, {}", way.name),
        paper: if is_clear {
            "fairly well"
        } else {
            "not as accurately: nobody knows the time before the engine"
        }
        .into(),
        ours: format!("{}; {:.1} % lost below saturation", told.join(", "), lost * 100.0),
        agreement: Agreement::of(is_near == is_clear),
        why: why.into(),
    }
}
