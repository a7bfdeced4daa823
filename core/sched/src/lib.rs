//! Which packet the crypto engine gets next, and which ones are dropped before it works on them.
//!
//! ```text
//!  Overview of a packet
//!     |  Classifier     selectors, then the DSCP: one of five classes      classifier.rs
//!     |  FlowHash       which packets must keep their order                flow.rs
//!     v
//!  Scheduler::offer     refused if its flow holds too much already         fair.rs
//!     |
//!     |  low latency first, up to its cap                                  bucket.rs
//!     |  deficit round robin over the classes, by weight                   round.rs
//!     |  deficit round robin over the flows of a class, alike              fair.rs, ways.rs, round.rs
//!     |  CoDel drops at the head what has waited too long                  codel.rs
//!     v
//!  Scheduler::take      the caller seals it, or opens it
//! ```
//!
//! An engine that protects packets in the order of their arrival gives every packet the delay of all that came before it, and
//! no queue behind the engine can mend that. So the order is made in front of it. The adapter that owns the sockets calls
//! this crate: before sealing, and before opening where opening is the bottleneck.
//!
//! The scheduler holds items and not packets, such as the index of a buffer; the bytes stay where they are. All memory is
//! allocated by [`Scheduler::new`] and bounded by [`Config`]. Time is an argument. `no_std`.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bucket;
mod class;
mod classifier;
mod codel;
mod config;
mod fair;
mod flow;
mod round;
mod scheduler;
mod store;
mod ways;

pub use class::{Class, PerClass};
pub use classifier::{Classifier, DscpTable, Rule};
pub use config::{Cap, Config, ConfigError, Patience, Share};
pub use fair::MIN_CHARGE;
pub use flow::FlowHash;
pub use scheduler::{Counters, Refusal, Refused, Scheduler};
