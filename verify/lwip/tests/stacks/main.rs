//! lwIP with Casemate and smoltcp with Casemate, connected by a wire that records every frame.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod hostile;
mod ike;
mod ike_pair;
mod pair;
mod peer;
mod post_quantum;
mod services;
mod tables;
mod web;
