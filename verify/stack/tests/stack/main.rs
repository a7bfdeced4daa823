//! `casemate stack` with a peer behind IPsec, and applications in processes of their own.
//!
//! ```text
//!  applications -- shared memory -- casemate stack -- TAP -- Linux's stack -- casemate run
//!                                   192.0.2.1                192.0.2.2
//! ```
//!
//! Each test has a network namespace of its own, in which the TAP interface is the only wire.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod crashes;
mod lab;
mod limits;
mod secrets;
mod served;
mod speed;
