//! Sequence numbers that survive a restart, and the number spaces of outbound SAs.
//!
//! Keys from a file outlive the program, and a counter-mode cipher that uses an IV twice with one key reveals
//! plaintext and loses integrity (RFC 4106 section 2). IVs are made from sequence numbers. So a block of
//! numbers is written to a file, and synchronized to its disk, before the first of them is used. A crash
//! loses only the rest of the block: every used number is below the written one. `file` is the file, `store`
//! reserves blocks while packets flow.
//!
//! A counter-mode cipher must never use an IV twice with the same key and salt (RFC 3686 section 2.1, RFC
//! 4106 section 2), whatever else the SA has. So the [`NumberSpace`] of such an SA is that of its key and
//! salt: another integrity key, ICV length, SPI, address or mode changes nothing. An SA with random IVs has a
//! number space of its own, because of the anti-replay window of the peer.

mod file;
mod store;

use casemate_sa::{SaParams, Transform};
pub use file::{CounterFile, CountersError};
use sha2::{Digest, Sha256};
use std::net::IpAddr;
pub use store::{BLOCK, CounterStore, CounterStoreBuilder};

/// Length of a hash, in bytes.
const HASH_LEN: usize = 32;

/// Identifies a number space by a salted hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumberSpace {
    kind: SpaceKind,
    hash: [u8; HASH_LEN],
}

/// The last number of a number space: the last one that is reserved, or used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastNumber {
    /// The number space.
    pub space: NumberSpace,
    /// The number.
    pub number: u64,
}

/// What the hash covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum SpaceKind {
    /// Key and salt of a counter-mode cipher.
    Key,
    /// An SA with random IVs: algorithms, keys, SPI and addresses.
    Sa,
    /// A record of version 1: an SA with any algorithm, hashed as [`SpaceKind::Sa`]. Its key is unknown until
    /// an SA matches it.
    V1,
}

impl SpaceKind {
    const ALL: [Self; 3] = [Self::Key, Self::Sa, Self::V1];

    /// The word in the file.
    const fn word(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Sa => "sa",
            Self::V1 => "old",
        }
    }
}

impl NumberSpace {
    /// The number space of an outbound SA.
    fn of(sa: &SaParams, salt: &[u8]) -> Self {
        match sa.transform.counter_key() {
            Some(key) => Self { kind: SpaceKind::Key, hash: hash(&[salt, b"counter key", key.expose()]) },
            None => Self { kind: SpaceKind::Sa, ..Self::v1(sa, salt) },
        }
    }

    /// The record that version 1 of the file had for this SA.
    fn v1(sa: &SaParams, salt: &[u8]) -> Self {
        let spi = sa.spi.get().to_be_bytes();
        let (src, dst) = (octets(sa.src), octets(sa.dst));
        let hash = match &sa.transform {
            Transform::Esp { suite, encr, integ } => {
                let name = format!("esp {suite}");
                hash(&[salt, name.as_bytes(), encr.expose(), integ.expose(), &spi, &src, &dst])
            }
            Transform::Ah { suite, integ } => {
                let name = format!("ah {suite}");
                hash(&[salt, name.as_bytes(), integ.expose(), &spi, &src, &dst])
            }
        };
        Self { kind: SpaceKind::V1, hash }
    }
}

/// SHA-256 of the parts, each preceded by its length.
fn hash(parts: &[&[u8]]) -> [u8; HASH_LEN] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().into(),
        IpAddr::V6(addr) => addr.octets().into(),
    }
}

#[cfg(test)]
mod tests;
