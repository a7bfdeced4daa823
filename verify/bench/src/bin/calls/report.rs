//! The results, as tables or as one JSON object.

use crate::options::Options;
use crate::stage::Way;
use crate::turn::{LOADS, Sample};
use crate::voice::Leg;
use casemate_bench::goal::{Bound, Goal};
use casemate_bench::machine;
use casemate_measure::spread::Spread;
use serde_json::{Value, json};

/// Bits of a packet of bulk.
const BITS: f64 = 1_400.0 * 8.0;
/// What the calls may wait longer than when nothing else flows, in milliseconds.
const LONGER: f64 = 1.0;
/// How many times the scheduler is to shorten the wait under the highest load.
const BETTER: f64 = 10.0;
/// What of the most bytes that a gateway is able to protect is to be left, calls included, under the highest load.
const KEPT: f64 = 0.95;
/// Bits a second of all calls one way.
const CALLS: f64 = 50.0 * 50.0 * 200.0 * 8.0;

type Column = (&'static str, &'static str, usize, fn(&Sample) -> f64);

/// Name, name in JSON, digits, value. Delays are in milliseconds.
const COLUMNS: [Column; 10] = [
    ("offered Mbit/s", "offered_mbit", 1, |sample| sample.outcome.offered * BITS / 1e6),
    ("bulk Mbit/s", "bulk_mbit", 1, |sample| sample.outcome.bulk * BITS / 1e6),
    ("lost %", "lost_percent", 2, |sample| along(sample).lost() * 100.0),
    ("median", "median_ms", 2, |sample| along(sample).delay(0.5)),
    ("99th", "p99_ms", 2, p99),
    ("most", "most_ms", 2, |sample| along(sample).delay(1.0)),
    ("back: lost %", "back_lost_percent", 2, |sample| against(sample).lost() * 100.0),
    ("median", "back_median_ms", 2, |sample| against(sample).delay(0.5)),
    ("99th", "back_p99_ms", 2, |sample| against(sample).delay(0.99)),
    ("most", "back_most_ms", 2, |sample| against(sample).delay(1.0)),
];

/// The calls in the direction of bulk.
fn along(sample: &Sample) -> &Leg {
    &sample.outcome.legs[0]
}

fn against(sample: &Sample) -> &Leg {
    &sample.outcome.legs[1]
}

fn p99(sample: &Sample) -> f64 {
    along(sample).delay(0.99)
}

/// For a person who waits.
pub(crate) fn line(sample: &Sample) -> String {
    let numbers = COLUMNS.map(|(name, _, digits, value)| format!("{name} {:.digits$}", value(sample)));
    format!("{}: {}", title(sample.way, sample.load, sample.has_scheduler), numbers.join(", "))
}

fn title(way: Way, load: u64, has_scheduler: bool) -> String {
    format!("{}, load {load}, scheduler {}", way.name(), if has_scheduler { "on" } else { "off" })
}

/// The samples of one row, one a round.
fn row(all: &[Sample], way: Way, load: u64, has_scheduler: bool) -> impl Iterator<Item = &Sample> + Clone {
    all.iter()
        .filter(move |sample| (sample.way, sample.load, sample.has_scheduler) == (way, load, has_scheduler))
}

/// Shows everything.
pub(crate) fn show(all: &[Sample], options: &Options) {
    if options.common.json {
        return println!("{}", to_json(all, options));
    }
    println!("medians of the rounds; delays in ms; {}; {}", options.suite, machine::describe());
    for way in Way::ALL {
        println!("\n{}: the bottleneck is the gateway that {}", way.name(), does(way));
        let names = COLUMNS.map(|(name, ..)| format!("{name:>14}"));
        println!("  load  scheduler {}", names.concat());
        for (load, has_scheduler) in rows() {
            let cells = COLUMNS.map(|(_, _, digits, value)| {
                let spread = Spread::of(row(all, way, load, has_scheduler).map(value));
                spread.map_or_else(|| "-".into(), |spread| format!("{:.digits$}", spread.median))
            });
            let cells = cells.map(|cell| format!("{cell:>14}")).concat();
            println!("  {load:<5} {:<9} {cells}", if has_scheduler { "on" } else { "off" });
        }
    }
    println!("\nGoals");
    goals(all).iter().for_each(|goal| println!("  {}", goal.line()));
}

fn rows() -> impl Iterator<Item = (u64, bool)> {
    LOADS.into_iter().flat_map(|load| [(load, false), (load, true)])
}

const fn does(way: Way) -> &'static str {
    match way {
        Way::Outbound => "protects bulk",
        Way::Inbound => "opens bulk",
    }
}

fn goals(all: &[Sample]) -> Vec<Goal> {
    Way::ALL.into_iter().flat_map(|way| goals_of(all, way)).collect()
}

fn goals_of(all: &[Sample], way: Way) -> [Goal; 4] {
    let most = LOADS[LOADS.len() - 1];
    let median = |load, is_on, value: fn(&Sample) -> f64| {
        Spread::of(row(all, way, load, is_on).map(value)).map(|spread| spread.median)
    };
    let worst_loss = |sample: &Sample| sample.outcome.legs.iter().map(Leg::lost).fold(0.0, f64::max) * 100.0;
    let lost = LOADS.iter().flat_map(|load| row(all, way, *load, true)).map(worst_loss);
    let longer = median(most, true, p99).zip(median(0, true, p99)).map(|(full, idle)| full - idle);
    let better = median(most, false, p99).zip(median(most, true, p99)).map(|(off, on)| off / on);
    let kept = median(most, true, |sample| {
        let calls: f64 = sample.outcome.legs.iter().map(|leg| (1.0 - leg.lost()) * CALLS).sum();
        (sample.outcome.bulk * BITS + calls) / (sample.most * BITS)
    });
    let goal = |what: &str, bound, wanted, unit, got| {
        let what = format!("{}, scheduler on, load {most}: {what}", way.name());
        Goal { what, bound, wanted, unit, got }
    };
    [
        goal("loss of the calls under any load", Bound::AtMost, 0.0, " %", lost.reduce(f64::max)),
        goal("99th percentile, longer than idle", Bound::AtMost, LONGER, " ms", longer),
        goal("99th percentile, times shorter than off", Bound::AtLeast, BETTER, "", better),
        goal("bytes of bulk and calls, times the most", Bound::AtLeast, KEPT, "", kept),
    ]
}

fn to_json(all: &[Sample], options: &Options) -> Value {
    let rows = Way::ALL.into_iter().flat_map(|way| rows().map(move |(load, is_on)| (way, load, is_on)));
    let row = |(way, load, is_on): (Way, u64, bool)| {
        let mut object = json!({ "bottleneck": way.name(), "load": load, "scheduler": is_on });
        for (_, key, _, value) in COLUMNS {
            object[key] = json!(Spread::of(row(all, way, load, is_on).map(value)).map(Spread::json));
        }
        object
    };
    json!({
        "machine": machine::describe(),
        "suite": options.suite,
        "rows": rows.map(row).collect::<Vec<_>>(),
        "goals": goals(all).iter().map(Goal::json).collect::<Vec<_>>(),
    })
}
