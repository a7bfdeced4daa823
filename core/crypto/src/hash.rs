//! Hash functions (IANA "IKEv2 Hash Algorithms", RFC 7427 section 7).

use core::fmt;
use zeroize::Zeroize;

/// Longest digest of any hash, in bytes.
const MAX_DIGEST: usize = 64;

/// A hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashAlg {
    /// SHA-1. RFC 8247 section 3.2: MUST NOT be used for signatures. IKE needs it for NAT detection and for
    /// the CA identifiers in CERTREQ.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl HashAlg {
    /// All hash functions, in the order of their IANA ids.
    pub const ALL: [Self; 4] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512];

    /// IANA id, as in the SIGNATURE_HASH_ALGORITHMS notification.
    pub const fn id(self) -> u16 {
        match self {
            Self::Sha1 => 1,
            Self::Sha256 => 2,
            Self::Sha384 => 3,
            Self::Sha512 => 4,
        }
    }

    /// Returns the hash function with this IANA id.
    pub fn from_id(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.id() == id)
    }

    /// Length of a digest, in bytes.
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => MAX_DIGEST,
        }
    }
}

impl fmt::Display for HashAlg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
        })
    }
}

/// A digest. It is not wiped on drop, as most digests are of public data; others belong in `Zeroizing`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    bytes: [u8; MAX_DIGEST],
    alg: HashAlg,
}

impl Digest {
    /// For providers: creates a digest of `alg`. `write` fills a buffer of the digest length and returns
    /// whether it succeeded. Returns `None` if `write` fails.
    pub fn of(alg: HashAlg, write: impl FnOnce(&mut [u8]) -> bool) -> Option<Self> {
        let mut bytes = [0; MAX_DIGEST];
        let written = bytes.get_mut(..alg.digest_len()).is_some_and(write);
        written.then_some(Self { bytes, alg })
    }

    /// Bytes of the digest.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.alg.digest_len()).unwrap_or_default()
    }
}

impl Zeroize for Digest {
    fn zeroize(&mut self) {
        self.bytes.zeroize();
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:02x?})", self.alg, self.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn from_id_inverts_id() {
        let found: Vec<_> = (0..100).filter_map(HashAlg::from_id).collect();
        assert_eq!(found, HashAlg::ALL);
    }
}
