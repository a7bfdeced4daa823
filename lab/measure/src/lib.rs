//! How something is measured: in turns, with every sample kept, and medians and spread made of them.
#![forbid(unsafe_code)]

pub mod fit;
pub mod harness;
pub mod spread;
