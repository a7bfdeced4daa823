//! Two hosts in memory, for tests of the data path with real algorithms.
//!
//! Needs no operating system, so that the self-test of `verify/bare` can do the same.
//!
//! A [`Host`] is a data path with its buffers; [`Link`] gives two hosts mirrored SAs and policies. No network, no clock:
//! time is an argument.
// Test support: a broken expectation is meant to stop the test, with its reason.
#![no_std]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

extern crate alloc;

mod host;
mod link;
pub mod packets;
pub mod suites;

pub use host::{Host, NotRandom, PROVIDERS, Received, Sent};
pub use link::{Ends, Link, LinkSpec};
