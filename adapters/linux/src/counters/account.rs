//! Which number space an outbound SA counts in.
//!
//! A counter-mode cipher must never use an IV twice with one key and salt (RFC 3686 section 2.1, RFC 4106
//! section 2), whatever the rest of the SA is. So such an SA counts in the number space of its key and salt:
//! another integrity key, ICV length, SPI, address or mode changes nothing. An SA whose IVs are random has a
//! number space of its own, for the peer's anti-replay window.

use casemate_sa::{SaParams, Transform};
use sha2::{Digest, Sha256};
use std::net::IpAddr;

/// Length of a hash, in bytes.
pub(super) const HASH_LEN: usize = 32;

/// Names a number space by a salted hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    pub(super) kind: Kind,
    pub(super) hash: [u8; HASH_LEN],
}

/// What the hash covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// Key and salt of a counter-mode cipher.
    Key,
    /// An SA with random IVs: algorithms, keys, SPI and addresses.
    Sa,
    /// A record of version 1: an SA of any algorithm, hashed as [`Kind::Sa`]. Its key is unknown until an SA
    /// matches it.
    Old,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Key, Self::Sa, Self::Old];

    /// The word in the file.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Sa => "sa",
            Self::Old => "old",
        }
    }
}

impl Account {
    /// The number space of an outbound SA.
    pub(super) fn of(sa: &SaParams, salt: &[u8]) -> Self {
        match sa.transform.counter_key() {
            Some(key) => Self { kind: Kind::Key, hash: hash(&[salt, b"counter key", key.expose()]) },
            None => Self { kind: Kind::Sa, ..Self::old(sa, salt) },
        }
    }

    /// The record that version 1 of the file kept for this SA.
    pub(super) fn old(sa: &SaParams, salt: &[u8]) -> Self {
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
        Self { kind: Kind::Old, hash }
    }
}

/// SHA-256 of the parts, each behind its length.
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
