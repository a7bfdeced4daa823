//! IKE through the C interface, and its memory usage.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod auth;
mod cost;
mod heap;
mod host;
mod life;
