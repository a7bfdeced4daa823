//! Public keys for signatures: SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7), read and written.
//!
//! Every key of a peer comes in here, so that no provider ever sees one that is malformed, weak or costly.

use crate::der::{self, BIT_STRING, Malformed, OID, Reader, SEQUENCE};
use alloc::vec::Vec;
use core::fmt;

/// Largest RSA modulus that is taken, in bits. Verification costs the square of the length.
pub const MAX_RSA_BITS: usize = 16384;

/// Largest public exponent of RSA that is taken, in bits. Verification costs as many multiplications; keys in use have 17.
const MAX_RSA_EXPONENT_BITS: usize = 33;

/// Least value that [`KeyLimits::min_rsa_bits`] can have.
const LEAST_RSA_BITS: usize = 1024;

/// rsaEncryption (RFC 3279 section 2.3.1), with its NULL parameters.
const RSA: &[u8] = &[0x30, 13, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1, 5, 0];
/// id-Ed25519 (RFC 8410 section 3).
const ED25519: &[u8] = &[0x30, 5, 6, 3, 0x2B, 0x65, 0x70];
/// id-ecPublicKey (RFC 5480 section 2.1.1), as an OBJECT IDENTIFIER's content.
const EC: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 2, 1];
/// Leads an uncompressed point (SEC 1 section 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// Which keys are too weak, or too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLimits {
    /// Least length of an RSA modulus, in bits. Less than 1024 counts as 1024.
    pub min_rsa_bits: usize,
    /// Greatest length of an RSA modulus, in bits: for those who have little memory or time. More than [`MAX_RSA_BITS`] counts as
    /// that.
    pub max_rsa_bits: usize,
}

impl Default for KeyLimits {
    /// 2048 bits at least: RFC 8247 section 3.1.1.
    fn default() -> Self {
        Self { min_rsa_bits: 2048, max_rsa_bits: MAX_RSA_BITS }
    }
}

/// Why a key is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFault {
    /// Not the DER of a key in a form that is known here.
    Malformed,
    /// Neither RSA nor ECDSA nor Ed25519.
    UnknownAlgorithm,
    /// An elliptic curve other than P-256, P-384 and P-521, or one that is given by its parameters.
    UnknownCurve,
    /// The RSA modulus is too short or too long.
    RsaBits {
        /// Its length in bits.
        given: usize,
        /// Least length that is taken, in bits.
        least: usize,
        /// Greatest length that is taken, in bits.
        most: usize,
    },
    /// The RSA modulus is even, so that it is no product of two large primes.
    RsaModulus,
    /// The public exponent of RSA is even, less than 3 or longer than 33 bits.
    RsaExponent,
    /// The public point is not two coordinates of the curve's length, or not uncompressed.
    Point,
    /// The private key is encrypted.
    Encrypted,
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("malformed key"),
            Self::UnknownAlgorithm => {
                f.write_str("key of an unknown algorithm, expected RSA, ECDSA or Ed25519")
            }
            Self::UnknownCurve => {
                f.write_str("unknown elliptic curve, expected P-256, P-384 or P-521 by name")
            }
            Self::RsaBits { given, least, most } => {
                write!(f, "RSA key of {given} bits, expected {least} to {most}")
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

impl core::error::Error for KeyFault {}

impl From<Malformed> for KeyFault {
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::P256, Self::P384, Self::P521];

    /// Length of a coordinate, of a private key and of each half of a signature, in bytes.
    pub const fn field_len(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    /// Content of its OBJECT IDENTIFIER.
    const fn oid(self) -> &'static [u8] {
        match self {
            Self::P256 => &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7],
            Self::P384 => &[0x2B, 0x81, 4, 0, 34],
            Self::P521 => &[0x2B, 0x81, 4, 0, 35],
        }
    }

    pub(crate) fn from_oid(oid: &[u8]) -> Result<Self, KeyFault> {
        Self::ALL.into_iter().find(|curve| curve.oid() == oid).ok_or(KeyFault::UnknownCurve)
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
    /// RSA. Both big-endian, without zeros in front.
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
        /// The point: 4, then two coordinates of the curve's length. Not yet known to be on the curve: the provider looks.
        point: Vec<u8>,
    },
    /// Ed25519 (RFC 8032).
    Ed25519([u8; 32]),
}

/// What kind of key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// RSA, for both paddings.
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

/// A public key whose form has been checked.
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
    /// Reads a SubjectPublicKeyInfo.
    pub fn from_spki(spki: &[u8], limits: KeyLimits) -> Result<Self, KeyFault> {
        let mut reader = Reader::only(SEQUENCE, spki)?;
        let algorithm = reader.read(SEQUENCE)?;
        let key = reader.bytes_of_bits()?;
        reader.finish()?;
        match KeyName::read(algorithm)? {
            KeyName::Rsa => Self::from_rsa(key, limits),
            KeyName::Ec(curve) => Self::ec(curve, key),
            KeyName::Ed25519 => key.try_into().map(Self::ed25519).map_err(|_| KeyFault::Malformed),
        }
    }

    /// RSAPublicKey (RFC 8017 appendix A.1.1).
    fn from_rsa(key: &[u8], limits: KeyLimits) -> Result<Self, KeyFault> {
        let mut reader = Reader::only(SEQUENCE, key)?;
        let (modulus, exponent) = (reader.unsigned()?, reader.unsigned()?);
        reader.finish()?;
        Self::rsa(modulus, exponent, limits)
    }

    /// From the modulus and the exponent, big-endian.
    pub fn rsa(modulus: &[u8], exponent: &[u8], limits: KeyLimits) -> Result<Self, KeyFault> {
        let (modulus, exponent) = (without_zeros(modulus), without_zeros(exponent));
        let least = limits.min_rsa_bits.max(LEAST_RSA_BITS);
        let given = bits(modulus);
        let most = limits.max_rsa_bits.min(MAX_RSA_BITS);
        if !(least..=most).contains(&given) {
            return Err(KeyFault::RsaBits { given, least, most });
        }
        if !is_odd(modulus) {
            return Err(KeyFault::RsaModulus);
        }
        if !is_odd(exponent) || !(2..=MAX_RSA_EXPONENT_BITS).contains(&bits(exponent)) {
            return Err(KeyFault::RsaExponent);
        }
        let key = der::write(SEQUENCE, &[&der::write_unsigned(modulus), &der::write_unsigned(exponent)]);
        let (modulus, exponent) = (modulus.to_vec(), exponent.to_vec());
        Ok(Self { spki: spki(RSA, &key), parts: PublicParts::Rsa { modulus, exponent } })
    }

    /// From a point in SEC 1's uncompressed form: 4 and both coordinates. RFC 5480 section 2.2 leaves it open whether compressed
    /// ones are taken; they are not.
    pub fn ec(curve: Curve, point: &[u8]) -> Result<Self, KeyFault> {
        match point {
            [UNCOMPRESSED, coordinates @ ..] if coordinates.len() == curve.field_len().saturating_mul(2) => {}
            _ => return Err(KeyFault::Point),
        }
        let names = [der::write(OID, &[EC]), der::write(OID, &[curve.oid()])].concat();
        let spki = spki(&der::write(SEQUENCE, &[&names]), point);
        Ok(Self { spki, parts: PublicParts::Ec { curve, point: point.to_vec() } })
    }

    /// From the 32 bytes of RFC 8032.
    pub fn ed25519(key: [u8; 32]) -> Self {
        Self { spki: spki(ED25519, &key), parts: PublicParts::Ed25519(key) }
    }

    /// The SubjectPublicKeyInfo in DER. RFC 7296 section 3.7: its SHA-1 names a CA in CERTREQ.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// For providers: its numbers.
    pub fn parts(&self) -> &PublicParts {
        &self.parts
    }

    /// Its kind.
    pub fn kind(&self) -> KeyKind {
        match self.parts {
            PublicParts::Rsa { .. } => KeyKind::Rsa,
            PublicParts::Ec { curve, .. } => KeyKind::Ec(curve),
            PublicParts::Ed25519(_) => KeyKind::Ed25519,
        }
    }

    /// Length of an RSA modulus or of the curve's field, in bits.
    pub fn bits(&self) -> usize {
        match &self.parts {
            PublicParts::Rsa { modulus, .. } => bits(modulus),
            PublicParts::Ec { curve: Curve::P256, .. } => 256,
            PublicParts::Ec { curve: Curve::P384, .. } => 384,
            PublicParts::Ec { curve: Curve::P521, .. } => 521,
            PublicParts::Ed25519(_) => 255,
        }
    }
}

/// What an AlgorithmIdentifier says of a key.
pub(crate) enum KeyName {
    Rsa,
    Ec(Curve),
    Ed25519,
}

impl KeyName {
    /// Reads what is inside the AlgorithmIdentifier.
    pub(crate) fn read(content: &[u8]) -> Result<Self, KeyFault> {
        let mut reader = Reader::new(content);
        let oid = reader.read(OID)?;
        if oid == EC {
            // RFC 5480 section 2.1.1: a named curve, not its parameters.
            let curve = reader.read_if(OID)?.ok_or(KeyFault::UnknownCurve)?;
            reader.finish()?;
            return Curve::from_oid(curve).map(Self::Ec);
        }
        match (RSA, ED25519) {
            ([_, _, rsa @ ..], _) if content == rsa => Ok(Self::Rsa),
            (_, [_, _, ed25519 @ ..]) if content == ed25519 => Ok(Self::Ed25519),
            ([_, _, _, _, rsa @ ..], _) if rsa.starts_with(oid) => Err(KeyFault::Malformed),
            (_, [_, _, _, _, ed25519 @ ..]) if oid == ed25519 => Err(KeyFault::Malformed),
            _ => Err(KeyFault::UnknownAlgorithm),
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

/// Length in bits of a number without zeros in front.
fn bits(number: &[u8]) -> usize {
    let spare = number.first().map_or(0, |top| top.leading_zeros());
    number.len().saturating_mul(8).saturating_sub(usize::try_from(spare).unwrap_or_default())
}

fn is_odd(number: &[u8]) -> bool {
    number.last().is_some_and(|low| low & 1 == 1)
}

#[cfg(test)]
mod tests;
