//! Shared test support.
//!
//! [`hosts`] contains two hosts in memory for tests of the data path. [`TestRng`] is the generator of random
//! numbers of all tests; [`FixedRng`] and [`CountingRng`] return known values. They need no operating system.
//! The other modules need the feature `std`: temporary directories, reports of skipped tests,
//! and an allocator that counts.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "std")]
pub mod allocator;
#[cfg(feature = "std")]
mod environment;
pub mod hosts;
mod rng;

#[cfg(feature = "std")]
pub use casemate_testbed::TempDir;
#[cfg(feature = "std")]
pub use environment::{REPORT, eventually, skip, write_program};
pub use rng::{CountingRng, FixedRng, TestRng};
