//! PEM files (RFC 7468) with certificates, CRLs and keys, as OpenSSL and strongSwan write them. Text between
//! the blocks and blocks of other kinds are skipped.

use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use core::fmt;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, SubjectPublicKeyInfoDer,
};
use zeroize::Zeroize;

/// Reason why a file cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PemFault {
    /// A block is not terminated, or is not base64.
    Malformed,
    /// There is no block of the expected kind.
    Missing,
    /// There is more than one key.
    MultipleKeys,
}

impl fmt::Display for PemFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed PEM: a block does not end, or is not base64",
            Self::Missing => "no PEM block of the kind expected",
            Self::MultipleKeys => "several keys, expected one",
        })
    }
}

impl core::error::Error for PemFault {}

/// Returns all certificates in order, in DER. There is at least one.
pub fn certificates(text: &[u8]) -> Result<Vec<Vec<u8>>, PemFault> {
    all(CertificateDer::pem_slice_iter(text).map(|der| der.map(|der| der.to_vec())))
}

/// Returns the only public key, a SubjectPublicKeyInfo in DER.
pub fn public_key(text: &[u8]) -> Result<Vec<u8>, PemFault> {
    let mut keys = all(SubjectPublicKeyInfoDer::pem_slice_iter(text).map(|der| der.map(|der| der.to_vec())))?;
    match (keys.pop(), keys.is_empty()) {
        (Some(key), true) => Ok(key),
        _ => Err(PemFault::MultipleKeys),
    }
}

/// Returns all CRLs in order, in DER. There is at least one.
pub fn crls(text: &[u8]) -> Result<Vec<Vec<u8>>, PemFault> {
    all(CertificateRevocationListDer::pem_slice_iter(text).map(|der| der.map(|der| der.to_vec())))
}

/// Returns the only private key, in the DER that [`casemate_crypto::PrivateKey`] parses. Encrypted keys are
/// not supported. The decoded key is wiped; the text is not, neither the caller's nor the decoder's copy.
pub fn private_key(text: &[u8]) -> Result<SecretBytes, PemFault> {
    let secret = |mut key: PrivateKeyDer<'static>| {
        let secret = SecretBytes::new(key.secret_der());
        key.zeroize();
        secret
    };
    let mut keys = all(PrivateKeyDer::pem_slice_iter(text).map(|key| key.map(secret)))?;
    match (keys.pop(), keys.is_empty()) {
        (Some(key), true) => Ok(key),
        _ => Err(PemFault::MultipleKeys),
    }
}

fn all<T>(found: impl Iterator<Item = Result<T, pem::Error>>) -> Result<Vec<T>, PemFault> {
    let found: Vec<T> = found.collect::<Result<_, _>>().map_err(|_| PemFault::Malformed)?;
    if found.is_empty() { Err(PemFault::Missing) } else { Ok(found) }
}
