//! How something is measured: in turns, with every sample kept, and medians and spread made of them. And what is measured in several
//! places: a tunnel in memory.
#![forbid(unsafe_code)]

pub mod fit;
pub mod harness;
pub mod spread;
pub mod tunnel;
