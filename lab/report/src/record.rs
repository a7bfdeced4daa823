//! What one experiment found, with every sample.

use crate::{Activity, Figure, Finding, Machine, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Repeated samples whose middle half lies further apart than this share of their median are the mark of a noisy machine.
const NOISY_SPREAD: f64 = 0.25;

/// A run of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its name, as on the command line.
    pub experiment: String,
    /// The paper whose experiment it is.
    pub paper: Paper,
    /// What was done, in a paragraph.
    pub summary: String,
    /// Where.
    pub machine: Machine,
    /// What else the machine did meanwhile.
    pub activity: Activity,
    /// Programs that took part, with their versions.
    pub versions: BTreeMap<String, String>,
    /// When it began, in UTC as in RFC 3339.
    pub started: String,
    /// How long it took.
    pub seconds: f64,
    /// Whether it was the short form.
    pub quick: bool,
    /// What it consists of.
    pub parts: Vec<Part>,
}

/// Where an experiment was described first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Names, with commas between them.
    pub authors: String,
    /// Title.
    pub title: String,
    /// Where it appeared.
    pub venue: String,
    /// Year.
    pub year: u16,
}

/// One part of an experiment: one figure or table of the paper, as a rule.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its heading.
    pub title: String,
    /// How it was measured.
    pub text: String,
    /// Figures, laid out like the paper's.
    pub figures: Vec<Figure>,
    /// Tables.
    pub tables: Vec<Table>,
    /// What agrees with the paper and what does not.
    pub findings: Vec<Finding>,
    /// What was measured.
    pub samples: Vec<Samples>,
    /// What could not be done here.
    pub left_out: Vec<LeftOut>,
}

/// Numbers as they were measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// Of what.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// Whether all values are of one quantity, so that their spread is the machine's doing.
    pub repeated: bool,
    /// In the order in which they came.
    pub values: Vec<f64>,
}

/// Something that could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// What.
    pub what: String,
    /// What was missing, or went wrong.
    pub why: String,
    /// Whether it was tried and went wrong.
    pub failed: bool,
}

impl Record {
    /// Why the numbers are to be taken with care, each reason with its number; empty on a quiet machine.
    pub fn noise(&self) -> Vec<String> {
        let mut reasons = self.activity.noise(self.machine.cpus);
        reasons.extend(self.spread().filter(|spread| *spread > NOISY_SPREAD).map(|spread| {
            let percent = spread * 100.0;
            format!("the middle half of repeated samples lies {percent:.0} % of their median apart, in the middle case")
        }));
        reasons
    }

    /// How far the middle half of repeated samples lies apart, as a share of their median: the middle one of all quantities.
    pub fn spread(&self) -> Option<f64> {
        let samples = self.parts.iter().flat_map(|part| &part.samples);
        let mut spreads: Vec<f64> = samples.filter_map(Samples::spread).collect();
        middle(&mut spreads)
    }

    /// Everything that could not be done.
    pub fn left_out(&self) -> impl Iterator<Item = &LeftOut> {
        self.parts.iter().flat_map(|part| &part.left_out)
    }

    /// What every part found.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.parts.iter().flat_map(|part| &part.findings)
    }
}

impl Samples {
    /// Of one quantity, measured again and again.
    pub fn repeated(name: impl Into<String>, unit: &str, values: Vec<f64>) -> Self {
        Self { name: name.into(), unit: unit.into(), repeated: true, values }
    }

    /// Between the quartiles, as a share of the median; of repeated samples alone, and of three at least.
    fn spread(&self) -> Option<f64> {
        let mut values = self.values.clone();
        let median = middle(&mut values)?;
        let quarter = values.len() / 4;
        let (least, most) = (values.get(quarter)?, values.iter().nth_back(quarter)?);
        let is_known = self.repeated && values.len() >= 3 && median > 0.0;
        is_known.then(|| (most - least) / median)
    }
}

/// Sorts the values and takes the one in the middle.
fn middle(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A record with one part.
    pub(crate) fn record(part: Part) -> Record {
        Record {
            experiment: "streams".into(),
            paper: Paper {
                authors: "A. N. Other".into(),
                title: "On <wires>".into(),
                venue: "Press".into(),
                year: 1997,
            },
            summary: "Packets & how they went.".into(),
            machine: Machine::here(),
            activity: Activity { load_before: 0.1, load_after: 1.9, stolen: 0.0 },
            versions: BTreeMap::from([("casemate".into(), "0.1.0".into())]),
            started: "2026-11-22T12:00:00Z".into(),
            seconds: 12.5,
            quick: true,
            parts: vec![part],
        }
    }

    #[test]
    fn a_wide_spread_is_noise_and_a_narrow_one_is_not() {
        let with = |values: &[f64]| {
            let samples = vec![Samples::repeated("rate", "Mb/s", values.to_vec())];
            Record {
                machine: Machine { cpus: 2, ..Machine::here() },
                ..record(Part { samples, ..Part::default() })
            }
        };
        assert_eq!(with(&[100.0, 104.0, 98.0]).noise(), Vec::<String>::new());
        assert!(with(&[100.0, 130.0, 90.0]).noise()[0].contains("40 %"));
        // A few that lie far out say nothing of the rest.
        assert_eq!(with(&[100.0, 104.0, 98.0, 101.0, 99.0, 900.0, 1.0, 103.0]).noise(), Vec::<String>::new());
        // Two samples say little about a machine.
        assert_eq!(with(&[100.0, 200.0]).noise(), Vec::<String>::new());
    }
}
