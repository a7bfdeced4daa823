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
    Missing {
        /// Label of the expected block.
        expected: &'static str,
        /// Label of the first block, if it is a known one.
        found: Option<&'static str>,
    },
    /// There is more than one key.
    MultipleKeys,
}

impl fmt::Display for PemFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("malformed PEM: a block does not end, or is not base64"),
            Self::Missing { expected, found: Some(found) } => {
                write!(f, "the PEM block is a {found}: a {expected} was expected")
            }
            Self::Missing { expected, found: None } => {
                write!(f, "there is no PEM block (-----BEGIN ...): a {expected} was expected")
            }
            Self::MultipleKeys => f.write_str("several keys, expected one"),
        }
    }
}

impl core::error::Error for PemFault {}

/// Labels of blocks that people put in wrong places.
const LABELS: [&str; 11] = [
    "CERTIFICATE",
    "TRUSTED CERTIFICATE",
    "CERTIFICATE REQUEST",
    "X509 CRL",
    "PUBLIC KEY",
    "PRIVATE KEY",
    "RSA PRIVATE KEY",
    "EC PRIVATE KEY",
    "ENCRYPTED PRIVATE KEY",
    "OPENSSH PRIVATE KEY",
    "PKCS7",
];

/// Returns all certificates in order, in DER. There is at least one.
pub fn certificates(text: &[u8]) -> Result<Vec<Vec<u8>>, PemFault> {
    all("CERTIFICATE", text, CertificateDer::pem_slice_iter(text).map(|der| der.map(|der| der.to_vec())))
}

/// Returns the only public key, a SubjectPublicKeyInfo in DER.
pub fn public_key(text: &[u8]) -> Result<Vec<u8>, PemFault> {
    let mut keys = all(
        "PUBLIC KEY",
        text,
        SubjectPublicKeyInfoDer::pem_slice_iter(text).map(|der| der.map(|der| der.to_vec())),
    )?;
    match (keys.pop(), keys.is_empty()) {
        (Some(key), true) => Ok(key),
        _ => Err(PemFault::MultipleKeys),
    }
}

/// Returns all CRLs in order, in DER. There is at least one.
pub fn crls(text: &[u8]) -> Result<Vec<Vec<u8>>, PemFault> {
    all(
        "X509 CRL",
        text,
        CertificateRevocationListDer::pem_slice_iter(text).map(|der| der.map(|der| der.to_vec())),
    )
}

/// Returns the only private key, in the DER that [`casemate_crypto::PrivateKey`] parses. Encrypted keys are
/// not supported. The decoded key is wiped; the text is not, neither the caller's nor the decoder's copy.
pub fn private_key(text: &[u8]) -> Result<SecretBytes, PemFault> {
    let secret = |mut key: PrivateKeyDer<'static>| {
        let secret = SecretBytes::new(key.secret_der());
        key.zeroize();
        secret
    };
    let mut keys = all("PRIVATE KEY", text, PrivateKeyDer::pem_slice_iter(text).map(|key| key.map(secret)))?;
    match (keys.pop(), keys.is_empty()) {
        (Some(key), true) => Ok(key),
        _ => Err(PemFault::MultipleKeys),
    }
}

fn all<T>(
    expected: &'static str,
    text: &[u8],
    found: impl Iterator<Item = Result<T, pem::Error>>,
) -> Result<Vec<T>, PemFault> {
    let found: Vec<T> = found.collect::<Result<_, _>>().map_err(|_| PemFault::Malformed)?;
    if found.is_empty() { Err(PemFault::Missing { expected, found: first_label(text) }) } else { Ok(found) }
}

/// The known label of the first block.
fn first_label(text: &[u8]) -> Option<&'static str> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    let at = text.windows(BEGIN.len()).position(|window| window == BEGIN)?;
    let rest = text.get(at.saturating_add(BEGIN.len())..)?;
    let label = rest.get(..rest.iter().position(|byte| *byte == b'-')?)?;
    LABELS.into_iter().find(|known| known.as_bytes() == label)
}
