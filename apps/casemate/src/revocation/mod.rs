//! Revocation: whether the certificates of authenticated peers are still valid for their issuers.
//!
//! [`checker`] decides on the certificates of one peer by CRL files, by OCSP responses that the peer has sent,
//! and by the [`cache`]. What is missing, the threads of [`service`] look up at the URIs of the configuration
//! and of the certificates (`lookup`, `http`); [`RevocationLink`] leads to them. No URI is followed before the
//! peer has proved that it has the private key.

mod cache;
mod checker;
mod http;
mod lookup;
mod service;
mod uri;

pub(crate) use checker::{Authorities, AuthorityUris, PathCheck, PathVerdict};
pub(crate) use service::{RevocationLink, RevocationReport};
pub use uri::HttpUri;

use casemate_crypto::{HashAlg, Providers};
use casemate_pki::IssuedCert;
use std::time::{SystemTime, UNIX_EPOCH};

/// A certificate with its issuer, by hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CertKey([u8; 32]);

impl CertKey {
    /// `None` if no provider has SHA-256.
    fn of(issued: IssuedCert<'_>, providers: &Providers<'_>) -> Option<Self> {
        let digest = providers.hash(HashAlg::Sha256, &[issued.issuer, issued.cert])?;
        digest.as_slice().try_into().ok().map(Self)
    }
}

/// Seconds since 1970; 0 before.
fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Name of a certificate for messages: its subject.
fn name_of(cert: &[u8]) -> String {
    let subject = casemate_pki::subject(cert).and_then(casemate_pki::dn_to_text);
    subject.unwrap_or_else(|| "a certificate whose subject is no plain text".into())
}
