//! lwIP with Casemate as a program for tests: the example of adapters/lwip. [`program`] builds it,
//! [`LwipHost`] runs it.
//!
//! lwIP's sources are not part of this project: `cargo xtask lwip` downloads them to `target/lwip`.
//! Without them the tests are skipped with a note.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "called by tests only, which may fail"
)]

mod host;
pub mod program;

pub use host::{LwipHost, Placement, Setup};
