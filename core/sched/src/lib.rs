//! Packet scheduler: it decides which packet the crypto engine processes next, and which packets are dropped
//! unprocessed.
//!
//! ```text
//!  HeaderSummary of a packet
//!     |  Classifier     selectors, then the DSCP: one of five classes      classifier.rs
//!     |  FlowHash       packets that must keep their order                 flow_table.rs
//!     v
//!  Scheduler::enqueue   rejects the packet if its flow is over its share   class_queue.rs
//!     |
//!     |  low latency first, up to its rate limit                           scheduler.rs
//!     |  deficit round robin between the classes, by weight                drr.rs
//!     |  deficit round robin between the flows of a class                  class_queue.rs, flow_table.rs
//!     |  CoDel drops late packets at the head of a queue                   codel.rs
//!     v
//!  Scheduler::dequeue   the caller seals or opens the packet
//! ```
//!
//! An engine that protects packets in order of arrival delays each packet by all packets before it, and a
//! queue behind the engine cannot repair that. The scheduler thus sits in front of the engine. The adapter
//! that owns the sockets calls this crate before sealing, and before opening if opening is the bottleneck.
//!
//! The scheduler queues items, not packets: for example the index of a buffer. The packet data stays where it
//! is. [`Scheduler::new`] allocates all memory, which [`Config`] bounds. Time is an argument. `no_std`.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod class;
mod class_queue;
mod classifier;
mod codel;
mod config;
mod drr;
mod flow_table;
mod list_pool;
mod scheduler;

pub use class::{Class, PerClass};
pub use class_queue::MIN_CHARGE;
pub use classifier::{Classifier, DscpTable, Rule};
pub use config::{Cap, CodelParams, Config, ConfigError, Share};
pub use flow_table::FlowHash;
pub use scheduler::{Counters, RejectReason, Rejected, Scheduler};
