//! The AlgorithmIdentifier of a signature, in DER, as it stands in the AUTH payload (RFC 7427 section 3) and in certificates.
//!
//! Written is the one form that DER allows. Read is also what the RFCs ask recipients to take: absent parameters where NULL is
//! meant (RFC 4055 sections 2.1 and 5), and values of RSASSA-PSS that are written out though they are the default (RFC 7427
//! appendix A.4).

use crate::der::{Malformed, NULL, OID, Reader, SEQUENCE};
use crate::{HashAlg, SignatureAlg};
use core::fmt;

/// Why an AlgorithmIdentifier is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentifierError {
    /// Not the DER of an AlgorithmIdentifier, or one with parameters that its algorithm does not have.
    Malformed,
    /// Another signature algorithm.
    UnknownAlgorithm,
    /// RSASSA-PSS with another hash function.
    UnknownHash,
    /// RSASSA-PSS with a mask generation that is not MGF1, or that has another hash function than the signature.
    Mask,
    /// RSASSA-PSS with a salt that is not as long as the digest.
    SaltLength,
    /// RSASSA-PSS with a trailer field other than 1 (RFC 4055 section 3.1).
    Trailer,
}

impl fmt::Display for IdentifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed signature algorithm",
            Self::UnknownAlgorithm => "unknown signature algorithm",
            Self::UnknownHash => "RSASSA-PSS with an unknown hash function",
            Self::Mask => "RSASSA-PSS, expected MGF1 with the hash function of the signature",
            Self::SaltLength => "RSASSA-PSS, expected a salt as long as the digest",
            Self::Trailer => "RSASSA-PSS, expected trailer field 1",
        })
    }
}

impl core::error::Error for IdentifierError {}

impl From<Malformed> for IdentifierError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// id-RSASSA-PSS (RFC 4055 section 3.1), as an OBJECT IDENTIFIER's content.
const PSS: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 10];
/// id-mgf1 (RFC 4055 section 2.2), as content.
const MGF1: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 8];

/// RFC 7427 appendix A.1: parameters NULL.
const PKCS1_SHA1: [u8; 15] = pkcs1(5);
const PKCS1_SHA256: [u8; 15] = pkcs1(11);
const PKCS1_SHA384: [u8; 15] = pkcs1(12);
const PKCS1_SHA512: [u8; 15] = pkcs1(13);

/// RFC 7427 appendix A.3: parameters absent.
const ECDSA_SHA1: [u8; 11] = [0x30, 9, 6, 7, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 1];
const ECDSA_SHA256: [u8; 12] = ecdsa(2);
const ECDSA_SHA384: [u8; 12] = ecdsa(3);
const ECDSA_SHA512: [u8; 12] = ecdsa(4);

/// RFC 8420 appendix A: parameters absent.
const ED25519: [u8; 7] = [0x30, 5, 6, 3, 0x2B, 0x65, 0x70];

/// RFC 7427 appendix A.4.1. The defaults are SHA-1, and X.690 section 11.5 leaves them out.
const PSS_SHA1: [u8; 15] = [0x30, 13, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 10, 0x30, 0];
/// RFC 7427 appendix A.4.3, without the trailer field, which is the default.
const PSS_SHA256: [u8; 67] = pss(1, 32);
const PSS_SHA384: [u8; 67] = pss(2, 48);
const PSS_SHA512: [u8; 67] = pss(3, 64);

const fn pkcs1(last: u8) -> [u8; 15] {
    [0x30, 13, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, last, 5, 0]
}

const fn ecdsa(last: u8) -> [u8; 12] {
    [0x30, 10, 6, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, last]
}

#[rustfmt::skip]
const fn pss(hash: u8, salt: u8) -> [u8; 67] {
    [
        0x30, 65, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 10, 0x30, 52,
        0xA0, 15, 0x30, 13, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, hash, 5, 0,
        0xA1, 28, 0x30, 26, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 8,
                  0x30, 13, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, hash, 5, 0,
        0xA2, 3, 2, 1, salt,
    ]
}

impl SignatureAlg {
    /// Its AlgorithmIdentifier in DER.
    pub const fn identifier(self) -> &'static [u8] {
        match self {
            Self::RsaPkcs1(HashAlg::Sha1) => &PKCS1_SHA1,
            Self::RsaPkcs1(HashAlg::Sha256) => &PKCS1_SHA256,
            Self::RsaPkcs1(HashAlg::Sha384) => &PKCS1_SHA384,
            Self::RsaPkcs1(HashAlg::Sha512) => &PKCS1_SHA512,
            Self::RsaPss(HashAlg::Sha1) => &PSS_SHA1,
            Self::RsaPss(HashAlg::Sha256) => &PSS_SHA256,
            Self::RsaPss(HashAlg::Sha384) => &PSS_SHA384,
            Self::RsaPss(HashAlg::Sha512) => &PSS_SHA512,
            Self::Ecdsa(HashAlg::Sha1) => &ECDSA_SHA1,
            Self::Ecdsa(HashAlg::Sha256) => &ECDSA_SHA256,
            Self::Ecdsa(HashAlg::Sha384) => &ECDSA_SHA384,
            Self::Ecdsa(HashAlg::Sha512) => &ECDSA_SHA512,
            Self::Ed25519 => &ED25519,
        }
    }

    /// Reads an AlgorithmIdentifier in DER, with nothing behind it.
    pub fn from_identifier(identifier: &[u8]) -> Result<Self, IdentifierError> {
        let mut reader = Reader::only(SEQUENCE, identifier)?;
        let oid = reader.read(OID)?;
        if oid == PSS {
            let parameters = reader.enter(SEQUENCE)?;
            reader.finish()?;
            return pss_parameters(parameters).map(Self::RsaPss);
        }
        let named = |alg: &Self| content_of_oid(alg.identifier()) == Some(oid);
        let alg = Self::ALL.into_iter().find(named).ok_or(IdentifierError::UnknownAlgorithm)?;
        match alg {
            // RFC 4055 section 5: the parameters are NULL, and their absence is accepted.
            Self::RsaPkcs1(_) => null_or_absent(reader)?,
            // RFC 5758 section 3.2, RFC 8410 section 3: the parameters are absent.
            _ => reader.finish()?,
        }
        Ok(alg)
    }
}

fn content_of_oid(identifier: &[u8]) -> Option<&[u8]> {
    Reader::only(SEQUENCE, identifier).ok()?.read(OID).ok()
}

fn null_or_absent(mut reader: Reader<'_>) -> Result<(), Malformed> {
    match reader.read_if(NULL)? {
        None | Some([]) => reader.finish(),
        Some(_) => Err(Malformed),
    }
}

/// RSASSA-PSS-params (RFC 4055 section 3.1).
fn pss_parameters(mut reader: Reader<'_>) -> Result<HashAlg, IdentifierError> {
    let hash = match reader.read_if(explicit(0))? {
        None => HashAlg::Sha1,
        Some(given) => hash(given)?,
    };
    let mask = match reader.read_if(explicit(1))? {
        None => HashAlg::Sha1,
        Some(given) => mask_hash(given)?,
    };
    let salt = reader.read_if(explicit(2))?.map(number).transpose()?;
    let trailer = reader.read_if(explicit(3))?.map(number).transpose()?;
    reader.finish()?;
    if mask != hash {
        return Err(IdentifierError::Mask);
    }
    if salt.unwrap_or(Some(20)) != u8::try_from(hash.digest_len()).ok() {
        return Err(IdentifierError::SaltLength);
    }
    if trailer.unwrap_or(Some(1)) != Some(1) {
        return Err(IdentifierError::Trailer);
    }
    Ok(hash)
}

const fn explicit(number: u8) -> u8 {
    0xA0 | number
}

/// The hash function of an AlgorithmIdentifier (RFC 4055 section 2.1).
fn hash(identifier: &[u8]) -> Result<HashAlg, IdentifierError> {
    let mut reader = Reader::only(SEQUENCE, identifier)?;
    let hash = match reader.read(OID)? {
        [0x2B, 14, 3, 2, 26] => HashAlg::Sha1,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1] => HashAlg::Sha256,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2] => HashAlg::Sha384,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3] => HashAlg::Sha512,
        _ => return Err(IdentifierError::UnknownHash),
    };
    null_or_absent(reader)?;
    Ok(hash)
}

/// The hash function of MGF1, whose identifier is its parameter (RFC 4055 section 2.2).
fn mask_hash(identifier: &[u8]) -> Result<HashAlg, IdentifierError> {
    let mut reader = Reader::only(SEQUENCE, identifier)?;
    if reader.read(OID)? != MGF1 {
        return Err(IdentifierError::Mask);
    }
    // CVE-2018-6459: MGF1 without its parameter.
    let parameters = reader.rest();
    hash(parameters)
}

/// An INTEGER; `None` if it is larger than any number here may be. A negative one is malformed (CVE-2021-41991).
fn number(value: &[u8]) -> Result<Option<u8>, Malformed> {
    let mut reader = Reader::new(value);
    let digits = reader.unsigned()?;
    reader.finish()?;
    Ok(match digits {
        [] => Some(0),
        [digit] => Some(*digit),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
