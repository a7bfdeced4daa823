//! Tunnels that outlive their gateway (docs/decisions/0140-cells.md).
//!
//! A [`Keeper`] stands between an [`Endpoint`](casemate::Endpoint) and a
//! [`Store`](casemate_store::Store). It writes the record of each IKE SA before the messages that depend on
//! it leave, reserves sequence numbers in advance, and at a start claims the state of a former owner.
//!
//! ```text
//!  start:   keeper::start    claim (claim.rs), read (claim.rs), decrypt (seal.rs), first numbers (reserve.rs)
//!              -> records for Endpoint::configure_and_restore
//!  change:  keeper::collect  records that differ (records.rs) -> transaction; messages wait (outbox.rs)
//!  written: keeper::poll     messages leave, reserves grow
//!  end:     keeper::finish   records with the exact numbers
//! ```
//! No I/O and no clock: time and randomness are arguments.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod claim;
mod keeper;
mod keys;
mod outbox;
mod records;
mod reserve;
mod seal;

pub use claim::StartError;
pub use keeper::{Keeper, KeeperStatus, Started};
pub use keys::StoreKeys;
pub use reserve::{RECEIVED_BLOCK, SENT_BLOCK};
pub use seal::{DATA_KEY_LEN, SealError, Sealer};
