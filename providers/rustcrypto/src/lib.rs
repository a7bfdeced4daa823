//! Algorithms of ESP, AH and IKE from the RustCrypto crates (X25519 from dalek): portable, `no_std`, no
//! unsafe code in this crate.
//!
//! Runs on every Rust target. Uses the AES, carry-less multiplication and SHA instructions of the processor
//! if available, otherwise constant-time code. DES, 3DES and MD5 are in `casemate-legacy`.
//!
//! Key setup allocates memory, packet processing does not. Keys and key schedules are wiped on drop.
//!
//! Sequential modes (CBC encryption, CMAC, XCBC) process the packets of a batch in parallel.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod aead;
mod cipher;
mod kex;
mod mac;
#[cfg(feature = "ml-kem")]
mod ml_kem;
mod signature;
mod single;
#[cfg(feature = "uncommon")]
mod uncommon;

pub use single::{
    AES_128_CBC, AES_128_GCM, AES_256_CBC, AES_256_GCM, CHACHA20_POLY1305, ECP_P256, HMAC_SHA1, HMAC_SHA256,
    HMAC_SHA384, HMAC_SHA512, SHA1, X25519,
};

#[cfg(feature = "ml-kem")]
pub use single::{ML_KEM_512, ML_KEM_768, ML_KEM_1024};

#[cfg(feature = "uncommon")]
pub use uncommon::{UNCOMMON, Uncommon};

use alloc::boxed::Box;
use casemate_crypto::{
    AeadAlg, AeadKey, CipherAlg, CipherKey, Digest, EtmKey, HashAlg, KexMethod, KexSecret, KeyError, MacAlg,
    MacKey, MacKind, PrivateKey, Provider, PublicKey, Rng, SignatureAlg, SignatureError, SigningKey,
};

#[cfg(feature = "ml-kem")]
use casemate_crypto::{KexError, KexResponse};

/// The RustCrypto algorithms as a [`Provider`].
#[derive(Debug, Clone, Copy)]
pub struct RustCrypto;

/// The value of [`RustCrypto`], to be listed in [`Providers`](casemate_crypto::Providers).
pub static RUSTCRYPTO: RustCrypto = RustCrypto;

impl Provider for RustCrypto {
    fn name(&self) -> &'static str {
        "rustcrypto"
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        match alg {
            AeadAlg::AesGcm { bits, icv } => aead::gcm(bits, icv, key),
            AeadAlg::AesCcm { bits, icv } => aead::ccm(bits, icv, key),
            AeadAlg::ChaCha20Poly1305 => aead::chacha20_poly1305(key),
        }
    }

    fn cipher(&self, alg: CipherAlg, key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        match alg {
            CipherAlg::AesCbc(bits) => Ok(cipher::cbc(bits, key)?),
            CipherAlg::AesCtr(bits) => Ok(cipher::ctr(bits, key)?),
            _ => Err(KeyError::Unsupported),
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
        cipher::etm_key(cipher, cipher_key, mac, mac_key)
    }

    fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        match method {
            KexMethod::Modp1536
            | KexMethod::Modp2048
            | KexMethod::Modp3072
            | KexMethod::Modp4096
            | KexMethod::Modp6144
            | KexMethod::Modp8192 => kex::modp(method, rng),
            KexMethod::EcpP256 => kex::ecp::<p256::NistP256>(method, rng),
            KexMethod::EcpP384 => kex::ecp::<p384::NistP384>(method, rng),
            KexMethod::EcpP521 => kex::ecp::<p521::NistP521>(method, rng),
            KexMethod::X25519 => kex::x25519(rng, kex::x25519_by_table),
            #[cfg(feature = "ml-kem")]
            KexMethod::MlKem512 => ml_kem::initiator::<::ml_kem::MlKem512>(method, rng),
            #[cfg(feature = "ml-kem")]
            KexMethod::MlKem768 => ml_kem::initiator::<::ml_kem::MlKem768>(method, rng),
            #[cfg(feature = "ml-kem")]
            KexMethod::MlKem1024 => ml_kem::initiator::<::ml_kem::MlKem1024>(method, rng),
            _ => Err(KeyError::Unsupported),
        }
    }

    #[cfg(feature = "ml-kem")]
    fn kex_response(
        &self,
        method: KexMethod,
        peer: &[u8],
        rng: &mut dyn Rng,
    ) -> Result<KexResponse, KexError> {
        match method {
            KexMethod::MlKem512 => ml_kem::respond::<::ml_kem::MlKem512>(method, peer, rng),
            KexMethod::MlKem768 => ml_kem::respond::<::ml_kem::MlKem768>(method, peer, rng),
            KexMethod::MlKem1024 => ml_kem::respond::<::ml_kem::MlKem1024>(method, peer, rng),
            _ => KexResponse::with_secret(self.kex(method, rng)?, peer),
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

/// Sets up a MAC key. HMAC accepts keys of any length (RFC 2104); `Providers` enforces the key length of RFC
/// 4868 for SAs.
pub(crate) fn mac_key(alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
    let tag_len = alg.tag_len();
    match alg.kind() {
        MacKind::HmacSha1 => mac::hmac::<sha1::Sha1>(key, tag_len),
        MacKind::HmacSha256 => mac::hmac::<sha2::Sha256>(key, tag_len),
        MacKind::HmacSha384 => mac::hmac::<sha2::Sha384>(key, tag_len),
        MacKind::HmacSha512 => mac::hmac::<sha2::Sha512>(key, tag_len),
        MacKind::AesXcbc => mac::xcbc(key, tag_len),
        MacKind::AesCmac => mac::cmac(key, tag_len),
        MacKind::AesGmac(bits) => mac::gmac(bits, key, tag_len),
        MacKind::HmacMd5 => Err(KeyError::Unsupported),
    }
}

/// Creates a primitive from its key. Returns an error with the required length if the key has another length.
pub(crate) fn init<K: aes::cipher::KeyInit>(key: &[u8]) -> Result<K, KeyError> {
    K::new_from_slice(key).map_err(|_| KeyError::KeyLength { expected: K::key_size(), given: key.len() })
}

#[cfg(test)]
mod tests {
    //! Checks that key material is wiped on drop: the test does not compile if a dependency loses its
    //! `zeroize` feature.

    use aes::{Aes128, Aes128Enc, Aes192, Aes192Enc, Aes256, Aes256Enc};
    use aes_gcm::AesGcm;
    use aes_gcm::aead::consts::U12;
    use chacha20poly1305::ChaCha20Poly1305;
    use zeroize::ZeroizeOnDrop;

    fn wiped<T: ZeroizeOnDrop>() {}

    #[test]
    fn every_key_is_wiped_on_drop() {
        // `Cbc`, `Ctr` and `Ccm` contain only one of these.
        wiped::<Aes128>();
        wiped::<Aes192>();
        wiped::<Aes256>();
        wiped::<Aes128Enc>();
        wiped::<Aes192Enc>();
        wiped::<Aes256Enc>();
        wiped::<AesGcm<Aes128Enc, U12>>();
        wiped::<AesGcm<Aes192Enc, U12>>();
        wiped::<AesGcm<Aes256Enc, U12>>();
        wiped::<ChaCha20Poly1305>();
        // An HMAC key consists of two states of its hash.
        wiped::<sha1::Sha1>();
        wiped::<sha2::Sha256>();
        wiped::<sha2::Sha384>();
        wiped::<sha2::Sha512>();
        // The type of a MODP exponent is `Zeroizing`.
        wiped::<x25519_dalek::StaticSecret>();
        wiped::<x25519_dalek::SharedSecret>();
        wiped::<p256::SecretKey>();
        wiped::<p384::SecretKey>();
        wiped::<p521::SecretKey>();
        wiped::<p256::ecdh::SharedSecret>();
        wiped::<p256::ecdsa::SigningKey>();
        wiped::<p384::ecdsa::SigningKey>();
        wiped::<p521::ecdsa::SigningKey>();
        wiped::<ed25519_dalek::SigningKey>();
        wiped::<rsa::RsaPrivateKey>();
    }
}
