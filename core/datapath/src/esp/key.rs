//! The keyed suite of one ESP SA: the provider's key, the salt and the sizes that every packet needs.

use super::EspSizes;
use alloc::boxed::Box;
use casemate_crypto::{AeadKey, CipherAlg, EspSuite, EtmKey, KeyError, Providers, Salt, SecretBytes};

/// Key and sizes of an ESP SA. Immutable; shared by all cores.
pub(crate) struct EspKey {
    pub(crate) suite: EspSuite,
    pub(crate) sizes: EspSizes,
    pub(crate) engine: Engine,
}

/// The provider's half.
pub(crate) enum Engine {
    /// A combined-mode cipher.
    Combined { key: Box<dyn AeadKey>, salt: Salt },
    /// A cipher and a MAC.
    Separate { key: Box<dyn EtmKey>, iv: IvUse },
}

/// Who uses the IV in the packet, and how it is made.
#[derive(Clone, Copy)]
pub(crate) enum IvUse {
    /// NULL encryption with a MAC that has no nonce: there is no IV.
    None,
    /// CBC: unpredictable (RFC 3602 section 3), as long as the block.
    Random,
    /// AES-CTR: the counter block is nonce, IV and a 32-bit counter that starts at one (RFC 3686 section 4).
    Ctr(Salt),
    /// AES-GMAC: the nonce is salt and IV (RFC 4543 section 3.1).
    Gmac(Salt),
}

impl EspKey {
    /// Sets the suite up with keys laid out as key, then salt.
    pub(crate) fn new(
        suite: EspSuite,
        encr: &SecretBytes,
        integ: &SecretBytes,
        providers: &Providers<'_>,
    ) -> Result<Self, KeyError> {
        let engine = match suite {
            EspSuite::Combined(alg) => {
                let (key, salt) = Salt::split(encr, alg.key_len(), alg.salt_len())?;
                Engine::Combined { key: providers.aead(alg, key)?, salt }
            }
            EspSuite::Separate(cipher, mac) => {
                let (cipher_key, nonce) = Salt::split(encr, cipher.key_len(), cipher.salt_len())?;
                let (mac_key, salt) = Salt::split(integ, mac.key_len(), mac.salt_len())?;
                let iv = match (cipher, mac.takes_nonce()) {
                    (CipherAlg::Null, true) => IvUse::Gmac(salt),
                    // RFC 4543 defines GMAC in ESP with NULL encryption only.
                    (_, true) => return Err(KeyError::Unsupported),
                    (CipherAlg::Null, false) => IvUse::None,
                    (CipherAlg::AesCtr(_), false) => IvUse::Ctr(nonce),
                    (_, false) => IvUse::Random,
                };
                Engine::Separate { key: providers.etm(cipher, cipher_key, mac, mac_key)?, iv }
            }
        };
        Ok(Self { suite, sizes: EspSizes::of(suite), engine })
    }
}
