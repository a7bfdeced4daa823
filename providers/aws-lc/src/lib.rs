//! Provider on AWS-LC, the fastest library on servers.
//!
//! It has all algorithms except DES, 3DES, MD5 and Curve448; list another provider after it for those
//! ([`casemate_crypto::Providers`]). The crate calls the C library directly (crate `aws-lc-sys`): the safe
//! crate for AWS-LC neither truncates AES-GCM tags nor accepts CTR counter blocks. Threads may share keys,
//! and packet processing allocates nothing. Only the `ffi` module contains `unsafe` code.
#![deny(clippy::arithmetic_side_effects)]

mod ciphers;
mod ffi;
mod kex;
mod mac;
mod signature;
#[cfg(test)]
mod tests;

use casemate_crypto::{
    AeadAlg, AeadKey, AesBits, CipherAlg, CipherKey, Digest, EncryptThenMac, EtmKey, HashAlg, JobStatus,
    KexError, KexMethod, KexResponse, KexSecret, KeyError, MacAlg, MacKey, MacKind, PrivateKey, Provider,
    PublicKey, Rng, SignatureAlg, SignatureError, SigningKey,
};
use ffi::AeadKind;

/// The provider.
pub static AWS_LC: AwsLc = AwsLc;

/// The AWS-LC provider. It has no state: use [`AWS_LC`].
#[derive(Debug)]
pub struct AwsLc;

impl Provider for AwsLc {
    fn name(&self) -> &'static str {
        "aws-lc"
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        let made = match alg {
            AeadAlg::AesGcm { bits, .. } => ciphers::combined(gcm(bits), key, alg.icv_len()),
            AeadAlg::ChaCha20Poly1305 => ciphers::combined(AeadKind::ChaCha20Poly1305, key, alg.icv_len()),
            AeadAlg::AesCcm { bits, .. } => ciphers::ccm(bits, key, alg.icv_len()),
        };
        made.ok_or(refusal(alg.key_len(), key))
    }

    fn cipher(&self, alg: CipherAlg, key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        let made = match alg {
            CipherAlg::AesCbc(bits) => ciphers::cbc(bits, key),
            CipherAlg::AesCtr(bits) => ciphers::ctr(bits, key),
            CipherAlg::Null | CipherAlg::CamelliaCbc(_) | CipherAlg::DesCbc | CipherAlg::TripleDesCbc => {
                return Err(KeyError::Unsupported);
            }
        };
        made.ok_or(refusal(alg.key_len(), key))
    }

    /// HMAC accepts keys of any length (RFC 2104); `Providers` enforces the key length of RFC 4868 for SAs.
    fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        let len = alg.tag_len();
        let made = match alg.kind() {
            MacKind::HmacSha1 => mac::hmac::<ffi::Sha1>(key, len),
            MacKind::HmacSha256 => mac::hmac::<ffi::Sha256>(key, len),
            MacKind::HmacSha384 => mac::hmac::<ffi::Sha384>(key, len),
            MacKind::HmacSha512 => mac::hmac::<ffi::Sha512>(key, len),
            MacKind::AesXcbc => mac::xcbc(key, len),
            MacKind::AesCmac => mac::cmac(key, len),
            MacKind::AesGmac(bits) => mac::gmac(gcm(bits), key, len),
            MacKind::HmacMd5 => return Err(KeyError::Unsupported),
        };
        made.ok_or(refusal(alg.key_len(), key))
    }

    /// Not faster than the cipher and the MAC one after the other. Without this method, `Providers` would
    /// prefer a later provider with a combined key.
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

    fn kex_response(
        &self,
        method: KexMethod,
        peer: &[u8],
        rng: &mut dyn Rng,
    ) -> Result<KexResponse, KexError> {
        kex::response(method, peer, rng)
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

/// Returns the reason for a rejected key.
fn refusal(expected: usize, key: &[u8]) -> KeyError {
    match key.len() {
        given if given == expected => KeyError::Refused,
        given => KeyError::KeyLength { expected, given },
    }
}

#[inline]
fn done(ok: bool) -> JobStatus {
    if ok { JobStatus::Done } else { JobStatus::Failed }
}
