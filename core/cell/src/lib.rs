//! Tunnels that outlive their gateway (docs/decisions/0140-cells.md).
//!
//! A [`Keeper`] stands between an [`Endpoint`](casemate::Endpoint) and a
//! [`Store`](casemate_store::Store). It writes the record of each IKE SA before the messages that depend on
//! it leave, reserves sequence numbers in advance, and at a start claims the state of a former owner.
//!
//! ```text
//!  start:   claim.rs    wait for the slot, claim it; lease.rs renews the lease and fences its owner
//!           start.rs    read, decrypt (data_keys.rs), first numbers (reserve.rs)
//!                       -> records for Endpoint::configure_and_restore
//!           begin.rs    wait for the last numbers of a former owner that hands over; the SAs go on
//!  change:  keeper.rs   records that differ (records.rs) -> transaction (writes.rs);
//!                       messages wait (outbox.rs)
//!  written: writes.rs   messages leave, reserves grow
//!  no answer: reentry.rs  the owner enters itself again, so that no late write is executed
//!  other wrapping key: key_change.rs  data keys are encrypted again before the first other write
//!  end:     handover.rs give up the slot; move packets until the next owner is ready
//!           ending.rs   records that have changed; the numbers that were used (used_numbers.rs)
//! ```
//! Besides, a node that stands by forwards packets to the owner: forward.rs has the frames, and
//! registration.rs the addresses that nodes enter.
//!
//! No I/O and no clock: time and randomness are arguments. Entries of the store:
//! ```text
//!  PREFIX nodes/NAME      node of a cell, and where it receives forwarded packets; bound to its lease
//!  PREFIX drained/NAME    node that does not become the owner, until an administrator changes that
//!  PREFIX wrapping-key    proof that a node has the wrapping key of the cell; during a change two of them
//!  PREFIX slots/000       node that owns the slot, bound to its lease
//!  PREFIX takeovers/000   number of owners so far
//!  PREFIX data-keys/000/  data keys that encrypt the records, encrypted with the wrapping key
//!  PREFIX sas/000/SPI     record of an IKE SA, SPI as 16 hexadecimal digits
//!  PREFIX sas/000/handover  the former owner still moves packets; bound to its lease
//!  PREFIX ready/000       the next owner is ready for them; bound to its lease
//!  PREFIX sas/000/used-N  sequence numbers that an owner has used, which has ended in order
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod begin;
mod claim;
mod data_keys;
mod ending;
mod forward;
mod handover;
mod keeper;
mod key_change;
mod lease;
mod members;
mod outbox;
mod records;
mod reentry;
mod registration;
mod reserve;
mod restored;
mod seal;
mod start;
mod status;
mod used_numbers;
mod wrapping;
mod writes;

pub use forward::{FRAME_OVERHEAD, FrameError, FrameOpener, FrameSealer, Ingress, MAX_RUNS, RunId};
pub use handover::Handover;
pub use keeper::Keeper;
pub use members::Member;
pub use registration::ForwardAddress;
pub use reserve::{RECEIVED_BLOCK, SENT_BLOCK};
pub use seal::SealError;
pub use start::{StartError, Started, Tenure};
pub use status::{KeeperRole, KeeperStatus};
pub use wrapping::{WRAPPING_KEY_LEN, WrappingKey, WrappingKeys};

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use casemate_store::{Entry, Key, MAX_RANGE, Range, Request};
use data_keys::DataKeyId;

/// Names of the entries of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreKeys {
    prefix: Vec<u8>,
    /// Number of the slot.
    slot: u16,
}

impl StoreKeys {
    /// The only slot, below a prefix.
    pub fn new(prefix: &[u8]) -> Self {
        Self { prefix: prefix.into(), slot: 0 }
    }

    fn key(&self, rest: &str) -> Key {
        [&*self.prefix, rest.as_bytes()].concat()
    }

    /// The owner of the slot.
    pub fn owner(&self) -> Key {
        self.key(&format!("slots/{:03x}", self.slot))
    }

    /// A node of the cell.
    pub fn node(&self, name: &[u8]) -> Key {
        [&*self.nodes(), name].concat()
    }

    /// What the entries of the nodes begin with.
    pub fn nodes(&self) -> Key {
        self.key("nodes/")
    }

    /// A node that was drained.
    pub fn drained(&self, name: &[u8]) -> Key {
        [&*self.all_drained(), name].concat()
    }

    /// What the entries of drained nodes begin with.
    pub fn all_drained(&self) -> Key {
        self.key("drained/")
    }

    /// The proof of the wrapping key.
    pub fn wrapping_key(&self) -> Key {
        self.key("wrapping-key")
    }

    /// What the data keys of the slot begin with.
    pub fn data_keys(&self) -> Key {
        self.key(&format!("data-keys/{:03x}/", self.slot))
    }

    /// A data key of the slot. The order of the names is that in which the keys were made.
    pub(crate) fn data_key(&self, DataKeyId { owner, number }: DataKeyId) -> Key {
        [self.data_keys(), format!("{owner:016x}-{number:08x}").into_bytes()].concat()
    }

    /// The number of owners of the slot so far.
    pub fn takeovers(&self) -> Key {
        self.key(&format!("takeovers/{:03x}", self.slot))
    }

    /// What the records of the slot begin with.
    pub fn records(&self) -> Key {
        self.key(&format!("sas/{:03x}/", self.slot))
    }

    /// An entry with the sequence numbers that an owner has used. It is read together with the records.
    pub fn used_numbers(&self, entry: usize) -> Key {
        [self.all_used_numbers(), format!("{entry:04}").into_bytes()].concat()
    }

    /// What the entries with used sequence numbers begin with.
    pub fn all_used_numbers(&self) -> Key {
        [&*self.records(), b"used-"].concat()
    }

    /// The owner has given up the slot, but still moves packets with its own sequence numbers. In the order
    /// of keys it is behind the records and before the numbers that were used: one range has both.
    pub fn handover(&self) -> Key {
        [&*self.records(), b"handover"].concat()
    }

    /// The entries behind the records.
    pub(crate) fn behind_records(&self) -> Range {
        let after = [&*self.records(), b"g"].concat();
        Range { prefix: self.records(), after: Some(after), limit: MAX_RANGE }
    }

    /// The next owner is ready for the packets of the former one.
    pub fn ready(&self) -> Key {
        self.key(&format!("ready/{:03x}", self.slot))
    }

    /// The record of the IKE SA with this SPI of ours.
    pub fn record(&self, spi: u64) -> Key {
        let spi: String = format!("{spi:016x}");
        [self.records(), spi.into_bytes()].concat()
    }
}

/// Reads the entries whose names begin with the prefix, after those that are known.
fn read(prefix: Key, known: &[Entry]) -> Request {
    let after = known.last().map(|entry| entry.key.clone());
    Request::Read(Range { prefix, after, limit: MAX_RANGE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_design() {
        let keys = StoreKeys::new(b"/cell/");
        for (key, expected) in [
            (keys.owner(), "/cell/slots/000"),
            (keys.node(b"gw1"), "/cell/nodes/gw1"),
            (keys.drained(b"gw1"), "/cell/drained/gw1"),
            (keys.wrapping_key(), "/cell/wrapping-key"),
            (
                keys.data_key(DataKeyId { owner: 0xab, number: 1 }),
                "/cell/data-keys/000/00000000000000ab-00000001",
            ),
            (keys.takeovers(), "/cell/takeovers/000"),
            (keys.record(0xab), "/cell/sas/000/00000000000000ab"),
            (keys.used_numbers(7), "/cell/sas/000/used-0007"),
            (keys.handover(), "/cell/sas/000/handover"),
            (keys.ready(), "/cell/ready/000"),
        ] {
            assert_eq!(core::str::from_utf8(&key), Ok(expected));
        }
        assert!(keys.record(u64::MAX) < keys.handover() && keys.handover() < keys.used_numbers(0));
    }
}
