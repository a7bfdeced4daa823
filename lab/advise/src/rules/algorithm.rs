//! Algorithms as rules name them: by what they are used for, their IANA name, and the length of their key.

use casemate_crypto::{AeadAlg, CipherAlg, KexMethod, MacAlg, PrfAlg};
use std::fmt::Display;

/// Which protocol uses an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// ESP.
    Esp,
    /// IKEv2.
    Ike,
}

/// What an algorithm does there (IANA "IKEv2 Parameters": the types of transforms).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Transform type 1.
    Encryption,
    /// Transform type 2.
    Prf,
    /// Transform type 3.
    Integrity,
    /// Transform type 4.
    KeyExchange,
}

impl Use {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Esp, Self::Ike];

    /// The word in a profile.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Esp => "esp",
            Self::Ike => "ike",
        }
    }
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Encryption, Self::Prf, Self::Integrity, Self::KeyExchange];

    /// The word in a profile.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Encryption => "encryption",
            Self::Prf => "prf",
            Self::Integrity => "integrity",
            Self::KeyExchange => "key exchange",
        }
    }
}

/// An algorithm in a use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Algorithm {
    /// The protocol.
    pub used_by: Use,
    /// What it does there.
    pub kind: Kind,
    /// The IANA name, without the length of a key.
    pub name: String,
    /// Key length in bits, where the name leaves it open.
    pub bits: Option<u16>,
}

impl Algorithm {
    /// A combined-mode cipher.
    pub fn aead(used_by: Use, alg: AeadAlg) -> Self {
        Self::with_key_length(used_by, Kind::Encryption, alg)
    }

    /// A cipher that needs a MAC.
    pub fn cipher(used_by: Use, alg: CipherAlg) -> Self {
        Self::with_key_length(used_by, Kind::Encryption, alg)
    }

    /// A MAC.
    pub fn mac(used_by: Use, alg: MacAlg) -> Self {
        Self { used_by, kind: Kind::Integrity, name: alg.to_string(), bits: None }
    }

    /// ENCR_NULL_AUTH_AES_GMAC (RFC 4543), one algorithm for ESP that authenticates only.
    pub fn null_with_gmac(bits: u16) -> Self {
        let name = "ENCR_NULL_AUTH_AES_GMAC".into();
        Self { used_by: Use::Esp, kind: Kind::Encryption, name, bits: Some(bits) }
    }

    /// A pseudorandom function of IKE.
    pub fn prf(alg: PrfAlg) -> Self {
        Self { used_by: Use::Ike, kind: Kind::Prf, name: alg.to_string(), bits: None }
    }

    /// A key exchange method of IKE.
    pub fn kex(method: KexMethod) -> Self {
        Self { used_by: Use::Ike, kind: Kind::KeyExchange, name: method.to_string(), bits: None }
    }

    /// A cipher's name ends with the length of its key after a dash, where it is open.
    fn with_key_length(used_by: Use, kind: Kind, alg: impl Display) -> Self {
        let text = alg.to_string();
        let (name, bits) = match text.split_once('-').map(|(name, bits)| (name, bits.parse().ok())) {
            Some((name, Some(bits))) => (name.to_owned(), Some(bits)),
            _ => (text, None),
        };
        Self { used_by, kind, name, bits }
    }
}

impl Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        self.bits.map_or(Ok(()), |bits| write!(f, "-{bits}"))
    }
}
