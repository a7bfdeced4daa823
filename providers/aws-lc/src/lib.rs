//! AWS-LC as a provider: the fastest on servers.
//!
//! Has all algorithms but DES, 3DES, MD5 and Curve448; for those put another provider behind it ([`casemate_crypto::Providers`]).
//! Calls the C library directly (crate `aws-lc-sys`), because the safe crate above it neither truncates an AES-GCM tag nor
//! takes a CTR counter block. A key may be used by all cores at once, and nothing allocates for a packet. `unsafe` is in
//! its `ffi` module alone.
#![deny(clippy::arithmetic_side_effects)]

mod aead;
mod block_mac;
mod ccm;
mod cipher;
mod ffi;
mod hmac;
mod kex;
mod signature;
#[cfg(test)]
mod tests;

use casemate_crypto::{
    AeadAlg, AeadKey, AesBits, CipherAlg, CipherKey, Digest, EncryptThenMac, EtmKey, HashAlg, KexMethod,
    KexSecret, KeyError, MacAlg, MacKey, MacKind, Outcome, PrivateKey, Provider, PublicKey, Rng,
    SignatureAlg, SignatureError, SigningKey,
};
use ffi::AeadKind;

/// The provider.
pub static AWS_LC: AwsLc = AwsLc;

/// AWS-LC. It has no state of its own: use [`AWS_LC`].
#[derive(Debug)]
pub struct AwsLc;

impl Provider for AwsLc {
    fn name(&self) -> &'static str {
        "aws-lc"
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        let made = match alg {
            AeadAlg::AesGcm { bits, .. } => aead::combined(gcm(bits), key, alg.icv_len()),
            AeadAlg::ChaCha20Poly1305 => aead::combined(AeadKind::ChaCha20Poly1305, key, alg.icv_len()),
            AeadAlg::AesCcm { bits, .. } => ccm::ccm(bits, key, alg.icv_len()),
        };
        made.ok_or(refusal(alg.key_len(), key))
    }

    fn cipher(&self, alg: CipherAlg, key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        let made = match alg {
            CipherAlg::AesCbc(bits) => cipher::cbc(bits, key),
            CipherAlg::AesCtr(bits) => cipher::ctr(bits, key),
            CipherAlg::Null | CipherAlg::DesCbc | CipherAlg::TripleDesCbc => {
                return Err(KeyError::Unsupported);
            }
        };
        made.ok_or(refusal(alg.key_len(), key))
    }

    /// HMAC takes a key of any length here (RFC 2104); `Providers` holds SAs to the length of RFC 4868.
    fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        let len = alg.tag_len();
        let made = match alg.kind() {
            MacKind::HmacSha1 => hmac::hmac::<ffi::Sha1>(key, len),
            MacKind::HmacSha256 => hmac::hmac::<ffi::Sha256>(key, len),
            MacKind::HmacSha384 => hmac::hmac::<ffi::Sha384>(key, len),
            MacKind::HmacSha512 => hmac::hmac::<ffi::Sha512>(key, len),
            MacKind::AesXcbc => block_mac::xcbc(key, len),
            MacKind::AesCmac => block_mac::cmac(key, len),
            MacKind::AesGmac(bits) => aead::gmac(gcm(bits), key, len),
            MacKind::HmacMd5 => return Err(KeyError::Unsupported),
        };
        made.ok_or(refusal(alg.key_len(), key))
    }

    /// Nothing is fused, but the pair is offered as one: `Providers` would otherwise prefer a later provider that fuses.
    fn etm(
        &self,
        cipher: CipherAlg,
        cipher_key: &[u8],
        mac: MacAlg,
        mac_key: &[u8],
    ) -> Result<Box<dyn EtmKey>, KeyError> {
        let cipher = match cipher {
            CipherAlg::Null => None,
            _ => Some(self.cipher(cipher, cipher_key)?),
        };
        Ok(Box::new(EncryptThenMac::new(cipher, self.mac(mac, mac_key)?)))
    }

    fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        kex::secret(method, rng)
    }

    fn hash(&self, alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
        signature::hash(alg, parts)
    }

    fn signing_key(&self, key: &PrivateKey) -> Result<Box<dyn SigningKey>, KeyError> {
        signature::signing_key(key)
    }

    fn verify(
        &self,
        alg: SignatureAlg,
        key: &PublicKey,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        signature::verify(alg, key, message, signature)
    }
}

fn gcm(bits: AesBits) -> AeadKind {
    match bits {
        AesBits::B128 => AeadKind::Aes128Gcm,
        AesBits::B192 => AeadKind::Aes192Gcm,
        AesBits::B256 => AeadKind::Aes256Gcm,
    }
}

/// Why a key was not made.
fn refusal(expected: usize, key: &[u8]) -> KeyError {
    match key.len() {
        given if given == expected => KeyError::Refused,
        given => KeyError::KeyLength { expected, given },
    }
}

#[inline]
fn done(ok: bool) -> Outcome {
    if ok { Outcome::Done } else { Outcome::Failed }
}
