//! The terms of RFC 4301: SPI, protocol, mode, selector, lifetime, and the description of one SA.
//!
//! Plain data without packet handling. [`SaParams`] connects the code that creates SAs (manual keys, IKEv2)
//! and the code that uses them (the data path). `no_std`; allocates for keys and in [`table`].
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod addr;
mod params;
mod selector;
mod spd;
mod spd_rule;
pub mod table;
mod time;

pub use addr::{AddrPair, AddrRange, RangeError};
pub use params::{
    DfPolicy, DscpPolicy, Mode, OuterHeader, Protocol, RohcIntegrity, RohcParams, SaParams, Spi, Transform,
    UdpEncap,
};
pub use selector::{DscpSet, PortRange, Selector};
pub use spd::{SpdId, SpdPair};
#[cfg(feature = "spds")]
pub use spd_rule::{OwnSpd, SpdNumbers, SpdOwner};
pub use spd_rule::{SpdRule, SpdRules};
pub use time::{Bounds, Instant, Lifetime, RateLimiter};

/// Maximum sizes of tables. A full table rejects new entries.
///
/// Memory sizes are those of `core::mem::size_of` on 64-bit machines, without the keys of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// SAs in the SAD, both directions together. About 500 bytes each, plus the replay bitmap.
    pub sas: usize,
    /// Policies in the SPD of each direction. About 450 bytes each.
    pub policies: usize,
    /// Entries in the flow cache of each direction, rounded up to a power of two. 64 bytes each.
    pub flows: usize,
    /// Unread events. About 64 bytes each.
    pub audit_events: usize,
    /// Largest anti-replay window of one SA, in packets; one bit each.
    pub replay_window: u32,
    /// Datagrams in reassembly at the same time.
    pub reassemblies: usize,
    /// Largest reassembled datagram, in bytes. Each slot of `reassemblies` has this size.
    pub reassembly_bytes: usize,
}

impl Limits {
    /// Sizes for a gateway on a server.
    pub const SERVER: Self = Self {
        sas: 262_144,
        policies: 131_072,
        flows: 65_536,
        audit_events: 1_024,
        replay_window: 1 << 20,
        reassemblies: 64,
        reassembly_bytes: 65_535,
    };

    /// Sizes for a device with tens of kilobytes of memory for IPsec.
    pub const DEVICE: Self = Self {
        sas: 8,
        policies: 16,
        flows: 16,
        audit_events: 8,
        replay_window: 64,
        reassemblies: 2,
        reassembly_bytes: 4_096,
    };
}
