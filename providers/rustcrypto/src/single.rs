//! Single algorithms for embedded devices: the firmware image only contains the listed algorithms.
//!
//! [`RUSTCRYPTO`](crate::RUSTCRYPTO) contains all algorithms and their code. A device lists its suites
//! instead:
//!
//! ```
//! use casemate_crypto::Providers;
//! use casemate_rustcrypto::{AES_128_GCM, HMAC_SHA256, SHA1, X25519};
//!
//! const SUITES: Providers<'static> = Providers(&[AES_128_GCM, HMAC_SHA256, SHA1, X25519]);
//! ```
//!
//! IKE needs a PRF and a key exchange in addition to its cipher, and SHA-1 for NAT detection (RFC 7296
//! section 2.23).

#[cfg(feature = "ml-kem")]
use crate::ml_kem;
use crate::{aead, cipher, kex, mac, signature};
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit, KeySizeUser, consts::U16};
use aes::{Aes128, Aes128Enc, Aes256, Aes256Enc};
use alloc::boxed::Box;
use casemate_crypto::{
    AeadAlg, AeadKey, CipherAlg, CipherKey, Digest, HashAlg, KexMethod, KexSecret, KeyError, MacAlg, MacKey,
    MacKind, Provider, Rng,
};
#[cfg(feature = "ml-kem")]
use casemate_crypto::{KexError, KexResponse};
use core::marker::PhantomData;

/// AES-GCM with 128-bit keys and the 16-byte ICV, the only ICV length in RFC 8221 section 5.
pub const AES_128_GCM: &dyn Provider = &Gcm::<Aes128Enc>(PhantomData);
/// AES-GCM with 256-bit keys and the 16-byte ICV.
pub const AES_256_GCM: &dyn Provider = &Gcm::<Aes256Enc>(PhantomData);
/// ChaCha20-Poly1305.
pub const CHACHA20_POLY1305: &dyn Provider = &ChaCha20Poly1305;
/// AES-CBC with 128-bit keys. It needs a MAC, too.
pub const AES_128_CBC: &dyn Provider = &Cbc::<Aes128>(PhantomData);
/// AES-CBC with 256-bit keys. It needs a MAC, too.
pub const AES_256_CBC: &dyn Provider = &Cbc::<Aes256>(PhantomData);
/// SHA-1 as a hash function.
pub const SHA1: &dyn Provider = &Sha1;
/// HMAC-SHA-1 as a MAC and as a PRF.
pub const HMAC_SHA1: &dyn Provider = &Hmac::<sha1::Sha1>(MacKind::HmacSha1, PhantomData);
/// HMAC-SHA-256 as a MAC and as a PRF.
pub const HMAC_SHA256: &dyn Provider = &Hmac::<sha2::Sha256>(MacKind::HmacSha256, PhantomData);
/// HMAC-SHA-384 as a MAC and as a PRF.
pub const HMAC_SHA384: &dyn Provider = &Hmac::<sha2::Sha384>(MacKind::HmacSha384, PhantomData);
/// HMAC-SHA-512 as a MAC and as a PRF.
pub const HMAC_SHA512: &dyn Provider = &Hmac::<sha2::Sha512>(MacKind::HmacSha512, PhantomData);
/// X25519 key exchange, without the 30 KiB of constants that would make it faster.
pub const X25519: &dyn Provider = &X25519Only;
/// P-256 key exchange.
pub const ECP_P256: &dyn Provider = &EcpP256;
/// ML-KEM-512 key exchange.
#[cfg(feature = "ml-kem")]
pub const ML_KEM_512: &dyn Provider = &MlKem::<::ml_kem::MlKem512>(KexMethod::MlKem512, PhantomData);
/// ML-KEM-768 key exchange.
#[cfg(feature = "ml-kem")]
pub const ML_KEM_768: &dyn Provider = &MlKem::<::ml_kem::MlKem768>(KexMethod::MlKem768, PhantomData);
/// ML-KEM-1024 key exchange.
#[cfg(feature = "ml-kem")]
pub const ML_KEM_1024: &dyn Provider = &MlKem::<::ml_kem::MlKem1024>(KexMethod::MlKem1024, PhantomData);

struct Gcm<A>(PhantomData<fn() -> A>);

impl<A> Provider for Gcm<A>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit + Send + Sync + 'static,
{
    fn name(&self) -> &'static str {
        NAME
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        match alg {
            AeadAlg::AesGcm { bits, icv: 16 } if has_key_len::<A>(bits.bytes()) => {
                aead::gcm_whole_icv::<A>(key)
            }
            _ => Err(KeyError::Unsupported),
        }
    }
}

struct ChaCha20Poly1305;

impl Provider for ChaCha20Poly1305 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        if alg == AeadAlg::ChaCha20Poly1305 {
            aead::chacha20_poly1305(key)
        } else {
            Err(KeyError::Unsupported)
        }
    }
}

struct Cbc<A>(PhantomData<fn() -> A>);

impl<A> Provider for Cbc<A>
where
    A: BlockSizeUser<BlockSize = U16>
        + BlockCipherEncrypt
        + BlockCipherDecrypt
        + KeyInit
        + Send
        + Sync
        + 'static,
{
    fn name(&self) -> &'static str {
        NAME
    }

    fn cipher(&self, alg: CipherAlg, key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        match alg {
            CipherAlg::AesCbc(bits) if has_key_len::<A>(bits.bytes()) => {
                Ok(cipher::cbc_packet_by_packet::<A>(key)?)
            }
            _ => Err(KeyError::Unsupported),
        }
    }
}

struct Sha1;

impl Provider for Sha1 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn hash(&self, alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
        if alg == HashAlg::Sha1 { signature::digest_of::<sha1::Sha1>(alg, parts) } else { None }
    }
}

struct Hmac<D>(MacKind, PhantomData<fn() -> D>);

impl<D> Provider for Hmac<D>
where
    D: ::hmac::EagerHash + 'static,
    ::hmac::Hmac<D>: Send + Sync,
{
    fn name(&self) -> &'static str {
        NAME
    }

    fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        if alg.kind() == self.0 { mac::hmac::<D>(key, alg.tag_len()) } else { Err(KeyError::Unsupported) }
    }
}

struct X25519Only;

impl Provider for X25519Only {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        match method {
            KexMethod::X25519 => kex::x25519(rng, kex::x25519_by_ladder),
            _ => Err(KeyError::Unsupported),
        }
    }
}

struct EcpP256;

impl Provider for EcpP256 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        match method {
            KexMethod::EcpP256 => kex::ecp::<p256::NistP256>(method, rng),
            _ => Err(KeyError::Unsupported),
        }
    }
}

#[cfg(feature = "ml-kem")]
struct MlKem<K>(KexMethod, PhantomData<fn() -> K>);

#[cfg(feature = "ml-kem")]
impl<K: ml_kem::ParameterSet> Provider for MlKem<K> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        if method == self.0 { ml_kem::initiator::<K>(method, rng) } else { Err(KeyError::Unsupported) }
    }

    fn kex_response(
        &self,
        method: KexMethod,
        peer: &[u8],
        rng: &mut dyn Rng,
    ) -> Result<KexResponse, KexError> {
        if method == self.0 {
            ml_kem::respond::<K>(method, peer, rng)
        } else {
            Err(KeyError::Unsupported.into())
        }
    }
}

/// Name of all these providers.
const NAME: &str = "rustcrypto";

/// Whether the cipher has keys of this length.
fn has_key_len<A: KeySizeUser>(bytes: usize) -> bool {
    A::key_size() == bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RUSTCRYPTO;
    use casemate_crypto::{AesBits, PrfAlg, Providers};
    use casemate_test_support::FixedRng;

    const SUITES: [&dyn Provider; 12] = [
        AES_128_GCM,
        AES_256_GCM,
        CHACHA20_POLY1305,
        AES_128_CBC,
        AES_256_CBC,
        SHA1,
        HMAC_SHA1,
        HMAC_SHA256,
        HMAC_SHA384,
        HMAC_SHA512,
        X25519,
        ECP_P256,
    ];

    /// Number of `SUITES` for which `has` returns true.
    fn supporting(has: impl Fn(&dyn Provider) -> bool) -> usize {
        SUITES.into_iter().filter(|provider| has(*provider)).count()
    }

    #[test]
    fn each_provider_has_exactly_its_algorithm() {
        for (alg, expected) in [
            (AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 }, 1),
            (AeadAlg::AesGcm { bits: AesBits::B256, icv: 16 }, 1),
            (AeadAlg::AesGcm { bits: AesBits::B192, icv: 16 }, 0),
            (AeadAlg::AesGcm { bits: AesBits::B128, icv: 8 }, 0),
            (AeadAlg::AesCcm { bits: AesBits::B128, icv: 16 }, 0),
            (AeadAlg::ChaCha20Poly1305, 1),
        ] {
            let key = [1; 32];
            let key = key.get(..alg.key_len()).unwrap();
            assert_eq!(supporting(|provider| provider.aead(alg, key).is_ok()), expected, "{alg}");
        }
        for (kind, expected) in [(MacKind::HmacSha1, 1), (MacKind::HmacSha256, 1), (MacKind::AesCmac, 0)] {
            let alg = MacAlg::standard(kind);
            assert_eq!(supporting(|provider| provider.mac(alg, &[1; 16]).is_ok()), expected, "{alg}");
        }
        assert_eq!(supporting(|provider| provider.kex(KexMethod::X25519, &mut FixedRng::new(7)).is_ok()), 1);
        assert_eq!(supporting(|provider| provider.kex(KexMethod::EcpP256, &mut FixedRng::new(7)).is_ok()), 1);
        assert_eq!(supporting(|provider| provider.kex(KexMethod::EcpP384, &mut FixedRng::new(7)).is_ok()), 0);
        assert_eq!(supporting(|provider| provider.hash(HashAlg::Sha1, &[]).is_some()), 1);
    }

    #[cfg(feature = "ml-kem")]
    #[test]
    fn single_parameter_sets_of_ml_kem_match_the_complete_provider() {
        let all: [&dyn Provider; 1] = [&RUSTCRYPTO];
        let single = [ML_KEM_512, ML_KEM_768, ML_KEM_1024];
        for method in [KexMethod::MlKem512, KexMethod::MlKem768, KexMethod::MlKem1024] {
            let own = Providers(&single).kex(method, &mut FixedRng::new(7)).unwrap();
            let [one, other] = [&single[..], &all[..]].map(|list| {
                Providers(list).kex_response(method, own.public(), &mut FixedRng::new(8)).unwrap()
            });
            assert!(one.public == other.public && one.shared == other.shared, "{method}");
            assert!(own.agree(&one.public).unwrap() == one.shared, "{method}");
            let able = |list: &[&dyn Provider]| {
                list.iter().filter(|provider| provider.kex(method, &mut FixedRng::new(7)).is_ok()).count()
            };
            assert_eq!((able(&single), able(&SUITES)), (1, 0), "{method}");
        }
    }

    #[test]
    fn single_algorithms_match_the_complete_provider() {
        let all: [&dyn Provider; 1] = [&RUSTCRYPTO];
        for alg in [PrfAlg::HmacSha1, PrfAlg::HmacSha256, PrfAlg::HmacSha384, PrfAlg::HmacSha512] {
            let output =
                |providers: Providers<'_>| providers.prf(alg, b"key").unwrap().prf(&[b"text"]).unwrap();
            assert!(output(Providers(&SUITES)) == output(Providers(&all)), "{alg}");
        }
        for method in [KexMethod::X25519, KexMethod::EcpP256] {
            let public = |providers: Providers<'_>| {
                providers.kex(method, &mut FixedRng::new(7)).unwrap().public().to_vec()
            };
            assert_eq!(public(Providers(&SUITES)), public(Providers(&all)));
        }
        for bits in [AesBits::B128, AesBits::B256] {
            let text = |providers: Providers<'_>| {
                let mut data = *b"16 bytes of text and a tag to it";
                let mac = MacAlg::standard(MacKind::HmacSha256);
                let keys = ([2; 32], [3; 32]);
                let key = keys.0.get(..bits.bytes()).unwrap();
                let key = providers.etm(CipherAlg::AesCbc(bits), key, mac, &keys.1).unwrap();
                let mut job = casemate_crypto::EtmJob {
                    iv: [4; 16],
                    mac_nonce: [0; 12],
                    data: &mut data,
                    text: 0..16,
                    tag: casemate_crypto::Tag::zeroed(16),
                    status: casemate_crypto::JobStatus::Pending,
                };
                key.seal(core::slice::from_mut(&mut job));
                let tag = job.tag.as_slice().to_vec();
                (data, tag)
            };
            assert_eq!(text(Providers(&SUITES)), text(Providers(&all)));
        }
    }
}
