//! Signatures, and digests of public data.

mod ecdsa;
mod rsa;

use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{
    Curve, Digest, HashAlg, KeyError, PrivateKey, PublicKey, PublicParts, Rng, SecretBytes, SignatureAlg,
    SignatureError, SigningKey,
};
use core::convert::Infallible;
use ed25519_dalek::{Signer, Verifier};
use p256::NistP256;
use p384::NistP384;
use p521::NistP521;
use sha2::digest;

/// Returns the digest of the concatenation of `parts`.
pub(crate) fn hash(alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
    match alg {
        HashAlg::Sha1 => digest_of::<sha1::Sha1>(alg, parts),
        HashAlg::Sha256 => digest_of::<sha2::Sha256>(alg, parts),
        HashAlg::Sha384 => digest_of::<sha2::Sha384>(alg, parts),
        HashAlg::Sha512 => digest_of::<sha2::Sha512>(alg, parts),
    }
}

/// Implements [`hash`] for one hash function, which is that of `alg`.
pub(crate) fn digest_of<D: digest::Digest>(alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
    let state = parts.iter().fold(D::new(), |state, part| state.chain_update(part));
    let digest = state.finalize();
    Digest::of(alg, |out| {
        out.iter_mut().zip(&digest).for_each(|(to, from)| *to = *from);
        out.len() == digest.len()
    })
}

/// Implements `Provider::verify`.
pub(crate) fn verify(
    alg: SignatureAlg,
    key: &PublicKey,
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    let holds = match (alg, key.parts()) {
        (SignatureAlg::RsaPkcs1(hash), PublicParts::Rsa { modulus, exponent, .. }) => {
            rsa::verify(rsa::Padding::Pkcs1, hash, (modulus, exponent), message, signature)
        }
        (SignatureAlg::RsaPss(hash), PublicParts::Rsa { modulus, exponent, .. }) => {
            rsa::verify(rsa::Padding::Pss, hash, (modulus, exponent), message, signature)
        }
        (SignatureAlg::Ecdsa(hash), PublicParts::Ec { curve, point, .. }) => match curve {
            Curve::P256 => ecdsa::verify::<NistP256>(*curve, hash, point, message, signature),
            Curve::P384 => ecdsa::verify::<NistP384>(*curve, hash, point, message, signature),
            Curve::P521 => ecdsa::verify::<NistP521>(*curve, hash, point, message, signature),
        },
        (SignatureAlg::Ed25519, PublicParts::Ed25519(key)) => verify_ed25519(key, message, signature),
        _ => return Err(SignatureError::WrongKey),
    };
    holds.ok_or(SignatureError::Invalid)
}

/// Implements `Provider::signing_key`.
pub(crate) fn signing_key(key: &PrivateKey) -> Result<Box<dyn SigningKey>, KeyError> {
    let made = match key {
        PrivateKey::Rsa(key) => rsa::key(key),
        PrivateKey::Ec { curve, scalar, .. } => match curve {
            Curve::P256 => ecdsa::key::<NistP256>(*curve, scalar),
            Curve::P384 => ecdsa::key::<NistP384>(*curve, scalar),
            Curve::P521 => ecdsa::key::<NistP521>(*curve, scalar),
        },
        PrivateKey::Ed25519(seed) => ed25519_key(seed),
        _ => return Err(KeyError::Unsupported),
    };
    made.ok_or(KeyError::Refused)
}

/// The caller's random source in the form that the RustCrypto crates expect. The drawn bytes are secrets.
struct SecretRng<'r>(&'r mut dyn Rng);

impl rand_core::TryRng for SecretRng<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.0.secret(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.0.secret(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        self.0.secret(out);
        Ok(())
    }
}

impl rand_core::TryCryptoRng for SecretRng<'_> {}

/// Verifies an Ed25519 signature. RFC 8032 section 5.1.7 allows verification with and without multiplication
/// by the cofactor. This provider, like AWS-LC, does not multiply.
fn verify_ed25519(key: &[u8; 32], message: &[u8], signature: &[u8]) -> Option<()> {
    let key = ed25519_dalek::VerifyingKey::from_bytes(key).ok()?;
    key.verify(message, &ed25519_dalek::Signature::from_slice(signature).ok()?).ok()
}

/// A signing key of Ed25519 (RFC 8032, RFC 8420).
struct Ed25519Key {
    private: ed25519_dalek::SigningKey,
    public: PublicKey,
}

fn ed25519_key(seed: &SecretBytes) -> Option<Box<dyn SigningKey>> {
    let private = ed25519_dalek::SigningKey::from_bytes(seed.expose().try_into().ok()?);
    let public = PublicKey::ed25519(private.verifying_key().to_bytes());
    Some(Box::new(Ed25519Key { private, public }))
}

impl SigningKey for Ed25519Key {
    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, alg: SignatureAlg, message: &[u8], _: &mut dyn Rng) -> Result<Vec<u8>, SignatureError> {
        if !alg.accepts_key(self.public.kind()) {
            return Err(SignatureError::WrongKey);
        }
        let signature = self.private.try_sign(message).map_err(|_| SignatureError::Failed)?;
        Ok(signature.to_bytes().to_vec())
    }
}
