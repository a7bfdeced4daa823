//! TLS sessions for the EAP methods of casemate-eap, on rustls.
//!
//! rustls runs the protocol with the algorithms of ring (decision 0102). Everything that decides about trust
//! comes from the caller: a [`CertificateVerifier`] accepts or refuses the certificates of the other side,
//! and a [`SigningKey`] of the product signs. TLS 1.2 and 1.3, without resumption, tickets, early data,
//! compression and SNI.
#![forbid(unsafe_code)]

mod session;
mod signature;
#[cfg(test)]
mod tests;
mod verifier;

pub use session::{client, server};

use casemate_crypto::SigningKey;
use casemate_eap::EapFault;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use signature::TlsKey;
use std::sync::Arc;

/// Certificates of this host, and the private key of the first one.
pub struct OwnCertificate {
    /// X.509 certificates in DER: that of the key, then those of the CAs above it.
    pub chain: Vec<Vec<u8>>,
    /// Private key.
    pub key: Arc<dyn SigningKey>,
}

impl OwnCertificate {
    fn into_resolver(self) -> Result<Arc<SingleCertAndKey>, EapFault> {
        if self.chain.is_empty() {
            return Err(EapFault::NoCertificate);
        }
        let chain = self.chain.into_iter().map(CertificateDer::from).collect();
        let key = Arc::new(TlsKey(self.key));
        Ok(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))))
    }
}

/// The certificate is not accepted. The verifier keeps the reason; the other side only learns that its
/// certificate was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAccepted;

/// Decides whether the other side of a session is the right one.
pub trait CertificateVerifier: Send + Sync {
    /// Verifies X.509 certificates in DER, that of the other side first: the chain up to a trusted CA,
    /// validity periods, revocation, and that it names the expected identity. `unix_time` is in seconds since
    /// 1970. The signature in the handshake is verified by the session.
    fn verify(&self, chain: &[&[u8]], unix_time: u64) -> Result<(), NotAccepted>;

    /// Subjects of the trusted CAs in DER, by which a client selects its certificate.
    fn authorities(&self) -> Vec<Vec<u8>>;
}

/// The algorithms of every session.
fn algorithms() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
