//! The three forms, and what is none of them. Keys that OpenSSL made are in `verify/vectors`.

use super::*;
use crate::der::{BIT_STRING, write, write_unsigned};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

fn read(der: &[u8]) -> Result<PrivateKey, KeyFault> {
    PrivateKey::from_der(der, KeyLimits::default())
}

fn rsa_numbers(version: u8) -> Vec<u8> {
    let numbers =
        [&[version][..], &[0xFF; 256], &[1, 0, 1], &[0x7F; 256], &[9; 128], &[7; 128], &[5], &[3], &[1]];
    let numbers: Vec<u8> = numbers.into_iter().flat_map(write_unsigned).collect();
    write(SEQUENCE, &[&numbers])
}

fn sec1(scalar: &[u8], curve: Option<Curve>) -> Vec<u8> {
    let name = curve.map(|curve| write(0xA0, &[&write(OID, &[curve_oid(curve)])])).unwrap_or_default();
    let public = write(0xA1, &[&write(BIT_STRING, &[&[0, 4], &[1; 64]])]);
    write(SEQUENCE, &[&[2, 1, 1], &write(OCTET_STRING, &[scalar]), &name, &public])
}

fn curve_oid(curve: Curve) -> &'static [u8] {
    match curve {
        Curve::P256 => &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7],
        Curve::P384 => &[0x2B, 0x81, 4, 0, 34],
        Curve::P521 => &[0x2B, 0x81, 4, 0, 35],
    }
}

fn pkcs8(version: u8, algorithm: &[u8], key: &[u8], more: &[u8]) -> Vec<u8> {
    write(SEQUENCE, &[&[2, 1, version], algorithm, &write(OCTET_STRING, &[key]), more])
}

const RSA: &[u8] = &[0x30, 13, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1, 5, 0];
const ED25519: &[u8] = &[0x30, 5, 6, 3, 0x2B, 0x65, 0x70];
const P256: &[u8] =
    &[0x30, 19, 6, 7, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 2, 1, 6, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7];

#[test]
fn rsa_in_both_forms() {
    for der in [rsa_numbers(0), pkcs8(0, RSA, &rsa_numbers(0), &[])] {
        let Ok(PrivateKey::Rsa(key)) = read(&der) else { panic!("{:?}", read(&der)) };
        let numbers = key.numbers().unwrap();
        assert_eq!((numbers.modulus, numbers.public_exponent), (&[0xFF; 256][..], &[1, 0, 1][..]));
        assert_eq!(
            (numbers.private_exponent, numbers.primes),
            (&[0x7F; 256][..], [&[9; 128][..], &[7; 128]])
        );
        assert_eq!((key.public().bits(), key.der().expose()), (2048, &rsa_numbers(0)[..]));
    }
    // More than two primes, and numbers too few or too many.
    for wrong in [rsa_numbers(1), write(SEQUENCE, &[&rsa_numbers(0)[4..300]]), rsa_numbers(2)] {
        assert_eq!(read(&wrong).err(), Some(KeyFault::Malformed));
    }
}

#[test]
fn curves_in_both_forms() {
    for curve in Curve::ALL {
        let scalar = vec![3; curve.field_len()];
        let Ok(PrivateKey::Ec { curve: read_curve, scalar: read_scalar }) = read(&sec1(&scalar, Some(curve)))
        else {
            panic!("{curve}")
        };
        assert_eq!((read_curve, read_scalar.expose()), (curve, &scalar[..]));
        for wrong in [&scalar[1..], &[0, 3], &[]] {
            assert_eq!(read(&sec1(wrong, Some(curve))).err(), Some(KeyFault::Malformed));
        }
        assert_eq!(read(&sec1(&scalar, None)).err(), Some(KeyFault::UnknownCurve));
    }
    let inner = |curve| pkcs8(0, P256, &sec1(&[3; 32], curve), &[]);
    assert!(matches!(read(&inner(None)), Ok(PrivateKey::Ec { curve: Curve::P256, .. })));
    assert!(matches!(read(&inner(Some(Curve::P256))), Ok(PrivateKey::Ec { .. })));
    let other = pkcs8(0, P256, &sec1(&[3; 48], Some(Curve::P384)), &[]);
    assert_eq!(read(&other).err(), Some(KeyFault::Malformed));
}

#[test]
fn ed25519_with_and_without_its_public_key() {
    let seed = write(OCTET_STRING, &[&[9; 32]]);
    let public = [&[0x81, 33, 0][..], &[8; 32]].concat();
    for der in [pkcs8(0, ED25519, &seed, &[]), pkcs8(1, ED25519, &seed, &public)] {
        let Ok(PrivateKey::Ed25519(read)) = read(&der) else { panic!() };
        assert_eq!(read.expose(), [9; 32]);
    }
    for wrong in [&[9; 32][..], &write(OCTET_STRING, &[&[9; 31]]), &[&seed[..], &[0]].concat()] {
        assert_eq!(read(&pkcs8(0, ED25519, wrong, &[])).err(), Some(KeyFault::Malformed));
    }
}

#[test]
fn what_is_no_key() {
    assert_eq!(read(&write(SEQUENCE, &[RSA, &[4, 1, 0]])).err(), Some(KeyFault::Encrypted));
    for wrong in [&[][..], &[0x30, 0], &[0x30, 3, 2, 1, 0], &[0x30, 3, 2, 1, 2]] {
        assert_eq!(read(wrong).err(), Some(KeyFault::Malformed), "{wrong:?}");
    }
    for whole in [rsa_numbers(0), sec1(&[3; 32], Some(Curve::P256))] {
        assert!((0..whole.len()).all(|cut| read(&whole[..cut]).is_err()));
        assert!(read(&[&whole[..], &[0]].concat()).is_err());
    }
}

#[test]
fn nothing_secret_is_printed() {
    let text = format!("{:?}", read(&sec1(&[3; 32], Some(Curve::P256))));
    assert!(text.contains("32 bytes") && !text.contains("3, 3"), "{text}");
}
