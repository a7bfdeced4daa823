//! lwIP behind Casemate, as a program for tests: the example of adapters/lwip. [`program`] builds it, [`Host`] runs it.
//!
//! lwIP's own sources are not part of this project: `cargo xtask lwip` puts them into `target/lwip`. Without them the tests
//! are left out, and say so.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "called by tests only, which may fail"
)]

mod host;
pub mod program;

pub use host::{Host, Place, Setup};
