//! What the project wants to reach, and whether it did.

use crate::report::{MEASURES, Measure, ratio};
use crate::turn::Turns;
use casemate_bench::goal::Bound::{self, AtLeast, AtMost};
use casemate_bench::goal::line;
use serde_json::{Value, json};

/// The tunnel that the goals are about: what a NAT makes of the suite that everybody has.
const OURS: &str = "casemate-aes-gcm-udp";

/// A ratio to another subject that is to be reached.
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
    /// The ratio that was measured, and whether it is as wanted; `None` where one of the two was not measured.
    fn got(&self, all: &[Turns]) -> Option<(f64, bool)> {
        let find = |name: &str| all.iter().find(|turns| turns.name == name);
        let median = ratio(self.measure, find(OURS)?, find(self.to)?)?.median;
        Some((median, self.bound.is_held(median, self.wanted)))
    }

    /// A line for a person.
    pub(crate) fn line(&self, all: &[Turns]) -> String {
        let Self { measure, to, wanted, bound } = self;
        let wanted = format!("{}, {OURS}: {} {} x {to}", measure.name, bound.words(), wanted);
        line(&wanted, self.got(all))
    }

    pub(crate) fn json(&self, all: &[Turns]) -> Value {
        let got = self.got(all);
        json!({
            "measure": self.measure.key, "subject": OURS, "to": self.to, "wanted": self.wanted,
            "bound": self.bound.words(),
            "ratio": got.map(|(got, _)| got), "held": got.map(|(_, is_held)| is_held),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::turns;

    #[test]
    fn a_goal_is_held_not_held_or_not_measured() {
        let [stream, _, _, echo] = &GOALS;
        let all =
            |ours, peer| [turns(OURS, &[ours]), turns("wireguard-go", &[peer]), turns("boringtun", &[peer])];
        assert_eq!(stream.got(&all(22.0, 10.0)), Some((2.2, true)));
        assert_eq!(stream.got(&all(21.0, 10.0)), Some((2.1, false)));
        assert_eq!(echo.got(&all(10.0, 10.0)), Some((1.0, true)));
        assert_eq!(echo.got(&all(11.0, 10.0)), Some((1.1, false)));
        assert_eq!(stream.got(&[turns(OURS, &[1.0])]), None);
        assert!(stream.line(&[]).starts_with("not measured: TCP stream"));
    }
}
