//! `casemate stack` with a peer behind IPsec and applications in other processes.
//!
//! ```text
//!  applications -- shared memory -- casemate stack -- TAP -- Linux IP stack -- casemate run
//!                                   192.0.2.1                192.0.2.2
//! ```
//!
//! Each test has its own network namespace, in which the TAP interface is the only link.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod crashes;
mod harness;
mod services;
