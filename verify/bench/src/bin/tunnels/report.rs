//! The results, as tables or as one JSON object.

use crate::goals::GOALS;
use crate::turn::{Turn, Turns};
use casemate_bench::machine;
use casemate_measure::spread::Spread;
use serde_json::{Value, json};

/// Subjects that all others are compared with.
const REFERENCES: [&str; 2] = ["wireguard-go", "forwarder"];

/// Something that a turn measures, with the CPU time of the tunnel's processes for it.
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    /// Its name in JSON.
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

/// How many times a subject's value is another's: each round gives a ratio.
pub(crate) fn ratio(measure: &Measure, turns: &Turns, to: &Turns) -> Option<Spread> {
    let pairs = turns.turns.iter().zip(&to.turns);
    Spread::of(pairs.map(|(turn, to)| (measure.value)(turn) / (measure.value)(to)))
}

/// Everything.
pub(crate) struct Report<'t> {
    all: &'t [Turns],
    /// What could not be measured, and why.
    left_out: Vec<String>,
    /// What failed in its turn, and why.
    pub(crate) failed: Vec<String>,
}

impl<'t> Report<'t> {
    pub(crate) fn new(all: &'t [Turns], left_out: Vec<String>) -> Self {
        let failed = |turns: &Turns| Some(format!("{}: {}", turns.name, turns.failure.as_ref()?));
        Self { all, left_out, failed: all.iter().filter_map(failed).collect() }
    }

    pub(crate) fn print(&self) {
        println!(
            "median (least-most) of the rounds; ratios are taken within a round; {}",
            machine::describe()
        );
        for measure in &MEASURES {
            self.table(measure);
        }
        println!("\nGoals");
        GOALS.iter().for_each(|goal| println!("  {}", goal.line(self.all)));
        self.left_out.iter().for_each(|what| println!("  left out: {what}"));
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
            "machine": machine::describe(),
            "subjects": self.all.iter().map(|turns| self.subject(turns)).collect::<Vec<_>>(),
            "goals": GOALS.iter().map(|goal| goal.json(self.all)).collect::<Vec<_>>(),
            "left_out": self.left_out,
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
            json!(Spread::of(turns.turns.iter().map(|turn| turn.small.lost)).map(Spread::json));
        subject
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::measures::{echo, small, stream};

    /// Turns whose measures all have these values, one a round.
    pub(crate) fn turns(name: &str, values: &[f64]) -> Turns {
        let turn = |&value: &f64| Turn {
            stream: stream::Outcome { gbit_per_second: value, cpu_per_gigabyte: 1.0 },
            small: small::Outcome { packets_per_second: value, cpu_us: 1.0, lost: 0.0 },
            echo: echo::Outcome { rtt_us: value, cpu_us: 1.0 },
        };
        Turns { name: name.into(), turns: values.iter().map(turn).collect(), failure: None }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let (ours, other) = (turns("a", &[2.0, 30.0, 6.0]), turns("b", &[1.0, 10.0, 2.0]));
        let ratio = ratio(&MEASURES[0], &ours, &other).unwrap();
        assert_eq!((ratio.median, ratio.least, ratio.most), (3.0, 2.0, 3.0));
    }

    #[test]
    fn the_object_names_what_failed_and_what_was_left_out() {
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
}
