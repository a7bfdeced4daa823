//! Certificate and private key of this host.

use crate::certificate::Cert;
use crate::general_name::is_named;
use crate::{CertFault, PeerName};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{KeyLimits, KeyParseError, PublicKey, SigningKey};
use core::fmt;

/// Our certificate, the CA certificates that are sent with it, and the private key.
pub struct LocalCert {
    chain: Vec<Vec<u8>>,
    key: Box<dyn SigningKey>,
}

/// Reason why certificate and key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalCertFault {
    /// A certificate is malformed or missing.
    Certificate(CertFault),
    /// The key of the certificate cannot be used.
    Key(KeyParseError),
    /// The private key does not belong to the certificate.
    KeyMismatch,
}

impl fmt::Display for LocalCertFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(why) => write!(f, "{why}"),
            Self::Key(why) => write!(f, "key of the certificate: {why}"),
            Self::KeyMismatch => f.write_str("the private key is not that of the certificate"),
        }
    }
}

impl core::error::Error for LocalCertFault {}

impl LocalCert {
    /// `chain` has our certificate first, then the CA certificates to send, all in DER. Does not check
    /// whether a peer can verify them.
    pub fn new(chain: &[&[u8]], key: Box<dyn SigningKey>, limits: KeyLimits) -> Result<Self, LocalCertFault> {
        let parsed: Result<Vec<_>, _> = chain.iter().map(|der| Cert::parse(der)).collect();
        let parsed = parsed.map_err(|_| LocalCertFault::Certificate(CertFault::Malformed))?;
        let own = parsed.first().ok_or(LocalCertFault::Certificate(CertFault::Empty))?;
        let of_cert = PublicKey::from_spki(own.spki, limits).map_err(LocalCertFault::Key)?;
        if of_cert != *key.public_key() {
            return Err(LocalCertFault::KeyMismatch);
        }
        Ok(Self { chain: chain.iter().map(|der| der.to_vec()).collect(), key })
    }

    /// Certificates to send in DER, ours first (RFC 7296 section 3.6).
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.chain.iter().map(Vec::as_slice)
    }

    /// The private key.
    pub fn key(&self) -> &dyn SigningKey {
        &*self.key
    }

    /// Whether our certificate has this name.
    pub fn has_name(&self, name: &PeerName<'_>) -> bool {
        self.own().is_some_and(|cert| is_named(&cert, name))
    }

    /// Subject of our certificate, a Name in DER: our ID_DER_ASN1_DN.
    pub fn subject(&self) -> &[u8] {
        self.own().map(|cert| cert.subject).unwrap_or_default()
    }

    fn own(&self) -> Option<Cert<'_>> {
        self.chain.first().and_then(|der| Cert::parse(der).ok())
    }
}

impl fmt::Debug for LocalCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalCert({} certificates, {} key)", self.chain.len(), self.key.public_key().kind())
    }
}
