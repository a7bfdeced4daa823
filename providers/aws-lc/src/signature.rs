//! Signatures, and digests of public data.
//!
//! The library uses its own random source for salts, nonces and blinding factors, not that of the caller.

use crate::ffi::{Curve as EcCurve, EcKey, EvpKey, Hash, Sha1, Sha256, Sha384, Sha512, Wiped};
use casemate_crypto::{
    Curve, Digest, HashAlg, KeyError, MAX_TAG, PrivateKey, PublicKey, Rng, SignatureAlg, SignatureError,
    SigningKey,
};

/// Returns the digest of the concatenation of `parts`.
pub(crate) fn hash(alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
    match alg {
        HashAlg::Sha1 => digest::<Sha1>(alg, parts),
        HashAlg::Sha256 => digest::<Sha256>(alg, parts),
        HashAlg::Sha384 => digest::<Sha384>(alg, parts),
        HashAlg::Sha512 => digest::<Sha512>(alg, parts),
    }
}

fn digest<H: Hash>(alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
    let mut state = Wiped::<H>::zeroed();
    let mut bytes = [0; MAX_TAG];
    let hashed = state.start() && parts.iter().all(|part| state.update(part)) && state.finish(&mut bytes);
    Digest::of(alg, |out| {
        out.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
        hashed && out.len() == H::DIGEST
    })
}

/// Implements `Provider::verify`.
pub(crate) fn verify(
    alg: SignatureAlg,
    key: &PublicKey,
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    if !alg.accepts_key(key.kind()) {
        return Err(SignatureError::WrongKey);
    }
    let holds = EvpKey::from_spki(key.spki()).and_then(|key| key.verify(alg, message, signature));
    if holds == Some(true) { Ok(()) } else { Err(SignatureError::Invalid) }
}

struct Signing {
    private: EvpKey,
    public: PublicKey,
}

/// Implements `Provider::signing_key`.
pub(crate) fn signing_key(key: &PrivateKey) -> Result<Box<dyn SigningKey>, KeyError> {
    let made = match key {
        PrivateKey::Rsa(key) => {
            EvpKey::from_rsa(key.der().expose()).map(|private| (private, key.public().clone()))
        }
        PrivateKey::Ec { curve, scalar, .. } => ec(*curve, scalar.expose()),
        PrivateKey::Ed25519(seed) => {
            EvpKey::from_ed25519(seed.expose()).map(|(private, public)| (private, PublicKey::ed25519(public)))
        }
        _ => return Err(KeyError::Unsupported),
    };
    let (private, public) = made.ok_or(KeyError::Refused)?;
    Ok(Box::new(Signing { private, public }))
}

fn ec(curve: Curve, scalar: &[u8]) -> Option<(EvpKey, PublicKey)> {
    let name = match curve {
        Curve::P256 => EcCurve::P256,
        Curve::P384 => EcCurve::P384,
        Curve::P521 => EcCurve::P521,
    };
    let mut key = EcKey::new(name, scalar)?;
    let coordinates = key.complete(curve.field_len().checked_mul(2)?)?;
    let public = PublicKey::ec(curve, &[&[4], &coordinates[..]].concat()).ok()?;
    Some((EvpKey::from_ec(&key)?, public))
}

impl SigningKey for Signing {
    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, alg: SignatureAlg, message: &[u8], _: &mut dyn Rng) -> Result<Vec<u8>, SignatureError> {
        if !alg.accepts_key(self.public.kind()) {
            return Err(SignatureError::WrongKey);
        }
        self.private.sign(alg, message).ok_or(SignatureError::Failed)
    }
}
