//! The door: from an algorithm's name to a key of it.

use crate::{cbc, ccm, chacha, cmac, ctr, ecp, etm, gcm, gmac, hmac, modp, signature, x25519, xcbc};
use alloc::boxed::Box;
use casemate_crypto::{
    AeadAlg, AeadKey, CipherAlg, CipherKey, Digest, EtmKey, HashAlg, KexMethod, KexSecret, KeyError, MacAlg,
    MacKey, MacKind, PrivateKey, Provider, PublicKey, Rng, SignatureAlg, SignatureError, SigningKey,
};

/// The RustCrypto algorithms as a [`Provider`].
#[derive(Debug, Clone, Copy)]
pub struct RustCrypto;

/// The one value of [`RustCrypto`], to be put into [`Providers`](casemate_crypto::Providers).
pub static RUSTCRYPTO: RustCrypto = RustCrypto;

impl Provider for RustCrypto {
    fn name(&self) -> &'static str {
        "rustcrypto"
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        match alg {
            AeadAlg::AesGcm { bits, icv } => gcm::key(bits, icv, key),
            AeadAlg::AesCcm { bits, icv } => ccm::key(bits, icv, key),
            AeadAlg::ChaCha20Poly1305 => chacha::key(key),
        }
    }

    fn cipher(&self, alg: CipherAlg, key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        match alg {
            CipherAlg::AesCbc(bits) => Ok(cbc::key(bits, key)?),
            CipherAlg::AesCtr(bits) => Ok(ctr::key(bits, key)?),
            CipherAlg::Null | CipherAlg::DesCbc | CipherAlg::TripleDesCbc => Err(KeyError::Unsupported),
        }
    }

    fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        mac_key(alg, key)
    }

    fn etm(
        &self,
        cipher: CipherAlg,
        cipher_key: &[u8],
        mac: MacAlg,
        mac_key: &[u8],
    ) -> Result<Box<dyn EtmKey>, KeyError> {
        etm::key(cipher, cipher_key, mac, mac_key)
    }

    fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        match method {
            KexMethod::Modp1536
            | KexMethod::Modp2048
            | KexMethod::Modp3072
            | KexMethod::Modp4096
            | KexMethod::Modp6144
            | KexMethod::Modp8192 => modp::secret(method, rng),
            KexMethod::EcpP256 => ecp::secret::<p256::NistP256>(method, rng),
            KexMethod::EcpP384 => ecp::secret::<p384::NistP384>(method, rng),
            KexMethod::EcpP521 => ecp::secret::<p521::NistP521>(method, rng),
            KexMethod::X25519 => x25519::secret(rng, x25519::by_table),
            KexMethod::X448 => Err(KeyError::Unsupported),
        }
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

/// HMAC takes a key of any length here (RFC 2104); `Providers` holds SAs to the length of RFC 4868.
pub(crate) fn mac_key(alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
    let tag_len = alg.tag_len();
    match alg.kind() {
        MacKind::HmacSha1 => hmac::key::<sha1::Sha1>(key, tag_len),
        MacKind::HmacSha256 => hmac::key::<sha2::Sha256>(key, tag_len),
        MacKind::HmacSha384 => hmac::key::<sha2::Sha384>(key, tag_len),
        MacKind::HmacSha512 => hmac::key::<sha2::Sha512>(key, tag_len),
        MacKind::AesXcbc => xcbc::key(key, tag_len),
        MacKind::AesCmac => cmac::key(key, tag_len),
        MacKind::AesGmac(bits) => gmac::key(bits, key, tag_len),
        MacKind::HmacMd5 => Err(KeyError::Unsupported),
    }
}

/// A primitive from its key bytes, or the length that it wants.
pub(crate) fn init<K: ::aes::cipher::KeyInit>(key: &[u8]) -> Result<K, KeyError> {
    K::new_from_slice(key).map_err(|_| KeyError::KeyLength { expected: K::key_size(), given: key.len() })
}
