//! Ways to break a tunnel (docs/manual/troubleshooting.md): the output that a user reads names the cause.
//!
//! Each test breaks one thing between two hosts in network namespaces, and then reads only the log and
//! `casemate why`. The left host initiates.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod advice;
mod certificates;
mod eap;
mod negotiation;
mod network;
mod pki;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../testnet/mod.rs"]
mod testnet;
mod tunnel;
