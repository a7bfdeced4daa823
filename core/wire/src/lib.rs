//! Formats: bytes to sane values and back.
//!
//! Each format has a view over bytes (`Ipv4`, `Udp`, ...), checked once by `parse`, and where it is emitted often a plain
//! value beside it (`Ipv4Header`, `EspHeader`, ...). Knows no SA, no key and no policy. Every parser returns a typed
//! error that names the field and the broken rule, and no input makes one panic. `no_std`, no allocation.
//!
//! [`ike`] has errors of its own, for a peer may have to be told what was wrong.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

#[cfg(test)]
extern crate std;

pub mod ah;
pub mod checksum;
pub mod dscp;
pub mod error;
pub mod esp;
pub mod flow;
pub mod icmp;
pub mod ike;
pub mod ip;
pub mod natt;
pub mod packet;
pub mod tcp;
pub mod udp;

pub use error::Malformed;
