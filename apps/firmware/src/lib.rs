//! A machine without an operating system that serves a page behind IPsec: what is not hardware.
//!
//! ```text
//!  Config -- from the command line and a file that came with the image
//!     |
//!  Station -- tasks, one after the other:  network (smoltcp over a guarded device), IKE, HTTP, echo, discard
//!     |
//!  any smoltcp device, any clock, any random source
//! ```
//!
//! The image in `src/image` boots, has the hardware, and has all that is `unsafe`; `cargo xtask firmware` builds it. What is
//! here runs and is tested on any host.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bulk;
mod config;
mod http;
mod journal;
mod keys;
mod lines;
mod memory;
mod speaker;
mod station;

pub use bulk::Bulk;
pub use config::{AhSa, Config, ConfigError, EspSa, Fault, IkeKeys, ManualKeys, Pair, Protection, Protocols};
pub use http::{Http, PAGE};
pub use journal::Journal;
pub use station::{Station, Trouble};
