//! Signatures as tokens make them.

use crate::TokenError;
use casemate_crypto::der::{self, OID, SEQUENCE};
use casemate_crypto::{Curve, HashAlg, KeyKind, Providers, SignatureAlg, ecdsa_from_fixed};
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::ObjectHandle;
use cryptoki::session::Session;
use std::ffi::c_ulong;

const OCTET_STRING: u8 = 0x04;
const NULL: &[u8] = &[5, 0];

/// Signs a message with a private key of this kind.
pub(crate) fn sign(
    session: &Session,
    key: ObjectHandle,
    kind: KeyKind,
    alg: SignatureAlg,
    message: &[u8],
    providers: &Providers<'_>,
) -> Result<Vec<u8>, TokenError> {
    let digest = |hash| {
        let digest = providers.hash(hash, &[message]);
        digest.ok_or_else(|| TokenError::Algorithm(format!("no provider has {hash}")))
    };
    match (alg, kind) {
        (SignatureAlg::RsaPkcs1(hash), KeyKind::Rsa) => {
            // RFC 8017 section 9.2: the token adds the padding to the DigestInfo.
            let info = digest_info(hash, digest(hash)?.as_slice());
            Ok(session.sign(&Mechanism::RsaPkcs, key, &info)?)
        }
        (SignatureAlg::RsaPss(hash), KeyKind::Rsa) => {
            let digest = digest(hash)?;
            let mechanism = Mechanism::RsaPkcsPss(pss_params(hash, digest.as_slice().len())?);
            Ok(session.sign(&mechanism, key, digest.as_slice())?)
        }
        (SignatureAlg::Ecdsa(hash), KeyKind::Ec(curve)) => {
            let digest = digest(hash)?;
            let signature = session.sign(&Mechanism::Ecdsa, key, leftmost(digest.as_slice(), curve))?;
            ecdsa_from_fixed(curve, &signature).map_err(|fault| TokenError::Other(fault.to_string()))
        }
        (SignatureAlg::Ed25519, KeyKind::Ed25519) => {
            let mechanism = Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519));
            Ok(session.sign(&mechanism, key, message)?)
        }
        _ => Err(TokenError::Algorithm(format!("{alg} with a {kind} key"))),
    }
}

/// The part of a digest that ECDSA uses (FIPS 186-5 section 6.4.1). Not every token shortens it.
fn leftmost(digest: &[u8], curve: Curve) -> &[u8] {
    digest.get(..curve.field_len()).unwrap_or(digest)
}

/// DigestInfo (RFC 8017 section 9.2).
fn digest_info(hash: HashAlg, digest: &[u8]) -> Vec<u8> {
    let oid: &[u8] = match hash {
        HashAlg::Sha1 => &[0x2B, 14, 3, 2, 26],
        HashAlg::Sha256 => &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1],
        HashAlg::Sha384 => &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2],
        HashAlg::Sha512 => &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3],
    };
    let algorithm = der::write(SEQUENCE, &[&der::write(OID, &[oid]), NULL]);
    der::write(SEQUENCE, &[&algorithm, &der::write(OCTET_STRING, &[digest])])
}

/// MGF1 with the same hash function, and a salt as long as the digest.
fn pss_params(hash: HashAlg, len: usize) -> Result<PkcsPssParams, TokenError> {
    let (hash_alg, mgf) = match hash {
        HashAlg::Sha1 => (MechanismType::SHA1, PkcsMgfType::MGF1_SHA1),
        HashAlg::Sha256 => (MechanismType::SHA256, PkcsMgfType::MGF1_SHA256),
        HashAlg::Sha384 => (MechanismType::SHA384, PkcsMgfType::MGF1_SHA384),
        HashAlg::Sha512 => (MechanismType::SHA512, PkcsMgfType::MGF1_SHA512),
    };
    let len = u8::try_from(len).map_err(|_| TokenError::Algorithm("a salt that long".into()))?;
    Ok(PkcsPssParams { hash_alg, mgf, s_len: c_ulong::from(len).into() })
}
