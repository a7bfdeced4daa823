//! Proposals: algorithms that may be used together, in order of preference (RFC 7296 section 3.3).
//!
//! One algorithm of each list is chosen. A proposal has either combined-mode ciphers or ciphers with MACs,
//! never both (RFC 7296 section 3.3); the types ensure that.

use super::{AdditionalKexes, KexRound};
use crate::SkSuite;
use crate::negotiate::IkeSuite;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{
    AeadAlg, AesBits, CipherAlg, EspSuite, ImplicitIvAlg, KexMethod, MacAlg, MacKind, PrfAlg,
};

/// Algorithms for an IKE SA. No list is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IkeProposal {
    /// Encryption and integrity.
    pub encryption: IkeEncryption,
    /// Pseudorandom functions.
    pub prfs: Vec<PrfAlg>,
    /// Key exchange methods.
    pub kex: Vec<KexMethod>,
    /// Additional key exchanges; usually none.
    pub additional: AdditionalKexes,
}

impl IkeProposal {
    /// Whether these algorithms are part of the proposal.
    pub fn allows(&self, suite: IkeSuite) -> bool {
        let encrypts = match (&self.encryption, suite.sk) {
            (IkeEncryption::Combined(algs), SkSuite::Combined(alg)) => algs.contains(&alg),
            (IkeEncryption::Separate(ciphers, macs), SkSuite::Separate(cipher, mac)) => {
                ciphers.contains(&cipher) && macs.contains(&mac)
            }
            _ => false,
        };
        encrypts
            && self.prfs.contains(&suite.prf)
            && self.kex.contains(&suite.kex)
            && KexRound::ALL.into_iter().all(|round| self.allows_in(round, suite.additional.method(round)))
    }

    /// Whether this round may have this method, or no key exchange.
    fn allows_in(&self, round: KexRound, method: Option<KexMethod>) -> bool {
        match (self.additional.get(&round), method) {
            (None, method) => method.is_none(),
            (Some(kex), None) => kex.optional,
            (Some(kex), Some(method)) => kex.methods.contains(&method),
        }
    }
}

/// Encryption and integrity of an IKE SA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IkeEncryption {
    /// Combined-mode ciphers.
    Combined(Vec<AeadAlg>),
    /// Ciphers with MACs.
    Separate(Vec<CipherAlg>, Vec<MacAlg>),
}

/// Algorithms for a Child SA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildProposal {
    /// Protocol, ciphers and MACs.
    pub algorithms: ChildAlgorithms,
    /// Key exchange methods for perfect forward secrecy. If empty, the keys are derived from those of the IKE
    /// SA.
    pub kex: Vec<KexMethod>,
    /// Additional key exchanges; none without a key exchange method.
    pub additional: AdditionalKexes,
    /// Sequence numbers.
    pub esn: EsnPolicy,
}

#[cfg(feature = "records")]
impl ChildProposal {
    /// Whether these algorithms are part of the proposal. The key exchange does not count.
    pub(super) fn allows(&self, suite: crate::ChildSuite) -> bool {
        use crate::ChildTransform;
        use casemate_crypto::AhSuite;
        let protects = match (&self.algorithms, suite.transform) {
            (ChildAlgorithms::EspCombined(algs), ChildTransform::Esp(esp)) => {
                algs.iter().any(|alg| alg.suite() == esp)
            }
            (ChildAlgorithms::EspSeparate(ciphers, macs), ChildTransform::Esp(esp)) => {
                let EspSuite::Separate(cipher, mac) = esp else { return false };
                ciphers.contains(&cipher) && macs.contains(&mac)
            }
            (ChildAlgorithms::Ah(macs), ChildTransform::Ah(AhSuite(mac))) => macs.contains(&mac),
            _ => false,
        };
        let excluded = if suite.esn { EsnPolicy::Disabled } else { EsnPolicy::Required };
        protects && self.esn != excluded
    }
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
    /// A cipher with an IV in each packet.
    Aead(AeadAlg),
    /// A cipher whose IV is the sequence number (RFC 8750). Offer [`Self::Aead`] with the same cipher, too,
    /// for peers that do not support it.
    ImplicitIv(ImplicitIvAlg),
    /// ENCR_NULL_AUTH_AES_GMAC (RFC 4543), which authenticates without encryption.
    Gmac(AesBits),
}

impl EspCombined {
    /// The suite of the data path.
    pub const fn suite(self) -> EspSuite {
        match self {
            Self::Aead(alg) => EspSuite::Combined(alg),
            Self::ImplicitIv(alg) => EspSuite::ImplicitIv(alg),
            Self::Gmac(bits) => EspSuite::Separate(CipherAlg::Null, MacAlg::standard(MacKind::AesGmac(bits))),
        }
    }
}

/// Use of extended sequence numbers (RFC 7296 section 3.3.2, transform type 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EsnPolicy {
    /// 32 bits only.
    Disabled,
    /// 64 bits only.
    Required,
    /// Either, with a preference for 64 bits.
    Preferred,
    /// Either, with a preference for 32 bits.
    Allowed,
}

const fn gcm(bits: AesBits) -> AeadAlg {
    AeadAlg::AesGcm { bits, icv: 16 }
}

/// X25519 (RFC 8031) comes first because it is the cheapest. RFC 8247 does not mention it. Of the methods in
/// RFC 8247 section 2.4, MODP-2048 is a MUST and P-256 a SHOULD. Larger ones are for peers that want them.
fn kex() -> Vec<KexMethod> {
    use KexMethod::{EcpP256, EcpP384, EcpP521, Modp2048, Modp3072, Modp4096, X25519};
    vec![X25519, EcpP256, EcpP384, EcpP521, Modp3072, Modp4096, Modp2048]
}

/// RFC 8247 section 2.2.
fn prfs() -> Vec<PrfAlg> {
    vec![PrfAlg::HmacSha256, PrfAlg::HmacSha384, PrfAlg::HmacSha512]
}

/// Default proposals for an IKE SA: combined-mode ciphers, then AES-CBC with HMAC-SHA2 (RFC 8247 sections 2.1
/// and 2.3).
pub fn ike_proposals() -> Vec<IkeProposal> {
    let combined = vec![gcm(AesBits::B128), gcm(AesBits::B256), AeadAlg::ChaCha20Poly1305];
    let ciphers = vec![CipherAlg::AesCbc(AesBits::B128), CipherAlg::AesCbc(AesBits::B256)];
    [IkeEncryption::Combined(combined), IkeEncryption::Separate(ciphers, macs())]
        .into_iter()
        .map(|encryption| IkeProposal {
            encryption,
            prfs: prfs(),
            kex: kex(),
            additional: AdditionalKexes::new(),
        })
        .collect()
}

/// Default proposals for a Child SA with ESP: the same ciphers (RFC 8221 sections 5 and 6), without a key
/// exchange.
pub fn child_proposals() -> Vec<ChildProposal> {
    let combined = [gcm(AesBits::B128), gcm(AesBits::B256), AeadAlg::ChaCha20Poly1305];
    let combined = ChildAlgorithms::EspCombined(combined.into_iter().map(EspCombined::Aead).collect());
    let ciphers = vec![CipherAlg::AesCbc(AesBits::B128), CipherAlg::AesCbc(AesBits::B256)];
    [combined, ChildAlgorithms::EspSeparate(ciphers, macs())]
        .into_iter()
        .map(|algorithms| ChildProposal {
            algorithms,
            kex: Vec::new(),
            additional: AdditionalKexes::new(),
            esn: EsnPolicy::Allowed,
        })
        .collect()
}

fn macs() -> Vec<MacAlg> {
    [MacKind::HmacSha256, MacKind::HmacSha384, MacKind::HmacSha512]
        .into_iter()
        .map(MacAlg::standard)
        .collect()
}
