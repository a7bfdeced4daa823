//! Result of one experiment, with every sample.

use crate::report::{Activity, Figure, Finding, Machine};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Interquartile range of repeated samples, as a share of their median, above which a machine counts as
/// noisy.
const NOISY_SPREAD: f64 = 0.25;

/// Result of one run of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Name of the experiment, as on the command line.
    pub experiment: String,
    /// Paper that describes the experiment.
    pub paper: Paper,
    /// Summary of the method, one paragraph.
    pub summary: String,
    /// Machine on which the experiment ran.
    pub machine: Machine,
    /// Activity of the machine during the run.
    pub activity: Activity,
    /// Versions of the programs that took part.
    pub versions: BTreeMap<String, String>,
    /// Start time in UTC, as in RFC 3339.
    pub started: String,
    /// Duration of the run in seconds.
    pub seconds: f64,
    /// Whether this is the short form.
    pub quick: bool,
    /// What this form of the experiment cannot determine, each in one sentence.
    #[serde(default)]
    pub limits: Vec<String>,
    /// Parts of the experiment.
    pub parts: Vec<Part>,
}

/// Publication that describes an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Names, separated by commas.
    pub authors: String,
    /// Title.
    pub title: String,
    /// Conference, journal or institution.
    pub venue: String,
    /// Year of publication.
    pub year: u16,
}

/// One part of an experiment, usually one figure or table of the paper.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Heading.
    pub title: String,
    /// Method of the measurement.
    pub text: String,
    /// Figures, arranged like those of the paper.
    pub figures: Vec<Figure>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Comparisons with the paper.
    pub findings: Vec<Finding>,
    /// Every measured value.
    pub samples: Vec<Samples>,
    /// Measurements that were skipped.
    #[serde(rename = "left_out")]
    pub skipped: Vec<Skipped>,
}

/// Measured values of one quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// Name of the quantity.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// Whether the values repeat one measurement, so that their spread is caused by the machine.
    pub repeated: bool,
    /// Values in the order of measurement.
    pub values: Vec<f64>,
}

/// A measurement that was skipped or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// Name of the measurement.
    pub what: String,
    /// What was missing, or the error.
    pub why: String,
    /// Whether the measurement was started and failed.
    pub failed: bool,
}

impl Record {
    /// Returns the reasons for doubting the numbers, each with its number. Empty on a quiet machine.
    pub fn noise(&self) -> Vec<String> {
        let mut reasons = self.activity.noise(self.machine.cpus);
        reasons.extend(self.spread().filter(|spread| *spread > NOISY_SPREAD).map(|spread| {
            let percent = spread * 100.0;
            format!(
                "the interquartile range of repeated samples is {percent:.0} % of their median \
                 (median of all quantities)"
            )
        }));
        reasons
    }

    /// Returns the interquartile range of repeated samples as a share of their median: the median over all
    /// quantities.
    pub fn spread(&self) -> Option<f64> {
        let samples = self.parts.iter().flat_map(|part| &part.samples);
        let mut spreads: Vec<f64> = samples.filter_map(Samples::spread).collect();
        median(&mut spreads)
    }

    /// Skipped measurements of all parts.
    pub fn skipped(&self) -> impl Iterator<Item = &Skipped> {
        self.parts.iter().flat_map(|part| &part.skipped)
    }

    /// Findings of all parts.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.parts.iter().flat_map(|part| &part.findings)
    }
}

impl Samples {
    /// Creates samples that repeat one measurement.
    pub fn repeated(name: impl Into<String>, unit: &str, values: Vec<f64>) -> Self {
        Self { name: name.into(), unit: unit.into(), repeated: true, values }
    }

    /// Interquartile range as a share of the median. `None` unless the samples are repeated and at least
    /// three.
    fn spread(&self) -> Option<f64> {
        let mut values = self.values.clone();
        let median = median(&mut values)?;
        let quarter = values.len() / 4;
        let (least, most) = (values.get(quarter)?, values.iter().nth_back(quarter)?);
        let is_known = self.repeated && values.len() >= 3 && median > 0.0;
        is_known.then(|| (most - least) / median)
    }
}

/// Sorts the values and returns the median.
fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A table of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Title, with the number of the paper's table if there is one.
    pub title: String,
    /// Column headings, with units.
    pub columns: Vec<String>,
    /// Rows of formatted cells.
    pub rows: Vec<Vec<String>>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Record with one part.
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
            machine: Machine::detect(),
            activity: Activity { load_before: 0.1, load_after: 1.9, stolen: 0.0 },
            versions: BTreeMap::from([("casemate".into(), "0.1.0".into())]),
            started: "2026-11-22T12:00:00Z".into(),
            seconds: 12.5,
            quick: true,
            limits: Vec::new(),
            parts: vec![part],
        }
    }

    #[test]
    fn a_wide_spread_is_noise() {
        let with = |values: &[f64]| {
            let samples = vec![Samples::repeated("rate", "Mb/s", values.to_vec())];
            Record {
                machine: Machine { cpus: 2, ..Machine::detect() },
                ..record(Part { samples, ..Part::default() })
            }
        };
        assert_eq!(with(&[100.0, 104.0, 98.0]).noise(), Vec::<String>::new());
        assert!(with(&[100.0, 130.0, 90.0]).noise()[0].contains("40 %"));
        // A few outliers do not matter.
        assert_eq!(with(&[100.0, 104.0, 98.0, 101.0, 99.0, 900.0, 1.0, 103.0]).noise(), Vec::<String>::new());
        // Two samples say little about a machine.
        assert_eq!(with(&[100.0, 200.0]).noise(), Vec::<String>::new());
    }
}
