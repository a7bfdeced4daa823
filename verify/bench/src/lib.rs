//! What the benchmarks from outside have in common: two namespaces with gateways in them, traffic between, and how results are
//! shown.
// Tools for developers: what goes wrong here should stop them, at the line where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod arena;
pub mod gateway;
pub mod goal;
pub mod machine;
pub mod meter;
pub mod negotiated;
pub mod options;
pub mod paced;
pub mod scratch;
pub mod spread;
pub mod sys;
