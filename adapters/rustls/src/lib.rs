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
use casemate_eap::{CertificateStatus, EapFault};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use signature::TlsKey;
use std::sync::Arc;

/// Certificates of this host, and the private key of the first one.
pub struct OwnCertificate {
    /// X.509 certificates in DER: that of the key, then those of the CAs above it.
    pub chain: Vec<Vec<u8>>,
    /// OCSP response for the first certificate in DER, which a server sends to clients that request it (RFC
    /// 6066 section 8).
    pub ocsp_response: Option<Vec<u8>>,
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
        let mut certified = CertifiedKey::new(chain, key);
        certified.ocsp = self.ocsp_response;
        Ok(Arc::new(SingleCertAndKey::from(certified)))
    }
}

/// The certificate is not accepted. The verifier keeps the reason; the other side only learns that its
/// certificate was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAccepted;

/// What the other side has sent in the handshake.
#[derive(Debug, Clone, Copy)]
pub struct ShownCertificates<'m> {
    /// X.509 certificates in DER, that of the other side first.
    pub chain: &'m [&'m [u8]],
    /// OCSP response for the first certificate (RFC 6066 section 8), if a server has sent one.
    pub ocsp_response: Option<&'m [u8]>,
    /// Seconds since 1970.
    pub unix_time: u64,
}

/// Decides whether the other side of one session is the right one.
pub trait CertificateVerifier: Send + Sync {
    /// Verifies certificates: the chain up to a trusted CA, validity periods, CRLs that are at hand, and that
    /// it names the expected identity. The signature in the handshake is verified by the session.
    fn verify(&self, shown: &ShownCertificates<'_>) -> Result<(), NotAccepted>;

    /// Status of the certificates that [`verify`](Self::verify) has accepted, as
    /// [`TlsSession::certificate_status`](casemate_eap::TlsSession::certificate_status). The default is for
    /// verifiers that look nothing up.
    fn status(&self) -> CertificateStatus {
        CertificateStatus::Accepted
    }

    /// Subjects of the trusted CAs in DER, by which a client selects its certificate.
    fn authorities(&self) -> Vec<Vec<u8>>;
}

/// The algorithms of every session.
fn algorithms() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
