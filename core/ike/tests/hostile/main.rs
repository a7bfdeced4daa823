//! Hostile and wrong messages: forged by strangers, and by a peer that has the keys of the session.
//!
//! Each test says what the answer is, which counter moved, whether the IKE SA goes on, and that nothing stays reserved.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test may fail"
)]

mod agreements;
mod auth;
mod create_child;
mod first_request;
mod first_response;
mod forge;
mod fragments;
mod nat_transport;
#[path = "../pair/mod.rs"]
mod pair;
mod peer_bugs;
mod ports;
mod refusals;
mod sessions;
mod table;
