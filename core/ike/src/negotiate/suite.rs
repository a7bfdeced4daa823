//! What was chosen, as algorithms.

use super::Chosen;
use super::transform;
use crate::SkSuite;
use crate::config::EspCombined;
use casemate_crypto::{AesBits, AhSuite, EspSuite, KexMethod, MacAlg, PrfAlg};
use casemate_sa::Protocol;
use casemate_wire::ike::{ProtocolId, SequenceNumbers, TransformType};
use core::fmt;

/// The algorithms of an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IkeSuite {
    /// Encryption and integrity.
    pub sk: SkSuite,
    /// Pseudorandom function.
    pub prf: PrfAlg,
    /// Key exchange method.
    pub kex: KexMethod,
}

/// The algorithms of a Child SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildSuite {
    /// What protects packets.
    pub transform: ChildTransform,
    /// Key exchange method of its own, if it has one.
    pub kex: Option<KexMethod>,
    /// Sequence numbers of 64 bits.
    pub esn: bool,
}

/// What protects packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildTransform {
    /// ESP.
    Esp(EspSuite),
    /// AH.
    Ah(AhSuite),
}

impl IkeSuite {
    pub(crate) fn of(chosen: &Chosen) -> Option<Self> {
        let encr = chosen.of(TransformType::ENCR)?;
        let integ = chosen.of(TransformType::INTEG);
        let aead = transform::all_aeads().find(|alg| transform::aead(*alg) == Some(encr));
        let sk = match (aead, integ) {
            (Some(alg), None) => SkSuite::Combined(alg),
            (None, Some(integ)) => {
                let cipher = transform::all_ciphers().find(|alg| transform::cipher(*alg) == encr)?;
                SkSuite::Separate(cipher, mac(integ)?)
            }
            _ => return None,
        };
        Some(Self {
            sk,
            prf: PrfAlg::from_id(chosen.of(TransformType::PRF)?.id)?,
            kex: KexMethod::from_id(chosen.of(TransformType::KE)?.id)?,
        })
    }
}

fn mac(integ: transform::Algorithm) -> Option<MacAlg> {
    transform::all_macs().find(|alg| transform::mac(*alg) == Some(integ))
}

impl ChildSuite {
    pub(crate) fn of(chosen: &Chosen) -> Option<Self> {
        let integ = chosen.of(TransformType::INTEG);
        let transform = match (chosen.protocol, chosen.of(TransformType::ENCR), integ) {
            (ProtocolId::AH, None, Some(integ)) => ChildTransform::Ah(AhSuite(mac(integ)?)),
            (ProtocolId::ESP, Some(encr), None) => {
                let gmacs = AesBits::ALL.into_iter().map(EspCombined::Gmac);
                let mut all = transform::all_aeads().map(EspCombined::Aead).chain(gmacs);
                let alg = all.find(|alg| transform::esp_combined(*alg) == Some(encr))?;
                ChildTransform::Esp(alg.suite())
            }
            (ProtocolId::ESP, Some(encr), Some(integ)) => {
                let cipher = transform::all_ciphers().find(|alg| transform::cipher(*alg) == encr)?;
                ChildTransform::Esp(EspSuite::Separate(cipher, mac(integ)?))
            }
            _ => return None,
        };
        let kex = match chosen.of(TransformType::KE) {
            None => None,
            Some(kex) => Some(KexMethod::from_id(kex.id)?),
        };
        let esn = chosen.of(TransformType::ESN).is_some_and(|esn| esn.id == SequenceNumbers::EXTENDED.0);
        Some(Self { transform, kex, esn })
    }

    /// ESP or AH.
    pub const fn protocol(&self) -> Protocol {
        match self.transform {
            ChildTransform::Esp(_) => Protocol::Esp,
            ChildTransform::Ah(_) => Protocol::Ah,
        }
    }

    /// Lengths of the encryption key, salt or nonce included, and of the integrity key likewise (RFC 7296 section 2.17).
    pub(crate) const fn key_lens(&self) -> (usize, usize) {
        match self.transform {
            ChildTransform::Esp(EspSuite::Combined(alg)) => (alg.key_len().saturating_add(alg.salt_len()), 0),
            ChildTransform::Esp(EspSuite::Separate(cipher, mac)) => (
                cipher.key_len().saturating_add(cipher.salt_len()),
                mac.key_len().saturating_add(mac.salt_len()),
            ),
            ChildTransform::Ah(AhSuite(mac)) => (0, mac.key_len().saturating_add(mac.salt_len())),
        }
    }
}

impl fmt::Display for IkeSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sk {
            SkSuite::Combined(alg) => write!(f, "{alg}")?,
            SkSuite::Separate(cipher, mac) => write!(f, "{cipher}/{mac}")?,
        }
        write!(f, "/{}/{}", self.prf, self.kex)
    }
}

impl fmt::Display for ChildSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transform {
            ChildTransform::Esp(suite) => suite.fmt(f)?,
            ChildTransform::Ah(suite) => suite.fmt(f)?,
        }
        if let Some(kex) = self.kex {
            write!(f, "/{kex}")?;
        }
        f.write_str(if self.esn { "/ESN" } else { "" })
    }
}
