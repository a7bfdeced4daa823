//! Interface to the caller of a conversation.

use crate::{EapFault, Method};
use alloc::vec::Vec;
use casemate_crypto::{PasswordAlgorithms, Providers, Rng, SecretBytes};

/// What the caller provides for each step of a conversation.
pub struct EapContext<'c> {
    /// Random generator.
    pub rng: &'c mut dyn Rng,
    /// Cryptographic algorithms.
    pub providers: &'c Providers<'c>,
    /// Passwords, and the algorithms that only methods with passwords need.
    pub credentials: &'c dyn EapCredentials,
}

/// Secrets of EAP identities. Calls keep no state.
pub trait EapCredentials {
    /// Algorithms of MSCHAPv2 and MD5-Challenge; `None` on hosts that do not have them. These methods then
    /// fail with [`EapFault::Unsupported`](crate::EapFault::Unsupported).
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms>;

    /// Password of an EAP identity: our own as the peer, the other side's as the authenticator.
    fn password(&self, identity: &[u8]) -> Option<&SecretBytes>;
}

/// No password and no algorithm: for hosts that do not use EAP.
#[derive(Debug, Clone, Copy)]
pub struct NoCredentials;

impl EapCredentials for NoCredentials {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        None
    }

    fn password(&self, _identity: &[u8]) -> Option<&SecretBytes> {
        None
    }
}

/// Result of a successful conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// Method that authenticated the peer.
    pub method: Method,
    /// EAP identity of the peer.
    pub identity: Vec<u8>,
    /// Master session key, at least 64 bytes (RFC 3748 section 7.10); `None` if the method derives no keys.
    pub msk: Option<SecretBytes>,
}

/// Minimum length of a master session key in bytes (RFC 3748 section 7.10).
const MIN_MSK: usize = 64;

impl Authenticated {
    /// Returns the result of a method. Fails closed if a method that derives keys has none.
    pub(crate) fn new(method: Method, identity: Vec<u8>, msk: Option<SecretBytes>) -> Result<Self, EapFault> {
        let has_key = msk.as_ref().is_some_and(|msk| msk.len() >= MIN_MSK);
        if has_key == method.derives_keys() {
            Ok(Self { method, identity, msk })
        } else {
            Err(EapFault::MissingKey)
        }
    }
}
