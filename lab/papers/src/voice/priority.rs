//! Calls beside bulk, measured: an engine whose queue knows no priority, and one with the scheduler in front of it.

use super::rig::{Cpus, Rig};
use super::traffic::{self, Random};
use crate::Context;
use casemate_report::{Agreement, Finding, Part, Samples, Table};
use casemate_stage::Result;
use std::time::Duration;

/// A slow engine, so that the instruments keep up.
const SUITE: &str = "3des-sha1";
/// Packets of bulk, in bytes, and what on the link is one of them.
const BULK: usize = 1000;
const IS_BULK: usize = 600;
/// Calls, the IP packet of each, and its interval: G.711.
const CALLS: usize = 20;
const VOICE: usize = 200;
const INTERVAL: Duration = Duration::from_millis(20);
/// More bulk than any engine of this suite can take, in packets a second; and how long it is measured what it can.
const FLOOD: u64 = 200_000;
const SEARCH: Duration = Duration::from_millis(300);
/// Loss that is heard, of 1; and how many times shorter priority makes the delay if its lack was the cause.
const HEARD: f64 = 0.01;
const SHORTER: f64 = 10.0;

/// The calls under a load.
struct Leg {
    load: u64,
    has_scheduler: bool,
    lost: f64,
    /// Milliseconds, in order.
    delays: Vec<f64>,
}

impl Leg {
    fn delay(&self, part: f64) -> f64 {
        let place = (self.delays.len() as f64 * part).ceil() as usize;
        self.delays.get(place.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
    }
}

/// The part.
pub(super) fn parts(context: &Context) -> Result<Vec<Part>> {
    let periods = if context.quick { 30 } else { 250 };
    let cpus = Cpus::of_this_thread()?;
    context.progress.expect(4);
    let mut legs = Vec::new();
    for has_scheduler in [false, true] {
        let scheduler = format!("scheduler {{\n enabled = {}\n}}", if has_scheduler { "yes" } else { "no" });
        let rig = Rig::build(context, cpus, Some(SUITE), &scheduler, IS_BULK)?;
        let most = rig.flow(&[BULK], FLOOD, SEARCH)?.through;
        for load in [0, 2] {
            rig.settle()?;
            context
                .progress
                .next(&format!("scheduler {}, load {load}", if has_scheduler { "on" } else { "off" }));
            let due = traffic::streams(CALLS, INTERVAL, periods, &mut Random::new(load));
            let calls = || traffic::send(&rig.arena, &due, VOICE, INTERVAL);
            let (_, mut heard) = rig.flood(&[BULK], most as u64 * load, calls)?;
            heard.delays.sort_by(f64::total_cmp);
            let lost = 1.0 - heard.delays.len() as f64 / heard.sent as f64;
            legs.push(Leg { load, has_scheduler, lost, delays: heard.delays });
        }
    }
    Ok(vec![part(legs)])
}

fn part(legs: Vec<Leg>) -> Part {
    let row = |leg: &Leg| {
        let ms = |part| format!("{:.2}", leg.delay(part));
        let scheduler = if leg.has_scheduler { "on" } else { "off" };
        vec![
            leg.load.to_string(),
            scheduler.into(),
            format!("{:.1}", leg.lost * 100.0),
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
        rows: legs.iter().map(row).collect(),
    };
    Part {
        title: "Priority before the engine, measured".into(),
        text: "Calls marked EF and unmarked bulk of 1,000 bytes go through one gateway on one processor. The scheduler decides which packet is \
               encrypted next, so what the paper missed is there."
            .into(),
        tables: vec![table],
        findings: finding(&legs).into_iter().collect(),
        samples: legs.into_iter().map(samples).collect(),
        ..Part::default()
    }
}

fn finding(legs: &[Leg]) -> Option<Finding> {
    let under_load =
        |has_scheduler| legs.iter().find(|leg| leg.load > 0 && leg.has_scheduler == has_scheduler);
    let (off, on) = (under_load(false)?, under_load(true)?);
    let tell =
        |leg: &Leg| format!("99th percentile {:.1} ms, {:.1} % lost", leg.delay(0.99), leg.lost * 100.0);
    let helps = on.lost < HEARD && (off.lost > HEARD || on.delay(0.99) * SHORTER <= off.delay(0.99));
    Some(Finding {
        what: "a saturated engine harms calls for want of priority".into(),
        paper: "yes; there is no way to give packets priority".into(),
        ours: format!("without the scheduler {}; with it {}", tell(off), tell(on)),
        agreement: Agreement::of(helps),
        why: "The cipher is the same and the engine as full; only who is next differs.".into(),
    })
}

fn samples(leg: Leg) -> Samples {
    let scheduler = if leg.has_scheduler { "on" } else { "off" };
    Samples {
        name: format!("delay of each packet of speech in order, load {}, scheduler {scheduler}", leg.load),
        unit: "ms".into(),
        repeated: false,
        values: leg.delays,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_harms_calls_only_without_priority() {
        let leg = |has_scheduler, delay, lost| Leg { load: 2, has_scheduler, lost, delays: vec![delay; 100] };
        let agreement = |off, on| finding(&[off, on]).unwrap().agreement;
        assert_eq!(agreement(leg(false, 30.0, 0.0), leg(true, 0.5, 0.0)), Agreement::Agrees);
        assert_eq!(agreement(leg(false, 30.0, 0.5), leg(true, 30.0, 0.0)), Agreement::Agrees);
        assert_eq!(agreement(leg(false, 0.5, 0.0), leg(true, 0.5, 0.0)), Agreement::Differs);
        assert_eq!(agreement(leg(false, 30.0, 0.5), leg(true, 0.5, 0.5)), Agreement::Differs);
        assert!(finding(&[leg(true, 1.0, 0.0)]).is_none());
        assert!(
            leg(true, 1.0, 0.0).delay(1.0) == 1.0
                && Leg { delays: vec![], ..leg(true, 1.0, 0.0) }.delay(0.5).is_infinite()
        );
    }
}
