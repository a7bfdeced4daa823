//! Measurement tools: workloads measured in turns, statistics of the samples, a tunnel in memory, and
//! reports.
#![forbid(unsafe_code)]

pub mod harness;
pub mod report;
pub mod stats;
pub mod tunnel;
