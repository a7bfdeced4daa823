//! The values of one key exchange (RFC 7296 section 1.2), and why it fails.
//!
//! A private value is used for one exchange only: [`KexSecret::agree`] consumes it. The provider does all
//! checks of the peer's public value that the RFCs and FIPS 203 require (RFC 6989 section 2, RFC 8031 section
//! 3.2, FIPS 203 sections 7.2 and 7.3).

use crate::{KeyError, SecretBytes};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// Local private and public value of one key exchange. The private value is wiped on drop.
pub trait KexSecret: Send {
    /// Local public value, as in the KE payload. ML-KEM: the encapsulation key.
    fn public(&self) -> &[u8];

    /// Checks the public value of the responder and computes the shared secret. In a Diffie-Hellman group,
    /// the two sides are equal, and the peer may also be the initiator.
    ///
    /// For a ciphertext of ML-KEM that does not belong to the key, the secret is a pseudorandom one that the
    /// peer does not know (FIPS 203 section 6.3: implicit rejection), not an error: authentication fails.
    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError>;
}

/// Result of a key exchange for the responder.
#[derive(Debug)]
pub struct KexResponse {
    /// Public value of the responder, as in the KE payload. ML-KEM: the ciphertext.
    pub public: Vec<u8>,
    /// The shared secret.
    pub shared: SecretBytes,
}

impl KexResponse {
    /// The response in a Diffie-Hellman group, in which both sides do the same. `peer` is the public value of
    /// the initiator.
    pub fn with_secret(own: Box<dyn KexSecret>, peer: &[u8]) -> Result<Self, KexError> {
        let public = own.public().to_vec();
        Ok(Self { public, shared: own.agree(peer)? })
    }
}

/// Why a key exchange yields no shared secret. The peer causes all errors but [`Key`](Self::Key) and
/// [`Failed`](Self::Failed).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KexError {
    /// The length of the public value is not that of the method (RFC 7296 section 3.4, FIPS 203 sections 7.2
    /// and 7.3).
    Length {
        /// Length of the public value that the method requires of this side, in bytes.
        expected: usize,
        /// Length of the peer's public value, in bytes.
        given: usize,
    },
    /// The coordinates are not a point on the curve (RFC 6989 section 2.3).
    NotOnCurve,
    /// The public value y of a MODP group violates 1 < y < p - 1 (RFC 6989 section 2.1).
    OutOfRange,
    /// The public value has a low order: the shared secret would be zero for every private value (RFC 7748
    /// section 6).
    AllZero,
    /// A coefficient of the encapsulation key of ML-KEM is not below 3329 (FIPS 203 section 7.2: modulus
    /// check).
    NotReduced,
    /// The provider has no local value: it does not support the method, or the random source is broken.
    Key(KeyError),
    /// The provider failed to compute the secret.
    Failed,
}

impl From<KeyError> for KexError {
    fn from(why: KeyError) -> Self {
        Self::Key(why)
    }
}

impl fmt::Display for KexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { expected, given } => {
                write!(f, "public value of {given} bytes, expected {expected}")
            }
            Self::NotOnCurve => f.write_str("public value is not a point on the curve"),
            Self::OutOfRange => f.write_str("public value is not between 1 and p - 1"),
            Self::AllZero => f.write_str("public value of low order: the shared secret would be zero"),
            Self::NotReduced => f.write_str("encapsulation key has a coefficient above 3328"),
            Self::Key(why) => why.fmt(f),
            Self::Failed => f.write_str("the provider failed to compute the shared secret"),
        }
    }
}

impl core::error::Error for KexError {}
