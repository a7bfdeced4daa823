//! A server, and applications that talk to it and, over its stack, to each other. Everything in memory, in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod datagrams;
mod hostile;
mod limits;
mod place;
mod speed;
mod streams;
