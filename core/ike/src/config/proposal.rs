//! Proposals: which algorithms may be used together, in order of preference (RFC 7296 section 3.3).
//!
//! Each list is a choice, and one of each list is taken. A combined-mode cipher and one that needs a MAC never share a
//! proposal (RFC 7296 section 3.3), which the types say.

use crate::SkSuite;
use alloc::vec::Vec;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, KexMethod, MacAlg, MacKind, PrfAlg};

/// Algorithms for an IKE SA. No list is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IkeProposal {
    /// Encryption and integrity.
    pub encryption: IkeEncryption,
    /// Pseudorandom functions.
    pub prfs: Vec<PrfAlg>,
    /// Key exchange methods.
    pub kex: Vec<KexMethod>,
}

impl IkeProposal {
    /// Whether these algorithms could be chosen from it.
    pub fn allows(&self, sk: SkSuite, prf: PrfAlg, kex: KexMethod) -> bool {
        let encrypts = match (&self.encryption, sk) {
            (IkeEncryption::Combined(algs), SkSuite::Combined(alg)) => algs.contains(&alg),
            (IkeEncryption::Separate(ciphers, macs), SkSuite::Separate(cipher, mac)) => {
                ciphers.contains(&cipher) && macs.contains(&mac)
            }
            _ => false,
        };
        encrypts && self.prfs.contains(&prf) && self.kex.contains(&kex)
    }
}

/// Encryption and integrity of an IKE SA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IkeEncryption {
    /// Combined-mode ciphers.
    Combined(Vec<AeadAlg>),
    /// Ciphers, and MACs beside them.
    Separate(Vec<CipherAlg>, Vec<MacAlg>),
}

/// Algorithms for a Child SA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildProposal {
    /// What protects packets.
    pub algorithms: ChildAlgorithms,
    /// Key exchange methods for perfect forward secrecy; without any, keys come from those of the IKE SA.
    pub kex: Vec<KexMethod>,
    /// Sequence numbers.
    pub sequence: Sequence,
}

/// What protects the packets of a Child SA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildAlgorithms {
    /// ESP with combined-mode ciphers.
    EspCombined(Vec<EspCombined>),
    /// ESP with ciphers, and MACs beside them.
    EspSeparate(Vec<CipherAlg>, Vec<MacAlg>),
    /// AH.
    Ah(Vec<MacAlg>),
}

/// A combined-mode algorithm of ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EspCombined {
    /// It encrypts.
    Aead(AeadAlg),
    /// ENCR_NULL_AUTH_AES_GMAC (RFC 4543), which only authenticates.
    Gmac(AesBits),
}

impl EspCombined {
    /// The suite that the data path knows.
    pub const fn suite(self) -> EspSuite {
        match self {
            Self::Aead(alg) => EspSuite::Combined(alg),
            Self::Gmac(bits) => EspSuite::Separate(CipherAlg::Null, MacAlg::standard(MacKind::AesGmac(bits))),
        }
    }
}

/// Length of sequence numbers (RFC 7296 section 3.3.2, transform type 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sequence {
    /// 32 bits only.
    Plain,
    /// 64 bits only.
    Extended,
    /// Either; 64 bits are preferred.
    PreferExtended,
    /// Either; 32 bits are preferred.
    PreferPlain,
}
