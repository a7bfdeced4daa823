//! What the project wants to reach, and whether it did.

use crate::report::{MEASURES, Measure, ratio};
use crate::turn::Turns;
use serde_json::{Value, json};

/// The tunnel that the goals are about: what a NAT makes of the suite that everybody has.
const OURS: &str = "casemate-aes-gcm-udp";

/// A ratio to another subject that is to be reached.
pub(crate) struct Goal {
    measure: &'static Measure,
    to: &'static str,
    wanted: f64,
    /// Whether more is better.
    at_least: bool,
}

pub(crate) const GOALS: [Goal; 4] = [
    Goal { measure: &MEASURES[0], to: "wireguard-go", wanted: 2.2, at_least: true },
    Goal { measure: &MEASURES[0], to: "forwarder", wanted: 0.8, at_least: true },
    Goal { measure: &MEASURES[1], to: "wireguard-go", wanted: 3.0, at_least: true },
    Goal { measure: &MEASURES[2], to: "boringtun", wanted: 1.0, at_least: false },
];

impl Goal {
    /// The ratio that was measured, and whether it is as wanted; `None` where one of the two was not measured.
    fn got(&self, all: &[Turns]) -> Option<(f64, bool)> {
        let find = |name: &str| all.iter().find(|turns| turns.name == name);
        let median = ratio(self.measure, find(OURS)?, find(self.to)?)?.median;
        let is_held = if self.at_least { median >= self.wanted } else { median <= self.wanted };
        Some((median, is_held))
    }

    /// A line for a person.
    pub(crate) fn line(&self, all: &[Turns]) -> String {
        let bound = if self.at_least { "at least" } else { "at most" };
        let wanted = format!("{}, {OURS}: {bound} {} x {}", self.measure.name, self.wanted, self.to);
        match self.got(all) {
            Some((got, true)) => format!("held: {wanted}: {got:.2}"),
            Some((got, false)) => format!("not held: {wanted}: {got:.2}"),
            None => format!("not measured: {wanted}"),
        }
    }

    pub(crate) fn json(&self, all: &[Turns]) -> Value {
        let got = self.got(all);
        json!({
            "measure": self.measure.key, "subject": OURS, "to": self.to, "wanted": self.wanted,
            "bound": if self.at_least { "at least" } else { "at most" },
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
