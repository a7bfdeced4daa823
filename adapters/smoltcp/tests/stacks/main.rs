//! Two hosts with smoltcp and IPsec, connected by a wire that records every frame.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod exhaustion;
mod fragments;
mod host;
mod ike;
mod post_quantum;
mod rohc;
mod static_sas;
mod virtual_link;
