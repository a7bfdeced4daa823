//! Calls next to bulk traffic, measured: an engine whose queue has no priorities, and one with the scheduler
//! in front of it.

use super::bottleneck::{Bottleneck, Cpus};
use super::traffic::{self, Random};
use crate::Context;
use casemate_measure::report::{Agreement, Finding, Part, Samples, Table};
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
/// Audible loss, from 0 to 1, and the factor by which priority must reduce the delay to count as the remedy.
const AUDIBLE_LOSS: f64 = 0.01;
const MIN_IMPROVEMENT: f64 = 10.0;

/// Calls under a load.
struct CallRun {
    load: u64,
    has_scheduler: bool,
    lost: f64,
    /// Delays in milliseconds, sorted.
    delays: Vec<f64>,
}

impl CallRun {
    fn percentile(&self, part: f64) -> f64 {
        let place = (self.delays.len() as f64 * part).ceil() as usize;
        self.delays.get(place.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
    }
}

/// Runs the step.
pub(super) fn parts(context: &Context) -> Result<Vec<Part>> {
    let periods = if context.quick { 30 } else { 250 };
    let cpus = Cpus::of_this_thread()?;
    context.progress.set_total(4);
    let mut runs = Vec::new();
    for has_scheduler in [false, true] {
        let scheduler = format!("scheduler {{\n enabled = {}\n}}", if has_scheduler { "yes" } else { "no" });
        let bottleneck = Bottleneck::build(context, cpus, Some(SUITE), &scheduler, IS_BULK)?;
        let most = bottleneck.flood_for(&[BULK], FLOOD, SATURATION_TIME)?.delivered;
        for load in [0, 2] {
            bottleneck.wait_until_idle()?;
            context
                .progress
                .advance(&format!("scheduler {}, load {load}", if has_scheduler { "on" } else { "off" }));
            let schedule = traffic::schedule(CALLS, INTERVAL, periods, &mut Random::new(load));
            let calls = || traffic::send(&bottleneck.veth, &schedule, VOICE, INTERVAL);
            let (_, mut arrivals) = bottleneck.flood(&[BULK], most as u64 * load, calls)?;
            arrivals.delays.sort_by(f64::total_cmp);
            let lost = 1.0 - arrivals.delays.len() as f64 / arrivals.sent as f64;
            runs.push(CallRun { load, has_scheduler, lost, delays: arrivals.delays });
        }
    }
    Ok(vec![part(runs)])
}

fn part(runs: Vec<CallRun>) -> Part {
    let row = |run: &CallRun| {
        let ms = |part| format!("{:.2}", run.percentile(part));
        let scheduler = if run.has_scheduler { "on" } else { "off" };
        vec![
            run.load.to_string(),
            scheduler.into(),
            format!("{:.1}", run.lost * 100.0),
            ms(0.5),
            ms(0.99),
            ms(1.0),
        ]
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
    Part {
        title: "Priority before the engine, measured".into(),
        text: "Calls marked EF and unmarked bulk packets of 1,000 bytes pass through one gateway on one \
             processor. The scheduler decides which packet is encrypted next, which is what the paper \
             missed."
            .into(),
        tables: vec![table],
        findings: finding(&runs).into_iter().collect(),
        samples: runs.into_iter().map(samples).collect(),
        ..Part::default()
    }
}

fn finding(runs: &[CallRun]) -> Option<Finding> {
    let under_load =
        |has_scheduler| runs.iter().find(|run| run.load > 0 && run.has_scheduler == has_scheduler);
    let (off, on) = (under_load(false)?, under_load(true)?);
    let tell = |run: &CallRun| {
        format!("99th percentile {:.1} ms, {:.1} % lost", run.percentile(0.99), run.lost * 100.0)
    };
    let helps = on.lost < AUDIBLE_LOSS
        && (off.lost > AUDIBLE_LOSS || on.percentile(0.99) * MIN_IMPROVEMENT <= off.percentile(0.99));
    Some(Finding {
        what: "a saturated engine harms calls because it has no priorities".into(),
        paper: "yes; packets cannot be given priority".into(),
        ours: format!("without the scheduler {}; with it {}", tell(off), tell(on)),
        agreement: Agreement::of(helps),
        why: "Cipher and load of the engine are the same; only the order of the packets differs.".into(),
    })
}

fn samples(run: CallRun) -> Samples {
    let scheduler = if run.has_scheduler { "on" } else { "off" };
    Samples {
        name: format!("delay of each voice packet, sorted, load {}, scheduler {scheduler}", run.load),
        unit: "ms".into(),
        repeated: false,
        values: run.delays,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_harms_calls_only_without_priority() {
        let run =
            |has_scheduler, delay, lost| CallRun { load: 2, has_scheduler, lost, delays: vec![delay; 100] };
        let agreement = |off, on| finding(&[off, on]).unwrap().agreement;
        assert_eq!(agreement(run(false, 30.0, 0.0), run(true, 0.5, 0.0)), Agreement::Agrees);
        assert_eq!(agreement(run(false, 30.0, 0.5), run(true, 30.0, 0.0)), Agreement::Agrees);
        assert_eq!(agreement(run(false, 0.5, 0.0), run(true, 0.5, 0.0)), Agreement::Differs);
        assert_eq!(agreement(run(false, 30.0, 0.5), run(true, 0.5, 0.5)), Agreement::Differs);
        assert!(finding(&[run(true, 1.0, 0.0)]).is_none());
        assert!(
            run(true, 1.0, 0.0).percentile(1.0) == 1.0
                && CallRun { delays: vec![], ..run(true, 1.0, 0.0) }.percentile(0.5).is_infinite()
        );
    }
}
