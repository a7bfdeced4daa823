//! Casemate as a C library, made for [lwIP](https://savannah.nongnu.org/projects/lwip/) and usable with other stacks in C.
//!
//! ```text
//!  lwIP -- netif->output --> c/casemate_lwip.c --> casemate_outbound --> netif's own output -- wire
//!  lwIP <-- ip_input <-- queue <-- casemate_inbound <-- raw PCBs (after reassembly) <-- netif->input -- wire
//! ```
//!
//! `include/casemate.h` is the interface, with the rules of ownership and threads; a test compares it with this crate. `c/` is
//! the part in C that knows lwIP.
//!
//! The library proper is built with `panic = "abort"` (profile `device`): then it has no std, allocates in memory that its caller gave, and
//! ends a panic, which nothing can reach, in a function of the caller's. Built otherwise, as for tests, it has std.
#![no_std]
#![deny(clippy::arithmetic_side_effects)]

extern crate alloc;
#[cfg(not(panic = "abort"))]
extern crate std;

mod api;
#[cfg(any(panic = "abort", test))]
mod arena;
mod code;
mod convert;
mod costs;
mod host;
mod ike;
mod memory;
mod random;
mod road;
mod suite;
mod types;

pub use api::*;
pub use code::Code;
pub use host::Host;
pub use ike::{api::*, types::*};
pub use types::*;
