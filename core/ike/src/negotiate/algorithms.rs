//! Negotiated algorithms, and their transform IDs (RFC 7296 section 3.3.2).

use super::Chosen;
use crate::SkSuite;
use crate::config::{AgreedKexes, EspCombined};
#[cfg(feature = "records")]
use alloc::vec::Vec;
use casemate_crypto::{
    AeadAlg, AesBits, AhSuite, CipherAlg, EspSuite, ImplicitIvAlg, KexMethod, MacAlg, MacKind, PrfAlg,
};
use casemate_sa::Protocol;
use casemate_wire::ike::{
    Attribute, EncrId, IntegId, ProtocolId, SequenceNumbers, Transform, TransformRepr, TransformType,
};
use core::fmt;

/// Algorithms of an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IkeSuite {
    /// Encryption and integrity.
    pub sk: SkSuite,
    /// Pseudorandom function.
    pub prf: PrfAlg,
    /// Key exchange method.
    pub kex: KexMethod,
    /// Additional key exchanges (RFC 9370).
    pub additional: AgreedKexes,
}

/// Algorithms of a Child SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildSuite {
    /// ESP or AH with its algorithms.
    pub transform: ChildTransform,
    /// Key exchange method, if the Child SA has one of its own.
    pub kex: Option<KexMethod>,
    /// Additional key exchanges (RFC 9370).
    pub additional: AgreedKexes,
    /// Whether sequence numbers have 64 bits.
    pub esn: bool,
}

/// Protocol and algorithms that protect packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildTransform {
    /// ESP.
    Esp(EspSuite),
    /// AH.
    Ah(AhSuite),
}

impl IkeSuite {
    pub(crate) fn of(chosen: &Chosen) -> Option<Self> {
        let encr = chosen.algorithm(TransformType::ENCR)?;
        let integ = chosen.algorithm(TransformType::INTEG);
        let prf = chosen.algorithm(TransformType::PRF)?.id;
        let suite = Self::from_transforms(encr, integ, prf, chosen.algorithm(TransformType::KE)?.id)?;
        Some(Self { additional: chosen.additional()?, ..suite })
    }

    /// The suite of these transforms, without additional key exchanges. `prf` and `kex` are transform IDs.
    pub(crate) fn from_transforms(
        encr: Algorithm,
        integ: Option<Algorithm>,
        prf: u16,
        kex: u16,
    ) -> Option<Self> {
        let aead = all_aeads().find(|alg| aead(*alg) == Some(encr));
        let sk = match (aead, integ) {
            (Some(alg), None) => SkSuite::Combined(alg),
            (None, Some(integ)) => {
                let cipher = all_ciphers().find(|alg| cipher(*alg) == encr)?;
                SkSuite::Separate(cipher, mac_of(integ)?)
            }
            _ => return None,
        };
        let (prf, kex) = (PrfAlg::from_id(prf)?, KexMethod::from_id(kex)?);
        Some(Self { sk, prf, kex, additional: AgreedKexes::NONE })
    }

    /// The suite of these transforms, one of each type; `None` if one is unknown or missing.
    #[cfg(feature = "records")]
    pub(crate) fn from_algorithms(algorithms: Vec<Algorithm>) -> Option<Self> {
        Self::of(&Chosen::of(ProtocolId::IKE, algorithms))
    }

    /// All transforms; `None` for algorithms without a transform ID.
    #[cfg(feature = "records")]
    pub(crate) fn algorithms(&self) -> Option<Vec<Algorithm>> {
        let (encr, integ) = self.sk_transforms()?;
        let prf = Algorithm::new(TransformType::PRF, self.prf.id());
        let kex = Algorithm::new(TransformType::KE, self.kex.id());
        let single = [encr, prf, kex].into_iter().chain(integ);
        Some(single.chain(additional_transforms(&self.additional)).collect())
    }

    /// Transforms of encryption and integrity; `None` for algorithms without a transform ID.
    #[cfg(feature = "resumption")]
    pub(crate) fn sk_transforms(&self) -> Option<(Algorithm, Option<Algorithm>)> {
        match self.sk {
            SkSuite::Combined(alg) => Some((aead(alg)?, None)),
            SkSuite::Separate(alg, integ) => Some((cipher(alg), Some(mac(integ)?))),
        }
    }
}

fn mac_of(integ: Algorithm) -> Option<MacAlg> {
    all_macs().find(|alg| mac(*alg) == Some(integ))
}

impl ChildSuite {
    pub(crate) fn of(chosen: &Chosen) -> Option<Self> {
        let integ = chosen.algorithm(TransformType::INTEG);
        let transform = match (chosen.protocol, chosen.algorithm(TransformType::ENCR), integ) {
            (ProtocolId::AH, None, Some(integ)) => ChildTransform::Ah(AhSuite(mac_of(integ)?)),
            (ProtocolId::ESP, Some(encr), None) => {
                let alg = all_esp_combined().find(|alg| esp_combined(*alg) == Some(encr))?;
                ChildTransform::Esp(alg.suite())
            }
            (ProtocolId::ESP, Some(encr), Some(integ)) => {
                let cipher = all_ciphers().find(|alg| cipher(*alg) == encr)?;
                ChildTransform::Esp(EspSuite::Separate(cipher, mac_of(integ)?))
            }
            _ => return None,
        };
        let kex = match chosen.algorithm(TransformType::KE) {
            None => None,
            Some(kex) => Some(KexMethod::from_id(kex.id)?),
        };
        let esn =
            chosen.algorithm(TransformType::ESN).is_some_and(|esn| esn.id == SequenceNumbers::EXTENDED.0);
        Some(Self { transform, kex, additional: chosen.additional()?, esn })
    }

    /// The suite of these transforms, at most one of each type; `None` if one is unknown or missing.
    #[cfg(feature = "records")]
    pub(crate) fn from_algorithms(protocol: Protocol, algorithms: Vec<Algorithm>) -> Option<Self> {
        let protocol = match protocol {
            Protocol::Esp => ProtocolId::ESP,
            Protocol::Ah => ProtocolId::AH,
        };
        Self::of(&Chosen::of(protocol, algorithms))
    }

    /// All transforms; `None` for algorithms without a transform ID.
    #[cfg(feature = "records")]
    pub(crate) fn algorithms(&self) -> Option<Vec<Algorithm>> {
        let esn = if self.esn { SequenceNumbers::EXTENDED } else { SequenceNumbers::PLAIN };
        let esn = Algorithm::new(TransformType::ESN, esn.0);
        let kex = self.kex.map(|kex| Algorithm::new(TransformType::KE, kex.id()));
        let others = [esn].into_iter().chain(kex).chain(additional_transforms(&self.additional));
        Some(self.transform.algorithms()?.into_iter().chain(others).collect())
    }

    /// ESP or AH.
    pub const fn protocol(&self) -> Protocol {
        match self.transform {
            ChildTransform::Esp(_) => Protocol::Esp,
            ChildTransform::Ah(_) => Protocol::Ah,
        }
    }

    /// Length of the encryption key in bytes, salt or nonce included (RFC 7296 section 2.17); 0 for AH.
    pub(crate) const fn encr_key_len(&self) -> usize {
        match self.transform {
            ChildTransform::Esp(suite) => suite.encr_key_len(),
            ChildTransform::Ah(_) => 0,
        }
    }

    /// Length of the integrity key in bytes, salt or nonce included (RFC 7296 section 2.17); 0 with a
    /// combined-mode cipher.
    pub(crate) const fn integ_key_len(&self) -> usize {
        match self.transform {
            ChildTransform::Esp(suite) => suite.integ_key_len(),
            ChildTransform::Ah(AhSuite(mac)) => mac.key_len().saturating_add(mac.salt_len()),
        }
    }
}

#[cfg(feature = "records")]
impl ChildTransform {
    /// Transforms of encryption and integrity; `None` for algorithms without a transform ID.
    fn algorithms(self) -> Option<Vec<Algorithm>> {
        match self {
            Self::Ah(AhSuite(alg)) => Some([mac(alg)?].into()),
            Self::Esp(suite) => match (all_esp_combined().find(|alg| alg.suite() == suite), suite) {
                (Some(alg), _) => Some([esp_combined(alg)?].into()),
                (None, EspSuite::Separate(encr, integ)) => Some([cipher(encr), mac(integ)?].into()),
                (None, _) => None,
            },
        }
    }
}

#[cfg(feature = "records")]
fn additional_transforms(agreed: &AgreedKexes) -> impl Iterator<Item = Algorithm> + '_ {
    agreed.iter().map(|(round, kex)| Algorithm::new(round.transform_type(), kex.id()))
}

fn all_esp_combined() -> impl Iterator<Item = EspCombined> {
    let gmacs = AesBits::ALL.into_iter().map(EspCombined::Gmac);
    let implicit = all_aeads().filter_map(ImplicitIvAlg::new).map(EspCombined::ImplicitIv);
    all_aeads().map(EspCombined::Aead).chain(implicit).chain(gmacs)
}

impl fmt::Display for IkeSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sk {
            SkSuite::Combined(alg) => write!(f, "{alg}")?,
            SkSuite::Separate(cipher, mac) => write!(f, "{cipher}/{mac}")?,
        }
        write!(f, "/{}/{}", self.prf, self.kex)?;
        self.additional.iter().try_for_each(|(_, kex)| write!(f, "/{kex}"))
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
        self.additional.iter().try_for_each(|(_, kex)| write!(f, "/{kex}"))?;
        f.write_str(if self.esn { "/ESN" } else { "" })
    }
}

/// An algorithm of a proposal, as a transform names it (RFC 7296 section 3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Algorithm {
    /// Type of the transform.
    pub kind: TransformType,
    /// Transform ID.
    pub id: u16,
    /// Key length in bits, for transforms with a variable key length.
    pub key_bits: Option<u16>,
}

impl From<Transform<'_>> for Algorithm {
    fn from(transform: Transform<'_>) -> Self {
        Self { kind: transform.kind, id: transform.id, key_bits: transform.key_length() }
    }
}

static KEY_128: [Attribute<'static>; 1] = [Attribute::from_key_length(128)];
static KEY_192: [Attribute<'static>; 1] = [Attribute::from_key_length(192)];
static KEY_256: [Attribute<'static>; 1] = [Attribute::from_key_length(256)];

impl Algorithm {
    pub(crate) const fn new(kind: TransformType, id: u16) -> Self {
        Self { kind, id, key_bits: None }
    }

    const fn aes(id: EncrId, bits: AesBits) -> Self {
        Self { kind: TransformType::ENCR, id: id.0, key_bits: Some(bits.bits() as u16) }
    }

    pub(crate) fn to_wire(self) -> TransformRepr<'static> {
        let attributes: &[Attribute<'static>] = match self.key_bits {
            Some(128) => &KEY_128,
            Some(192) => &KEY_192,
            Some(256) => &KEY_256,
            _ => &[],
        };
        TransformRepr { kind: self.kind, id: self.id, attributes }
    }
}

/// Transform of a combined-mode cipher; `None` for ICV lengths without a transform ID.
pub(crate) const fn aead(alg: AeadAlg) -> Option<Algorithm> {
    Some(match alg {
        AeadAlg::AesGcm { bits, icv: 8 } => Algorithm::aes(EncrId::AES_GCM_8, bits),
        AeadAlg::AesGcm { bits, icv: 12 } => Algorithm::aes(EncrId::AES_GCM_12, bits),
        AeadAlg::AesGcm { bits, icv: 16 } => Algorithm::aes(EncrId::AES_GCM_16, bits),
        AeadAlg::AesCcm { bits, icv: 8 } => Algorithm::aes(EncrId::AES_CCM_8, bits),
        AeadAlg::AesCcm { bits, icv: 12 } => Algorithm::aes(EncrId::AES_CCM_12, bits),
        AeadAlg::AesCcm { bits, icv: 16 } => Algorithm::aes(EncrId::AES_CCM_16, bits),
        AeadAlg::ChaCha20Poly1305 => Algorithm::new(TransformType::ENCR, EncrId::CHACHA20_POLY1305.0),
        AeadAlg::AesGcm { .. } | AeadAlg::AesCcm { .. } => return None,
    })
}

/// Transform of a combined-mode algorithm of ESP.
pub(crate) const fn esp_combined(alg: EspCombined) -> Option<Algorithm> {
    match alg {
        EspCombined::Aead(alg) => aead(alg),
        EspCombined::ImplicitIv(alg) => Some(implicit_iv(alg)),
        EspCombined::Gmac(bits) => Some(Algorithm::aes(EncrId::NULL_AUTH_AES_GMAC, bits)),
    }
}

/// Transform of a combined-mode cipher with an implicit IV (RFC 8750 section 8).
const fn implicit_iv(alg: ImplicitIvAlg) -> Algorithm {
    match alg {
        ImplicitIvAlg::AesCcm8(bits) => Algorithm::aes(EncrId::AES_CCM_8_IIV, bits),
        ImplicitIvAlg::AesGcm16(bits) => Algorithm::aes(EncrId::AES_GCM_16_IIV, bits),
        ImplicitIvAlg::ChaCha20Poly1305 => {
            Algorithm::new(TransformType::ENCR, EncrId::CHACHA20_POLY1305_IIV.0)
        }
    }
}

/// Transform of a cipher.
pub(crate) const fn cipher(alg: CipherAlg) -> Algorithm {
    match alg {
        CipherAlg::Null => Algorithm::new(TransformType::ENCR, EncrId::NULL.0),
        CipherAlg::AesCbc(bits) => Algorithm::aes(EncrId::AES_CBC, bits),
        CipherAlg::AesCtr(bits) => Algorithm::aes(EncrId::AES_CTR, bits),
        CipherAlg::CamelliaCbc(bits) => Algorithm::aes(EncrId::CAMELLIA_CBC, bits),
        CipherAlg::DesCbc => Algorithm::new(TransformType::ENCR, EncrId::DES.0),
        CipherAlg::TripleDesCbc => Algorithm::new(TransformType::ENCR, EncrId::TRIPLE_DES.0),
    }
}

/// Transform of a MAC; `None` for truncations without a transform ID.
pub(crate) fn mac(alg: MacAlg) -> Option<Algorithm> {
    let id = match alg.kind() {
        MacKind::HmacSha1 if alg == MacAlg::untruncated(MacKind::HmacSha1) => IntegId::HMAC_SHA1_160,
        _ if alg != MacAlg::standard(alg.kind()) => return None,
        MacKind::HmacMd5 => IntegId::HMAC_MD5_96,
        MacKind::HmacSha1 => IntegId::HMAC_SHA1_96,
        MacKind::HmacSha256 => IntegId::HMAC_SHA2_256_128,
        MacKind::HmacSha384 => IntegId::HMAC_SHA2_384_192,
        MacKind::HmacSha512 => IntegId::HMAC_SHA2_512_256,
        MacKind::AesXcbc => IntegId::AES_XCBC_96,
        MacKind::AesCmac => IntegId::AES_CMAC_96,
        MacKind::AesGmac(AesBits::B128) => IntegId::AES_128_GMAC,
        MacKind::AesGmac(AesBits::B192) => IntegId::AES_192_GMAC,
        MacKind::AesGmac(AesBits::B256) => IntegId::AES_256_GMAC,
    };
    Some(Algorithm::new(TransformType::INTEG, id.0))
}

/// Transform ID of a MAC; `None` for truncations without one.
pub(crate) fn mac_id(alg: MacAlg) -> Option<u16> {
    mac(alg).map(|algorithm| algorithm.id)
}

/// The MAC with this transform ID.
pub(crate) fn mac_with_id(id: u16) -> Option<MacAlg> {
    all_macs().find(|alg| mac_id(*alg) == Some(id))
}

const ICVS: [u8; 3] = [8, 12, 16];

/// Every combined-mode cipher that has a transform ID.
pub(crate) fn all_aeads() -> impl Iterator<Item = AeadAlg> {
    let gcm = |bits| ICVS.into_iter().map(move |icv| AeadAlg::AesGcm { bits, icv });
    let ccm = |bits| ICVS.into_iter().map(move |icv| AeadAlg::AesCcm { bits, icv });
    let aes = AesBits::ALL.into_iter();
    aes.flat_map(move |bits| gcm(bits).chain(ccm(bits))).chain([AeadAlg::ChaCha20Poly1305])
}

/// Every cipher that has a transform ID.
pub(crate) fn all_ciphers() -> impl Iterator<Item = CipherAlg> {
    let sized = AesBits::ALL
        .into_iter()
        .flat_map(|bits| [CipherAlg::AesCbc(bits), CipherAlg::AesCtr(bits), CipherAlg::CamelliaCbc(bits)]);
    sized.chain([CipherAlg::Null, CipherAlg::DesCbc, CipherAlg::TripleDesCbc])
}

/// Every MAC that has a transform ID.
pub(crate) fn all_macs() -> impl Iterator<Item = MacAlg> {
    use MacKind::{AesCmac, AesGmac, AesXcbc, HmacMd5, HmacSha1, HmacSha256, HmacSha384, HmacSha512};
    let kinds = [HmacMd5, HmacSha1, HmacSha256, HmacSha384, HmacSha512, AesXcbc, AesCmac];
    let gmacs = AesBits::ALL.into_iter().map(AesGmac);
    let standard = kinds.into_iter().chain(gmacs).map(MacAlg::standard);
    standard.chain([MacAlg::untruncated(HmacSha1)])
}
