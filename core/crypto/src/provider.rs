//! The seam to the algorithms.

use crate::{
    AeadAlg, AeadJob, CipherAlg, Digest, EncryptThenMac, EtmJob, HashAlg, KexMethod, KexSecret, MacAlg,
    MacJob, PrfAlg, PrfKey, PrivateKey, PublicKey, Rng, SignatureAlg, SignatureError, SigningKey, by_run,
    prf,
};
use alloc::boxed::Box;

/// Why a key could not be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// No provider at hand has this algorithm.
    Unsupported,
    /// The key's length is not the algorithm's.
    KeyLength {
        /// Length that the algorithm takes, in bytes.
        expected: usize,
        /// Length that was given, in bytes.
        given: usize,
    },
    /// The provider refused the key or could not get memory for it.
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

/// A combined-mode cipher with its key. Shared by all cores; a call keeps no state.
pub trait AeadKey: Send + Sync {
    /// Encrypts and authenticates each job in place.
    fn seal(&self, jobs: &mut [AeadJob<'_>]);
    /// Verifies and decrypts each job in place.
    fn open(&self, jobs: &mut [AeadJob<'_>]);
}

/// A cipher and a MAC with their keys, encrypt-then-MAC. Shared by all cores; a call keeps no state.
pub trait EtmKey: Send + Sync {
    /// Encrypts `text`, then writes the tag over `data`.
    fn seal(&self, jobs: &mut [EtmJob<'_>]);
    /// Verifies the tag over `data`, then decrypts `text`; what fails is not decrypted.
    fn open(&self, jobs: &mut [EtmJob<'_>]);
}

/// A bare cipher with its key.
pub trait CipherKey: Send + Sync {
    /// Encrypts in place; `false` if `text` has a length that the cipher cannot take (nothing is changed then).
    fn encrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool;
    /// Decrypts in place; `false` as for [`encrypt`](Self::encrypt).
    fn decrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool;
}

/// A MAC with its key. Shared by all cores; a call keeps no state.
pub trait MacKey: Send + Sync {
    /// Writes each job's tag.
    fn sign(&self, jobs: &mut [MacJob<'_>]);
}

/// A set of algorithms. Each method answers [`KeyError::Unsupported`] for what the provider does not have.
pub trait Provider: Sync {
    /// Name shown to users, e.g. `aws-lc`.
    fn name(&self) -> &'static str;

    /// A combined-mode key; `key` is without the salt.
    fn aead(&self, _alg: AeadAlg, _key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// A cipher key; for AES-CTR without the nonce.
    fn cipher(&self, _alg: CipherAlg, _key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// A MAC key; for AES-GMAC without the salt.
    fn mac(&self, _alg: MacAlg, _key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// A cipher and MAC fused by the provider, where it can do better than one after the other.
    fn etm(
        &self,
        _cipher: CipherAlg,
        _cipher_key: &[u8],
        _mac: MacAlg,
        _mac_key: &[u8],
    ) -> Result<Box<dyn EtmKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// From how many jobs a call on a key with this MAC, alone or with a cipher, is worth it. A provider that works on many
    /// packets at once may be slower than others with few: [`Providers`] then gives shorter runs to the next, and PRFs too.
    fn worth_from(&self, _mac: MacAlg) -> usize {
        1
    }

    /// The same of a call on a combined-mode key.
    fn aead_worth_from(&self, _alg: AeadAlg) -> usize {
        1
    }

    /// A PRF key of any length (RFC 7296 section 2.13), where the provider knows better than to make it of its MAC of the same
    /// name, as [`Providers::prf`] does.
    fn prf(&self, _alg: PrfAlg, _key: &[u8]) -> Result<Box<dyn PrfKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// Our side of a key exchange, its private value drawn from `rng`. Made with [`KexMethod::draw_private`], so that the same
    /// random bytes make the same keys in every provider. Nothing is drawn if the method is not there.
    fn kex(&self, _method: KexMethod, _rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// The digest of `parts`, one after the other. `None` if the provider does not have the hash function, or failed.
    fn hash(&self, _alg: HashAlg, _parts: &[&[u8]]) -> Option<Digest> {
        None
    }

    /// A key that signs. Numbers that do not make a key are refused: primes that do not fit the modulus, a secret number
    /// that is not below the curve's order.
    fn signing_key(&self, _key: &PrivateKey) -> Result<Box<dyn SigningKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    /// Whether `signature` is that of `message` by the holder of `key`: only `Ok` says yes. SHA-1 is a hash like the others
    /// here. [`SignatureError::WrongKey`] if the key is none for the algorithm.
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

/// Providers in order of preference; each algorithm comes from the first that has it.
#[derive(Clone, Copy)]
pub struct Providers<'p>(pub &'p [&'p dyn Provider]);

impl<'p> Providers<'p> {
    /// What the first provider makes that can, from how many jobs on that is worth it, and the providers after it.
    fn first_and_rest<T>(
        &self,
        worth_from: impl Fn(&dyn Provider) -> usize,
        mut make: impl FnMut(&dyn Provider) -> Result<T, KeyError>,
    ) -> Result<(T, usize, Providers<'p>), KeyError> {
        let mut rest = self.0;
        while let Some((provider, after)) = rest.split_first() {
            match make(*provider) {
                Err(KeyError::Unsupported) => rest = after,
                made => return made.map(|made| (made, worth_from(*provider), Providers(after))),
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

    /// See [`Provider::aead`]. Joined with a key of a later provider for runs too short for the first.
    pub fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        check_len(alg.key_len(), key)?;
        let (many, from, rest) = self.first_and_rest(|p| p.aead_worth_from(alg), |p| p.aead(alg, key))?;
        by_run::with_few(many, from, || rest.aead(alg, key), |keys| Box::new(keys))
    }

    /// See [`Provider::mac`].
    pub fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        check_len(alg.key_len(), key)?;
        self.mac_of_any_len(alg, key)
    }

    /// A MAC key, joined with one of a later provider for runs too short for the first.
    fn mac_of_any_len(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        let (many, from, rest) = self.first_and_rest(|p| p.worth_from(alg), |p| p.mac(alg, key))?;
        by_run::with_few(many, from, || rest.mac_of_any_len(alg, key), |keys| Box::new(keys))
    }

    /// A fused key where a provider has one, otherwise the cipher and the MAC one after the other.
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
        match self.first_and_rest(|p| p.worth_from(mac), make) {
            Err(KeyError::Unsupported) => {}
            Err(error) => return Err(error),
            Ok((many, from, rest)) => {
                let few = || rest.etm(cipher, cipher_key, mac, mac_key);
                return by_run::with_few(many, from, few, |keys| Box::new(keys));
            }
        }
        let mac = self.mac_of_any_len(mac, mac_key)?;
        let cipher = match cipher {
            CipherAlg::Null => None,
            _ => Some(self.first(|p| p.cipher(cipher, cipher_key))?),
        };
        Ok(Box::new(EncryptThenMac::new(cipher, mac)))
    }

    /// A MAC key for one job at a time.
    fn mac_for_one(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        self.first(|p| if p.worth_from(alg) > 1 { Err(KeyError::Unsupported) } else { p.mac(alg, key) })
    }

    /// A PRF key of any length (RFC 7296 section 2.13): a provider's own, or else made of the first MAC of the same name
    /// that is worth it for one job.
    pub fn prf(&self, alg: PrfAlg, key: &[u8]) -> Result<Box<dyn PrfKey>, KeyError> {
        match self.first(|p| p.prf(alg, key)) {
            Err(KeyError::Unsupported) => prf::from_mac(alg, key, |alg, key| self.mac_for_one(alg, key)),
            decided => decided,
        }
    }

    /// See [`Provider::kex`].
    pub fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        self.first(|p| p.kex(method, rng))
    }

    /// See [`Provider::hash`].
    pub fn hash(&self, alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
        self.0.iter().find_map(|provider| provider.hash(alg, parts))
    }

    /// See [`Provider::signing_key`].
    pub fn signing_key(&self, key: &PrivateKey) -> Result<Box<dyn SigningKey>, KeyError> {
        self.first(|p| p.signing_key(key))
    }

    /// See [`Provider::verify`]. A signature over a SHA-1 digest is not looked at (RFC 8247 section 3.2: MUST NOT).
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
        self.verify_even_sha1(alg, key, message, signature)
    }

    /// As [`verify`](Self::verify), and with SHA-1 too: for the authentication method 1 of peers that know nothing newer
    /// (RFC 7296 section 2.15), where the administrator has said so.
    pub fn verify_even_sha1(
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
