//! Comparison of a paper's claims with the measurements of this machine.
//!
//! One rule applies to all measured claims: a verdict needs at least five rounds, and an interval of each
//! ratio ([`Spread::interval`]) that lies wholly on one side of the claim's bound. Otherwise the finding is
//! [`Agreement::Unknown`], with the numbers. Each verdict has its own explanation.

use crate::stats::{Interval, LEAST_ROUNDS, Spread};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Comparison of one claim of the paper with the result on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The claim, in a few words.
    pub what: String,
    /// What the paper reports.
    pub paper: String,
    /// What was measured on this machine.
    pub ours: String,
    /// Whether both agree.
    pub agreement: Agreement,
    /// Explanation of this verdict.
    pub why: String,
}

/// Whether the paper and this machine agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// The result agrees with the paper.
    Agrees,
    /// The result differs from the paper.
    Differs,
    /// The rounds are too few, or contradict each other.
    Unknown,
    /// Nothing was measured.
    NotMeasured,
}

impl Agreement {
    /// Converts the result of a computation that has no noise: a model, or a count of instructions.
    pub const fn of(is_so: bool) -> Self {
        if is_so { Self::Agrees } else { Self::Differs }
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::Unknown => "unknown",
            Self::NotMeasured => "not measured",
        })
    }
}

/// Numbers for which a claim holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Below this number.
    Below(f64),
    /// Above this number.
    Above(f64),
    /// From the first number to the second.
    Within(f64, f64),
}

impl Bound {
    /// Judges ratios that are all claimed to be within the bound. Agrees if all of them are, and differs if
    /// one of them certainly is not.
    pub fn judge(self, ratios: &[Spread]) -> Agreement {
        let intervals: Option<Vec<Interval>> = ratios.iter().map(|ratio| ratio.interval).collect();
        match intervals {
            Some(all) if all.iter().any(|ratio| self.excludes(*ratio)) => Agreement::Differs,
            Some(all) if !all.is_empty() && all.iter().all(|ratio| self.includes(*ratio)) => {
                Agreement::Agrees
            }
            _ => Agreement::Unknown,
        }
    }

    /// Whether the claim holds for the whole interval, without touching the bound.
    fn includes(self, Interval { low, high }: Interval) -> bool {
        match self {
            Self::Below(bound) => high < bound,
            Self::Above(bound) => low > bound,
            Self::Within(least, most) => least < low && high < most,
        }
    }

    /// Whether the claim holds for no number of the interval, without touching the bound.
    fn excludes(self, Interval { low, high }: Interval) -> bool {
        match self {
            Self::Below(bound) => low > bound,
            Self::Above(bound) => high < bound,
            Self::Within(least, most) => high < least || most < low,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below(bound) => write!(f, "less than {bound:.2}"),
            Self::Above(bound) => write!(f, "more than {bound:.2}"),
            Self::Within(least, most) => write!(f, "{least:.2} to {most:.2}"),
        }
    }
}

/// Claim of a paper about ratios, and the explanation of each verdict.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'c> {
    /// The claim, in a few words.
    pub what: &'c str,
    /// What the paper reports.
    pub paper: &'c str,
    /// Ratios for which the claim holds.
    pub holds: Bound,
    /// Explanation if this machine agrees.
    pub agrees: &'c str,
    /// Explanation if this machine differs.
    pub differs: &'c str,
}

impl Finding {
    /// The finding without its verdict, if it has one, because of a disturbance.
    #[must_use]
    pub fn undecided(self, why: &str) -> Self {
        match self.agreement {
            Agreement::Agrees | Agreement::Differs => {
                Self { agreement: Agreement::Unknown, why: why.into(), ..self }
            }
            Agreement::Unknown | Agreement::NotMeasured => self,
        }
    }
}

impl Claim<'_> {
    /// Judges the claim by ratios that it says something about. It agrees if it holds for all of them, and
    /// differs if it holds for one of them certainly not. `ours` describes the ratios.
    pub fn judge(&self, ours: String, ratios: &[Spread]) -> Finding {
        let agreement = self.holds.judge(ratios);
        let why = match agreement {
            Agreement::Agrees => self.agrees.into(),
            Agreement::Differs => self.differs.into(),
            Agreement::Unknown | Agreement::NotMeasured => self.too_noisy(ratios),
        };
        Finding { what: self.what.into(), paper: self.paper.into(), ours, agreement, why }
    }

    /// Finding of a claim that nothing was measured about, with the reason.
    pub fn not_measured(&self, why: &str) -> Finding {
        Finding {
            what: self.what.into(),
            paper: self.paper.into(),
            ours: "nothing".into(),
            agreement: Agreement::NotMeasured,
            why: why.into(),
        }
    }

    /// Explains why `ratios` decide nothing.
    fn too_noisy(&self, ratios: &[Spread]) -> String {
        if ratios.iter().any(|ratio| ratio.interval.is_none()) {
            return format!("Fewer than {LEAST_ROUNDS} rounds decide nothing.");
        }
        let mut intervals = ratios.iter().filter_map(|ratio| ratio.interval);
        let undecided = intervals.find(|ratio| !self.holds.includes(*ratio));
        let numbers = undecided.map_or_else(String::new, |Interval { low, high }| {
            format!(": the ratio is between {low:.2} and {high:.2}, and the claim holds for {}", self.holds)
        });
        format!("Too noisy for a verdict{numbers}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: Claim<'static> =
        Claim { what: "slower", paper: "yes", holds: Bound::Above(1.05), agrees: "so", differs: "not so" };

    fn judge(rounds: &[&[f64]]) -> Finding {
        let ratios: Vec<Spread> =
            rounds.iter().map(|ratio| Spread::of(ratio.iter().copied()).unwrap()).collect();
        CLAIM.judge(String::new(), &ratios)
    }

    #[test]
    fn verdict_needs_an_interval_on_one_side() {
        let (above, below) = ([1.1, 1.2, 1.3, 1.2, 1.1], [0.9, 0.8, 1.0, 0.9, 1.04]);
        let touching = [1.0, 1.2, 1.3, 1.2, 1.1];
        let verdict = |rounds: &[&[f64]]| judge(rounds).agreement;
        assert_eq!(verdict(&[&above]), Agreement::Agrees);
        assert_eq!(verdict(&[&below]), Agreement::Differs);
        assert_eq!(verdict(&[&touching]), Agreement::Unknown);
        assert_eq!(verdict(&[&above, &above]), Agreement::Agrees);
        assert_eq!(verdict(&[&above, &below]), Agreement::Differs, "it holds for all ratios or not at all");
        assert_eq!(verdict(&[&above, &touching]), Agreement::Unknown);
        assert_eq!(verdict(&[]), Agreement::Unknown);
    }

    #[test]
    fn four_rounds_decide_nothing() {
        let finding = judge(&[&[2.0, 2.0, 2.0, 2.0]]);
        assert_eq!(finding.agreement, Agreement::Unknown);
        assert_eq!(finding.why, "Fewer than 5 rounds decide nothing.");
    }

    #[test]
    fn each_verdict_has_its_own_explanation() {
        assert_eq!(judge(&[&[2.0; 5]]).why, "so");
        assert_eq!(judge(&[&[0.5; 5]]).why, "not so");
        let noisy = judge(&[&[0.5, 2.0, 1.0, 1.0, 1.0]]).why;
        let expected = "Too noisy for a verdict: the ratio is between 0.50 and 2.00, and the claim holds for \
                        more than 1.05.";
        assert_eq!(noisy, expected);
    }

    #[test]
    fn range_that_the_interval_contains_decides_nothing() {
        let claim = Claim { holds: Bound::Within(0.9, 1.1), ..CLAIM };
        let verdict = |rounds: [f64; 5]| claim.judge(String::new(), &[Spread::of(rounds).unwrap()]).agreement;
        assert_eq!(verdict([0.5, 0.6, 0.6, 0.6, 2.0]), Agreement::Unknown);
        assert_eq!(verdict([1.0, 1.05, 0.95, 1.0, 1.0]), Agreement::Agrees);
        assert_eq!(verdict([1.2, 1.3, 1.4, 1.2, 1.3]), Agreement::Differs);
    }
}
