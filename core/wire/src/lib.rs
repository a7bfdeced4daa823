//! Wire formats: parsers and encoders.
//!
//! Each format has a view over bytes (`Ipv4`, `Udp`, ...) that `parse` validates once. Formats that are
//! emitted often also have a plain value (`Ipv4Header`, `EspHeader`, ...). This crate has no SAs, keys or
//! policies. Parsers never panic and return a typed error that names the field and the broken rule. `no_std`,
//! no allocation.
//!
//! [`ike`] has its own errors, because IKE must report some of them to the peer.
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
pub mod invariant;
pub mod ip;
pub mod natt;
pub mod packet;
pub mod tcp;
pub mod udp;

pub use error::Malformed;
