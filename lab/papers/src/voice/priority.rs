//! Calls next to bulk traffic, measured: an engine whose queue has no priorities, and one with the scheduler
//! in front of it.

use super::bottleneck::{Bottleneck, Cpus};
use super::traffic::{self, Arrivals, Random};
use crate::Context;
use casemate_measure::report::{
    Axis, Bound, Claim, Figure, Finding, Part, Point, Samples, Series, Shape, Table,
};
use casemate_measure::stats::{LEAST_ROUNDS, Spread};
use casemate_testbed::Result;
use std::time::Duration;

/// A slow suite, so that the instruments keep up.
const SUITE: &str = "3des-sha1";
/// Length of bulk packets in bytes, and the minimum length on the link that identifies them.
const BULK: usize = 1000;
const IS_BULK: usize = 600;
/// Number of calls, length of an IP packet, and interval: G.711.
const CALLS: usize = 20;
const VOICE: usize = 200;
const INTERVAL: Duration = Duration::from_millis(20);
/// Bulk rate in packets per second that saturates any engine with this suite, and the time for measuring its
/// capacity.
const FLOOD: u64 = 200_000;
const SATURATION_TIME: Duration = Duration::from_millis(300);
/// Delay in milliseconds that stands for a lost packet: longer than any that a listener accepts.
const LOST: f64 = 1_000.0;
/// The factor by which priority must reduce the delay to count as the remedy.
const MIN_IMPROVEMENT: f64 = 10.0;

/// Calls under a load, in several rounds.
struct CallRuns {
    load: u64,
    has_scheduler: bool,
    rounds: Vec<Round>,
}

/// One round.
struct Round {
    /// Delays of all packets in milliseconds, sorted, with those of lost packets.
    delays: Vec<f64>,
    /// Share of lost packets, from 0 to 1.
    lost: f64,
}

impl Round {
    fn percentile(&self, part: f64) -> f64 {
        let place = (self.delays.len() as f64 * part).ceil() as usize;
        self.delays.get(place.saturating_sub(1)).copied().unwrap_or(LOST)
    }
}

impl CallRuns {
    /// Name of the scheduler's state and of the load.
    fn name(&self) -> String {
        let load = if self.load == 0 { "no bulk" } else { "bulk" };
        format!("{load}, scheduler {}", if self.has_scheduler { "on" } else { "off" })
    }

    /// Spread of a percentile over the rounds.
    fn percentile(&self, part: f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(|round| round.percentile(part)))
    }

    /// Spread of the lost packets, in percent.
    fn lost(&self) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(|round| round.lost * 100.0))
    }
}

/// Runs the step.
pub(super) fn parts(context: &Context) -> Result<Vec<Part>> {
    let (periods, loads): (u32, &[u64]) = if context.quick { (8, &[2]) } else { (60, &[0, 2]) };
    let cpus = Cpus::of_this_thread()?;
    context.progress.set_total(2 * loads.len());
    let mut runs = Vec::new();
    for has_scheduler in [false, true] {
        let scheduler = format!("scheduler {{\n enabled = {}\n}}", if has_scheduler { "yes" } else { "no" });
        let bottleneck = Bottleneck::build(context, cpus, Some(SUITE), &scheduler, IS_BULK)?;
        let most = bottleneck.flood_for(&[BULK], FLOOD, SATURATION_TIME)?.delivered;
        for load in loads.iter().copied() {
            let mut all = CallRuns { load, has_scheduler, rounds: Vec::new() };
            context.progress.advance(&all.name());
            for round in 0..LEAST_ROUNDS as u64 {
                bottleneck.wait_until_idle()?;
                let schedule = traffic::schedule(CALLS, INTERVAL, periods, &mut Random::new(round));
                let calls = || traffic::send(&bottleneck.veth, &schedule, VOICE, INTERVAL);
                let (_, arrivals) = bottleneck.flood(&[BULK], most as u64 * load, calls)?;
                all.rounds.push(Round::of(arrivals));
            }
            runs.push(all);
        }
    }
    Ok(vec![part(&runs)])
}

impl Round {
    fn of(Arrivals { sent, mut delays }: Arrivals) -> Self {
        let lost = sent.saturating_sub(delays.len());
        delays.extend(std::iter::repeat_n(LOST, lost));
        delays.sort_by(f64::total_cmp);
        Self { delays, lost: lost as f64 / sent.max(1) as f64 }
    }
}

fn part(runs: &[CallRuns]) -> Part {
    let text = |spread: Option<Spread>, digits| spread.map_or_else(|| "-".into(), |all| all.text(digits));
    let row = |run: &CallRuns| {
        let ms = |part| text(run.percentile(part), 2);
        let scheduler = if run.has_scheduler { "on" } else { "off" };
        vec![run.load.to_string(), scheduler.into(), text(run.lost(), 1), ms(0.5), ms(0.99), ms(1.0)]
    };
    let columns = [
        "bulk, times what saturates",
        "scheduler",
        "lost, %",
        "median, ms",
        "99th percentile, ms",
        "most, ms",
    ];
    let table = Table {
        title: format!("{CALLS} calls of G.711 through an engine with {SUITE}"),
        columns: columns.map(String::from).to_vec(),
        rows: runs.iter().map(row).collect(),
    };
    let points = (0..).zip(runs).filter_map(|(place, run)| {
        let Spread { median, min, max, .. } = run.percentile(0.99)?;
        Some(Point::with_range(f64::from(place), median, min, max))
    });
    let figure = Figure {
        title: "Delay of 99 of 100 packets of a call".into(),
        caption: "Lost packets count as 1,000 ms. The paper has no such figure.".into(),
        x: Axis::names("load of the engine", runs.iter().map(CallRuns::name)),
        y: Axis::log("99th percentile, ms"),
        series: vec![Series::ours("20 calls", Shape::Bars, points)],
    };
    Part {
        title: "Priority before the engine, measured".into(),
        text: format!(
            "Calls marked EF and unmarked bulk packets of 1,000 bytes pass through one gateway on one \
             processor. The scheduler decides which packet is encrypted next, which is what the paper \
             missed. {LEAST_ROUNDS} rounds with other phases of the calls; medians with minimum and maximum. A \
             lost packet counts as one that takes 1,000 ms."
        ),
        figures: vec![figure],
        tables: vec![table],
        findings: finding(runs).into_iter().collect(),
        samples: runs.iter().map(samples).collect(),
        ..Part::default()
    }
}

const HARMS: Claim<'static> = Claim {
    what: "a saturated engine harms calls because it has no priorities",
    paper: "yes; packets cannot be given priority",
    holds: Bound::Above(MIN_IMPROVEMENT),
    agrees: "Cipher and load of the engine are the same; only the order of the packets differs.",
    differs: "The scheduler does not make the delay ten times shorter, so the order of the packets is not the \
              only reason.",
};

fn finding(runs: &[CallRuns]) -> Option<Finding> {
    let under_load =
        |has_scheduler| runs.iter().find(|run| run.load > 0 && run.has_scheduler == has_scheduler);
    let (off, on) = (under_load(false)?, under_load(true)?);
    let delays = |run: &CallRuns| run.rounds.iter().map(|round| round.percentile(0.99)).collect::<Vec<_>>();
    let ratio = Spread::of_ratios(delays(off), delays(on))?;
    let tell = |run: &CallRuns| {
        let (delay, lost) = (run.percentile(0.99)?, run.lost()?);
        Some(format!("99th percentile {} ms, {} % lost", delay.text(1), lost.text(1)))
    };
    let ours = format!(
        "without the scheduler {}; with it {}; {} times as long without it",
        tell(off)?,
        tell(on)?,
        ratio.text(0)
    );
    Some(HARMS.judge(ours, &[ratio]))
}

fn samples(run: &CallRuns) -> Samples {
    Samples {
        name: format!("99th percentile of the delays of a round, {}", run.name()),
        unit: "ms".into(),
        repeated: false,
        values: run.rounds.iter().map(|round| round.percentile(0.99)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_measure::report::Agreement;

    fn run(has_scheduler: bool, delay: f64, lost: usize) -> CallRuns {
        let round = || Round::of(Arrivals { sent: 100, delays: vec![delay; 100 - lost] });
        CallRuns { load: 2, has_scheduler, rounds: (0..LEAST_ROUNDS).map(|_| round()).collect() }
    }

    #[test]
    fn the_engine_harms_calls_only_without_priority() {
        let agreement = |off, on| finding(&[off, on]).unwrap().agreement;
        assert_eq!(agreement(run(false, 30.0, 0), run(true, 0.5, 0)), Agreement::Agrees);
        assert_eq!(agreement(run(false, 30.0, 50), run(true, 30.0, 0)), Agreement::Agrees);
        assert_eq!(agreement(run(false, 0.5, 0), run(true, 0.5, 0)), Agreement::Differs);
        assert_eq!(agreement(run(false, 30.0, 50), run(true, 0.5, 50)), Agreement::Differs);
        assert!(finding(&[run(true, 1.0, 0)]).is_none());
    }

    #[test]
    fn lost_packets_are_the_slowest() {
        let round = Round::of(Arrivals { sent: 100, delays: vec![1.0; 98] });
        assert_eq!((round.lost, round.percentile(0.98), round.percentile(0.99)), (0.02, 1.0, LOST));
        // More packets than expected are none lost.
        assert_eq!(Round::of(Arrivals { sent: 1, delays: vec![1.0; 2] }).lost, 0.0);
        assert_eq!(Round::of(Arrivals { sent: 0, delays: vec![] }).percentile(0.5), LOST);
    }
}
