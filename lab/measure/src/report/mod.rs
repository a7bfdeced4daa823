//! Results of experiments: JSON with every sample, figures, and a self-contained HTML page.
//!
//! A [`Record`] is the result of one experiment. [`mod@file`] reads and writes records, [`svg`] draws
//! figures, and [`page`] renders one or several records next to the numbers of the papers.

pub mod bar_table;
pub mod figure;
pub mod file;
pub mod finding;
pub mod machine;
pub mod page;
pub mod record;
pub mod svg;

pub use bar_table::{BarColumn, BarRole, BarSubject, BarTable};
pub use figure::{Axis, Figure, Origin, Point, Scale, Series, Shape};
pub use file::Error;
pub use finding::{Agreement, Bound, Claim, Finding};
pub use machine::Machine;
pub use machine::{Activity, ActivityMonitor, share_of_others};
pub use record::{Paper, Part, Record, Samples, Skipped, Table};
