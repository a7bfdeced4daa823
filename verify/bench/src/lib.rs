//! What the benchmarks from outside have in common: command lines, goals, and how
//! results are shown.
// Tools for developers: what goes wrong here should stop them, at the line where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod goal;
pub mod machine;
pub mod options;
pub mod program;
