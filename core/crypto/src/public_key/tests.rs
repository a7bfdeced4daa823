//! Keys that must be refused before a provider sees them, by the identifiers of faults in other programs.

use super::*;
use crate::SignatureAlg;
use alloc::vec;

fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<PublicKey, KeyFault> {
    PublicKey::rsa(modulus, exponent, KeyLimits::default())
}

fn modulus(bits: usize) -> Vec<u8> {
    let mut modulus = vec![0xFF; bits.div_ceil(8)];
    if let Some(top) = modulus.first_mut() {
        *top = 0xFF >> ((8 - bits % 8) % 8);
    }
    modulus
}

const F4: &[u8] = &[1, 0, 1];

#[test]
fn cve_2017_9022_and_2026_14957_rsa_exponents_and_even_moduli() {
    for exponent in [&[][..], &[0], &[1], &[2], &[0, 0, 0], &[0, 1], &[1, 0, 0], &[3, 0, 0, 0, 1], &[1; 6]] {
        assert_eq!(rsa(&modulus(2048), exponent), Err(KeyFault::RsaExponent), "{exponent:?}");
    }
    for exponent in [&[3][..], &[5], F4, &[0, 1, 0, 1], &[1, 0xFF, 0xFF, 0xFF, 0xFF]] {
        assert!(rsa(&modulus(2048), exponent).is_ok(), "{exponent:?}");
    }
    let mut even = modulus(2048);
    even[255] = 0xFE;
    assert_eq!(rsa(&even, F4), Err(KeyFault::RsaModulus));
}

#[test]
fn cve_2018_17540_rsa_moduli_of_any_length() {
    for given in (0..=64).chain([511, 512, 768, 1024, 1536, 2047]) {
        let why = KeyFault::RsaBits { given, least: 2048, most: MAX_RSA_BITS };
        assert_eq!(rsa(&modulus(given), F4), Err(why));
        assert_eq!(rsa(&[&[0; 300], &modulus(given)[..]].concat(), F4), Err(why));
    }
    for given in [2048, 2049, 4096, MAX_RSA_BITS] {
        assert_eq!(rsa(&modulus(given), F4).unwrap().bits(), given);
    }
    let given = MAX_RSA_BITS + 1;
    assert_eq!(rsa(&modulus(given), F4), Err(KeyFault::RsaBits { given, least: 2048, most: MAX_RSA_BITS }));
    let weak =
        |bits| PublicKey::rsa(&modulus(bits), F4, KeyLimits { min_rsa_bits: 0, ..KeyLimits::default() });
    assert_eq!(weak(1024).map(|key| key.bits()), Ok(1024));
    assert_eq!(weak(1023), Err(KeyFault::RsaBits { given: 1023, least: 1024, most: MAX_RSA_BITS }));
}

#[test]
fn what_is_written_is_read() {
    let keys = [
        rsa(&modulus(2048), F4).unwrap(),
        PublicKey::ec(Curve::P256, &[4; 65]).unwrap(),
        PublicKey::ec(Curve::P384, &[4; 97]).unwrap(),
        PublicKey::ec(Curve::P521, &[4; 133]).unwrap(),
        PublicKey::ed25519([7; 32]),
    ];
    for key in keys {
        let spki = key.spki();
        let read = PublicKey::from_spki(spki, KeyLimits::default()).unwrap();
        assert_eq!((&read, read.spki(), read.kind()), (&key, spki, key.kind()));
        assert_eq!(
            SignatureAlg::ALL.into_iter().filter(|alg| alg.fits(key.kind())).count(),
            match key.kind() {
                KeyKind::Rsa => 8,
                KeyKind::Ec(_) => 4,
                KeyKind::Ed25519 => 1,
            }
        );
        for cut in 0..spki.len() {
            assert!(PublicKey::from_spki(&spki[..cut], KeyLimits::default()).is_err());
        }
        assert!(PublicKey::from_spki(&[spki, &[0]].concat(), KeyLimits::default()).is_err());
    }
}

#[test]
fn points_are_two_coordinates() {
    for curve in Curve::ALL {
        let len = 2 * curve.field_len();
        for wrong in
            [&[][..], &[0], &[4], &vec![2; curve.field_len() + 1], &vec![6; len + 1], &vec![4; len + 2]]
        {
            assert_eq!(PublicKey::ec(curve, wrong), Err(KeyFault::Point));
        }
    }
}

#[test]
fn other_algorithms_and_curves() {
    let read =
        |algorithm: &[u8]| PublicKey::from_spki(&spki(algorithm, &[4; 65]), KeyLimits::default()).map(|_| ());
    let dsa = [0x30, 9, 6, 7, 0x2A, 0x86, 0x48, 0xCE, 0x38, 4, 1];
    assert_eq!(read(&dsa), Err(KeyFault::UnknownAlgorithm));
    assert_eq!(read(&[0x30, 5, 6, 3, 0x2B, 0x65, 0x71]), Err(KeyFault::UnknownAlgorithm));
    assert_eq!(read(&[0x30, 0]), Err(KeyFault::Malformed));
    // secp256k1, a curve given by its parameters, and none.
    let ec = der::write(OID, &[EC]);
    for parameters in [&[6, 5, 0x2B, 0x81, 4, 0, 10][..], &[0x30, 3, 2, 1, 1], &[5, 0], &[]] {
        assert_eq!(read(&der::write(SEQUENCE, &[&ec, parameters])), Err(KeyFault::UnknownCurve));
    }
    assert_eq!(read(&[ED25519[0], 7, 6, 3, 0x2B, 0x65, 0x70, 5, 0]), Err(KeyFault::Malformed));
}
