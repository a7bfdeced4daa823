//! Names of entries in the store.
//!
//! ```text
//!  PREFIX slots/000       node that owns the slot, bound to its lease
//!  PREFIX takeovers/000   number of owners so far
//!  PREFIX sas/000/SPI     record of an IKE SA, SPI as 16 hexadecimal digits
//! ```

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use casemate_store::Key;

/// Names of the entries of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreKeys {
    prefix: Vec<u8>,
    /// Number of the slot.
    slot: u16,
}

impl StoreKeys {
    /// The only slot of a single machine, below a prefix.
    pub fn single(prefix: &[u8]) -> Self {
        Self { prefix: prefix.into(), slot: 0 }
    }

    fn key(&self, rest: &str) -> Key {
        [&*self.prefix, rest.as_bytes()].concat()
    }

    /// The owner of the slot.
    pub fn owner(&self) -> Key {
        self.key(&format!("slots/{:03x}", self.slot))
    }

    /// The number of owners of the slot so far.
    pub fn takeovers(&self) -> Key {
        self.key(&format!("takeovers/{:03x}", self.slot))
    }

    /// What the records of the slot begin with.
    pub fn records(&self) -> Key {
        self.key(&format!("sas/{:03x}/", self.slot))
    }

    /// The record of the IKE SA with this SPI of ours.
    pub fn record(&self, spi: u64) -> Key {
        let spi: String = format!("{spi:016x}");
        [self.records(), spi.into_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_design() {
        let keys = StoreKeys::single(b"/cell/");
        for (key, expected) in [
            (keys.owner(), "/cell/slots/000"),
            (keys.takeovers(), "/cell/takeovers/000"),
            (keys.record(0xab), "/cell/sas/000/00000000000000ab"),
        ] {
            assert_eq!(core::str::from_utf8(&key), Ok(expected));
        }
    }
}
