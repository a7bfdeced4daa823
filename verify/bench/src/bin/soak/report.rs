//! What was seen, for a person or as one JSON object.

use crate::flow::Count;
use crate::options::Options;
use crate::watch::{Memory, Seen};
use casemate_bench::goal::{Bound, Goal};
use casemate_bench::machine;
use serde_json::{Value, json};

/// MiB by which a gateway's memory may grow: nothing, but for buffers that come and go.
const GROWTH: f64 = 1.0;

const DIRECTIONS: [&str; 2] = ["there", "back"];

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn goals(seen: &Seen) -> [Goal; 2] {
    let lost: u64 = seen.counts.iter().map(|count| count.lost()).sum();
    let growth = seen.memory.map(|memory| mib(memory.end) - mib(memory.begin));
    [
        Goal {
            what: "packets lost".into(),
            bound: Bound::AtMost,
            wanted: 0.0,
            unit: "",
            got: (seen.rekeys > 0).then_some(lost as f64),
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

/// Shows everything; answers whether the goals are held.
pub(crate) fn show(seen: &Seen, options: &Options) -> bool {
    let goals = goals(seen);
    if options.common.json {
        println!("{}", to_json(seen, &goals, options));
    } else {
        print(seen, options);
        println!("\nGoals");
        goals.iter().for_each(|goal| println!("  {}", goal.line()));
    }
    goals.iter().all(|goal| goal.got.is_some_and(|got| goal.bound.is_held(got, goal.wanted)))
}

fn print(seen: &Seen, options: &Options) {
    let seconds = seen.took.as_secs_f64();
    println!("{}; {}", options.suite, machine::describe());
    println!("{seconds:.0} s, {} rekeys", seen.rekeys);
    for (direction, count) in DIRECTIONS.iter().zip(&seen.counts) {
        let Count { sent, .. } = count;
        let rate = *sent as f64 / seconds;
        println!("  {direction:<6} {sent} packets sent, {rate:.0} a second; {} lost", count.lost());
    }
    for (which, (memory, drops)) in seen.memory.iter().zip(&seen.drops).enumerate() {
        let Memory { begin, end, most } = memory;
        let [begin, end, most] = [begin, end, most].map(|bytes| format!("{:.2}", mib(*bytes)));
        println!("  gateway {}: {begin} MiB at the beginning, {end} at the end, {most} at most", which + 1);
        for (reason, count) in drops {
            println!("    dropped {count}: {reason}");
        }
    }
}

fn to_json(seen: &Seen, goals: &[Goal], options: &Options) -> Value {
    let count = |count: Count| json!({ "sent": count.sent, "lost": count.lost() });
    let memory = |memory: Memory| json!({ "begin": memory.begin, "end": memory.end, "most": memory.most });
    json!({
        "machine": machine::describe(),
        "suite": options.suite,
        "seconds": seen.took.as_secs_f64(),
        "rekeys": seen.rekeys,
        "packets": seen.counts.map(count),
        "memory": seen.memory.map(memory),
        "drops": seen.drops,
        "goals": goals.iter().map(Goal::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn seen(lost: u64, rekeys: usize) -> Seen {
        let memory = Memory { begin: 10 << 20, end: 10 << 20, most: 11 << 20 };
        Seen {
            took: Duration::from_secs(60),
            rekeys,
            counts: [Count { sent: 100, arrived: 100 }, Count { sent: 100, arrived: 100 - lost }],
            memory: [memory; 2],
            drops: [Vec::new(), Vec::new()],
        }
    }

    #[test]
    fn one_lost_packet_is_one_too_many_and_no_rekey_is_no_measurement() {
        let held = |seen: &Seen| goals(seen)[0].line();
        assert!(held(&seen(0, 10)).starts_with("held"));
        assert!(held(&seen(1, 10)).starts_with("not held"));
        assert!(held(&seen(0, 0)).starts_with("not measured"));
    }
}
