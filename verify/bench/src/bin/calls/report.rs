//! Results, as tables or as one JSON object.

use crate::Options;
use crate::testbed::Bottleneck;
use crate::voice::CallStats;
use crate::{LOADS, Sample};
use casemate_bench::cli;
use casemate_bench::goal::{Bound, Goal};
use casemate_measure::stats::Spread;
use serde_json::{Value, json};

/// Bits of a bulk packet.
const BULK_BITS: f64 = 1_400.0 * 8.0;
/// Goal for the additional delay of the calls compared with an idle link, in milliseconds.
const MAX_ADDED_DELAY: f64 = 1.0;
/// Goal for the ratio of the delays without and with the scheduler under the highest load.
const MIN_IMPROVEMENT: f64 = 10.0;
/// Goal for bulk and calls under the highest load, as a share of the largest throughput.
const MIN_SHARE: f64 = 0.95;
/// Bits per second of all calls in one direction.
const CALLS: f64 = 50.0 * 50.0 * 200.0 * 8.0;

type Column = (&'static str, &'static str, usize, fn(&Sample) -> f64);

/// Columns: name, JSON key, digits, value. Delays are in milliseconds.
const COLUMNS: [Column; 10] = [
    ("offered Mbit/s", "offered_mbit", 1, |sample| sample.outcome.offered * BULK_BITS / 1e6),
    ("bulk Mbit/s", "bulk_mbit", 1, |sample| sample.outcome.bulk * BULK_BITS / 1e6),
    ("lost %", "lost_percent", 2, |sample| with_bulk(sample).lost() * 100.0),
    ("median", "median_ms", 2, |sample| with_bulk(sample).delay(0.5)),
    ("99th", "p99_ms", 2, p99),
    ("most", "most_ms", 2, |sample| with_bulk(sample).delay(1.0)),
    ("back: lost %", "back_lost_percent", 2, |sample| against_bulk(sample).lost() * 100.0),
    ("median", "back_median_ms", 2, |sample| against_bulk(sample).delay(0.5)),
    ("99th", "back_p99_ms", 2, |sample| against_bulk(sample).delay(0.99)),
    ("most", "back_most_ms", 2, |sample| against_bulk(sample).delay(1.0)),
];

/// Calls in the direction of the bulk traffic.
fn with_bulk(sample: &Sample) -> &CallStats {
    &sample.outcome.calls[0]
}

fn against_bulk(sample: &Sample) -> &CallStats {
    &sample.outcome.calls[1]
}

fn p99(sample: &Sample) -> f64 {
    with_bulk(sample).delay(0.99)
}

/// One line about a sample, for people.
pub(crate) fn line(sample: &Sample) -> String {
    let numbers = COLUMNS.map(|(name, _, digits, value)| format!("{name} {:.digits$}", value(sample)));
    format!("{}: {}", title(sample.bottleneck, sample.load, sample.has_scheduler), numbers.join(", "))
}

fn title(bottleneck: Bottleneck, load: u64, has_scheduler: bool) -> String {
    format!("{}, load {load}, scheduler {}", bottleneck.name(), if has_scheduler { "on" } else { "off" })
}

/// Samples of one row, one per round.
fn row(
    all: &[Sample],
    bottleneck: Bottleneck,
    load: u64,
    has_scheduler: bool,
) -> impl Iterator<Item = &Sample> + Clone {
    all.iter().filter(move |sample| {
        (sample.bottleneck, sample.load, sample.has_scheduler) == (bottleneck, load, has_scheduler)
    })
}

/// Prints the results.
pub(crate) fn show(all: &[Sample], options: &Options) {
    if options.common.json {
        return println!("{}", to_json(all, options));
    }
    println!("medians of the rounds; delays in ms; {}; {}", options.suite, cli::describe_machine());
    for bottleneck in Bottleneck::ALL {
        println!(
            "\n{}: the bottleneck is the gateway that {}",
            bottleneck.name(),
            role_of_bottleneck(bottleneck)
        );
        let names = COLUMNS.map(|(name, ..)| format!("{name:>14}"));
        println!("  load  scheduler {}", names.concat());
        for (load, has_scheduler) in rows() {
            let cells = COLUMNS.map(|(_, _, digits, value)| {
                let spread = Spread::of(row(all, bottleneck, load, has_scheduler).map(value));
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

const fn role_of_bottleneck(bottleneck: Bottleneck) -> &'static str {
    match bottleneck {
        Bottleneck::Outbound => "protects bulk",
        Bottleneck::Inbound => "opens bulk",
    }
}

fn goals(all: &[Sample]) -> Vec<Goal> {
    Bottleneck::ALL.into_iter().flat_map(|bottleneck| goals_of(all, bottleneck)).collect()
}

fn goals_of(all: &[Sample], bottleneck: Bottleneck) -> [Goal; 4] {
    let max_rate = LOADS[LOADS.len() - 1];
    let median = |load, is_on, value: fn(&Sample) -> f64| {
        Spread::of(row(all, bottleneck, load, is_on).map(value)).map(|spread| spread.median)
    };
    let worst_loss =
        |sample: &Sample| sample.outcome.calls.iter().map(CallStats::lost).fold(0.0, f64::max) * 100.0;
    let lost = LOADS.iter().flat_map(|load| row(all, bottleneck, *load, true)).map(worst_loss);
    let longer = median(max_rate, true, p99).zip(median(0, true, p99)).map(|(full, idle)| full - idle);
    let better = median(max_rate, false, p99).zip(median(max_rate, true, p99)).map(|(off, on)| off / on);
    let kept = median(max_rate, true, |sample| {
        let calls: f64 = sample.outcome.calls.iter().map(|stats| (1.0 - stats.lost()) * CALLS).sum();
        (sample.outcome.bulk * BULK_BITS + calls) / (sample.max_rate * BULK_BITS)
    });
    let goal = |what: &str, bound, wanted, unit, got| {
        let what = format!("{}, scheduler on, load {max_rate}: {what}", bottleneck.name());
        Goal { what, bound, wanted, unit, got }
    };
    [
        goal("loss of the calls under any load", Bound::AtMost, 0.0, " %", lost.reduce(f64::max)),
        goal("99th percentile, longer than idle", Bound::AtMost, MAX_ADDED_DELAY, " ms", longer),
        goal("99th percentile, times shorter than off", Bound::AtLeast, MIN_IMPROVEMENT, "", better),
        goal("bytes of bulk and calls, times the most", Bound::AtLeast, MIN_SHARE, "", kept),
    ]
}

fn to_json(all: &[Sample], options: &Options) -> Value {
    let rows = Bottleneck::ALL
        .into_iter()
        .flat_map(|bottleneck| rows().map(move |(load, is_on)| (bottleneck, load, is_on)));
    let row = |(bottleneck, load, is_on): (Bottleneck, u64, bool)| {
        let mut object = json!({ "bottleneck": bottleneck.name(), "load": load, "scheduler": is_on });
        for (_, key, _, value) in COLUMNS {
            object[key] = json!(Spread::of(row(all, bottleneck, load, is_on).map(value)).map(Spread::json));
        }
        object
    };
    json!({
        "machine": cli::describe_machine(),
        "suite": options.suite,
        "rows": rows.map(row).collect::<Vec<_>>(),
        "goals": goals(all).iter().map(Goal::json).collect::<Vec<_>>(),
    })
}
