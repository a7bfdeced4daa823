//! Throughput of the engine under increasing load, measured: figures 5 and 6.
//!
//! The gateway runs for a share of the time only, so that with DES it protects about as many packets per
//! second as the paper's router. All suites have the same share.

mod findings;

use super::bottleneck::{Bottleneck, Cpus, FlowRates};
use crate::Context;
use casemate_measure::report::{Axis, Figure, Part, Point, Samples, Series, Shape};
use casemate_measure::stats::{LEAST_ROUNDS, Spread};
use casemate_testbed::slow_process::PERIOD;
use casemate_testbed::{Error, Result, sys};
use std::time::{Duration, Instant};

/// Packet lengths of the paper, in bytes.
const LENGTHS: [usize; 4] = [60, 100, 250, 1000];
/// Peak throughput of the paper's best engine in packets per second: slightly above 1,000.
const PAPER_PEAK: f64 = 1_050.0;
/// Load in packets per second that shows the throughput of an engine that is not slowed down.
const FREE_LOAD: u64 = 300_000;
/// Number of corrections of the share of the time.
const CORRECTIONS: usize = 3;
/// Real-time priority of the gateways: below the flood, above everything else.
const PRIORITY: i32 = 5;
/// Capacity of the queue in front of the engine in packets.
const QUEUE: usize = 60;

/// What protects the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suite {
    Plain,
    Des,
    TripleDes,
    NullSha,
    TripleDesSha,
    Gcm,
}

/// All suites: the paper's in its order, and the one that is usual today.
const ALL: [Suite; 6] =
    [Suite::Plain, Suite::Des, Suite::TripleDes, Suite::NullSha, Suite::TripleDesSha, Suite::Gcm];

impl Suite {
    /// Name in the legend.
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "Plain",
            Self::Des => "DES",
            Self::TripleDes => "3DES",
            Self::NullSha => "NULL+SHA",
            Self::TripleDesSha => "3DES+SHA",
            Self::Gcm => "AES-GCM",
        }
    }

    /// Whether the paper measured an engine with this suite.
    const fn is_papers(self) -> bool {
        !matches!(self, Self::Plain | Self::Gcm)
    }

    /// Proposal, as in `esp_proposals`. There is no ESP without integrity; AES-XCBC costs least beside DES.
    const fn proposal(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Des => Some("des-aesxcbc"),
            Self::TripleDes => Some("3des-aesxcbc"),
            Self::NullSha => Some("null-sha1"),
            Self::TripleDesSha => Some("3des-sha1"),
            Self::Gcm => Some("aes128gcm16"),
        }
    }
}

/// Measurements of one engine. Rounds are those of all engines in turns.
struct Sweep {
    suite: Suite,
    /// Rates of each load, in packets per second, one for each round.
    loads: Vec<Vec<FlowRates>>,
    /// Packets of each length per second under overload, one for each round.
    by_length: Vec<Vec<f64>>,
}

/// Extent of the measurement.
struct Plan {
    suites: &'static [Suite],
    /// Offered loads in packets per second.
    loads: &'static [u64],
    lengths: &'static [usize],
    /// Duration of a measurement: whole periods of the slowed engine.
    turn: Duration,
}

impl Plan {
    const fn of(quick: bool) -> Self {
        if quick {
            let suites = &[Suite::Des, Suite::NullSha];
            Self { suites, loads: &[1_500, 2_500], lengths: &[], turn: periods(10) }
        } else {
            let loads = &[500, 1_000, 1_500, 2_500];
            Self { suites: &ALL, loads, lengths: &LENGTHS, turn: periods(14) }
        }
    }
}

const fn periods(count: u64) -> Duration {
    Duration::from_millis(count * PERIOD.as_millis() as u64)
}

/// Runs the step.
pub(super) fn parts(context: &Context) -> Result<Vec<Part>> {
    let (start, plan, cpus) = (Instant::now(), Plan::of(context.quick), Cpus::of_this_thread()?);
    context.progress.set_total(plan.suites.len() * (LEAST_ROUNDS + 1));
    // The gateways inherit this priority: in its share of the time, an engine does not wait for other
    // programs.
    sys::set_fifo_priority(PRIORITY).map_err(Error::context("priority"))?;
    let mut engines = Vec::new();
    for suite in plan.suites {
        context.progress.advance(&format!("start: {}", suite.name()));
        let scheduler = "scheduler {\n enabled = no\n}";
        engines.push(Bottleneck::build(context, cpus, suite.proposal(), scheduler, 0)?);
    }
    let des = plan.suites.iter().position(|suite| *suite == Suite::Des);
    let des =
        des.and_then(|place| engines.get_mut(place)).ok_or_else(|| Error::new("DES is not measured"))?;
    let share = calibrate(des, plan.turn)?;
    let begin = Instant::now();
    let mut sweeps: Vec<Sweep> = plan.suites.iter().map(|suite| Sweep::new(*suite, &plan)).collect();
    for round in 0..LEAST_ROUNDS as u32 {
        // A round that would end much later than planned is not started.
        if round > 0 && start.elapsed() + begin.elapsed() / round > context.time.mul_f64(1.2) {
            break;
        }
        for (sweep, engine) in sweeps.iter_mut().zip(&mut engines) {
            context.progress.advance(sweep.suite.name());
            sweep.measure(engine, share, &plan)?;
        }
    }
    Ok(vec![part(&sweeps, &plan, share)])
}

/// Finds the share of the time with which the engine has the paper's peak throughput.
fn calibrate(engine: &mut Bottleneck, turn: Duration) -> Result<f64> {
    let mut share = PAPER_PEAK / engine.flood_for(&LENGTHS, FREE_LOAD, turn)?.delivered.max(PAPER_PEAK);
    engine.wait_until_idle()?;
    for _ in 0..CORRECTIONS {
        engine.slow_down(share, QUEUE)?;
        let peak = engine.flood_for(&LENGTHS, 2 * PAPER_PEAK as u64, 2 * turn)?.delivered;
        share *= (PAPER_PEAK / peak.max(1.0)).clamp(0.1, 10.0);
    }
    engine.run_freely();
    Ok(share)
}

impl Sweep {
    fn new(suite: Suite, plan: &Plan) -> Self {
        let (loads, by_length) = (vec![Vec::new(); plan.loads.len()], vec![Vec::new(); plan.lengths.len()]);
        Self { suite, loads, by_length }
    }

    /// Measures one round.
    fn measure(&mut self, engine: &mut Bottleneck, share: f64, plan: &Plan) -> Result<()> {
        engine.slow_down(share, QUEUE)?;
        for (rates, load) in self.loads.iter_mut().zip(plan.loads) {
            rates.push(engine.flood_for(&LENGTHS, *load, plan.turn)?);
        }
        let most = plan.loads.last().copied().unwrap_or_default();
        // A slow engine protects long packets in batches that take a fifth of a second.
        for (rates, len) in self.by_length.iter_mut().zip(plan.lengths).filter(|_| self.suite != Suite::Plain)
        {
            rates.push(engine.flood_for(&[*len], most, 2 * plan.turn)?.delivered);
        }
        engine.run_freely();
        Ok(())
    }

    /// Delivered packets per second with the load at this place, one for each round.
    fn delivered(&self, place: usize) -> impl Iterator<Item = f64> {
        self.loads.get(place).into_iter().flatten().map(|flow| flow.delivered)
    }

    /// Spread of the throughput with the highest load.
    fn overloaded(&self) -> Option<Spread> {
        Spread::of(self.delivered(self.loads.len().checked_sub(1)?))
    }

    /// Mbit/s of packets of the length at this place, one for each round.
    fn mbit_per_second(&self, place: usize, len: usize) -> impl Iterator<Item = f64> {
        self.by_length.get(place).into_iter().flatten().map(move |rate| rate * len as f64 * 8.0 / 1e6)
    }

    /// Curve of figure 5. Nothing is delivered if nothing is offered.
    fn curve(&self) -> Series {
        let points = self.loads.iter().filter_map(|rates| {
            let offered = Spread::of(rates.iter().map(|flow| flow.offered))?.median;
            let Spread { median, min, max, .. } = Spread::of(rates.iter().map(|flow| flow.delivered))?;
            Some(Point::with_range(offered, median, min, max))
        });
        Series::ours(self.suite.name(), Shape::Line, std::iter::once(Point::at(0.0, 0.0)).chain(points))
    }

    fn samples(&self, plan: &Plan) -> Vec<Samples> {
        let name = self.suite.name();
        let loads = self.loads.iter().zip(plan.loads).map(|(rates, load)| {
            let values = rates.iter().map(|flow| flow.delivered).collect();
            Samples::repeated(format!("{name}, throughput, {load} offered"), "packets/s", values)
        });
        let lengths = self.by_length.iter().zip(plan.lengths).map(|(rates, len)| {
            Samples::repeated(format!("{name}, packets of {len} bytes"), "packets/s", rates.clone())
        });
        loads.chain(lengths).collect()
    }
}

fn part(sweeps: &[Sweep], plan: &Plan, share: f64) -> Part {
    let rounds = sweeps.iter().flat_map(|sweep| &sweep.loads).map(Vec::len).min().unwrap_or_default();
    // As in the paper: a group of bars for each suite, a bar for each length.
    let engines = || sweeps.iter().filter(|sweep| sweep.suite.is_papers());
    let bars = plan.lengths.iter().enumerate().map(|(place, len)| {
        let points = (0..).zip(engines()).filter_map(|(x, sweep)| {
            let Spread { median, min, max, .. } = Spread::of(sweep.mbit_per_second(place, *len))?;
            Some(Point::with_range(f64::from(x), median, min, max))
        });
        Series::ours(format!("{len} bytes"), Shape::Bars, points)
    });
    let by_length = (!plan.lengths.is_empty()).then(|| Figure {
        title: "Figure 6: throughput and length of packets".into(),
        caption: "IP packets before protection, with the highest load.".into(),
        x: Axis::names("protection", engines().map(|sweep| sweep.suite.name())),
        y: Axis::linear("Mbit/s"),
        series: bars.collect(),
    });
    Part {
        title: "Throughput of the engine".into(),
        text: format!(
            "{TEXT} The share was {:.2} %. {rounds} rounds of {:.2} s for each value, with all engines in \
             turns; medians with minimum and maximum.",
            share * 100.0,
            plan.turn.as_secs_f64()
        ),
        figures: std::iter::once(through(sweeps)).chain(by_length).collect(),
        findings: findings::of(sweeps, plan),
        samples: sweeps.iter().flat_map(|sweep| sweep.samples(plan)).collect(),
        ..Part::default()
    }
}

fn through(sweeps: &[Sweep]) -> Figure {
    Figure {
        title: "Figure 5: throughput and load".into(),
        caption:
            "The axes are those of the paper, and so is the order in the legend, from the fastest to the \
             slowest engine of the paper. AES-GCM was not in it."
                .into(),
        x: Axis::linear("offered, packets a second"),
        y: Axis::linear("through the engine, packets a second"),
        series: sweeps.iter().map(Sweep::curve).collect(),
    }
}

const TEXT: &str = "A gateway with its own processor and without the scheduler. It is stopped and continued 50 \
     times a second and runs for a share of the time only, so that with DES it protects about 1,050 packets \
     a second, as the paper's router did; every suite has the same share. 60 packets may wait. Packets of \
     60, 100, 250 and 1,000 bytes arrive in equal numbers; those that leave the gateway are counted on the \
     link. Plain packets pass no gateway. ESP without integrity, which the paper measured as DES and 3DES, \
     does not exist here: both have AES-XCBC, which costs little compared with them.";
