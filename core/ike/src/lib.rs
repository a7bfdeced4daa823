//! IKEv2 (RFC 7296): so far keys from a key exchange ([`keymat`]) and the protection of messages ([`SkKey`]); exchanges and
//! state do not exist yet.
//!
//! No I/O, no clock, no randomness of its own. `no_std`; allocates when keys are set up.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

pub mod keymat;
mod sk;

pub use sk::{NotSealed, SkError, SkKey, SkSuite};
