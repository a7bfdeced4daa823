//! Goals of the project for measured values.

use serde_json::{Value, json};

/// Direction of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The value has to be at least the goal.
    AtLeast,
    /// The value has to be at most the goal.
    AtMost,
}

impl Bound {
    /// Words for a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::AtLeast => "at least",
            Self::AtMost => "at most",
        }
    }

    /// Whether a value meets the goal.
    pub fn is_held(self, got: f64, wanted: f64) -> bool {
        match self {
            Self::AtLeast => got >= wanted,
            Self::AtMost => got <= wanted,
        }
    }
}

/// Goal for a value, and the measured value.
#[derive(Debug)]
pub struct Goal {
    /// Description of the value.
    pub what: String,
    /// Direction of the goal.
    pub bound: Bound,
    /// Goal.
    pub wanted: f64,
    /// Unit of both values.
    pub unit: &'static str,
    /// Measured value; `None` if it was not measured.
    pub got: Option<f64>,
}

impl Goal {
    /// Line for people.
    pub fn line(&self) -> String {
        let Self { what, bound, wanted, unit, got } = self;
        let wanted_words = format!("{what}: {} {wanted}{unit}", bound.words());
        line(&wanted_words, got.map(|got| Verdict { value: got, is_met: bound.is_held(got, *wanted) }))
    }

    /// JSON object.
    pub fn json(&self) -> Value {
        json!({
            "what": self.what, "bound": self.bound.words(), "wanted": self.wanted, "got": self.got,
            "held": self.got.map(|got| self.bound.is_held(got, self.wanted)),
        })
    }
}

/// A measured value, judged by a goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// Measured value.
    pub value: f64,
    /// Whether the value meets the goal.
    pub is_met: bool,
}

/// Line for people: the goal, and the verdict, if the value was measured.
pub fn line(wanted: &str, verdict: Option<Verdict>) -> String {
    match verdict {
        Some(Verdict { value, is_met: true }) => format!("met: {wanted}: {value:.2}"),
        Some(Verdict { value, is_met: false }) => format!("not met: {wanted}: {value:.2}"),
        None => format!("not measured: {wanted}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_not_met_or_not_measured() {
        let goal = |bound, got| Goal { what: "calls, loss".into(), bound, wanted: 2.0, unit: " ms", got };
        assert_eq!(goal(Bound::AtMost, Some(2.0)).line(), "met: calls, loss: at most 2 ms: 2.00");
        assert_eq!(goal(Bound::AtMost, Some(2.5)).line(), "not met: calls, loss: at most 2 ms: 2.50");
        assert_eq!(goal(Bound::AtLeast, Some(1.0)).json()["held"], false);
        assert_eq!(goal(Bound::AtLeast, None).line(), "not measured: calls, loss: at least 2 ms");
        assert!(goal(Bound::AtLeast, None).json()["held"].is_null());
    }
}
