//! Signatures, and digests of public data.

mod ecdsa;
mod ed25519;
mod rsa;

use alloc::boxed::Box;
use casemate_crypto::{
    Curve, Digest, HashAlg, KeyError, PrivateKey, PublicKey, PublicParts, Rng, SignatureAlg, SignatureError,
    SigningKey,
};
use core::convert::Infallible;
use p256::NistP256;
use p384::NistP384;
use p521::NistP521;
use sha2::digest;

/// The digest of `parts`.
pub(crate) fn hash(alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
    match alg {
        HashAlg::Sha1 => digest_of::<sha1::Sha1>(alg, parts),
        HashAlg::Sha256 => digest_of::<sha2::Sha256>(alg, parts),
        HashAlg::Sha384 => digest_of::<sha2::Sha384>(alg, parts),
        HashAlg::Sha512 => digest_of::<sha2::Sha512>(alg, parts),
    }
}

/// As [`hash`], with the function that is `alg`.
pub(crate) fn digest_of<D: digest::Digest>(alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
    let state = parts.iter().fold(D::new(), |state, part| state.chain_update(part));
    let digest = state.finalize();
    Digest::of(alg, |out| {
        out.iter_mut().zip(&digest).for_each(|(to, from)| *to = *from);
        out.len() == digest.len()
    })
}

/// See `Provider::verify`.
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
        (SignatureAlg::Ed25519, PublicParts::Ed25519(key)) => ed25519::verify(key, message, signature),
        _ => return Err(SignatureError::WrongKey),
    };
    holds.ok_or(SignatureError::Invalid)
}

/// See `Provider::signing_key`.
pub(crate) fn signing_key(key: &PrivateKey) -> Result<Box<dyn SigningKey>, KeyError> {
    let made = match key {
        PrivateKey::Rsa(key) => rsa::key(key),
        PrivateKey::Ec { curve, scalar, .. } => match curve {
            Curve::P256 => ecdsa::key::<NistP256>(*curve, scalar),
            Curve::P384 => ecdsa::key::<NistP384>(*curve, scalar),
            Curve::P521 => ecdsa::key::<NistP521>(*curve, scalar),
        },
        PrivateKey::Ed25519(seed) => ed25519::key(seed),
        _ => return Err(KeyError::Unsupported),
    };
    made.ok_or(KeyError::Refused)
}

/// The caller's random source, as the RustCrypto crates take one. What they draw stays secret.
struct Source<'r>(&'r mut dyn Rng);

impl rand_core::TryRng for Source<'_> {
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

impl rand_core::TryCryptoRng for Source<'_> {}
