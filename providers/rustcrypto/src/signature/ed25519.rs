//! Ed25519 (RFC 8032, RFC 8420).

use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{PublicKey, Rng, SecretBytes, SignatureAlg, SignatureError, SigningKey};
use ed25519_dalek::{Signature, Signer, Verifier, VerifyingKey};

/// Whether the signature holds. RFC 8032 section 5.1.7 leaves it open whether the equation is multiplied by the cofactor; here,
/// as in AWS-LC, it is not.
pub(super) fn verify(key: &[u8; 32], message: &[u8], signature: &[u8]) -> Option<()> {
    let key = VerifyingKey::from_bytes(key).ok()?;
    key.verify(message, &Signature::from_slice(signature).ok()?).ok()
}

struct Key {
    private: ed25519_dalek::SigningKey,
    public: PublicKey,
}

pub(super) fn key(seed: &SecretBytes) -> Option<Box<dyn SigningKey>> {
    let private = ed25519_dalek::SigningKey::from_bytes(seed.expose().try_into().ok()?);
    let public = PublicKey::ed25519(private.verifying_key().to_bytes());
    Some(Box::new(Key { private, public }))
}

impl SigningKey for Key {
    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, alg: SignatureAlg, message: &[u8], _: &mut dyn Rng) -> Result<Vec<u8>, SignatureError> {
        if !alg.fits(self.public.kind()) {
            return Err(SignatureError::WrongKey);
        }
        let signature = self.private.try_sign(message).map_err(|_| SignatureError::Failed)?;
        Ok(signature.to_bytes().to_vec())
    }
}
