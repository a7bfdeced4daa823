//! Results, as tables or as one JSON object.

use crate::{Turn, Turns};
use casemate_bench::cli;
use casemate_bench::goal::Bound::{self, AtLeast, AtMost};
use casemate_bench::goal::{Verdict, line};
use casemate_measure::report::Machine;
use casemate_measure::stats::Spread;
use serde_json::{Value, json};

/// Subjects that all others are compared with.
const REFERENCES: [&str; 2] = ["wireguard-go", "forwarder"];

/// Measured value of a turn, with the CPU time of the tunnel's processes.
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    /// JSON key.
    pub(crate) key: &'static str,
    unit: &'static str,
    digits: usize,
    value: fn(&Turn) -> f64,
    /// 99th percentile within a turn, if the value is the median of single packets.
    p99: Option<fn(&Turn) -> f64>,
    cpu_unit: &'static str,
    cpu: fn(&Turn) -> f64,
}

pub(crate) const MEASURES: [Measure; 3] = [
    Measure {
        name: "TCP stream",
        key: "stream",
        unit: "Gbit/s",
        digits: 2,
        value: |turn| turn.stream.gbit_per_second,
        p99: None,
        cpu_unit: "s/GB",
        cpu: |turn| turn.stream.cpu_per_gigabyte,
    },
    Measure {
        name: "small packets",
        key: "small",
        unit: "packets/s",
        digits: 0,
        value: |turn| turn.small.packets_per_second,
        p99: None,
        cpu_unit: "us/packet",
        cpu: |turn| turn.small.cpu_us,
    },
    Measure {
        name: "idle round trip",
        key: "echo",
        unit: "us",
        digits: 0,
        value: |turn| turn.echo.rtt_us,
        p99: Some(|turn| turn.echo.rtt_p99_us),
        cpu_unit: "us/echo",
        cpu: |turn| turn.echo.cpu_us,
    },
];

/// Ratio of a subject's value to another subject's value, computed in each round.
pub(crate) fn ratio(measure: &Measure, turns: &Turns, to: &Turns) -> Option<Spread> {
    let pairs = turns.turns.iter().zip(&to.turns);
    Spread::of(pairs.map(|(turn, to)| (measure.value)(turn) / (measure.value)(to)))
}

/// All results.
pub(crate) struct Report<'t> {
    all: &'t [Turns],
    /// Skipped subjects, and the reasons.
    skipped: Vec<String>,
    /// Commit of the measured programs, if it is known.
    commit: Option<String>,
    /// Failed measurements, and the reasons.
    pub(crate) failed: Vec<String>,
}

impl<'t> Report<'t> {
    pub(crate) fn new(all: &'t [Turns], skipped: Vec<String>, commit: Option<String>) -> Self {
        let failed = |turns: &Turns| Some(format!("{}: {}", turns.name, turns.failure.as_ref()?));
        Self { all, skipped, commit, failed: all.iter().filter_map(failed).collect() }
    }

    pub(crate) fn print(&self) {
        println!(
            "median (minimum-maximum) of the rounds; ratios are computed within a round; {}",
            cli::describe_machine()
        );
        for measure in &MEASURES {
            self.table(measure);
        }
        println!("\nGoals");
        GOALS.iter().for_each(|goal| println!("  {}", goal.line(self.all)));
        self.skipped.iter().for_each(|what| println!("  skipped: {what}"));
        self.failed.iter().for_each(|what| println!("  failed: {what}"));
    }

    fn table(&self, measure: &Measure) {
        let Measure { name, unit, cpu_unit, digits, .. } = measure;
        println!("\n{name}");
        let p99_title = measure.p99.map_or(String::new(), |_| format!("{:<26} ", format!("p99, {unit}")));
        let cpu_title = format!("CPU, {cpu_unit}");
        println!("  {:<26} {unit:<26} {p99_title}{cpu_title:<20} x wireguard-go  x forwarder", "");
        for turns in self.all {
            let (Some(value), Some(cpu)) = (turns.spread(measure.value), turns.spread(measure.cpu)) else {
                continue;
            };
            let [first, second] = self.ratios(measure, turns).map(|ratio| match ratio {
                Some(ratio) => format!("{:.2}", ratio.median),
                None => "-".into(),
            });
            let p99 = measure.p99.and_then(|p99| turns.spread(p99));
            let p99 = p99.map_or(String::new(), |p99| format!("{:<26} ", p99.text(*digits)));
            let (value, cpu) = (value.text(*digits), cpu.text(2));
            println!("  {:<26} {value:<26} {p99}{cpu:<20} {first:<15} {second}", turns.name);
        }
    }

    fn ratios(&self, measure: &Measure, turns: &Turns) -> [Option<Spread>; 2] {
        REFERENCES.map(|name| {
            let to = self.all.iter().find(|turns| turns.name == name)?;
            ratio(measure, turns, to)
        })
    }

    pub(crate) fn to_json(&self) -> Value {
        let machine = Machine::detect();
        json!({
            "machine": cli::describe_machine(),
            "processor": processor(&machine),
            "cpus": cli::CPUS,
            "kernel": machine.kernel,
            "commit": self.commit,
            "rounds": self.all.iter().map(|turns| turns.turns.len()).max(),
            "subjects": self.all.iter().map(|turns| self.subject(turns)).collect::<Vec<_>>(),
            "goals": GOALS.iter().map(|goal| goal.json(self.all)).collect::<Vec<_>>(),
            "left_out": self.skipped,
            "failed": self.failed,
        })
    }

    fn subject(&self, turns: &Turns) -> Value {
        let mut subject = json!({ "name": turns.name, "rounds": turns.turns.len() });
        for measure in &MEASURES {
            let spread = |of: fn(&Turn) -> f64| turns.spread(of).map(Spread::json);
            let [to_wireguard, to_forwarder] =
                self.ratios(measure, turns).map(|ratio| ratio.map(Spread::json));
            subject[measure.key] = json!({
                "unit": measure.unit, "value": spread(measure.value),
                "cpu_unit": measure.cpu_unit, "cpu": spread(measure.cpu),
                "to_wireguard_go": to_wireguard, "to_forwarder": to_forwarder,
            });
            if let Some(p99) = measure.p99 {
                subject[measure.key]["p99"] = json!(spread(p99));
            }
        }
        let lost = |of: fn(&Turn) -> f64| json!(turns.spread(of).map(Spread::json));
        subject["small"]["lost"] = lost(|turn| turn.small.loss);
        subject["echo"]["lost"] = lost(|turn| turn.echo.loss);
        subject
    }
}

/// Name of the processor, and whether it has the instructions that matter most to AES-GCM.
fn processor(machine: &Machine) -> String {
    let has_avx512 = machine.flags.iter().any(|flag| flag == "avx512f");
    format!("{}{}", machine.cpu, if has_avx512 { " with AVX-512" } else { "" })
}

/// Subjects of the goals: AES-128-GCM in UDP, as with `encap = auto` or behind a NAT, and raw ESP.
const IN_UDP: &str = "casemate-aes-gcm-udp";
const RAW: &str = "casemate-aes-gcm";

/// Goal for the ratio of a subject to another one.
pub(crate) struct Goal {
    measure: &'static Measure,
    subject: &'static str,
    to: &'static str,
    wanted: f64,
    bound: Bound,
}

const fn goal(
    measure: &'static Measure,
    subject: &'static str,
    to: &'static str,
    bound: Bound,
    wanted: f64,
) -> Goal {
    Goal { measure, subject, to, wanted, bound }
}

const STREAM: &Measure = &MEASURES[0];
const SMALL: &Measure = &MEASURES[1];
const ECHO: &Measure = &MEASURES[2];

pub(crate) const GOALS: [Goal; 6] = [
    goal(STREAM, IN_UDP, "wireguard-go", AtLeast, 3.0),
    goal(STREAM, IN_UDP, "forwarder", AtLeast, 0.75),
    goal(STREAM, RAW, "wireguard-go", AtLeast, 1.0),
    goal(SMALL, IN_UDP, "wireguard-go", AtLeast, 3.5),
    goal(SMALL, IN_UDP, "forwarder", AtLeast, 1.0),
    goal(ECHO, IN_UDP, "boringtun", AtMost, 1.0),
];

impl Goal {
    /// Judges the measured ratio; `None` if one of the two was not measured.
    fn verdict(&self, all: &[Turns]) -> Option<Verdict> {
        let find = |name: &str| all.iter().find(|turns| turns.name == name);
        let median = ratio(self.measure, find(self.subject)?, find(self.to)?)?.median;
        Some(Verdict { value: median, is_met: self.bound.is_held(median, self.wanted) })
    }

    /// Line for people.
    pub(crate) fn line(&self, all: &[Turns]) -> String {
        let Self { measure, subject, to, wanted, bound } = self;
        let wanted = format!("{}, {subject}: {} {wanted} x {to}", measure.name, bound.words());
        line(&wanted, self.verdict(all))
    }

    pub(crate) fn json(&self, all: &[Turns]) -> Value {
        let verdict = self.verdict(all);
        json!({
            "measure": self.measure.key, "subject": self.subject, "to": self.to, "wanted": self.wanted,
            "bound": self.bound.words(),
            "ratio": verdict.map(|verdict| verdict.value), "held": verdict.map(|verdict| verdict.is_met),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::{EchoOutcome, SmallOutcome, StreamOutcome};

    /// Turns in which all measures have these values, one per round.
    fn turns(name: &str, values: &[f64]) -> Turns {
        let turn = |&value: &f64| Turn {
            stream: StreamOutcome { gbit_per_second: value, cpu_per_gigabyte: 1.0 },
            small: SmallOutcome { packets_per_second: value, cpu_us: 1.0, loss: 0.0 },
            echo: EchoOutcome { rtt_us: value, rtt_p99_us: 3.0 * value, loss: 0.0, cpu_us: 1.0 },
        };
        Turns { name: name.into(), turns: values.iter().map(turn).collect(), failure: None }
    }

    #[test]
    fn ratios_are_computed_within_a_round() {
        let (ours, other) = (turns("a", &[2.0, 30.0, 6.0]), turns("b", &[1.0, 10.0, 2.0]));
        let ratio = ratio(&MEASURES[0], &ours, &other).unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (3.0, 2.0, 3.0));
    }

    #[test]
    fn json_lists_failed_and_skipped_subjects() {
        let mut bad = turns("forwarder", &[]);
        bad.failure = Some("it ended".into());
        let all = [turns("wireguard-go", &[2.0]), bad];
        let report = Report::new(&all, vec!["gotatun: not there".into()], Some("0123abc".into())).to_json();
        assert_eq!((&report["commit"], &report["rounds"]), (&json!("0123abc"), &json!(1)));
        assert_eq!(report["failed"][0], "forwarder: it ended");
        assert_eq!(report["left_out"][0], "gotatun: not there");
        assert_eq!(report["subjects"][0]["stream"]["value"]["median"], 2.0);
        assert_eq!(report["subjects"][0]["echo"]["to_wireguard_go"]["median"], 1.0);
        assert_eq!(report["subjects"][0]["echo"]["p99"]["median"], 6.0);
        assert!(report["subjects"][0]["stream"]["p99"].is_null());
        assert!(report["subjects"][1]["stream"]["value"].is_null());
    }

    #[test]
    fn a_goal_is_met_not_met_or_not_measured() {
        let [stream, _, raw, .., echo] = &GOALS;
        let all = |ours, peer| {
            [turns(IN_UDP, &[ours]), turns("wireguard-go", &[peer]), turns("boringtun", &[peer])]
        };
        assert_eq!(stream.verdict(&all(30.0, 10.0)), Some(Verdict { value: 3.0, is_met: true }));
        assert_eq!(stream.verdict(&all(29.0, 10.0)), Some(Verdict { value: 2.9, is_met: false }));
        assert_eq!(raw.verdict(&all(30.0, 10.0)), None, "raw ESP was not measured");
        assert_eq!(echo.verdict(&all(10.0, 10.0)), Some(Verdict { value: 1.0, is_met: true }));
        assert_eq!(echo.verdict(&all(11.0, 10.0)), Some(Verdict { value: 1.1, is_met: false }));
        assert_eq!(stream.verdict(&[turns(IN_UDP, &[1.0])]), None);
        assert!(stream.line(&[]).starts_with("not measured: TCP stream"));
    }
}
