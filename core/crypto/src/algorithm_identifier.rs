//! AlgorithmIdentifier of a signature in DER, as in the AUTH payload (RFC 7427 section 3) and in
//! certificates.
//!
//! The encoder writes the only form that DER allows. The parser also accepts what the RFCs require of
//! recipients: absent parameters in place of NULL (RFC 4055 sections 2.1 and 5), and explicit RSASSA-PSS
//! values that equal the defaults (RFC 7427 appendix A.4).

use crate::der::{Malformed, NULL, OID, Reader, SEQUENCE};
use crate::{HashAlg, SignatureAlg};
use core::fmt;

/// Why an AlgorithmIdentifier is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlgorithmIdentifierError {
    /// Not an AlgorithmIdentifier in DER, or parameters that the algorithm does not have.
    Malformed,
    /// A signature algorithm that is not supported.
    UnknownAlgorithm,
    /// RSASSA-PSS with a hash function that is not supported.
    UnknownHash,
    /// RSASSA-PSS with a mask generation function other than MGF1, or MGF1 with a different hash function
    /// than the signature.
    Mask,
    /// RSASSA-PSS with a salt length that differs from the digest length.
    SaltLength,
    /// RSASSA-PSS with a trailer field other than 1 (RFC 4055 section 3.1).
    Trailer,
}

impl fmt::Display for AlgorithmIdentifierError {
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

impl core::error::Error for AlgorithmIdentifierError {}

impl From<Malformed> for AlgorithmIdentifierError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// id-RSASSA-PSS (RFC 4055 section 3.1), the content of the OBJECT IDENTIFIER.
const PSS: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 10];
/// id-mgf1 (RFC 4055 section 2.2), the content of the OBJECT IDENTIFIER.
const MGF1: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 8];

/// RFC 7427 appendix A.1: the parameters are NULL.
const PKCS1_SHA1: [u8; 15] = pkcs1(5);
const PKCS1_SHA256: [u8; 15] = pkcs1(11);
const PKCS1_SHA384: [u8; 15] = pkcs1(12);
const PKCS1_SHA512: [u8; 15] = pkcs1(13);

/// RFC 7427 appendix A.3: the parameters are absent.
const ECDSA_SHA1: [u8; 11] = [0x30, 9, 6, 7, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 1];
const ECDSA_SHA256: [u8; 12] = ecdsa(2);
const ECDSA_SHA384: [u8; 12] = ecdsa(3);
const ECDSA_SHA512: [u8; 12] = ecdsa(4);

/// RFC 8420 appendix A: the parameters are absent.
const ED25519: [u8; 7] = [0x30, 5, 6, 3, 0x2B, 0x65, 0x70];

/// RFC 7427 appendix A.4.1. The defaults are SHA-1, and DER omits defaults (X.690 section 11.5).
const PSS_SHA1: [u8; 15] = [0x30, 13, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 10, 0x30, 0];
/// RFC 7427 appendix A.4.3, without the trailer field, which has its default value.
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
    /// AlgorithmIdentifier of this algorithm, in DER.
    pub const fn algorithm_identifier(self) -> &'static [u8] {
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

    /// Parses an AlgorithmIdentifier in DER without trailing bytes.
    pub fn from_algorithm_identifier(identifier: &[u8]) -> Result<Self, AlgorithmIdentifierError> {
        let mut reader = Reader::only(SEQUENCE, identifier)?;
        let oid = reader.read(OID)?;
        if oid == PSS {
            let parameters = reader.read_nested(SEQUENCE)?;
            reader.finish()?;
            return pss_parameters(parameters).map(Self::RsaPss);
        }
        let named = |alg: &Self| content_of_oid(alg.algorithm_identifier()) == Some(oid);
        let alg = Self::ALL.into_iter().find(named).ok_or(AlgorithmIdentifierError::UnknownAlgorithm)?;
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
    match reader.read_optional(NULL)? {
        None | Some([]) => reader.finish(),
        Some(_) => Err(Malformed),
    }
}

/// RSASSA-PSS-params (RFC 4055 section 3.1).
fn pss_parameters(mut reader: Reader<'_>) -> Result<HashAlg, AlgorithmIdentifierError> {
    let hash = match reader.read_optional(explicit(0))? {
        None => HashAlg::Sha1,
        Some(given) => hash(given)?,
    };
    let mask = match reader.read_optional(explicit(1))? {
        None => HashAlg::Sha1,
        Some(given) => mask_hash(given)?,
    };
    let salt = reader.read_optional(explicit(2))?.map(number).transpose()?;
    let trailer = reader.read_optional(explicit(3))?.map(number).transpose()?;
    reader.finish()?;
    if mask != hash {
        return Err(AlgorithmIdentifierError::Mask);
    }
    if salt.unwrap_or(Some(20)) != u8::try_from(hash.digest_len()).ok() {
        return Err(AlgorithmIdentifierError::SaltLength);
    }
    if trailer.unwrap_or(Some(1)) != Some(1) {
        return Err(AlgorithmIdentifierError::Trailer);
    }
    Ok(hash)
}

const fn explicit(number: u8) -> u8 {
    0xA0 | number
}

/// Returns the hash function of an AlgorithmIdentifier (RFC 4055 section 2.1).
fn hash(identifier: &[u8]) -> Result<HashAlg, AlgorithmIdentifierError> {
    let mut reader = Reader::only(SEQUENCE, identifier)?;
    let hash = match reader.read(OID)? {
        [0x2B, 14, 3, 2, 26] => HashAlg::Sha1,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1] => HashAlg::Sha256,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2] => HashAlg::Sha384,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3] => HashAlg::Sha512,
        _ => return Err(AlgorithmIdentifierError::UnknownHash),
    };
    null_or_absent(reader)?;
    Ok(hash)
}

/// Returns the hash function of MGF1, which is the parameter of its AlgorithmIdentifier (RFC 4055 section
/// 2.2).
fn mask_hash(identifier: &[u8]) -> Result<HashAlg, AlgorithmIdentifierError> {
    let mut reader = Reader::only(SEQUENCE, identifier)?;
    if reader.read(OID)? != MGF1 {
        return Err(AlgorithmIdentifierError::Mask);
    }
    // CVE-2018-6459: MGF1 without a parameter.
    let parameters = reader.rest();
    hash(parameters)
}

/// Returns the value of an INTEGER; `None` if it exceeds 255. A negative INTEGER is malformed
/// (CVE-2021-41991).
fn number(value: &[u8]) -> Result<Option<u8>, Malformed> {
    let mut reader = Reader::new(value);
    let digits = reader.read_unsigned()?;
    reader.finish()?;
    Ok(match digits {
        [] => Some(0),
        [digit] => Some(*digit),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    //! The examples of RFC 7427 appendix A and RFC 8420 appendix A, and variations of them.

    use super::*;
    use crate::der::{INTEGER, write};
    use alloc::vec::Vec;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    const DEFAULT_PSS: &str =
        "303e 0609 2a86 4886 f70d 0101 0a30 31a0 0b30 0906 052b 0e03 021a 0500 a118 3016
        0609 2a86 4886 f70d 0101 0830 0906 052b 0e03 021a 0500 a203 0201 14a3 0302 0101";
    const PSS_256: &str = "3046 0609 2a86 4886 f70d 0101 0a30 39a0 0f30 0d06 0960 8648 0165 0304 0201 0500
        a11c 301a 0609 2a86 4886 f70d 0101 0830 0d06 0960 8648 0165 0304 0201 0500 a203
        0201 20a3 0302 0101";

    #[test]
    fn rfc_examples() {
        use SignatureAlg::{Ecdsa, Ed25519, RsaPkcs1, RsaPss};
        for (text, alg) in [
            ("300d 0609 2a86 4886 f70d 0101 0505 00", RsaPkcs1(HashAlg::Sha1)),
            ("300d 0609 2a86 4886 f70d 0101 0b05 00", RsaPkcs1(HashAlg::Sha256)),
            ("300d 0609 2a86 4886 f70d 0101 0c05 00", RsaPkcs1(HashAlg::Sha384)),
            ("300d 0609 2a86 4886 f70d 0101 0d05 00", RsaPkcs1(HashAlg::Sha512)),
            ("3009 0607 2a86 48ce 3d04 01", Ecdsa(HashAlg::Sha1)),
            ("300a 0608 2a86 48ce 3d04 0302", Ecdsa(HashAlg::Sha256)),
            ("300a 0608 2a86 48ce 3d04 0303", Ecdsa(HashAlg::Sha384)),
            ("300a 0608 2a86 48ce 3d04 0304", Ecdsa(HashAlg::Sha512)),
            ("300d 0609 2a86 4886 f70d 0101 0a30 00", RsaPss(HashAlg::Sha1)),
            ("3005 0603 2b65 70", Ed25519),
        ] {
            assert_eq!(alg.algorithm_identifier(), hex(text), "{alg}");
            assert_eq!(SignatureAlg::from_algorithm_identifier(&hex(text)), Ok(alg));
        }
        assert_eq!(SignatureAlg::from_algorithm_identifier(&hex(DEFAULT_PSS)), Ok(RsaPss(HashAlg::Sha1)));
        assert_eq!(SignatureAlg::from_algorithm_identifier(&hex(PSS_256)), Ok(RsaPss(HashAlg::Sha256)));
    }

    #[test]
    fn round_trip() {
        for alg in SignatureAlg::ALL {
            assert_eq!(SignatureAlg::from_algorithm_identifier(alg.algorithm_identifier()), Ok(alg));
        }
        // The RFC encodes the trailer field explicitly; all other bytes are equal.
        let written = SignatureAlg::RsaPss(HashAlg::Sha256).algorithm_identifier();
        assert_eq!(written[15..], hex(PSS_256)[15..67]);
    }

    #[test]
    fn truncated_and_extended_identifiers_are_rejected() {
        for alg in SignatureAlg::ALL {
            let identifier = alg.algorithm_identifier();
            for cut in 0..identifier.len() {
                assert!(SignatureAlg::from_algorithm_identifier(&identifier[..cut]).is_err());
            }
            assert!(SignatureAlg::from_algorithm_identifier(&[identifier, &[0]].concat()).is_err());
            let inside = [&identifier[2..], &[5, 0]].concat();
            assert_eq!(
                SignatureAlg::from_algorithm_identifier(&write(SEQUENCE, &[&inside])),
                Err(AlgorithmIdentifierError::Malformed)
            );
        }
    }

    #[test]
    fn null_parameters_may_be_absent_only_for_rsa() {
        let absent = hex("300b 0609 2a86 4886 f70d 0101 0b");
        assert_eq!(
            SignatureAlg::from_algorithm_identifier(&absent),
            Ok(SignatureAlg::RsaPkcs1(HashAlg::Sha256))
        );
        let null = hex("300c 0608 2a86 48ce 3d04 0302 0500");
        assert_eq!(SignatureAlg::from_algorithm_identifier(&null), Err(AlgorithmIdentifierError::Malformed));
        let null = hex("3007 0603 2b65 70 0500");
        assert_eq!(SignatureAlg::from_algorithm_identifier(&null), Err(AlgorithmIdentifierError::Malformed));
        let no_pss_parameters = hex("300b 0609 2a86 4886 f70d 0101 0a");
        assert_eq!(
            SignatureAlg::from_algorithm_identifier(&no_pss_parameters),
            Err(AlgorithmIdentifierError::Malformed)
        );
        let null_pss_parameters = hex("300d 0609 2a86 4886 f70d 0101 0a 0500");
        assert_eq!(
            SignatureAlg::from_algorithm_identifier(&null_pss_parameters),
            Err(AlgorithmIdentifierError::Malformed)
        );
    }

    /// Parses an RSASSA-PSS identifier with these parameter fields.
    fn pss_of(fields: &[&[u8]]) -> Result<SignatureAlg, AlgorithmIdentifierError> {
        let parameters = write(SEQUENCE, fields);
        SignatureAlg::from_algorithm_identifier(&write(SEQUENCE, &[&write(OID, &[PSS]), &parameters]))
    }

    fn hash_field(last: &[u8], null: &[u8]) -> Vec<u8> {
        let oid = write(OID, &[last]);
        write(SEQUENCE, &[&oid, null])
    }

    const SHA1: &[u8] = &[0x2B, 14, 3, 2, 26];
    const SHA256: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];

    fn mask_field(hash: &[u8]) -> Vec<u8> {
        write(0xA1, &[&write(SEQUENCE, &[&write(OID, &[MGF1]), hash])])
    }

    #[test]
    fn cve_2018_6459_every_pss_field_may_be_absent() {
        let null: &[u8] = &[5, 0];
        let fields = [
            write(0xA0, &[&hash_field(SHA1, null)]),
            mask_field(&hash_field(SHA1, &[])),
            write(0xA2, &[&[2, 1, 20]]),
            write(0xA3, &[&[2, 1, 1]]),
        ];
        for present in 0..16 {
            let fields: Vec<&[u8]> =
                (0..4).filter(|at| present >> at & 1 == 1).map(|at| &fields[at as usize][..]).collect();
            assert_eq!(pss_of(&fields), Ok(SignatureAlg::RsaPss(HashAlg::Sha1)), "{present:04b}");
        }
        assert_eq!(pss_of(&[&mask_field(&[])]), Err(AlgorithmIdentifierError::Malformed));
        assert_eq!(pss_of(&[&mask_field(null)]), Err(AlgorithmIdentifierError::Malformed));
        assert_eq!(pss_of(&[&write(0xA1, &[])]), Err(AlgorithmIdentifierError::Malformed));
        // A non-default hash function requires its own salt length and mask.
        let sha256 = write(0xA0, &[&hash_field(SHA256, &[])]);
        let mask = mask_field(&hash_field(SHA256, null));
        assert_eq!(pss_of(&[&sha256]), Err(AlgorithmIdentifierError::Mask));
        assert_eq!(pss_of(&[&sha256, &mask]), Err(AlgorithmIdentifierError::SaltLength));
        assert_eq!(
            pss_of(&[&sha256, &mask, &[0xA2, 3, 2, 1, 32]]),
            Ok(SignatureAlg::RsaPss(HashAlg::Sha256))
        );
    }

    #[test]
    fn cve_2021_41990_salt_lengths() {
        let salt = |digits: &[u8]| pss_of(&[&write(0xA2, &[&write(INTEGER, &[digits])])]);
        assert_eq!(salt(&[20]), Ok(SignatureAlg::RsaPss(HashAlg::Sha1)));
        for rejected in
            [&[0][..], &[19], &[21], &[0, 0x80, 0, 0, 0], &[1, 0, 0, 0, 0], &[0x7F; 200], &[1, 20]]
        {
            assert_eq!(salt(rejected), Err(AlgorithmIdentifierError::SaltLength), "{rejected:?}");
        }
        // Minus one, minus 2^31, and encodings that DER forbids.
        for malformed in [&[0xFF][..], &[0x80, 0, 0, 0], &[0xEC], &[0, 20], &[]] {
            assert_eq!(salt(malformed), Err(AlgorithmIdentifierError::Malformed), "{malformed:?}");
        }
    }

    #[test]
    fn unsupported_pss_parameters_are_rejected() {
        let md5: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 2, 5];
        assert_eq!(
            pss_of(&[&write(0xA0, &[&hash_field(md5, &[])])]),
            Err(AlgorithmIdentifierError::UnknownHash)
        );
        assert_eq!(pss_of(&[&mask_field(&hash_field(SHA256, &[]))]), Err(AlgorithmIdentifierError::Mask));
        let not_mgf1 = write(SEQUENCE, &[&write(OID, &[SHA1]), &hash_field(SHA1, &[])]);
        assert_eq!(pss_of(&[&write(0xA1, &[&not_mgf1])]), Err(AlgorithmIdentifierError::Mask));
        for trailer in [0, 2, 0x7F] {
            assert_eq!(pss_of(&[&[0xA3, 3, 2, 1, trailer]]), Err(AlgorithmIdentifierError::Trailer));
        }
        // Wrong field order, and a repeated field.
        assert_eq!(
            pss_of(&[&[0xA3, 3, 2, 1, 1], &[0xA2, 3, 2, 1, 20]]),
            Err(AlgorithmIdentifierError::Malformed)
        );
        assert_eq!(
            pss_of(&[&[0xA2, 3, 2, 1, 20], &[0xA2, 3, 2, 1, 20]]),
            Err(AlgorithmIdentifierError::Malformed)
        );
        let unknown = hex("3009 0607 2a86 48ce 3804 03");
        assert_eq!(
            SignatureAlg::from_algorithm_identifier(&unknown),
            Err(AlgorithmIdentifierError::UnknownAlgorithm)
        );
    }
}
