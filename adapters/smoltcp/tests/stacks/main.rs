//! Two hosts, each smoltcp behind a guard, with a wire between them on which everything can be seen.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod exhaustion;
mod fragments;
mod host;
mod ike;
mod manual;
mod wire;
