//! IKE through the C interface, and what it takes of the memory.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod auth;
mod cost;
mod heap;
mod host;
mod life;
