//! lwIP behind Casemate, and smoltcp behind Casemate, with a wire between them on which everything can be seen.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod builds;
mod hostile;
mod ike;
mod pair;
mod peer;
mod services;
mod speakers;
mod specs;
mod tables;
mod threads;
mod web;
