//! PEM (RFC 7468): certificates, CRLs and keys in files as OpenSSL and strongSwan have them. Text between the blocks is read over,
//! and so are blocks of other kinds.

use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use core::fmt;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, SubjectPublicKeyInfoDer,
};
use zeroize::Zeroize;

/// Why a file gives nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PemFault {
    /// A block that does not end, or that is not base64.
    Malformed,
    /// No block of the kind that was asked for.
    Missing,
    /// More than one key.
    Several,
}

impl fmt::Display for PemFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed PEM: a block does not end, or is not base64",
            Self::Missing => "no PEM block of the kind expected",
            Self::Several => "several keys, expected one",
        })
    }
}

impl core::error::Error for PemFault {}

/// All certificates in order, in DER. At least one.
pub fn certificates(text: &[u8]) -> Result<Vec<Vec<u8>>, PemFault> {
    all(CertificateDer::pem_slice_iter(text).map(|der| der.map(|der| der.to_vec())))
}

/// The one public key, a SubjectPublicKeyInfo in DER.
pub fn public_key(text: &[u8]) -> Result<Vec<u8>, PemFault> {
    let mut keys = all(SubjectPublicKeyInfoDer::pem_slice_iter(text).map(|der| der.map(|der| der.to_vec())))?;
    match (keys.pop(), keys.is_empty()) {
        (Some(key), true) => Ok(key),
        _ => Err(PemFault::Several),
    }
}

/// All CRLs in order, in DER. At least one.
pub fn crls(text: &[u8]) -> Result<Vec<Vec<u8>>, PemFault> {
    all(CertificateRevocationListDer::pem_slice_iter(text).map(|der| der.map(|der| der.to_vec())))
}

/// The one private key, in the DER that [`casemate_crypto::PrivateKey`] reads. An encrypted one is not found. The key is wiped; its text
/// is not, neither the caller's nor the decoder's copy.
pub fn private_key(text: &[u8]) -> Result<SecretBytes, PemFault> {
    let secret = |mut key: PrivateKeyDer<'static>| {
        let secret = SecretBytes::new(key.secret_der());
        key.zeroize();
        secret
    };
    let mut keys = all(PrivateKeyDer::pem_slice_iter(text).map(|key| key.map(secret)))?;
    match (keys.pop(), keys.is_empty()) {
        (Some(key), true) => Ok(key),
        _ => Err(PemFault::Several),
    }
}

fn all<T>(found: impl Iterator<Item = Result<T, pem::Error>>) -> Result<Vec<T>, PemFault> {
    let found: Vec<T> = found.collect::<Result<_, _>>().map_err(|_| PemFault::Malformed)?;
    if found.is_empty() { Err(PemFault::Missing) } else { Ok(found) }
}
