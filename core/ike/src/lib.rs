//! IKEv2 (RFC 7296): keys and Child SAs negotiated with peers.
//!
//! No I/O, no clock, no randomness of its own. `no_std`; allocates when SAs are set up.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

pub mod config;
mod credentials;
pub mod keymat;
mod sk;
mod traffic;

pub use credentials::Credentials;
pub use sk::{NotSealed, SkError, SkKey, SkSuite};
pub use traffic::{MAX_SELECTORS, Traffic, TrafficTemplate, narrow, selector};
