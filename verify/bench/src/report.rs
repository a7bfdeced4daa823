//! Rows of figures, for people or as JSON lines.

use crate::arguments::Arguments;
use casemate_measure::harness::{Load, Series, measure};
use std::fmt::Write;
use std::process::ExitCode;

/// Takes rows and shows them as they come.
pub(crate) struct Report<'a> {
    arguments: &'a Arguments,
    rows: usize,
}

/// One load of a row.
pub(crate) struct Entry<'l> {
    /// What it is, within the row.
    pub(crate) label: &'static str,
    /// The entry that it is compared with, by its place in the row.
    pub(crate) base: Option<usize>,
    /// The load.
    pub(crate) load: Box<dyn Load + 'l>,
}

/// One figure of a row.
pub(crate) struct Figure {
    /// What it is, within the row.
    pub(crate) label: &'static str,
    /// The figure.
    pub(crate) value: f64,
    /// How it compares with another one of the row.
    pub(crate) compared: Option<Compared>,
}

/// One figure beside another.
#[derive(Clone, Copy)]
pub(crate) struct Compared {
    /// What it has more.
    pub(crate) over: f64,
    /// How many times the other it is.
    pub(crate) times: f64,
}

impl<'a> Report<'a> {
    /// Nothing yet.
    pub(crate) fn new(arguments: &'a Arguments) -> Self {
        Self { arguments, rows: 0 }
    }

    /// Whether the row is to be measured.
    pub(crate) fn wants(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.arguments.filters.iter().all(|filter| name.contains(filter))
    }

    /// Measures the entries in turns and shows them as one row, in nanoseconds an operation.
    pub(crate) fn measure(&mut self, name: &str, entries: Vec<Entry<'_>>) {
        let (marks, mut loads): (Vec<_>, Vec<_>) =
            entries.into_iter().map(|entry| ((entry.label, entry.base), entry.load)).unzip();
        let series = measure(&mut loads, self.arguments.effort);
        let figure = |((label, base), own): (&(&'static str, Option<usize>), _)| {
            let own: &Series = own;
            let value = own.median();
            let compare = |base: &Series| Compared { over: own.over(base), times: own.times(base) };
            Figure { label, value, compared: base.map(|base| compare(&series[base])) }
        };
        let figures: Vec<Figure> = marks.iter().zip(&series).map(figure).collect();
        self.show(name, "ns", &figures);
    }

    /// Shows a row.
    pub(crate) fn show(&mut self, name: &str, unit: &str, figures: &[Figure]) {
        self.rows += 1;
        let row = if self.arguments.json { json(name, unit, figures) } else { text(name, unit, figures) };
        println!("{row}");
    }

    /// A remark between the rows, for people.
    pub(crate) fn say(&self, remark: &str) {
        if !self.arguments.json {
            println!("{remark}");
        }
    }

    /// A filter that matches nothing is a mistake.
    pub(crate) fn finish(self) -> ExitCode {
        if self.rows > 0 {
            return ExitCode::SUCCESS;
        }
        eprintln!("no row's name holds all of: {}", self.arguments.filters.join(", "));
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
