//! RFC 7427 appendix A and RFC 8420 appendix A as they stand there, and what is not quite that.

use super::*;
use crate::der::{INTEGER, write};
use alloc::vec::Vec;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

const DEFAULT_PSS: &str = "303e 0609 2a86 4886 f70d 0101 0a30 31a0 0b30 0906 052b 0e03 021a 0500 a118 3016
    0609 2a86 4886 f70d 0101 0830 0906 052b 0e03 021a 0500 a203 0201 14a3 0302 0101";
const PSS_256: &str = "3046 0609 2a86 4886 f70d 0101 0a30 39a0 0f30 0d06 0960 8648 0165 0304 0201 0500
    a11c 301a 0609 2a86 4886 f70d 0101 0830 0d06 0960 8648 0165 0304 0201 0500 a203
    0201 20a3 0302 0101";

#[test]
fn the_examples_of_the_rfcs() {
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
        assert_eq!(alg.identifier(), hex(text), "{alg}");
        assert_eq!(SignatureAlg::from_identifier(&hex(text)), Ok(alg));
    }
    assert_eq!(SignatureAlg::from_identifier(&hex(DEFAULT_PSS)), Ok(RsaPss(HashAlg::Sha1)));
    assert_eq!(SignatureAlg::from_identifier(&hex(PSS_256)), Ok(RsaPss(HashAlg::Sha256)));
}

#[test]
fn what_is_written_is_read() {
    for alg in SignatureAlg::ALL {
        assert_eq!(SignatureAlg::from_identifier(alg.identifier()), Ok(alg));
    }
    // The RFC writes the trailer field out; the rest is the same.
    let written = SignatureAlg::RsaPss(HashAlg::Sha256).identifier();
    assert_eq!(written[15..], hex(PSS_256)[15..67]);
}

#[test]
fn no_bytes_before_behind_or_missing() {
    for alg in SignatureAlg::ALL {
        let identifier = alg.identifier();
        for cut in 0..identifier.len() {
            assert!(SignatureAlg::from_identifier(&identifier[..cut]).is_err());
        }
        assert!(SignatureAlg::from_identifier(&[identifier, &[0]].concat()).is_err());
        let inside = [&identifier[2..], &[5, 0]].concat();
        assert_eq!(
            SignatureAlg::from_identifier(&write(SEQUENCE, &[&inside])),
            Err(IdentifierError::Malformed)
        );
    }
}

#[test]
fn null_parameters_may_be_absent_with_rsa_only() {
    let absent = hex("300b 0609 2a86 4886 f70d 0101 0b");
    assert_eq!(SignatureAlg::from_identifier(&absent), Ok(SignatureAlg::RsaPkcs1(HashAlg::Sha256)));
    let null = hex("300c 0608 2a86 48ce 3d04 0302 0500");
    assert_eq!(SignatureAlg::from_identifier(&null), Err(IdentifierError::Malformed));
    let null = hex("3007 0603 2b65 70 0500");
    assert_eq!(SignatureAlg::from_identifier(&null), Err(IdentifierError::Malformed));
    let no_pss_parameters = hex("300b 0609 2a86 4886 f70d 0101 0a");
    assert_eq!(SignatureAlg::from_identifier(&no_pss_parameters), Err(IdentifierError::Malformed));
    let null_pss_parameters = hex("300d 0609 2a86 4886 f70d 0101 0a 0500");
    assert_eq!(SignatureAlg::from_identifier(&null_pss_parameters), Err(IdentifierError::Malformed));
}

/// An identifier of RSASSA-PSS with these fields.
fn pss_of(fields: &[&[u8]]) -> Result<SignatureAlg, IdentifierError> {
    let parameters = write(SEQUENCE, fields);
    SignatureAlg::from_identifier(&write(SEQUENCE, &[&write(OID, &[PSS]), &parameters]))
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
    assert_eq!(pss_of(&[&mask_field(&[])]), Err(IdentifierError::Malformed));
    assert_eq!(pss_of(&[&mask_field(null)]), Err(IdentifierError::Malformed));
    assert_eq!(pss_of(&[&write(0xA1, &[])]), Err(IdentifierError::Malformed));
    // A hash that is not the default asks for its salt and for its mask.
    let sha256 = write(0xA0, &[&hash_field(SHA256, &[])]);
    let mask = mask_field(&hash_field(SHA256, null));
    assert_eq!(pss_of(&[&sha256]), Err(IdentifierError::Mask));
    assert_eq!(pss_of(&[&sha256, &mask]), Err(IdentifierError::SaltLength));
    assert_eq!(pss_of(&[&sha256, &mask, &[0xA2, 3, 2, 1, 32]]), Ok(SignatureAlg::RsaPss(HashAlg::Sha256)));
}

#[test]
fn cve_2021_41990_salt_lengths() {
    let salt = |digits: &[u8]| pss_of(&[&write(0xA2, &[&write(INTEGER, &[digits])])]);
    assert_eq!(salt(&[20]), Ok(SignatureAlg::RsaPss(HashAlg::Sha1)));
    for refused in [&[0][..], &[19], &[21], &[0, 0x80, 0, 0, 0], &[1, 0, 0, 0, 0], &[0x7F; 200], &[1, 20]] {
        assert_eq!(salt(refused), Err(IdentifierError::SaltLength), "{refused:?}");
    }
    // Minus one, minus 2^31, and digits that DER does not write.
    for malformed in [&[0xFF][..], &[0x80, 0, 0, 0], &[0xEC], &[0, 20], &[]] {
        assert_eq!(salt(malformed), Err(IdentifierError::Malformed), "{malformed:?}");
    }
}

#[test]
fn other_parameters_of_pss() {
    let md5: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 2, 5];
    assert_eq!(pss_of(&[&write(0xA0, &[&hash_field(md5, &[])])]), Err(IdentifierError::UnknownHash));
    assert_eq!(pss_of(&[&mask_field(&hash_field(SHA256, &[]))]), Err(IdentifierError::Mask));
    let not_mgf1 = write(SEQUENCE, &[&write(OID, &[SHA1]), &hash_field(SHA1, &[])]);
    assert_eq!(pss_of(&[&write(0xA1, &[&not_mgf1])]), Err(IdentifierError::Mask));
    for trailer in [0, 2, 0x7F] {
        assert_eq!(pss_of(&[&[0xA3, 3, 2, 1, trailer]]), Err(IdentifierError::Trailer));
    }
    // In the wrong order, and twice.
    assert_eq!(pss_of(&[&[0xA3, 3, 2, 1, 1], &[0xA2, 3, 2, 1, 20]]), Err(IdentifierError::Malformed));
    assert_eq!(pss_of(&[&[0xA2, 3, 2, 1, 20], &[0xA2, 3, 2, 1, 20]]), Err(IdentifierError::Malformed));
    let unknown = hex("3009 0607 2a86 48ce 3804 03");
    assert_eq!(SignatureAlg::from_identifier(&unknown), Err(IdentifierError::UnknownAlgorithm));
}
