//! Filter of algorithms. It refuses an algorithm with a reason, and later stages never see refused
//! algorithms.

use super::RequirementLevel;
use super::profile::ProfileError;
use super::profile::{Profile, Ruling};
use super::{Algorithm, Use};
use casemate_crypto::{AeadAlg, CipherAlg, EspSuite, KexMethod, MacAlg, MacKind, PrfAlg};
use std::fmt;

/// Source of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keying {
    /// IKEv2.
    Negotiated,
    /// Manual keys from a file.
    Manual,
}

/// Rules in force.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Profiles, starting with RFC 8221 and RFC 8247.
    layers: Vec<Profile>,
    /// Whether ESP without encryption is allowed.
    integrity_only: bool,
}

/// Verdict on a permitted suite or algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Lowest requirement level of its parts.
    pub status: RequirementLevel,
    /// Source of the level: RFC and section.
    pub source: String,
    /// Restriction or explanation.
    pub note: Option<String>,
}

/// Verdict on a refused suite or algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the refused part.
    pub part: String,
    /// Reason.
    pub why: String,
    /// Source: RFC and section.
    pub source: String,
}

impl Filter {
    /// Creates a filter from the permanent profiles and an additional one. NULL encryption is refused unless
    /// `integrity_only` is set.
    pub fn new(profile: Option<Profile>, integrity_only: bool) -> Result<Self, ProfileError> {
        let always = Profile::always()?;
        let extra = profile.filter(|profile| always.iter().all(|known| known.name != profile.name));
        Ok(Self { layers: always.into_iter().chain(extra).collect(), integrity_only })
    }

    /// Profiles in force, the permanent ones first.
    pub fn profiles(&self) -> &[Profile] {
        &self.layers
    }

    /// Judges a suite for ESP.
    pub fn esp(&self, suite: EspSuite, keying: Keying) -> Result<Admitted, Refusal> {
        let admitted = match suite {
            EspSuite::Combined(alg) => self.algorithm(&Algorithm::aead(Use::Esp, alg)),
            // A transform of its own (RFC 8750), which is not permitted without its cipher.
            EspSuite::ImplicitIv(alg) => {
                let cipher = self.algorithm(&Algorithm::aead(Use::Esp, alg.aead()));
                cipher.and_then(|_| self.algorithm(&Algorithm::implicit_iv(alg)))
            }
            EspSuite::Separate(CipherAlg::Null, mac) => self.integrity_alone(mac),
            EspSuite::Separate(cipher, mac) => self.pair(Use::Esp, cipher, mac),
        }?;
        match self.limit(suite, keying) {
            None => Ok(admitted),
            Some((why, source)) => {
                Err(Refusal { part: suite.to_string(), why: why.into(), source: source.into() })
            }
        }
    }

    /// Judges a combined-mode cipher for IKE.
    pub fn ike_aead(&self, alg: AeadAlg) -> Result<Admitted, Refusal> {
        self.algorithm(&Algorithm::aead(Use::Ike, alg))
    }

    /// Judges a cipher and a MAC for IKE.
    pub fn ike_pair(&self, cipher: CipherAlg, mac: MacAlg) -> Result<Admitted, Refusal> {
        self.pair(Use::Ike, cipher, mac)
    }

    /// Judges a pseudorandom function.
    pub fn prf(&self, alg: PrfAlg) -> Result<Admitted, Refusal> {
        self.algorithm(&Algorithm::prf(alg))
    }

    /// Judges a key exchange method.
    pub fn kex(&self, method: KexMethod) -> Result<Admitted, Refusal> {
        self.algorithm(&Algorithm::kex(method))
    }

    /// ESP with NULL encryption. With AES-GMAC it is a single algorithm (RFC 4543).
    fn integrity_alone(&self, mac: MacAlg) -> Result<Admitted, Refusal> {
        match mac.kind() {
            MacKind::AesGmac(bits) => {
                let bits = u16::try_from(bits.bits()).unwrap_or_default();
                self.algorithm(&Algorithm::null_with_gmac(bits))
            }
            _ => self.pair(Use::Esp, CipherAlg::Null, mac),
        }
    }

    fn pair(&self, used_by: Use, cipher: CipherAlg, mac: MacAlg) -> Result<Admitted, Refusal> {
        let cipher = self.algorithm(&Algorithm::cipher(used_by, cipher))?;
        let mac = self.algorithm(&Algorithm::mac(used_by, mac))?;
        Ok(if mac.status < cipher.status { mac } else { cipher })
    }

    /// The last profile with a rule decides, unless any profile forbids the algorithm.
    fn algorithm(&self, algorithm: &Algorithm) -> Result<Admitted, Refusal> {
        let rulings: Vec<&Ruling> = self.layers.iter().filter_map(|layer| layer.ruling(algorithm)).collect();
        if let Some(ruling) = rulings.iter().find(|ruling| ruling.status.forbids()) {
            let (why, source) = (ruling.status.to_string(), ruling.source.clone());
            return Err(Refusal { part: algorithm.to_string(), why, source });
        }
        match rulings.last() {
            Some(ruling) => Ok(Admitted {
                status: ruling.status,
                source: ruling.source.clone(),
                note: ruling.note.clone(),
            }),
            None => Err(Refusal {
                part: algorithm.to_string(),
                why: "no rule mentions it".into(),
                source: "the profiles in force".into(),
            }),
        }
    }

    /// Restrictions of the RFCs beyond the requirement level: reason and source of a refusal.
    fn limit(&self, suite: EspSuite, keying: Keying) -> Option<(&'static str, &'static str)> {
        if !has_number(suite) {
            return Some(("the ICV length has no number in IKEv2", "RFC 8221 section 6"));
        }
        match suite {
            EspSuite::Separate(CipherAlg::Null, _) if !self.integrity_only => {
                return Some((
                    "no encryption, and integrity-only ESP was not requested",
                    "RFC 8221 section 5",
                ));
            }
            EspSuite::Separate(cipher, mac) if cipher != CipherAlg::Null && mac.takes_nonce() => {
                return Some(("AES-GMAC with a cipher is for AH, not for ESP", "RFC 8221 section 6"));
            }
            _ => {}
        }
        let repeats = keying == Keying::Manual && suite.iv_is_counter();
        repeats.then_some(("manual keys would repeat counter-based IVs: MUST NOT", "RFC 8221 section 3"))
    }
}

/// Whether the lengths have numbers in IKEv2 (RFC 4106 section 6, RFC 4309 section 6, RFC 4868 section 2.6).
fn has_number(suite: EspSuite) -> bool {
    match suite {
        EspSuite::Combined(alg) => matches!(alg.icv_len(), 8 | 12 | 16),
        EspSuite::ImplicitIv(_) => true,
        EspSuite::Separate(_, mac) => mac == MacAlg::standard(mac.kind()),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.part, self.why, self.source)
    }
}
