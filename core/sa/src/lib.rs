//! The nouns of RFC 4301: SPI, protocol, mode, selector, lifetime, and the description of one SA.
//!
//! Plain data with a little algebra, no tables and no packet handling. Whoever creates SAs (manual keys, later IKEv2) and
//! whoever runs them (the data path) meet in [`SaParams`]. `no_std`; allocates only for keys.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod addr;
mod dscp_set;
mod lifetime;
mod limits;
mod params;
mod selector;
mod spi;
mod time;

pub use addr::{AddrRange, BadRange};
pub use dscp_set::DscpSet;
pub use lifetime::{Bounds, Lifetime};
pub use limits::Limits;
pub use params::{DfPolicy, DscpPolicy, Mode, OuterHeader, Protocol, SaParams, Transform, UdpEncap};
pub use selector::{PortRange, Selector};
pub use spi::Spi;
pub use time::Instant;
