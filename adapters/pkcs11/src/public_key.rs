//! The public key of a key pair on a token, as a SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7).
//!
//! It comes from the public key object with the same CKA_ID, from the private key of RSA, or from the
//! certificate with the same CKA_ID: many cards have no public key objects.

use crate::login::find;
use crate::{TokenError, read_certificate};
use casemate_crypto::der::{self, BIT_STRING, Malformed, OID, Reader, SEQUENCE};
use casemate_crypto::{KeyLimits, PublicKey};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::Session;

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const NULL: &[u8] = &[5, 0];
/// Tag of the version of a certificate: constructed, context-specific 0.
const VERSION: u8 = 0xA0;
/// rsaEncryption (RFC 3279 section 2.3.1).
const RSA: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1];
/// id-ecPublicKey (RFC 5480 section 2.1.1).
const EC: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 2, 1];
/// id-Ed25519 (RFC 8410 section 3).
const ED25519: &[u8] = &[0x2B, 0x65, 0x70];
/// Length of an Ed25519 public key in bytes.
const ED25519_LEN: usize = 32;

/// Reads the public key of a private key.
pub(crate) fn read(session: &Session, private: ObjectHandle, id: &[u8]) -> Result<PublicKey, TokenError> {
    let public = find(session, ObjectClass::PUBLIC_KEY, id)?;
    let mut spki = None;
    for object in public.into_iter().chain([private]) {
        spki = spki.or(Parts::read(session, object)?.spki());
    }
    let spki = match spki {
        Some(spki) => spki,
        None => {
            let certificate = read_certificate(session, id)?;
            let spki = certificate.and_then(|der| spki_of_certificate(&der).ok());
            let why = "neither a public key nor a certificate has its handle (CKA_ID)";
            spki.ok_or_else(|| TokenError::Key(why.into()))?
        }
    };
    PublicKey::from_spki(&spki, KeyLimits::default()).map_err(|fault| TokenError::Key(fault.to_string()))
}

/// Attributes of a key.
#[derive(Default)]
struct Parts {
    kind: Option<KeyType>,
    modulus: Vec<u8>,
    exponent: Vec<u8>,
    params: Vec<u8>,
    point: Vec<u8>,
}

impl Parts {
    fn read(session: &Session, object: ObjectHandle) -> Result<Self, TokenError> {
        const WANTED: [AttributeType; 5] = [
            AttributeType::KeyType,
            AttributeType::Modulus,
            AttributeType::PublicExponent,
            AttributeType::EcParams,
            AttributeType::EcPoint,
        ];
        let mut parts = Self::default();
        for attribute in session.get_attributes(object, &WANTED)? {
            match attribute {
                Attribute::KeyType(kind) => parts.kind = Some(kind),
                Attribute::Modulus(bytes) => parts.modulus = bytes,
                Attribute::PublicExponent(bytes) => parts.exponent = bytes,
                Attribute::EcParams(bytes) => parts.params = bytes,
                Attribute::EcPoint(bytes) => parts.point = bytes,
                _ => {}
            }
        }
        Ok(parts)
    }

    /// `None` if the object does not contain the public key.
    fn spki(&self) -> Option<Vec<u8>> {
        match self.kind? {
            KeyType::RSA if !self.modulus.is_empty() && !self.exponent.is_empty() => {
                let numbers = [&self.modulus, &self.exponent].map(|bytes| der::write_unsigned(bytes));
                let key = der::write(SEQUENCE, &[&numbers[0], &numbers[1]]);
                Some(spki(&[&der::write(OID, &[RSA]), NULL], &key))
            }
            KeyType::EC if !self.point.is_empty() => {
                Some(spki(&[&der::write(OID, &[EC]), &self.params], octets(&self.point)))
            }
            KeyType::EC_EDWARDS if octets(&self.point).len() == ED25519_LEN => {
                Some(spki(&[&der::write(OID, &[ED25519])], octets(&self.point)))
            }
            _ => None,
        }
    }
}

/// CKA_EC_POINT is an OCTET STRING in DER; some modules leave out its header.
fn octets(point: &[u8]) -> &[u8] {
    Reader::only(OCTET_STRING, point).map_or(point, Reader::rest)
}

fn spki(algorithm: &[&[u8]], key: &[u8]) -> Vec<u8> {
    // No bit of the last byte is unused.
    let bits = der::write(BIT_STRING, &[&[0], key]);
    der::write(SEQUENCE, &[&der::write(SEQUENCE, algorithm), &bits])
}

/// The SubjectPublicKeyInfo of a certificate (RFC 5280 section 4.1).
fn spki_of_certificate(certificate: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut tbs = Reader::only(SEQUENCE, certificate)?.read_nested(SEQUENCE)?;
    tbs.read_optional(VERSION)?;
    tbs.read(INTEGER)?;
    // Signature algorithm, issuer, validity and subject.
    for _ in 0..4 {
        tbs.read(SEQUENCE)?;
    }
    Ok(der::write(SEQUENCE, &[tbs.read(SEQUENCE)?]))
}
