//! A bare-metal machine that serves a web page behind IPsec: the part that does not depend on the hardware.
//!
//! ```text
//!  Config -- from the command line and a file loaded with the image
//!     |
//!  StackRuntime -- tasks, one after the other:  network (smoltcp with IPsec), IKE, HTTP, echo, discard
//!     |
//!  any smoltcp device, any clock, any random number generator
//! ```
//!
//! The image in `src/image` contains the boot code, the drivers and all `unsafe` code; `cargo xtask
//! firmware` builds it. The library runs and is tested on any host.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod echo_discard;
mod http;
mod ipsec;
mod log;
mod memory_budget;
mod runtime;

pub use config::{
    AhSa, Config, ConfigError, EspSa, Fault, IkeKeys, ManualKeys, Pair, Ppk, Protection, Protocols,
};
pub use echo_discard::EchoDiscard;
pub use http::{Http, PAGE};
pub use log::RateLimitedLog;
pub use runtime::{SetupError, StackRuntime};
