//! Two hosts in memory, for tests of the data path with real algorithms.
//!
//! This module needs no operating system, so that the self-test of `verify/bare` can use it.
//!
//! A [`Host`] has a data path and its buffers. A [`Link`] has two hosts with mirrored SAs and policies.
//! There is no network and no clock: the time is an argument.
// In test support, an unexpected result panics with its reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod host;
mod link;
pub mod packets;
pub mod suites;

pub use host::{Host, PROVIDERS, Received, Sent};
pub use link::{Ends, Link, LinkSpec};
