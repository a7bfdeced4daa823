//! Casemate as a C library for [lwIP](https://savannah.nongnu.org/projects/lwip/) and other network
//! stacks in C.
//!
//! ```text
//!  lwIP -- netif->output --> c/casemate_lwip.c --> casemate_outbound --> netif's own output -- wire
//!  lwIP <-- ip_input <-- queue <-- casemate_inbound <-- raw PCBs (after reassembly) <-- netif->input -- wire
//! ```
//!
//! `include/casemate.h` defines the interface with its rules for ownership and threads; a test compares
//! it with this crate. `c/` contains the C code for lwIP.
//!
//! For devices the library is built with `panic = "abort"` (profile `device`). Then it has no std and
//! allocates from memory that the caller provides. A panic, which no input can cause, calls a function of
//! the caller. Other builds, as for tests, use std.
#![no_std]
#![deny(clippy::arithmetic_side_effects)]

extern crate alloc;
#[cfg(not(panic = "abort"))]
extern crate std;

mod allocator;
mod api;
#[cfg(any(panic = "abort", test))]
mod arena;
mod convert;
mod host;
mod ike;
mod memory_costs;
mod path;
mod status;
mod suite;
mod types;

pub use api::*;
pub use host::Host;
pub use ike::{api::*, types::*};
pub use status::Status;
pub use types::*;
