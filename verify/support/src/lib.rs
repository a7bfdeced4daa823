//! Shared test support.
//!
//! [`hosts`] contains two hosts in memory for tests of the data path. [`TestRng`] is the generator of random
//! numbers of all tests; [`FixedRng`] and [`CountingRng`] return known values. They need no operating system.
//! The other modules need the feature `std`: temporary directories, programs with a time limit, reports of
//! skipped tests, flows of packets, tokens in software, clusters of etcd, and an allocator that counts.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "std")]
pub mod allocator;
#[cfg(feature = "std")]
mod environment;
#[cfg(feature = "std")]
pub mod etcd;
#[cfg(feature = "std")]
pub mod flows;
pub mod hosts;
#[cfg(feature = "std")]
mod program;
mod rng;
#[cfg(feature = "std")]
mod softhsm;

#[cfg(feature = "std")]
pub use casemate_testbed::TempDir;
#[cfg(feature = "std")]
pub use environment::{REPORT, eventually, skip, warnings_of_example, write_program};
#[cfg(feature = "std")]
pub use program::{Process, Program};
pub use rng::{CountingRng, FixedRng, TestRng};
#[cfg(feature = "std")]
pub use softhsm::SoftHsm;
