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
pub mod esp;
pub mod flow;
pub mod icmp;
pub mod ike;
pub mod invariant;
pub mod ip;
pub mod packet;
pub mod tcp;
pub mod udp;

use core::fmt;

/// Error of all parsers but those of IKE: invalid bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Malformed {
    /// Field, prefixed with its format: `IPv4 total length`.
    pub field: &'static str,
    /// The broken rule, as a requirement: `must lie inside the buffer`.
    pub rule: &'static str,
}

impl Malformed {
    #[inline]
    pub(crate) const fn new(field: &'static str, rule: &'static str) -> Self {
        Self { field, rule }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.rule)
    }
}

impl core::error::Error for Malformed {}
