//! Rules about algorithms: RFC 8221 and RFC 8247, and profiles on top of them.
//!
//! Profiles name algorithms by protocol, type, IANA name and key length. The requirement levels are those of
//! RFC 2119 with the extensions of RFC 8221 section 2, interpreted for users.

mod filter;
mod profile;

use casemate_crypto::{AeadAlg, CipherAlg, ImplicitIvAlg, KexMethod, MacAlg, PrfAlg};
pub use filter::{Admitted, Filter, Keying, Refusal};
pub use profile::ProfileError;
pub use profile::{Profile, Ruling};
use std::fmt::{self, Display};

/// Protocol that uses an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// ESP.
    Esp,
    /// IKEv2.
    Ike,
}

/// Transform type of an algorithm (IANA "IKEv2 Parameters").
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
    /// Both protocols.
    pub const ALL: [Self; 2] = [Self::Esp, Self::Ike];

    /// Keyword in a profile.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Esp => "esp",
            Self::Ike => "ike",
        }
    }
}

impl Kind {
    /// All transform types.
    pub const ALL: [Self; 4] = [Self::Encryption, Self::Prf, Self::Integrity, Self::KeyExchange];

    /// Keyword in a profile.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Encryption => "encryption",
            Self::Prf => "prf",
            Self::Integrity => "integrity",
            Self::KeyExchange => "key exchange",
        }
    }
}

/// An algorithm as used by a protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Algorithm {
    /// Protocol.
    pub used_by: Use,
    /// Transform type.
    pub kind: Kind,
    /// IANA name without the key length.
    pub name: String,
    /// Key length in bits, if the name does not determine it.
    pub bits: Option<u16>,
}

impl Algorithm {
    /// Combined-mode cipher.
    pub fn aead(used_by: Use, alg: AeadAlg) -> Self {
        Self::with_key_length(used_by, Kind::Encryption, alg)
    }

    /// Combined-mode cipher with an implicit IV, which only ESP has.
    pub fn implicit_iv(alg: ImplicitIvAlg) -> Self {
        Self::with_key_length(Use::Esp, Kind::Encryption, alg)
    }

    /// Cipher that requires a separate MAC.
    pub fn cipher(used_by: Use, alg: CipherAlg) -> Self {
        Self::with_key_length(used_by, Kind::Encryption, alg)
    }

    /// MAC.
    pub fn mac(used_by: Use, alg: MacAlg) -> Self {
        Self { used_by, kind: Kind::Integrity, name: alg.to_string(), bits: None }
    }

    /// ENCR_NULL_AUTH_AES_GMAC (RFC 4543), a single algorithm that only authenticates.
    pub fn null_with_gmac(bits: u16) -> Self {
        let name = "ENCR_NULL_AUTH_AES_GMAC".into();
        Self { used_by: Use::Esp, kind: Kind::Encryption, name, bits: Some(bits) }
    }

    /// Pseudorandom function of IKE.
    pub fn prf(alg: PrfAlg) -> Self {
        Self { used_by: Use::Ike, kind: Kind::Prf, name: alg.to_string(), bits: None }
    }

    /// Key exchange method of IKE.
    pub fn kex(method: KexMethod) -> Self {
        Self { used_by: Use::Ike, kind: Kind::KeyExchange, name: method.to_string(), bits: None }
    }

    /// Splits the key length from the name of a cipher, which follows a dash.
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

/// A requirement level, in ascending order of preference.
///
/// RFC 8221 and RFC 8247 address implementers: peers support what must be implemented, and no peer should use
/// what must not be implemented. Algorithms that are being phased out rank below all others that are
/// permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequirementLevel {
    /// MUST NOT.
    MustNot,
    /// SHOULD NOT.
    ShouldNot,
    /// SHOULD-: a SHOULD that may become a MAY.
    ShouldMinus,
    /// MUST-: a MUST that is expected to be downgraded.
    MustMinus,
    /// MAY.
    May,
    /// SHOULD.
    Should,
    /// SHOULD+: a SHOULD that is expected to become a MUST.
    ShouldPlus,
    /// MUST.
    Must,
}

impl RequirementLevel {
    /// All levels.
    pub const ALL: [Self; 8] = [
        Self::MustNot,
        Self::ShouldNot,
        Self::ShouldMinus,
        Self::MustMinus,
        Self::May,
        Self::Should,
        Self::ShouldPlus,
        Self::Must,
    ];

    /// Whether the level is MUST NOT or SHOULD NOT.
    pub const fn forbids(self) -> bool {
        matches!(self, Self::MustNot | Self::ShouldNot)
    }

    /// Whether the algorithm is being phased out.
    pub const fn is_being_phased_out(self) -> bool {
        matches!(self, Self::ShouldMinus | Self::MustMinus)
    }

    /// Keyword of the RFCs.
    pub const fn words(self) -> &'static str {
        match self {
            Self::MustNot => "MUST NOT",
            Self::ShouldNot => "SHOULD NOT",
            Self::ShouldMinus => "SHOULD-",
            Self::MustMinus => "MUST-",
            Self::May => "MAY",
            Self::Should => "SHOULD",
            Self::ShouldPlus => "SHOULD+",
            Self::Must => "MUST",
        }
    }

    /// Returns the level with this keyword.
    pub fn from_words(words: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.words() == words)
    }
}

impl fmt::Display for RequirementLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

#[cfg(test)]
mod tests;
