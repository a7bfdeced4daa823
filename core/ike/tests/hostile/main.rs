//! Hostile and malformed messages: forged by unknown hosts, and by a peer that has the keys of the session.
//!
//! Each test checks the response, the fault counter, whether the IKE SA stays, and that no SPI is leaked.
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
mod floods;
mod forge;
mod fragments;
#[cfg(feature = "mobike")]
mod mobike;
mod nat_transport;
#[path = "../pair/mod.rs"]
mod pair;
mod peer_bugs;
mod ports;
mod rekey_refusals;
mod sessions;
mod table;
