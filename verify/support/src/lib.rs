//! Shared test support.
//!
//! [`hosts`] contains two hosts in memory for tests of the data path and needs no operating system. The
//! other modules need the feature `std`: temporary directories, and reports of skipped tests.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "std")]
mod environment;
pub mod hosts;

#[cfg(feature = "std")]
pub use environment::{REPORT, TempDir, skip, write_program};
