//! The terms of RFC 4301: SPI, protocol, mode, selector, lifetime, and the description of one SA.
//!
//! Plain data without packet handling. [`SaParams`] connects the code that creates SAs (manual keys, IKEv2)
//! and the code that uses them (the data path). `no_std`; allocates for keys and in [`table`].
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod addr;
mod dscp_set;
mod limits;
mod params;
mod selector;
pub mod table;
mod time;

pub use addr::{AddrRange, RangeError};
pub use dscp_set::DscpSet;
pub use limits::Limits;
pub use params::{DfPolicy, DscpPolicy, Mode, OuterHeader, Protocol, SaParams, Spi, Transform, UdpEncap};
pub use selector::{PortRange, Selector};
pub use time::{Bounds, Instant, Lifetime};
