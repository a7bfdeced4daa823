//! Private keys for signatures, parsed from DER: PKCS #8 (RFC 5208, RFC 5958), RSAPrivateKey (RFC 8017
//! appendix A.1.2) and ECPrivateKey (RFC 5915).

use crate::der::{INTEGER, OCTET_STRING, OID, Reader, SEQUENCE};
use crate::public_key::KeyAlgorithm;
use crate::{Curve, KeyLimits, KeyParseError, PublicKey, SecretBytes};

/// A parsed private key. Only the provider checks that its numbers form a valid key.
#[derive(Debug)]
#[non_exhaustive]
pub enum PrivateKey {
    /// RSA.
    Rsa(RsaPrivateKey),
    /// ECDSA.
    #[non_exhaustive]
    Ec {
        /// The curve.
        curve: Curve,
        /// The private scalar, big-endian, as long as the curve's field. The provider checks its range.
        scalar: SecretBytes,
    },
    /// Ed25519: the 32 bytes that RFC 8032 section 5.1.5 calls the private key.
    Ed25519(SecretBytes),
}

/// An RSA private key. The provider checks that its numbers are consistent.
#[derive(Debug)]
pub struct RsaPrivateKey {
    der: SecretBytes,
    public: PublicKey,
}

/// Numbers of an RSA private key, big-endian and without leading zeros.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct RsaNumbers<'a> {
    /// The modulus.
    pub modulus: &'a [u8],
    /// The public exponent.
    pub public_exponent: &'a [u8],
    /// The private exponent.
    pub private_exponent: &'a [u8],
    /// The two primes.
    pub primes: [&'a [u8]; 2],
}

impl PrivateKey {
    /// Parses a private key in PKCS #8, RSAPrivateKey or ECPrivateKey form.
    pub fn from_der(der: &[u8], limits: KeyLimits) -> Result<Self, KeyParseError> {
        let mut reader = Reader::only(SEQUENCE, der)?;
        if reader.peek() == Some(SEQUENCE) {
            // RFC 5958 section 3: an EncryptedPrivateKeyInfo begins with its algorithm.
            return Err(KeyParseError::Encrypted);
        }
        let version = reader.read_unsigned()?;
        match (version, reader.peek()) {
            ([] | [1], Some(SEQUENCE)) => from_pkcs8(reader, limits),
            ([], Some(INTEGER)) => RsaPrivateKey::from_der(der, limits).map(Self::Rsa),
            ([1], Some(OCTET_STRING)) => from_sec1(der, None),
            _ => Err(KeyParseError::Malformed),
        }
    }
}

/// Parses a PrivateKeyInfo after its version. Attributes and the public key after the private key are
/// ignored.
fn from_pkcs8(mut reader: Reader<'_>, limits: KeyLimits) -> Result<PrivateKey, KeyParseError> {
    let algorithm = reader.read(SEQUENCE)?;
    let key = reader.read(OCTET_STRING)?;
    reader.read_optional(0xA0)?;
    reader.read_optional(0x81)?;
    reader.finish()?;
    match KeyAlgorithm::read(algorithm)? {
        KeyAlgorithm::Rsa => RsaPrivateKey::from_der(key, limits).map(PrivateKey::Rsa),
        KeyAlgorithm::Ec(curve) => from_sec1(key, Some(curve)),
        KeyAlgorithm::Ed25519 => {
            // RFC 8410 section 7: an OCTET STRING inside the OCTET STRING.
            let mut reader = Reader::new(key);
            let seed = reader.read(OCTET_STRING)?;
            reader.finish()?;
            let right = seed.len() == 32;
            right.then(|| PrivateKey::Ed25519(SecretBytes::new(seed))).ok_or(KeyParseError::Malformed)
        }
    }
}

/// Parses an ECPrivateKey (RFC 5915 section 3); `known` is the curve of the enclosing PKCS #8 structure.
fn from_sec1(der: &[u8], known: Option<Curve>) -> Result<PrivateKey, KeyParseError> {
    let mut reader = Reader::only(SEQUENCE, der)?;
    if reader.read_unsigned()? != [1] {
        return Err(KeyParseError::Malformed);
    }
    let scalar = reader.read(OCTET_STRING)?;
    let named = reader.read_optional(0xA0)?.map(|name| {
        let mut reader = Reader::new(name);
        let oid = reader.read_optional(OID)?.ok_or(KeyParseError::UnknownCurve)?;
        reader.finish()?;
        Curve::from_oid(oid)
    });
    reader.read_optional(0xA1)?;
    reader.finish()?;
    let curve = match (named.transpose()?, known) {
        (Some(named), Some(known)) if named != known => return Err(KeyParseError::Malformed),
        (named, known) => named.or(known).ok_or(KeyParseError::UnknownCurve)?,
    };
    // RFC 5915 section 3: as long as the curve's order, which for these three curves is as long as the field.
    if scalar.len() != curve.field_len() {
        return Err(KeyParseError::Malformed);
    }
    Ok(PrivateKey::Ec { curve, scalar: SecretBytes::new(scalar) })
}

impl RsaPrivateKey {
    fn from_der(der: &[u8], limits: KeyLimits) -> Result<Self, KeyParseError> {
        let numbers = numbers(der)?;
        let public = PublicKey::rsa(numbers.modulus, numbers.public_exponent, limits)?;
        Ok(Self { der: SecretBytes::new(der), public })
    }

    /// RSAPrivateKey in DER, with two primes.
    pub fn der(&self) -> &SecretBytes {
        &self.der
    }

    /// The public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Numbers of the key. They are secrets: do not copy them into memory that is not wiped.
    pub fn numbers(&self) -> Result<RsaNumbers<'_>, KeyParseError> {
        numbers(self.der.expose())
    }
}

/// Parses the numbers of an RSAPrivateKey.
fn numbers(der: &[u8]) -> Result<RsaNumbers<'_>, KeyParseError> {
    let mut reader = Reader::only(SEQUENCE, der)?;
    // RFC 8017 appendix A.1.2: version 1 means more than two primes.
    if !reader.read_unsigned()?.is_empty() {
        return Err(KeyParseError::Malformed);
    }
    let mut next = || reader.read_unsigned();
    let (modulus, public_exponent, private_exponent) = (next()?, next()?, next()?);
    let primes = [next()?, next()?];
    // Exponents and coefficient for the Chinese remainder theorem.
    for _ in 0..3 {
        next()?;
    }
    reader.finish()?;
    Ok(RsaNumbers { modulus, public_exponent, private_exponent, primes })
}

#[cfg(test)]
mod tests {
    //! The three key formats, and inputs that are no key. Keys generated by OpenSSL are in `verify/vectors`.

    use super::*;
    use crate::der::{BIT_STRING, write, write_unsigned};
    use alloc::format;
    use alloc::vec;
    use alloc::vec::Vec;

    fn read(der: &[u8]) -> Result<PrivateKey, KeyParseError> {
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
    fn rsa_keys_in_both_formats() {
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
        // More than two primes, too few numbers, and a version that does not exist.
        for wrong in [rsa_numbers(1), write(SEQUENCE, &[&rsa_numbers(0)[4..300]]), rsa_numbers(2)] {
            assert_eq!(read(&wrong).err(), Some(KeyParseError::Malformed));
        }
    }

    #[test]
    fn ec_keys_in_both_formats() {
        for curve in Curve::ALL {
            let scalar = vec![3; curve.field_len()];
            let Ok(PrivateKey::Ec { curve: read_curve, scalar: read_scalar }) =
                read(&sec1(&scalar, Some(curve)))
            else {
                panic!("{curve}")
            };
            assert_eq!((read_curve, read_scalar.expose()), (curve, &scalar[..]));
            for wrong in [&scalar[1..], &[0, 3], &[]] {
                assert_eq!(read(&sec1(wrong, Some(curve))).err(), Some(KeyParseError::Malformed));
            }
            assert_eq!(read(&sec1(&scalar, None)).err(), Some(KeyParseError::UnknownCurve));
        }
        let inner = |curve| pkcs8(0, P256, &sec1(&[3; 32], curve), &[]);
        assert!(matches!(read(&inner(None)), Ok(PrivateKey::Ec { curve: Curve::P256, .. })));
        assert!(matches!(read(&inner(Some(Curve::P256))), Ok(PrivateKey::Ec { .. })));
        let other = pkcs8(0, P256, &sec1(&[3; 48], Some(Curve::P384)), &[]);
        assert_eq!(read(&other).err(), Some(KeyParseError::Malformed));
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
            assert_eq!(read(&pkcs8(0, ED25519, wrong, &[])).err(), Some(KeyParseError::Malformed));
        }
    }

    #[test]
    fn invalid_keys_are_rejected() {
        assert_eq!(read(&write(SEQUENCE, &[RSA, &[4, 1, 0]])).err(), Some(KeyParseError::Encrypted));
        for wrong in [&[][..], &[0x30, 0], &[0x30, 3, 2, 1, 0], &[0x30, 3, 2, 1, 2]] {
            assert_eq!(read(wrong).err(), Some(KeyParseError::Malformed), "{wrong:?}");
        }
        for whole in [rsa_numbers(0), sec1(&[3; 32], Some(Curve::P256))] {
            assert!((0..whole.len()).all(|cut| read(&whole[..cut]).is_err()));
            assert!(read(&[&whole[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn debug_prints_no_private_key() {
        let text = format!("{:?}", read(&sec1(&[3; 32], Some(Curve::P256))));
        assert!(text.contains("32 bytes") && !text.contains("3, 3"), "{text}");
    }
}
