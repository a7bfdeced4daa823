//! ESP packets (RFC 4303): framing, sealing, opening.
//!
//! ```text
//!  0                8          8+iv                                  len-icv      len
//!  | SPI | sequence |    IV    | payload | padding | pad len | next |     ICV     |
//!                              |<------------- text ------------------>|
//! ```
//!
//! With an implicit IV (RFC 8750) there is no IV in the packet: it is the sequence number.
//!
//! `frame` writes everything but the ciphertext and the ICV, and removes it again. `work` seals and opens
//! runs of packets of one SA, with one call to the provider for each run (`combined`, `separate`). This
//! module does not depend on IP headers, policies or tables.

mod combined;
mod frame;
mod separate;
mod work;

use alloc::boxed::Box;
use casemate_crypto::{
    AeadAlg, AeadKey, CipherAlg, EspSuite, EtmKey, KeyError, Providers, Salt, SecretBytes,
};
pub(crate) use frame::{AroundPayload, EspSizes, FrameSpec, FramedEsp, frame, unframe};
pub use work::MAX_BATCH;
pub(crate) use work::{OpenOutcome, RUN_IN_BATCH, SPARE, ToOpen, open, seal};

/// Key and sizes of an ESP SA. Immutable; shared by all cores.
pub(crate) struct EspKey {
    pub(crate) suite: EspSuite,
    pub(crate) sizes: EspSizes,
    pub(crate) cipher: EspCipher,
}

/// The provider's keys.
pub(crate) enum EspCipher {
    /// A combined-mode cipher.
    Combined { key: Box<dyn AeadKey>, salt: Salt, iv: AeadIv },
    /// A cipher and a MAC.
    Separate { key: Box<dyn EtmKey>, iv: IvUse },
}

/// Place of the IV of a combined-mode cipher.
#[derive(Clone, Copy)]
pub(crate) enum AeadIv {
    /// In the packet (RFC 4106 section 3.1).
    Explicit,
    /// The sequence number, and not in the packet (RFC 8750 section 4).
    Implicit,
}

/// How the IV is generated, and which algorithm uses it.
#[derive(Clone, Copy)]
pub(crate) enum IvUse {
    /// No IV: NULL encryption, and a MAC without a nonce.
    None,
    /// CBC: unpredictable (RFC 3602 section 3), as long as the block.
    Random,
    /// AES-CTR: the counter block is nonce, IV and a 32-bit counter that starts at one (RFC 3686 section 4).
    Ctr(Salt),
    /// AES-GMAC: the nonce is salt and IV (RFC 4543 section 3.1).
    Gmac(Salt),
}

impl EspCipher {
    fn combined(
        alg: AeadAlg,
        iv: AeadIv,
        encr: &SecretBytes,
        providers: &Providers<'_>,
    ) -> Result<Self, KeyError> {
        let (key, salt) = Salt::split(encr, alg.key_len(), alg.salt_len())?;
        Ok(Self::Combined { key: providers.aead(alg, key)?, salt, iv })
    }
}

impl EspKey {
    /// Sets up the suite. Key material is the key, then the salt.
    pub(crate) fn new(
        suite: EspSuite,
        encr: &SecretBytes,
        integ: &SecretBytes,
        providers: &Providers<'_>,
    ) -> Result<Self, KeyError> {
        let cipher = match suite {
            EspSuite::Combined(alg) => EspCipher::combined(alg, AeadIv::Explicit, encr, providers)?,
            EspSuite::ImplicitIv(alg) => EspCipher::combined(alg.aead(), AeadIv::Implicit, encr, providers)?,
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
                EspCipher::Separate { key: providers.etm(cipher, cipher_key, mac, mac_key)?, iv }
            }
        };
        Ok(Self { suite, sizes: EspSizes::of(suite), cipher })
    }
}
