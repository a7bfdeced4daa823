//! Our own certificate, and the key that belongs to it.

use crate::certificate::Cert;
use crate::identity::is_named;
use crate::{CertFault, PeerName};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{KeyFault, KeyLimits, PublicKey, SigningKey};
use core::fmt;

/// Our certificate, the CAs that are sent with it, and its private key.
pub struct LocalCert {
    chain: Vec<Vec<u8>>,
    key: Box<dyn SigningKey>,
}

/// Why certificate and key do not make a [`LocalCert`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalFault {
    /// A certificate is malformed, or there is none.
    Certificate(CertFault),
    /// The key of the certificate is not one that is taken here.
    Key(KeyFault),
    /// The private key is not that of the certificate.
    OtherKey,
}

impl fmt::Display for LocalFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(why) => write!(f, "{why}"),
            Self::Key(why) => write!(f, "key of the certificate: {why}"),
            Self::OtherKey => f.write_str("the private key is not that of the certificate"),
        }
    }
}

impl core::error::Error for LocalFault {}

impl LocalCert {
    /// `chain` has our certificate first, then the CAs to be sent with it, all in DER. Whether a peer can verify them is not looked at.
    pub fn new(chain: &[&[u8]], key: Box<dyn SigningKey>, limits: KeyLimits) -> Result<Self, LocalFault> {
        let parsed: Result<Vec<_>, _> = chain.iter().map(|der| Cert::parse(der)).collect();
        let parsed = parsed.map_err(|_| LocalFault::Certificate(CertFault::Malformed))?;
        let own = parsed.first().ok_or(LocalFault::Certificate(CertFault::Empty))?;
        let of_cert = PublicKey::from_spki(own.spki, limits).map_err(LocalFault::Key)?;
        if of_cert != *key.public_key() {
            return Err(LocalFault::OtherKey);
        }
        Ok(Self { chain: chain.iter().map(|der| der.to_vec()).collect(), key })
    }

    /// The certificates to be sent, in DER: ours first (RFC 7296 section 3.6).
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.chain.iter().map(Vec::as_slice)
    }

    /// The private key.
    pub fn key(&self) -> &dyn SigningKey {
        &*self.key
    }

    /// Whether our certificate bears this name.
    pub fn is_named(&self, name: &PeerName<'_>) -> bool {
        self.own().is_some_and(|cert| is_named(&cert, name))
    }

    /// The subject of our certificate, a Name in DER: our ID_DER_ASN1_DN.
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
