//! Interfaces that providers implement, and the list of providers in order of preference.

use crate::{
    AeadAlg, AeadJob, CipherAlg, Digest, EncryptThenMac, EtmJob, HashAlg, KexError, KexMethod, KexResponse,
    KexSecret, MacAlg, MacJob, PrfAlg, PrfKey, PrivateKey, PublicKey, Rng, SignatureAlg, SignatureError,
    SigningKey, composite, prf,
};
use alloc::boxed::Box;

/// Why a key was not set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// No available provider supports the algorithm.
    Unsupported,
    /// The length of the key material is not that of the algorithm.
    KeyLength {
        /// Length that the algorithm requires, in bytes.
        expected: usize,
        /// Length of the given key material, in bytes.
        given: usize,
    },
    /// The provider rejected the key, or could not allocate memory for it.
    Refused,
}

impl core::fmt::Display for KeyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unsupported => f.write_str("no provider has this algorithm"),
            Self::KeyLength { expected, given } => {
                write!(f, "key of {} bits, expected {}", given.saturating_mul(8), expected.saturating_mul(8))
            }
            Self::Refused => f.write_str("the provider refused the key"),
        }
    }
}

impl core::error::Error for KeyError {}

/// Packets for which the combined-mode keys of a provider are worthwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AeadRange {
    /// Minimum batch size, in jobs.
    pub min_batch: usize,
    /// Maximum length of the text, in bytes.
    pub max_len: usize,
}

impl AeadRange {
    /// All packets.
    pub const ALL: Self = Self { min_batch: 1, max_len: usize::MAX };
}

/// A combined-mode cipher with its key. Stateless: threads may share one key.
pub trait AeadKey: Send + Sync {
    /// Encrypts and authenticates each job in place.
    fn seal(&self, jobs: &mut [AeadJob<'_>]);
    /// Verifies and decrypts each job in place.
    fn open(&self, jobs: &mut [AeadJob<'_>]);
}

/// A cipher and a MAC with their keys, encrypt-then-MAC. Stateless: threads may share one key.
pub trait EtmKey: Send + Sync {
    /// Encrypts `text` of each job, then writes the tag over `data`.
    fn seal(&self, jobs: &mut [EtmJob<'_>]);
    /// Verifies the tag over `data` of each job, then decrypts `text`. If the tag does not verify, `text`
    /// stays encrypted.
    fn open(&self, jobs: &mut [EtmJob<'_>]);
}

/// A cipher with its key, without a MAC.
pub trait CipherKey: Send + Sync {
    /// Encrypts in place. Returns `false` and leaves `text` unchanged if the cipher does not support its
    /// length.
    fn encrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool;
    /// Decrypts in place. Returns `false` in the same case as [`encrypt`](Self::encrypt).
    fn decrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool;
}

/// A MAC with its key. Stateless: threads may share one key.
pub trait MacKey: Send + Sync {
    /// Writes the tag of each job.
    fn sign(&self, jobs: &mut [MacJob<'_>]);
}

/// A set of algorithms. Methods return [`KeyError::Unsupported`] for algorithms that the provider does not
/// have.
pub trait Provider: Sync {
    /// Name that users see, e.g. `aws-lc`.
    fn name(&self) -> &'static str;

    /// Sets up a combined-mode key; `key` does not contain the salt.
    fn aead(&self, _alg: AeadAlg, _key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// Sets up a cipher key; for AES-CTR, `key` does not contain the nonce.
    fn cipher(&self, _alg: CipherAlg, _key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// Sets up a MAC key; for AES-GMAC, `key` does not contain the salt.
    fn mac(&self, _alg: MacAlg, _key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// Sets up a combined key for a cipher and a MAC, if the provider is faster with both at once than one
    /// after the other.
    fn etm(
        &self,
        _cipher: CipherAlg,
        _cipher_key: &[u8],
        _mac: MacAlg,
        _mac_key: &[u8],
    ) -> Result<Box<dyn EtmKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// Minimum batch size, in jobs, from which keys with this MAC (with or without a cipher) are worthwhile.
    /// A provider that processes several packets in parallel can be slower than other providers for few
    /// packets. [`Providers`] sends smaller batches, and PRF calls, to the next provider.
    fn min_batch(&self, _mac: MacAlg) -> usize {
        1
    }

    /// Packets for which combined-mode keys are worthwhile on this processor. [`Providers`] sends all others
    /// to the next provider.
    fn aead_range(&self, _alg: AeadAlg) -> AeadRange {
        AeadRange::ALL
    }

    /// Sets up a PRF key of any length (RFC 7296 section 2.13). Only for providers with their own PRF: by
    /// default, [`Providers::prf`] builds the PRF from the MAC of the same name.
    fn prf(&self, _alg: PrfAlg, _key: &[u8]) -> Result<Box<dyn PrfKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// Creates the local private and public value of a key exchange that this side begins, or of either side
    /// in a Diffie-Hellman group; the private value comes from `rng`. Implementations use
    /// [`KexMethod::draw_private`], so that all providers derive the same keys from the same random bytes. An
    /// unsupported method draws nothing.
    fn kex(&self, _method: KexMethod, _rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// Performs a key exchange as the responder. `peer` is the public value of the initiator; what is random
    /// in the own public value comes from `rng`. Only providers of ML-KEM implement it: they check the
    /// encapsulation key (FIPS 203 section 7.2), and encapsulate with [`KexMethod::draw_encapsulation`]. In a
    /// Diffie-Hellman group, both sides do the same.
    fn kex_response(
        &self,
        method: KexMethod,
        peer: &[u8],
        rng: &mut dyn Rng,
    ) -> Result<KexResponse, KexError> {
        if method.is_kem() {
            return Err(KeyError::Unsupported.into());
        }
        KexResponse::with_secret(self.kex(method, rng)?, peer)
    }

    /// Returns the digest of the concatenation of `parts`, or `None` if the provider does not have the hash
    /// function or fails.
    fn hash(&self, _alg: HashAlg, _parts: &[&[u8]]) -> Option<Digest> {
        None
    }

    /// Creates a signing key. Rejects numbers that form no valid key: primes that do not match the modulus,
    /// or a scalar that is not below the curve's order.
    fn signing_key(&self, _key: &PrivateKey) -> Result<Box<dyn SigningKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// Verifies that the holder of `key` signed `message`: only `Ok` means that the signature is valid. SHA-1
    /// is treated like every other hash function. Returns [`SignatureError::WrongKey`] if the key has the
    /// wrong kind for the algorithm.
    fn verify(
        &self,
        _alg: SignatureAlg,
        _key: &PublicKey,
        _message: &[u8],
        _signature: &[u8],
    ) -> Result<(), SignatureError> {
        Err(SignatureError::Unsupported)
    }
}

/// Algorithms of EAP-MSCHAPv2 (RFC 2759), EAP-MD5 (RFC 3748 section 5.4) and EAP-AKA (RFC 4187).
///
/// All are broken, and none may protect packets: the providers' traits have no way to these functions. A
/// password method is safe only inside an IKE SA whose responder has proved its identity before.
pub trait PasswordAlgorithms: Sync {
    /// MD4 (RFC 1320) of a message.
    fn md4(&self, message: &[u8]) -> [u8; 16];

    /// MD5 (RFC 1321) of the concatenation of `parts`.
    fn md5(&self, parts: &[&[u8]]) -> [u8; 16];

    /// Encrypts one block with DES. `key` has 56 bits without parity bits, as RFC 2759 section 8.6 uses it.
    fn des(&self, key: &[u8; 7], block: [u8; 8]) -> [u8; 8];

    /// The compression function of SHA-1 (FIPS 180-4 section 6.1.2) for one block with the initial hash
    /// value: the function G of the generator of FIPS 186-2, with which EAP-AKA derives keys.
    fn sha1_compress(&self, block: &[u8; 64]) -> [u8; 20];
}

/// Providers in order of preference. Each algorithm comes from the first provider that supports it.
#[derive(Clone, Copy)]
pub struct Providers<'p>(pub &'p [&'p dyn Provider]);

impl<'p> Providers<'p> {
    /// Calls `make` on each provider until one supports the algorithm. Returns the result, the packets for
    /// which that provider is worthwhile, and the remaining providers.
    fn first_with_rest<T, R>(
        &self,
        range: impl Fn(&dyn Provider) -> R,
        mut make: impl FnMut(&dyn Provider) -> Result<T, KeyError>,
    ) -> Result<(T, R, Providers<'p>), KeyError> {
        let mut rest = self.0;
        while let Some((provider, after)) = rest.split_first() {
            match make(*provider) {
                Err(KeyError::Unsupported) => rest = after,
                made => return made.map(|made| (made, range(*provider), Providers(after))),
            }
        }
        Err(KeyError::Unsupported)
    }

    fn first<T>(&self, mut make: impl FnMut(&dyn Provider) -> Result<T, KeyError>) -> Result<T, KeyError> {
        for provider in self.0 {
            match make(*provider) {
                Err(KeyError::Unsupported) => {}
                decided => return decided,
            }
        }
        Err(KeyError::Unsupported)
    }

    /// Sets up a key as [`Provider::aead`] does. Packets for which that provider is not worthwhile are
    /// processed by a later one.
    pub fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        check_len(alg.key_len(), key)?;
        let (first, range, rest) = self.first_with_rest(|p| p.aead_range(alg), |p| p.aead(alg, key))?;
        composite::with_other_packets(first, range, || rest.aead(alg, key))
    }

    /// Returns the providers among which [`aead`](Self::aead) distributes packets, in order of preference,
    /// with the name and the packets of each. The last one processes all others.
    pub fn aead_choice(&self, alg: AeadAlg, key: &[u8]) -> impl Iterator<Item = (&'static str, AeadRange)> {
        let able = self.0.iter().filter(move |provider| provider.aead(alg, key).is_ok());
        let mut last = false;
        able.map(move |provider| (provider.name(), provider.aead_range(alg))).take_while(move |(_, range)| {
            let before = last;
            last |= *range == AeadRange::ALL;
            !before
        })
    }

    /// Sets up a key as [`Provider::mac`] does.
    pub fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        check_len(alg.key_len(), key)?;
        self.mac_of_any_len(alg, key)
    }

    /// Sets up a MAC key. If small batches are not worthwhile on the first provider, a later provider
    /// processes them.
    fn mac_of_any_len(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        let (large, from, rest) = self.first_with_rest(|p| p.min_batch(alg), |p| p.mac(alg, key))?;
        composite::with_small_batches(large, from, || rest.mac_of_any_len(alg, key), |keys| Box::new(keys))
    }

    /// Sets up a combined key if a provider has one, otherwise a cipher key and a MAC key that run one after
    /// the other.
    pub fn etm(
        &self,
        cipher: CipherAlg,
        cipher_key: &[u8],
        mac: MacAlg,
        mac_key: &[u8],
    ) -> Result<Box<dyn EtmKey>, KeyError> {
        check_len(cipher.key_len(), cipher_key)?;
        check_len(mac.key_len(), mac_key)?;
        let make = |p: &dyn Provider| p.etm(cipher, cipher_key, mac, mac_key);
        match self.first_with_rest(|p| p.min_batch(mac), make) {
            Err(KeyError::Unsupported) => {}
            Err(error) => return Err(error),
            Ok((large, from, rest)) => {
                let small = || rest.etm(cipher, cipher_key, mac, mac_key);
                return composite::with_small_batches(large, from, small, |keys| Box::new(keys));
            }
        }
        let mac = self.mac_of_any_len(mac, mac_key)?;
        let cipher = match cipher {
            CipherAlg::Null => None,
            _ => Some(self.first(|p| p.cipher(cipher, cipher_key))?),
        };
        Ok(Box::new(EncryptThenMac::new(cipher, mac)))
    }

    /// Sets up a MAC key for single jobs.
    fn mac_for_single_jobs(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        self.first(|p| if p.min_batch(alg) > 1 { Err(KeyError::Unsupported) } else { p.mac(alg, key) })
    }

    /// Sets up a PRF key of any length (RFC 7296 section 2.13): a provider's own PRF, otherwise the first MAC
    /// of the same name that is worthwhile for single jobs.
    pub fn prf(&self, alg: PrfAlg, key: &[u8]) -> Result<Box<dyn PrfKey>, KeyError> {
        match self.first(|p| p.prf(alg, key)) {
            Err(KeyError::Unsupported) => {
                prf::from_mac(alg, key, |alg, key| self.mac_for_single_jobs(alg, key))
            }
            decided => decided,
        }
    }

    /// Creates a key exchange as [`Provider::kex`] does.
    pub fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        self.first(|p| p.kex(method, rng))
    }

    /// Performs a key exchange as [`Provider::kex_response`] does.
    pub fn kex_response(
        &self,
        method: KexMethod,
        peer: &[u8],
        rng: &mut dyn Rng,
    ) -> Result<KexResponse, KexError> {
        for provider in self.0 {
            match provider.kex_response(method, peer, rng) {
                Err(KexError::Key(KeyError::Unsupported)) => {}
                decided => return decided,
            }
        }
        Err(KeyError::Unsupported.into())
    }

    /// Returns a digest as [`Provider::hash`] does.
    pub fn hash(&self, alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
        self.0.iter().find_map(|provider| provider.hash(alg, parts))
    }

    /// Creates a signing key as [`Provider::signing_key`] does.
    pub fn signing_key(&self, key: &PrivateKey) -> Result<Box<dyn SigningKey>, KeyError> {
        self.first(|p| p.signing_key(key))
    }

    /// Verifies a signature as [`Provider::verify`] does. Signatures over SHA-1 digests are rejected unread
    /// (RFC 8247 section 3.2: MUST NOT).
    pub fn verify(
        &self,
        alg: SignatureAlg,
        key: &PublicKey,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        if alg.uses_sha1() {
            return Err(SignatureError::Sha1);
        }
        self.verify_allowing_sha1(alg, key, message, signature)
    }

    /// Like [`verify`](Self::verify), but accepts SHA-1. For authentication method 1 with peers that support
    /// nothing newer (RFC 7296 section 2.15), if the administrator allows it.
    pub fn verify_allowing_sha1(
        &self,
        alg: SignatureAlg,
        key: &PublicKey,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        for provider in self.0 {
            match provider.verify(alg, key, message, signature) {
                Err(SignatureError::Unsupported) => {}
                decided => return decided,
            }
        }
        Err(SignatureError::Unsupported)
    }
}

fn check_len(expected: usize, key: &[u8]) -> Result<(), KeyError> {
    if key.len() == expected { Ok(()) } else { Err(KeyError::KeyLength { expected, given: key.len() }) }
}
