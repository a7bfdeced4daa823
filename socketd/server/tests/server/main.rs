//! The server and its applications in one process and in virtual time. The applications connect to each
//! other over the server's stack.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod harness;
mod hostile;
mod limits;
mod speed;
mod streams;
