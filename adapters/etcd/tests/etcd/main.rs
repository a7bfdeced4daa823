//! The store on real clusters of etcd.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail"
)]

mod conformance;
mod damage;
mod failures;
mod measure;
mod requests;
mod security;
mod user;
