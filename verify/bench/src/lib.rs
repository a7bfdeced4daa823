//! Common parts of the benchmarks that run programs: command line, goals, and output.
// Developer tools: a failure stops the program where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod cli;
pub mod goal;
