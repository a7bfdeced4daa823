//! Results, as tables or as one JSON object.

use crate::{Turn, Turns};
use casemate_bench::cli;
use casemate_bench::goal::Bound::{self, AtLeast, AtMost};
use casemate_bench::goal::{Verdict, line};
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
        cpu_unit: "s/GB",
        cpu: |turn| turn.stream.cpu_per_gigabyte,
    },
    Measure {
        name: "small packets",
        key: "small",
        unit: "packets/s",
        digits: 0,
        value: |turn| turn.small.packets_per_second,
        cpu_unit: "us/packet",
        cpu: |turn| turn.small.cpu_us,
    },
    Measure {
        name: "idle round trip",
        key: "echo",
        unit: "us",
        digits: 0,
        value: |turn| turn.echo.rtt_us,
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
    /// Failed measurements, and the reasons.
    pub(crate) failed: Vec<String>,
}

impl<'t> Report<'t> {
    pub(crate) fn new(all: &'t [Turns], skipped: Vec<String>) -> Self {
        let failed = |turns: &Turns| Some(format!("{}: {}", turns.name, turns.failure.as_ref()?));
        Self { all, skipped, failed: all.iter().filter_map(failed).collect() }
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
        println!("  {:<26} {unit:<26} {:<20} x wireguard-go  x forwarder", "", format!("CPU, {cpu_unit}"));
        for turns in self.all {
            let spread = |of: fn(&Turn) -> f64| Spread::of(turns.turns.iter().map(of));
            let (Some(value), Some(cpu)) = (spread(measure.value), spread(measure.cpu)) else { continue };
            let [first, second] = self.ratios(measure, turns).map(|ratio| match ratio {
                Some(ratio) => format!("{:.2}", ratio.median),
                None => "-".into(),
            });
            let (value, cpu) = (value.text(*digits), cpu.text(2));
            println!("  {:<26} {value:<26} {cpu:<20} {first:<15} {second}", turns.name);
        }
    }

    fn ratios(&self, measure: &Measure, turns: &Turns) -> [Option<Spread>; 2] {
        REFERENCES.map(|name| {
            let to = self.all.iter().find(|turns| turns.name == name)?;
            ratio(measure, turns, to)
        })
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "machine": cli::describe_machine(),
            "subjects": self.all.iter().map(|turns| self.subject(turns)).collect::<Vec<_>>(),
            "goals": GOALS.iter().map(|goal| goal.json(self.all)).collect::<Vec<_>>(),
            "left_out": self.skipped,
            "failed": self.failed,
        })
    }

    fn subject(&self, turns: &Turns) -> Value {
        let mut subject = json!({ "name": turns.name, "rounds": turns.turns.len() });
        for measure in &MEASURES {
            let spread = |of: fn(&Turn) -> f64| Spread::of(turns.turns.iter().map(of)).map(Spread::json);
            let [to_wireguard, to_forwarder] =
                self.ratios(measure, turns).map(|ratio| ratio.map(Spread::json));
            subject[measure.key] = json!({
                "unit": measure.unit, "value": spread(measure.value),
                "cpu_unit": measure.cpu_unit, "cpu": spread(measure.cpu),
                "to_wireguard_go": to_wireguard, "to_forwarder": to_forwarder,
            });
        }
        subject["small"]["lost"] =
            json!(Spread::of(turns.turns.iter().map(|turn| turn.small.loss)).map(Spread::json));
        subject
    }
}

/// Subject of the goals: the common suite in UDP, as behind a NAT.
const OURS: &str = "casemate-aes-gcm-udp";

/// Goal for the ratio to another subject.
pub(crate) struct Goal {
    measure: &'static Measure,
    to: &'static str,
    wanted: f64,
    bound: Bound,
}

pub(crate) const GOALS: [Goal; 4] = [
    Goal { measure: &MEASURES[0], to: "wireguard-go", wanted: 2.2, bound: AtLeast },
    Goal { measure: &MEASURES[0], to: "forwarder", wanted: 0.8, bound: AtLeast },
    Goal { measure: &MEASURES[1], to: "wireguard-go", wanted: 3.0, bound: AtLeast },
    Goal { measure: &MEASURES[2], to: "boringtun", wanted: 1.0, bound: AtMost },
];

impl Goal {
    /// Judges the measured ratio; `None` if one of the two was not measured.
    fn verdict(&self, all: &[Turns]) -> Option<Verdict> {
        let find = |name: &str| all.iter().find(|turns| turns.name == name);
        let median = ratio(self.measure, find(OURS)?, find(self.to)?)?.median;
        Some(Verdict { value: median, is_met: self.bound.is_held(median, self.wanted) })
    }

    /// Line for people.
    pub(crate) fn line(&self, all: &[Turns]) -> String {
        let Self { measure, to, wanted, bound } = self;
        let wanted = format!("{}, {OURS}: {} {} x {to}", measure.name, bound.words(), wanted);
        line(&wanted, self.verdict(all))
    }

    pub(crate) fn json(&self, all: &[Turns]) -> Value {
        let verdict = self.verdict(all);
        json!({
            "measure": self.measure.key, "subject": OURS, "to": self.to, "wanted": self.wanted,
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
            echo: EchoOutcome { rtt_us: value, cpu_us: 1.0 },
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
        let report = Report::new(&all, vec!["gotatun: not there".into()]).to_json();
        assert_eq!(report["failed"][0], "forwarder: it ended");
        assert_eq!(report["left_out"][0], "gotatun: not there");
        assert_eq!(report["subjects"][0]["stream"]["value"]["median"], 2.0);
        assert_eq!(report["subjects"][0]["echo"]["to_wireguard_go"]["median"], 1.0);
        assert!(report["subjects"][1]["stream"]["value"].is_null());
    }

    #[test]
    fn a_goal_is_met_not_met_or_not_measured() {
        let [stream, _, _, echo] = &GOALS;
        let all =
            |ours, peer| [turns(OURS, &[ours]), turns("wireguard-go", &[peer]), turns("boringtun", &[peer])];
        assert_eq!(stream.verdict(&all(22.0, 10.0)), Some(Verdict { value: 2.2, is_met: true }));
        assert_eq!(stream.verdict(&all(21.0, 10.0)), Some(Verdict { value: 2.1, is_met: false }));
        assert_eq!(echo.verdict(&all(10.0, 10.0)), Some(Verdict { value: 1.0, is_met: true }));
        assert_eq!(echo.verdict(&all(11.0, 10.0)), Some(Verdict { value: 1.1, is_met: false }));
        assert_eq!(stream.verdict(&[turns(OURS, &[1.0])]), None);
        assert!(stream.line(&[]).starts_with("not measured: TCP stream"));
    }
}
