//! What the project wants to reach, and whether it did.

use serde_json::{Value, json};

/// On which side of the wanted value the measured one has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// More is better.
    AtLeast,
    /// Less is better.
    AtMost,
}

impl Bound {
    /// Its words in a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::AtLeast => "at least",
            Self::AtMost => "at most",
        }
    }

    /// Whether a value is as wanted.
    pub fn is_held(self, got: f64, wanted: f64) -> bool {
        match self {
            Self::AtLeast => got >= wanted,
            Self::AtMost => got <= wanted,
        }
    }
}

/// A value that is to be reached, and what was measured.
#[derive(Debug)]
pub struct Goal {
    /// What is measured, of whom.
    pub what: String,
    /// Which side is the good one.
    pub bound: Bound,
    /// The value to be reached.
    pub wanted: f64,
    /// Of both values.
    pub unit: &'static str,
    /// `None` if it was not measured.
    pub got: Option<f64>,
}

impl Goal {
    /// A line for a person.
    pub fn line(&self) -> String {
        let Self { what, bound, wanted, unit, got } = self;
        let wanted_words = format!("{what}: {} {wanted}{unit}", bound.words());
        line(&wanted_words, got.map(|got| (got, bound.is_held(got, *wanted))))
    }

    /// The same for a program.
    pub fn json(&self) -> Value {
        json!({
            "what": self.what, "bound": self.bound.words(), "wanted": self.wanted, "got": self.got,
            "held": self.got.map(|got| self.bound.is_held(got, self.wanted)),
        })
    }
}

/// A line for a person: what is wanted, and what was got and whether it is as wanted.
pub fn line(wanted: &str, got: Option<(f64, bool)>) -> String {
    match got {
        Some((got, true)) => format!("held: {wanted}: {got:.2}"),
        Some((got, false)) => format!("not held: {wanted}: {got:.2}"),
        None => format!("not measured: {wanted}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_held_not_held_or_not_measured() {
        let goal = |bound, got| Goal { what: "calls, loss".into(), bound, wanted: 2.0, unit: " ms", got };
        assert_eq!(goal(Bound::AtMost, Some(2.0)).line(), "held: calls, loss: at most 2 ms: 2.00");
        assert_eq!(goal(Bound::AtMost, Some(2.5)).line(), "not held: calls, loss: at most 2 ms: 2.50");
        assert_eq!(goal(Bound::AtLeast, Some(1.0)).json()["held"], false);
        assert_eq!(goal(Bound::AtLeast, None).line(), "not measured: calls, loss: at least 2 ms");
        assert!(goal(Bound::AtLeast, None).json()["held"].is_null());
    }
}
