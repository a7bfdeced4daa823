//! Public keys for signatures: SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7), parser and encoder.
//!
//! All public keys of peers pass this parser, so that no provider receives a malformed, weak or expensive
//! key.

use crate::der::{self, BIT_STRING, Malformed, OID, Reader, SEQUENCE};
use alloc::vec::Vec;
use core::fmt;

/// Maximum length of an RSA modulus, in bits. The cost of verification grows with the square of the length.
pub const MAX_RSA_BITS: usize = 16384;

/// Maximum length of a public RSA exponent, in bits. Verification takes as many multiplications. Keys in use
/// have 17 bits.
const MAX_RSA_EXPONENT_BITS: usize = 33;

/// Lower limit of [`KeyLimits::min_rsa_bits`].
const LOWEST_MIN_RSA_BITS: usize = 1024;

/// rsaEncryption (RFC 3279 section 2.3.1), with NULL parameters.
const RSA: &[u8] = &[0x30, 13, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1, 5, 0];
/// id-Ed25519 (RFC 8410 section 3).
const ED25519: &[u8] = &[0x30, 5, 6, 3, 0x2B, 0x65, 0x70];
/// id-ecPublicKey (RFC 5480 section 2.1.1), the content of the OBJECT IDENTIFIER.
const EC: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 2, 1];
/// First byte of an uncompressed point (SEC 1 section 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// Accepted key lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLimits {
    /// Minimum length of an RSA modulus, in bits. Values below 1024 count as 1024.
    pub min_rsa_bits: usize,
    /// Maximum length of an RSA modulus, in bits, for devices with little memory or computing power. Values
    /// above [`MAX_RSA_BITS`] count as [`MAX_RSA_BITS`].
    pub max_rsa_bits: usize,
}

impl Default for KeyLimits {
    /// A minimum of 2048 bits (RFC 8247 section 3.1.1).
    fn default() -> Self {
        Self { min_rsa_bits: 2048, max_rsa_bits: MAX_RSA_BITS }
    }
}

/// Why a key is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyParseError {
    /// Not DER of a supported key format.
    Malformed,
    /// Neither an RSA, nor an ECDSA, nor an Ed25519 key.
    UnknownAlgorithm,
    /// An elliptic curve other than P-256, P-384 and P-521, or a curve given by explicit parameters.
    UnknownCurve,
    /// The length of the RSA modulus is out of range.
    RsaBits {
        /// Length of the modulus, in bits.
        bits: usize,
        /// Minimum length, in bits.
        min: usize,
        /// Maximum length, in bits.
        max: usize,
    },
    /// The RSA modulus is even, so it is not a product of two large primes.
    RsaModulus,
    /// The public RSA exponent is even, less than 3, or longer than 33 bits.
    RsaExponent,
    /// The public point is compressed, or its coordinates do not have the length of the curve's field.
    Point,
    /// The private key is encrypted.
    Encrypted,
}

impl fmt::Display for KeyParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("malformed key"),
            Self::UnknownAlgorithm => {
                f.write_str("key of an unknown algorithm, expected RSA, ECDSA or Ed25519")
            }
            Self::UnknownCurve => {
                f.write_str("unknown elliptic curve, expected P-256, P-384 or P-521 by name")
            }
            Self::RsaBits { bits, min, max } => {
                write!(f, "RSA key of {bits} bits, expected {min} to {max}")
            }
            Self::RsaModulus => f.write_str("the RSA modulus is even"),
            Self::RsaExponent => {
                write!(f, "RSA exponent, expected an odd one from 3 to {MAX_RSA_EXPONENT_BITS} bits")
            }
            Self::Point => f.write_str("public point, expected both coordinates, uncompressed"),
            Self::Encrypted => f.write_str("the private key is encrypted, expected one in clear"),
        }
    }
}

impl core::error::Error for KeyParseError {}

impl From<Malformed> for KeyParseError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// An elliptic curve for ECDSA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Curve {
    /// secp256r1 (RFC 5480 section 2.1.1.1).
    P256,
    /// secp384r1.
    P384,
    /// secp521r1.
    P521,
}

impl Curve {
    /// All curves, by ascending size.
    pub const ALL: [Self; 3] = [Self::P256, Self::P384, Self::P521];

    /// Length in bytes of a coordinate, of a private key, and of each half of a signature.
    pub const fn field_len(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    /// Content of the OBJECT IDENTIFIER of the curve.
    const fn oid(self) -> &'static [u8] {
        match self {
            Self::P256 => &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7],
            Self::P384 => &[0x2B, 0x81, 4, 0, 34],
            Self::P521 => &[0x2B, 0x81, 4, 0, 35],
        }
    }

    pub(crate) fn from_oid(oid: &[u8]) -> Result<Self, KeyParseError> {
        Self::ALL.into_iter().find(|curve| curve.oid() == oid).ok_or(KeyParseError::UnknownCurve)
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
        })
    }
}

/// The numbers of a public key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublicParts {
    /// RSA. Both numbers are big-endian and have no leading zeros.
    #[non_exhaustive]
    Rsa {
        /// The modulus n, odd.
        modulus: Vec<u8>,
        /// The exponent e, odd and at least 3.
        exponent: Vec<u8>,
    },
    /// ECDSA.
    #[non_exhaustive]
    Ec {
        /// The curve.
        curve: Curve,
        /// The point: a byte 4, then two coordinates of the length of the field. The provider checks that the
        /// point is on the curve.
        point: Vec<u8>,
    },
    /// Ed25519 (RFC 8032).
    Ed25519([u8; 32]),
}

/// The kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// RSA, for both padding schemes.
    Rsa,
    /// ECDSA on this curve.
    Ec(Curve),
    /// Ed25519.
    Ed25519,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa => f.write_str("RSA"),
            Self::Ec(curve) => write!(f, "ECDSA on {curve}"),
            Self::Ed25519 => f.write_str("Ed25519"),
        }
    }
}

/// A public key in a valid format.
#[derive(Debug, Clone)]
pub struct PublicKey {
    spki: Vec<u8>,
    parts: PublicParts,
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Eq for PublicKey {}

impl PublicKey {
    /// Parses a SubjectPublicKeyInfo.
    pub fn from_spki(spki: &[u8], limits: KeyLimits) -> Result<Self, KeyParseError> {
        let mut reader = Reader::only(SEQUENCE, spki)?;
        let algorithm = reader.read(SEQUENCE)?;
        let key = reader.read_bit_string()?;
        reader.finish()?;
        match KeyAlgorithm::read(algorithm)? {
            KeyAlgorithm::Rsa => Self::from_rsa(key, limits),
            KeyAlgorithm::Ec(curve) => Self::ec(curve, key),
            KeyAlgorithm::Ed25519 => key.try_into().map(Self::ed25519).map_err(|_| KeyParseError::Malformed),
        }
    }

    /// Parses an RSAPublicKey (RFC 8017 appendix A.1.1).
    fn from_rsa(key: &[u8], limits: KeyLimits) -> Result<Self, KeyParseError> {
        let mut reader = Reader::only(SEQUENCE, key)?;
        let (modulus, exponent) = (reader.read_unsigned()?, reader.read_unsigned()?);
        reader.finish()?;
        Self::rsa(modulus, exponent, limits)
    }

    /// Creates an RSA key from the big-endian modulus and exponent.
    pub fn rsa(modulus: &[u8], exponent: &[u8], limits: KeyLimits) -> Result<Self, KeyParseError> {
        let (modulus, exponent) = (without_zeros(modulus), without_zeros(exponent));
        let min = limits.min_rsa_bits.max(LOWEST_MIN_RSA_BITS);
        let bits = bit_len(modulus);
        let max = limits.max_rsa_bits.min(MAX_RSA_BITS);
        if !(min..=max).contains(&bits) {
            return Err(KeyParseError::RsaBits { bits, min, max });
        }
        if !is_odd(modulus) {
            return Err(KeyParseError::RsaModulus);
        }
        if !is_odd(exponent) || !(2..=MAX_RSA_EXPONENT_BITS).contains(&bit_len(exponent)) {
            return Err(KeyParseError::RsaExponent);
        }
        let key = der::write(SEQUENCE, &[&der::write_unsigned(modulus), &der::write_unsigned(exponent)]);
        let (modulus, exponent) = (modulus.to_vec(), exponent.to_vec());
        Ok(Self { spki: spki(RSA, &key), parts: PublicParts::Rsa { modulus, exponent } })
    }

    /// Creates an ECDSA key from a point in the uncompressed form of SEC 1: a byte 4 and both coordinates.
    /// RFC 5480 section 2.2 leaves support for compressed points optional; they are rejected.
    pub fn ec(curve: Curve, point: &[u8]) -> Result<Self, KeyParseError> {
        match point {
            [UNCOMPRESSED, coordinates @ ..] if coordinates.len() == curve.field_len().saturating_mul(2) => {}
            _ => return Err(KeyParseError::Point),
        }
        let names = [der::write(OID, &[EC]), der::write(OID, &[curve.oid()])].concat();
        let spki = spki(&der::write(SEQUENCE, &[&names]), point);
        Ok(Self { spki, parts: PublicParts::Ec { curve, point: point.to_vec() } })
    }

    /// Creates an Ed25519 key from the 32 bytes of RFC 8032.
    pub fn ed25519(key: [u8; 32]) -> Self {
        Self { spki: spki(ED25519, &key), parts: PublicParts::Ed25519(key) }
    }

    /// SubjectPublicKeyInfo in DER. Its SHA-1 digest identifies a CA in CERTREQ (RFC 7296 section 3.7).
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// For providers: the numbers of the key.
    pub fn parts(&self) -> &PublicParts {
        &self.parts
    }

    /// Kind of the key.
    pub fn kind(&self) -> KeyKind {
        match self.parts {
            PublicParts::Rsa { .. } => KeyKind::Rsa,
            PublicParts::Ec { curve, .. } => KeyKind::Ec(curve),
            PublicParts::Ed25519(_) => KeyKind::Ed25519,
        }
    }

    /// Length of the RSA modulus or of the curve's field, in bits.
    pub fn bits(&self) -> usize {
        match &self.parts {
            PublicParts::Rsa { modulus, .. } => bit_len(modulus),
            PublicParts::Ec { curve: Curve::P256, .. } => 256,
            PublicParts::Ec { curve: Curve::P384, .. } => 384,
            PublicParts::Ec { curve: Curve::P521, .. } => 521,
            PublicParts::Ed25519(_) => 255,
        }
    }
}

/// Algorithm of a key, from its AlgorithmIdentifier.
pub(crate) enum KeyAlgorithm {
    Rsa,
    Ec(Curve),
    Ed25519,
}

impl KeyAlgorithm {
    /// Parses the content of the AlgorithmIdentifier.
    pub(crate) fn read(content: &[u8]) -> Result<Self, KeyParseError> {
        let mut reader = Reader::new(content);
        let oid = reader.read(OID)?;
        if oid == EC {
            // RFC 5480 section 2.1.1: the curve is named, not given by parameters.
            let curve = reader.read_optional(OID)?.ok_or(KeyParseError::UnknownCurve)?;
            reader.finish()?;
            return Curve::from_oid(curve).map(Self::Ec);
        }
        match (RSA, ED25519) {
            ([_, _, rsa @ ..], _) if content == rsa => Ok(Self::Rsa),
            (_, [_, _, ed25519 @ ..]) if content == ed25519 => Ok(Self::Ed25519),
            ([_, _, _, _, rsa @ ..], _) if rsa.starts_with(oid) => Err(KeyParseError::Malformed),
            (_, [_, _, _, _, ed25519 @ ..]) if oid == ed25519 => Err(KeyParseError::Malformed),
            _ => Err(KeyParseError::UnknownAlgorithm),
        }
    }
}

fn spki(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    der::write(SEQUENCE, &[algorithm, &der::write(BIT_STRING, &[&[0], key])])
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

/// Length in bits of a number without leading zeros.
fn bit_len(number: &[u8]) -> usize {
    let spare = number.first().map_or(0, |top| top.leading_zeros());
    number.len().saturating_mul(8).saturating_sub(usize::try_from(spare).unwrap_or_default())
}

fn is_odd(number: &[u8]) -> bool {
    number.last().is_some_and(|low| low & 1 == 1)
}

#[cfg(test)]
mod tests {
    //! Keys that must be rejected before a provider receives them, named after vulnerabilities of other
    //! implementations.

    use super::*;
    use crate::SignatureAlg;
    use alloc::vec;

    fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<PublicKey, KeyParseError> {
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
        for exponent in
            [&[][..], &[0], &[1], &[2], &[0, 0, 0], &[0, 1], &[1, 0, 0], &[3, 0, 0, 0, 1], &[1; 6]]
        {
            assert_eq!(rsa(&modulus(2048), exponent), Err(KeyParseError::RsaExponent), "{exponent:?}");
        }
        for exponent in [&[3][..], &[5], F4, &[0, 1, 0, 1], &[1, 0xFF, 0xFF, 0xFF, 0xFF]] {
            assert!(rsa(&modulus(2048), exponent).is_ok(), "{exponent:?}");
        }
        let mut even = modulus(2048);
        even[255] = 0xFE;
        assert_eq!(rsa(&even, F4), Err(KeyParseError::RsaModulus));
    }

    #[test]
    fn cve_2018_17540_rsa_moduli_of_any_length() {
        for bits in (0..=64).chain([511, 512, 768, 1024, 1536, 2047]) {
            let error = KeyParseError::RsaBits { bits, min: 2048, max: MAX_RSA_BITS };
            assert_eq!(rsa(&modulus(bits), F4), Err(error));
            assert_eq!(rsa(&[&[0; 300], &modulus(bits)[..]].concat(), F4), Err(error));
        }
        for bits in [2048, 2049, 4096, MAX_RSA_BITS] {
            assert_eq!(rsa(&modulus(bits), F4).unwrap().bits(), bits);
        }
        let bits = MAX_RSA_BITS + 1;
        assert_eq!(
            rsa(&modulus(bits), F4),
            Err(KeyParseError::RsaBits { bits, min: 2048, max: MAX_RSA_BITS })
        );
        let weak =
            |bits| PublicKey::rsa(&modulus(bits), F4, KeyLimits { min_rsa_bits: 0, ..KeyLimits::default() });
        assert_eq!(weak(1024).map(|key| key.bits()), Ok(1024));
        assert_eq!(weak(1023), Err(KeyParseError::RsaBits { bits: 1023, min: 1024, max: MAX_RSA_BITS }));
    }

    #[test]
    fn round_trip() {
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
                SignatureAlg::ALL.into_iter().filter(|alg| alg.accepts_key(key.kind())).count(),
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
    fn only_uncompressed_points_are_accepted() {
        for curve in Curve::ALL {
            let len = 2 * curve.field_len();
            for wrong in
                [&[][..], &[0], &[4], &vec![2; curve.field_len() + 1], &vec![6; len + 1], &vec![4; len + 2]]
            {
                assert_eq!(PublicKey::ec(curve, wrong), Err(KeyParseError::Point));
            }
        }
    }

    #[test]
    fn unknown_algorithms_and_curves_are_rejected() {
        let read = |algorithm: &[u8]| {
            PublicKey::from_spki(&spki(algorithm, &[4; 65]), KeyLimits::default()).map(|_| ())
        };
        let dsa = [0x30, 9, 6, 7, 0x2A, 0x86, 0x48, 0xCE, 0x38, 4, 1];
        assert_eq!(read(&dsa), Err(KeyParseError::UnknownAlgorithm));
        assert_eq!(read(&[0x30, 5, 6, 3, 0x2B, 0x65, 0x71]), Err(KeyParseError::UnknownAlgorithm));
        assert_eq!(read(&[0x30, 0]), Err(KeyParseError::Malformed));
        // secp256k1, a curve given by its parameters, NULL parameters, and absent parameters.
        let ec = der::write(OID, &[EC]);
        for parameters in [&[6, 5, 0x2B, 0x81, 4, 0, 10][..], &[0x30, 3, 2, 1, 1], &[5, 0], &[]] {
            assert_eq!(read(&der::write(SEQUENCE, &[&ec, parameters])), Err(KeyParseError::UnknownCurve));
        }
        assert_eq!(read(&[ED25519[0], 7, 6, 3, 0x2B, 0x65, 0x70, 5, 0]), Err(KeyParseError::Malformed));
    }
}
