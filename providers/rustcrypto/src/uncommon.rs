//! Algorithms that few peers need, as a provider of their own: Camellia-CBC (RFC 5529) and the key exchange
//! on Brainpool curves (RFC 6954), which German authorities use.
//!
//! brainpoolP224r1 and brainpoolP512r1 are missing, because no such library has them. Camellia is not
//! constant-time: it reads tables at places that depend on the key.
//!
//! ```
//! use casemate_crypto::Providers;
//! use casemate_rustcrypto::{RUSTCRYPTO, UNCOMMON};
//!
//! const PROVIDERS: Providers<'static> = Providers(&[&RUSTCRYPTO, &UNCOMMON]);
//! ```

use crate::{cipher, kex};
use alloc::boxed::Box;
use bp256::BrainpoolP256r1;
use bp384::BrainpoolP384r1;
use camellia::{Camellia128, Camellia192, Camellia256};
use casemate_crypto::{
    AeadAlg, AeadKey, AesBits, CipherAlg, CipherKey, KexMethod, KexSecret, KeyError, MacAlg, MacKey,
    Provider, Rng,
};

/// Camellia and the Brainpool curves as a [`Provider`].
#[derive(Debug, Clone, Copy)]
pub struct Uncommon;

/// The value of [`Uncommon`], to be listed in [`Providers`](casemate_crypto::Providers).
pub static UNCOMMON: Uncommon = Uncommon;

impl Provider for Uncommon {
    fn name(&self) -> &'static str {
        "rustcrypto"
    }

    fn aead(&self, _: AeadAlg, _: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    fn cipher(&self, alg: CipherAlg, key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        match alg {
            CipherAlg::CamelliaCbc(AesBits::B128) => cipher::cbc_packet_by_packet::<Camellia128>(key),
            CipherAlg::CamelliaCbc(AesBits::B192) => cipher::cbc_packet_by_packet::<Camellia192>(key),
            CipherAlg::CamelliaCbc(AesBits::B256) => cipher::cbc_packet_by_packet::<Camellia256>(key),
            _ => Err(KeyError::Unsupported),
        }
    }

    fn mac(&self, _: MacAlg, _: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        match method {
            KexMethod::BrainpoolP256 => kex::ecp::<BrainpoolP256r1>(method, rng),
            KexMethod::BrainpoolP384 => kex::ecp::<BrainpoolP384r1>(method, rng),
            _ => Err(KeyError::Unsupported),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uncommon_algorithms_are_here() {
        let key = [7; 32];
        assert!(UNCOMMON.cipher(CipherAlg::CamelliaCbc(AesBits::B256), &key).is_ok());
        let other = UNCOMMON.cipher(CipherAlg::AesCbc(AesBits::B256), &key);
        assert_eq!(other.err(), Some(KeyError::Unsupported));
        let short = UNCOMMON.cipher(CipherAlg::CamelliaCbc(AesBits::B256), &key[..16]);
        assert_eq!(short.err(), Some(KeyError::KeyLength { expected: 32, given: 16 }));
    }
}
