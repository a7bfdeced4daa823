//! Algorithms of one ESP or AH SA, and the lengths that follow from them.

use crate::{AeadAlg, CipherAlg, ImplicitIvAlg, MacAlg};
use core::fmt;

/// Algorithms of an ESP SA (RFC 4303 section 3.2). Encryption without integrity is not supported (RFC 8221
/// section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EspSuite {
    /// A combined-mode algorithm with an IV in each packet.
    Combined(AeadAlg),
    /// A combined-mode algorithm whose IV is the sequence number (RFC 8750).
    ImplicitIv(ImplicitIvAlg),
    /// A cipher and a MAC. NULL with AES-GMAC is ENCR_NULL_AUTH_AES_GMAC (RFC 4543).
    Separate(CipherAlg, MacAlg),
}

impl EspSuite {
    /// The combined-mode cipher; `None` for a cipher and a MAC.
    pub const fn aead(self) -> Option<AeadAlg> {
        match self {
            Self::Combined(alg) => Some(alg),
            Self::ImplicitIv(alg) => Some(alg.aead()),
            Self::Separate(..) => None,
        }
    }

    /// Length of the key material for encryption in bytes, salt included.
    pub const fn encr_key_len(self) -> usize {
        match self {
            Self::Combined(alg) => alg.key_len().saturating_add(alg.salt_len()),
            Self::ImplicitIv(alg) => Self::Combined(alg.aead()).encr_key_len(),
            Self::Separate(cipher, _) => cipher.key_len().saturating_add(cipher.salt_len()),
        }
    }

    /// Length of the key material for integrity in bytes, salt included; 0 for a combined-mode algorithm.
    pub const fn integ_key_len(self) -> usize {
        match self {
            Self::Combined(_) | Self::ImplicitIv(_) => 0,
            Self::Separate(_, mac) => mac.key_len().saturating_add(mac.salt_len()),
        }
    }

    /// Length of the IV in each packet, in bytes.
    pub const fn iv_len(self) -> usize {
        match self {
            Self::Combined(aead) => aead.iv_len(),
            Self::ImplicitIv(_) => 0,
            Self::Separate(cipher, mac) => cipher.iv_len().saturating_add(mac.iv_len()),
        }
    }

    /// Length of the ICV, in bytes.
    pub const fn icv_len(self) -> usize {
        match self {
            Self::Combined(aead) => aead.icv_len(),
            Self::ImplicitIv(alg) => alg.aead().icv_len(),
            Self::Separate(_, mac) => mac.tag_len(),
        }
    }

    /// Alignment in bytes of payload, padding and trailer together: the block length of the cipher, at least
    /// 4 (RFC 4303 section 2.4).
    pub const fn pad_to(self) -> usize {
        match self {
            Self::Combined(_) | Self::ImplicitIv(_) => 4,
            Self::Separate(cipher, _) => {
                if cipher.block_len() > 4 {
                    cipher.block_len()
                } else {
                    4
                }
            }
        }
    }

    /// Whether an IV must not repeat under one key. The IV is then derived from the sequence number.
    pub const fn iv_is_counter(self) -> bool {
        match self {
            Self::Combined(_) | Self::ImplicitIv(_) => true,
            Self::Separate(cipher, mac) => cipher.is_counter_mode() || mac.takes_nonce(),
        }
    }
}

impl fmt::Display for EspSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Combined(aead) => aead.fmt(f),
            Self::ImplicitIv(alg) => alg.fmt(f),
            Self::Separate(cipher, mac) => write!(f, "{cipher}/{mac}"),
        }
    }
}

/// Algorithm of an AH SA (RFC 4302 section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AhSuite(pub MacAlg);

impl fmt::Display for AhSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
