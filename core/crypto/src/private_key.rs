//! Private keys for signatures, read from DER: PKCS #8 (RFC 5208, RFC 5958), RSAPrivateKey (RFC 8017 appendix A.1.2) and
//! ECPrivateKey (RFC 5915).

use crate::der::{INTEGER, OCTET_STRING, OID, Reader, SEQUENCE};
use crate::public_key::KeyName;
use crate::{Curve, KeyFault, KeyLimits, PublicKey, SecretBytes};

/// A private key that no provider has seen yet.
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
        /// The secret number, big-endian, as long as the curve's field. Not yet known to be in range: the provider looks.
        scalar: SecretBytes,
    },
    /// Ed25519: the 32 bytes that RFC 8032 section 5.1.5 calls the private key.
    Ed25519(SecretBytes),
}

/// The numbers of an RSA key. That they fit together is for the provider to find out.
#[derive(Debug)]
pub struct RsaPrivateKey {
    der: SecretBytes,
    public: PublicKey,
}

/// Big-endian numbers, without zeros in front.
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
    /// Reads any of the three forms.
    pub fn from_der(der: &[u8], limits: KeyLimits) -> Result<Self, KeyFault> {
        let mut reader = Reader::only(SEQUENCE, der)?;
        if reader.peek() == Some(SEQUENCE) {
            // RFC 5958 section 3: EncryptedPrivateKeyInfo begins with the algorithm.
            return Err(KeyFault::Encrypted);
        }
        let version = reader.unsigned()?;
        match (version, reader.peek()) {
            ([] | [1], Some(SEQUENCE)) => from_pkcs8(reader, limits),
            ([], Some(INTEGER)) => RsaPrivateKey::from_der(der, limits).map(Self::Rsa),
            ([1], Some(OCTET_STRING)) => from_sec1(der, None),
            _ => Err(KeyFault::Malformed),
        }
    }
}

/// PrivateKeyInfo behind its version. What may follow the key, attributes and the public key, is not needed.
fn from_pkcs8(mut reader: Reader<'_>, limits: KeyLimits) -> Result<PrivateKey, KeyFault> {
    let algorithm = reader.read(SEQUENCE)?;
    let key = reader.read(OCTET_STRING)?;
    reader.read_if(0xA0)?;
    reader.read_if(0x81)?;
    reader.finish()?;
    match KeyName::read(algorithm)? {
        KeyName::Rsa => RsaPrivateKey::from_der(key, limits).map(PrivateKey::Rsa),
        KeyName::Ec(curve) => from_sec1(key, Some(curve)),
        KeyName::Ed25519 => {
            // RFC 8410 section 7: an OCTET STRING inside the OCTET STRING.
            let mut reader = Reader::new(key);
            let seed = reader.read(OCTET_STRING)?;
            reader.finish()?;
            let right = seed.len() == 32;
            right.then(|| PrivateKey::Ed25519(SecretBytes::new(seed))).ok_or(KeyFault::Malformed)
        }
    }
}

/// RFC 5915 section 3; `known` is the curve that PKCS #8 names around it.
fn from_sec1(der: &[u8], known: Option<Curve>) -> Result<PrivateKey, KeyFault> {
    let mut reader = Reader::only(SEQUENCE, der)?;
    if reader.unsigned()? != [1] {
        return Err(KeyFault::Malformed);
    }
    let scalar = reader.read(OCTET_STRING)?;
    let named = reader.read_if(0xA0)?.map(|name| {
        let mut reader = Reader::new(name);
        let oid = reader.read_if(OID)?.ok_or(KeyFault::UnknownCurve)?;
        reader.finish()?;
        Curve::from_oid(oid)
    });
    reader.read_if(0xA1)?;
    reader.finish()?;
    let curve = match (named.transpose()?, known) {
        (Some(named), Some(known)) if named != known => return Err(KeyFault::Malformed),
        (named, known) => named.or(known).ok_or(KeyFault::UnknownCurve)?,
    };
    // RFC 5915 section 3: as long as the curve's order, which in the three curves is as long as the field.
    if scalar.len() != curve.field_len() {
        return Err(KeyFault::Malformed);
    }
    Ok(PrivateKey::Ec { curve, scalar: SecretBytes::new(scalar) })
}

impl RsaPrivateKey {
    fn from_der(der: &[u8], limits: KeyLimits) -> Result<Self, KeyFault> {
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

    /// Its numbers. They are secrets: do not copy them into anything that is not wiped.
    pub fn numbers(&self) -> Result<RsaNumbers<'_>, KeyFault> {
        numbers(self.der.expose())
    }
}

/// The numbers of RSAPrivateKey.
fn numbers(der: &[u8]) -> Result<RsaNumbers<'_>, KeyFault> {
    let mut reader = Reader::only(SEQUENCE, der)?;
    // RFC 8017 appendix A.1.2: version 1 has more than two primes.
    if !reader.unsigned()?.is_empty() {
        return Err(KeyFault::Malformed);
    }
    let mut next = || reader.unsigned();
    let (modulus, public_exponent, private_exponent) = (next()?, next()?, next()?);
    let primes = [next()?, next()?];
    // Exponents and coefficient of the Chinese remainder theorem.
    for _ in 0..3 {
        next()?;
    }
    reader.finish()?;
    Ok(RsaNumbers { modulus, public_exponent, private_exponent, primes })
}

#[cfg(test)]
mod tests;
