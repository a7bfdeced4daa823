//! Output of the rows, for people or as JSON lines.

use crate::Arguments;
use casemate_measure::harness::{Schedule, Series, Workload, measure};
use std::fmt::Write;
use std::process::ExitCode;

/// Measures rows and prints each of them.
pub(crate) struct Report<'a> {
    arguments: &'a Arguments,
    rows: usize,
}

/// Load of a row.
pub(crate) struct Entry<'l> {
    /// Label within the row.
    pub(crate) label: &'static str,
    /// Index of the entry to compare with.
    pub(crate) base: Option<usize>,
    pub(crate) load: Box<dyn Workload + 'l>,
}

/// Figure of a row.
pub(crate) struct Figure {
    /// Label within the row.
    pub(crate) label: &'static str,
    pub(crate) value: f64,
    /// Comparison with another figure of the row.
    pub(crate) compared: Option<Compared>,
}

/// Comparison of two figures.
#[derive(Clone, Copy)]
pub(crate) struct Compared {
    /// Difference.
    pub(crate) over: f64,
    /// Ratio.
    pub(crate) times: f64,
}

impl<'a> Report<'a> {
    /// Report without rows.
    pub(crate) fn new(arguments: &'a Arguments) -> Self {
        Self { arguments, rows: 0 }
    }

    /// Rounds of each row, and their duration.
    pub(crate) fn schedule(&self) -> Schedule {
        self.arguments.effort
    }

    /// Whether the filters select the row.
    pub(crate) fn wants(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.arguments.filters.iter().all(|filter| name.contains(filter))
    }

    /// Measures the entries in turns, and prints them as one row, in nanoseconds per operation.
    pub(crate) fn measure(&mut self, name: &str, entries: Vec<Entry<'_>>) {
        let (marks, mut loads): (Vec<_>, Vec<_>) =
            entries.into_iter().map(|entry| ((entry.label, entry.base), entry.load)).unzip();
        let series = measure(&mut loads, self.arguments.effort);
        let figure = |((label, base), own): (&(&'static str, Option<usize>), _)| {
            let own: &Series = own;
            let value = own.median();
            let compare =
                |base: &Series| Compared { over: own.difference_to(base), times: own.ratio_to(base) };
            Figure { label, value, compared: base.map(|base| compare(&series[base])) }
        };
        let figures: Vec<Figure> = marks.iter().zip(&series).map(figure).collect();
        self.show(name, "ns", &figures);
    }

    /// Prints a row.
    pub(crate) fn show(&mut self, name: &str, unit: &str, figures: &[Figure]) {
        self.rows += 1;
        let row = if self.arguments.json { json(name, unit, figures) } else { text(name, unit, figures) };
        println!("{row}");
    }

    /// Prints a remark for people.
    pub(crate) fn say(&self, remark: &str) {
        if !self.arguments.json {
            println!("{remark}");
        }
    }

    /// Fails if the filters match no row.
    pub(crate) fn finish(self) -> ExitCode {
        if self.rows > 0 {
            return ExitCode::SUCCESS;
        }
        eprintln!("no row name contains all of: {}", self.arguments.filters.join(", "));
        ExitCode::FAILURE
    }
}

fn text(name: &str, unit: &str, figures: &[Figure]) -> String {
    let mut row = format!("{name:<62}");
    for Figure { label, value, compared } in figures {
        write!(row, "  {label} {value:.1} {unit}").unwrap();
        if let Some(Compared { over, times }) = compared {
            write!(row, " ({over:+.1}, x{times:.2})").unwrap();
        }
    }
    row
}

fn json(name: &str, unit: &str, figures: &[Figure]) -> String {
    let object = |pick: fn(&Figure) -> Option<f64>| {
        let member = |figure: &Figure| Some(format!("\"{}\":{:.2}", figure.label, pick(figure)?));
        figures.iter().filter_map(member).collect::<Vec<_>>().join(",")
    };
    let values = object(|figure| Some(figure.value));
    let over = object(|figure| Some(figure.compared?.over));
    let times = object(|figure| Some(figure.compared?.times));
    format!(
        "{{\"name\":\"{name}\",\"unit\":\"{unit}\",\"values\":{{{values}}},\"over\":{{{over}}},\"times\":{{{times}}}}}"
    )
}
