//! The results, as a table or as one JSON object.

use crate::options::Options;
use crate::turn::Turn;
use casemate_bench::goal::{Bound, Goal};
use casemate_bench::machine;
use casemate_measure::spread::Spread;
use serde_json::{Value, json};

/// What all tunnels are to reach of the throughput of one.
const SHARE: f64 = 0.8;
/// KiB of a tunnel at most.
const KIB: f64 = 12.0;

/// The turns of a round with one tunnel, and with all.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) one: Turn,
    pub(crate) all: Turn,
    pub(crate) tunnels: u32,
}

/// Something to show of a pair.
struct Column {
    name: &'static str,
    key: &'static str,
    digits: usize,
    value: fn(&Pair) -> f64,
}

const COLUMNS: [Column; 8] = [
    Column { name: "1: packets/s", key: "one", digits: 0, value: |pair| pair.one.traffic.packets_per_second },
    Column {
        name: "all: packets/s",
        key: "all",
        digits: 0,
        value: |pair| pair.all.traffic.packets_per_second,
    },
    Column { name: "all, times 1", key: "share", digits: 2, value: Pair::share },
    Column { name: "1: CPU, us/packet", key: "one_cpu_us", digits: 2, value: |pair| pair.one.traffic.cpu_us },
    Column {
        name: "all: CPU, us/packet",
        key: "all_cpu_us",
        digits: 2,
        value: |pair| pair.all.traffic.cpu_us,
    },
    Column { name: "lost, of 1", key: "lost", digits: 5, value: |pair| pair.all.traffic.lost },
    Column { name: "idle tunnel, KiB", key: "idle_kib", digits: 2, value: |pair| pair.kib(|turn| turn.idle) },
    Column { name: "used tunnel, KiB", key: "used_kib", digits: 2, value: |pair| pair.kib(|turn| turn.used) },
];

impl Pair {
    /// The throughput of all tunnels, as a multiple of one tunnel's.
    fn share(&self) -> f64 {
        self.all.traffic.packets_per_second / self.one.traffic.packets_per_second
    }

    /// What a tunnel more takes of the gateway's memory.
    fn kib(&self, memory: fn(&Turn) -> u64) -> f64 {
        let more = memory(&self.all) as f64 - memory(&self.one) as f64;
        more / f64::from(self.tunnels - 1) / 1_024.0
    }

    /// For a person who waits.
    pub(crate) fn line(&self) -> String {
        let columns = COLUMNS.iter();
        let words =
            columns.map(|column| format!("{} {:.*}", column.name, column.digits, (column.value)(self)));
        words.collect::<Vec<_>>().join("; ")
    }
}

fn spread(pairs: &[Pair], value: fn(&Pair) -> f64) -> Option<Spread> {
    Spread::of(pairs.iter().map(value))
}

fn goals(all: &[(&str, Vec<Pair>)]) -> Vec<Goal> {
    let of = |(name, pairs): &(&str, Vec<Pair>)| {
        let median = |value| spread(pairs, value).map(|spread| spread.median);
        [
            Goal {
                what: format!("{name}: throughput of all tunnels, times that of one"),
                bound: Bound::AtLeast,
                wanted: SHARE,
                unit: "",
                got: median(Pair::share),
            },
            Goal {
                what: format!("{name}: memory of an idle tunnel"),
                bound: Bound::AtMost,
                wanted: KIB,
                unit: " KiB",
                got: median(|pair| pair.kib(|turn| turn.idle)),
            },
        ]
    };
    all.iter().flat_map(of).collect()
}

/// Shows everything.
pub(crate) fn show(all: &[(&str, Vec<Pair>)], options: &Options) {
    if options.common.json {
        return println!("{}", to_json(all, options));
    }
    println!("{} tunnels; median (least-most) of the rounds; {}", options.tunnels, machine::describe());
    for (name, pairs) in all {
        println!("\n{name}");
        for Column { name, digits, value, .. } in &COLUMNS {
            let text = spread(pairs, *value).map(|spread| spread.text(*digits));
            println!("  {name:<22} {}", text.unwrap_or_default());
        }
    }
    println!("\nGoals");
    goals(all).iter().for_each(|goal| println!("  {}", goal.line()));
}

fn to_json(all: &[(&str, Vec<Pair>)], options: &Options) -> Value {
    let provider = |(name, pairs): &(&str, Vec<Pair>)| {
        let mut provider = json!({ "name": name, "rounds": pairs.len() });
        for column in &COLUMNS {
            provider[column.key] = json!(spread(pairs, column.value).map(Spread::json));
        }
        provider
    };
    json!({
        "machine": machine::describe(),
        "tunnels": options.tunnels,
        "providers": all.iter().map(provider).collect::<Vec<_>>(),
        "goals": goals(all).iter().map(Goal::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_stage::paced::Outcome;

    #[test]
    fn a_tunnel_takes_what_one_more_adds() {
        let turn = |packets_per_second, idle| Turn {
            traffic: Outcome { packets_per_second, cpu_us: 1.0, lost: 0.0 },
            idle,
            used: idle,
        };
        let pair = Pair { one: turn(100.0, 1 << 20), all: turn(90.0, (1 << 20) + 99 * 2_048), tunnels: 100 };
        assert_eq!((pair.share(), pair.kib(|turn| turn.idle)), (0.9, 2.0));
        let lines: Vec<String> = goals(&[("aws-lc", vec![pair])]).iter().map(Goal::line).collect();
        assert!(lines.iter().all(|line| line.starts_with("held: aws-lc")), "{lines:?}");
    }
}
