//! Results, as a table or as one JSON object.

use crate::Options;
use crate::run::Turn;
use casemate_bench::cli;
use casemate_bench::goal::{Bound, Goal};
use casemate_measure::stats::Spread;
use serde_json::{Value, json};

/// Goal for the throughput of all tunnels, relative to one tunnel.
const SHARE: f64 = 0.8;
/// Goal for the memory of a tunnel, in KiB.
const KIB: f64 = 12.0;

/// Measurements of a round with one tunnel, and with all tunnels.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) one: Turn,
    pub(crate) all: Turn,
    pub(crate) tunnels: u32,
}

/// Column of the table.
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
    Column { name: "share lost", key: "lost", digits: 5, value: |pair| pair.all.traffic.loss },
    Column { name: "idle tunnel, KiB", key: "idle_kib", digits: 2, value: |pair| pair.kib(|turn| turn.idle) },
    Column { name: "used tunnel, KiB", key: "used_kib", digits: 2, value: |pair| pair.kib(|turn| turn.used) },
];

impl Pair {
    /// Throughput of all tunnels, relative to one tunnel.
    fn share(&self) -> f64 {
        self.all.traffic.packets_per_second / self.one.traffic.packets_per_second
    }

    /// Memory of the gateway for each additional tunnel, in KiB.
    fn kib(&self, memory: fn(&Turn) -> u64) -> f64 {
        let more = memory(&self.all) as f64 - memory(&self.one) as f64;
        more / f64::from(self.tunnels - 1) / 1_024.0
    }

    /// One line about a round, for people.
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
                what: format!("{name}: throughput of all tunnels, relative to one"),
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

/// Prints the results.
pub(crate) fn show(all: &[(&str, Vec<Pair>)], options: &Options) {
    if options.common.json {
        return println!("{}", to_json(all, options));
    }
    println!(
        "{} tunnels; median (minimum-maximum) of the rounds; {}",
        options.tunnels,
        cli::describe_machine()
    );
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
        "machine": cli::describe_machine(),
        "tunnels": options.tunnels,
        "providers": all.iter().map(provider).collect::<Vec<_>>(),
        "goals": goals(all).iter().map(Goal::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_testbed::packet_rate::PacketRate;

    #[test]
    fn memory_of_a_tunnel_is_the_increase() {
        let turn = |packets_per_second, idle| Turn {
            traffic: PacketRate { packets_per_second, cpu_us: 1.0, loss: 0.0 },
            idle,
            used: idle,
        };
        let pair = Pair { one: turn(100.0, 1 << 20), all: turn(90.0, (1 << 20) + 99 * 2_048), tunnels: 100 };
        assert_eq!((pair.share(), pair.kib(|turn| turn.idle)), (0.9, 2.0));
        let lines: Vec<String> = goals(&[("aws-lc", vec![pair])]).iter().map(Goal::line).collect();
        assert!(lines.iter().all(|line| line.starts_with("met: aws-lc")), "{lines:?}");
    }
}
