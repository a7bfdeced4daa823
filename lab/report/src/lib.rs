//! Results of experiments: as JSON with every sample, as figures, and as a page that needs nothing but itself.
//!
//! A [`Record`] is what one experiment found. [`mod@file`] writes and reads it, [`svg`] draws its figures, and [`page`] shows one or
//! several of them in a browser, beside what the paper says.
#![forbid(unsafe_code)]

pub mod activity;
pub mod figure;
pub mod file;
pub mod finding;
pub mod machine;
pub mod page;
pub mod record;
pub mod svg;

pub use activity::{Activity, Watch};
pub use figure::{Axis, Figure, Origin, Point, Scale, Series, Shape};
pub use file::Error;
pub use finding::{Agreement, Finding, Table};
pub use machine::Machine;
pub use record::{LeftOut, Paper, Part, Record, Samples};
