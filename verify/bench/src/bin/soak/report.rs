//! Results, for people or as one JSON object.

use crate::Options;
use crate::traffic::Count;
use crate::traffic::{Memory, Results};
use casemate_bench::cli;
use casemate_bench::goal::{Bound, Goal};
use serde_json::{Value, json};

/// Goal for the growth of a gateway's memory, in MiB: none, except for temporary buffers.
const GROWTH: f64 = 1.0;

const DIRECTIONS: [&str; 2] = ["there", "back"];

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn goals(results: &Results) -> [Goal; 2] {
    let lost: u64 = results.counts.iter().map(|count| count.lost()).sum();
    let growth = results.memory.map(|memory| mib(memory.end) - mib(memory.begin));
    [
        Goal {
            what: "packets lost".into(),
            bound: Bound::AtMost,
            wanted: 0.0,
            unit: "",
            got: (results.rekeys > 0).then_some(lost as f64),
        },
        Goal {
            what: "growth of a gateway's memory".into(),
            bound: Bound::AtMost,
            wanted: GROWTH,
            unit: " MiB",
            got: growth.into_iter().reduce(f64::max),
        },
    ]
}

/// Prints the results. Returns whether the goals are met.
pub(crate) fn show(results: &Results, options: &Options) -> bool {
    let goals = goals(results);
    if options.common.json {
        println!("{}", to_json(results, &goals, options));
    } else {
        print(results, options);
        println!("\nGoals");
        goals.iter().for_each(|goal| println!("  {}", goal.line()));
    }
    goals.iter().all(|goal| goal.got.is_some_and(|got| goal.bound.is_held(got, goal.wanted)))
}

fn print(results: &Results, options: &Options) {
    let seconds = results.elapsed.as_secs_f64();
    println!("{}; {}", options.suite, cli::describe_machine());
    println!("{seconds:.0} s, {} rekeys", results.rekeys);
    for (direction, count) in DIRECTIONS.iter().zip(&results.counts) {
        let Count { sent, .. } = count;
        let rate = *sent as f64 / seconds;
        println!("  {direction:<6} {sent} packets sent, {rate:.0} per second; {} lost", count.lost());
    }
    for (which, (memory, drops)) in results.memory.iter().zip(&results.drops).enumerate() {
        let Memory { begin, end, most } = memory;
        let [begin, end, most] = [begin, end, most].map(|bytes| format!("{:.2}", mib(*bytes)));
        println!("  gateway {}: {begin} MiB at the start, {end} at the end, maximum {most}", which + 1);
        for (reason, count) in drops {
            println!("    dropped {count}: {reason}");
        }
    }
}

fn to_json(results: &Results, goals: &[Goal], options: &Options) -> Value {
    let count = |count: Count| json!({ "sent": count.sent, "lost": count.lost() });
    let memory = |memory: Memory| json!({ "begin": memory.begin, "end": memory.end, "most": memory.most });
    json!({
        "machine": cli::describe_machine(),
        "suite": options.suite,
        "seconds": results.elapsed.as_secs_f64(),
        "rekeys": results.rekeys,
        "packets": results.counts.map(count),
        "memory": results.memory.map(memory),
        "drops": results.drops,
        "goals": goals.iter().map(Goal::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn results(lost: u64, rekeys: usize) -> Results {
        let memory = Memory { begin: 10 << 20, end: 10 << 20, most: 11 << 20 };
        Results {
            elapsed: Duration::from_secs(60),
            rekeys,
            counts: [Count { sent: 100, arrived: 100 }, Count { sent: 100, arrived: 100 - lost }],
            memory: [memory; 2],
            drops: [Vec::new(), Vec::new()],
        }
    }

    #[test]
    fn goal_needs_a_rekey_and_no_lost_packet() {
        let held = |results: &Results| goals(results)[0].line();
        assert!(held(&results(0, 10)).starts_with("met"));
        assert!(held(&results(1, 10)).starts_with("not met"));
        assert!(held(&results(0, 0)).starts_with("not measured"));
    }
}
