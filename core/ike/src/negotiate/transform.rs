//! Algorithms and their numbers (RFC 7296 section 3.3.2).

use crate::config::EspCombined;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind};
use casemate_wire::ike::{Attribute, EncrId, IntegId, TransformRepr, TransformType};

/// A transform without a payload around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Algorithm {
    pub(crate) kind: TransformType,
    pub(crate) id: u16,
    /// Key length in bits, for those whose name leaves it open.
    pub(crate) key_bits: Option<u16>,
}

static KEY_128: [Attribute<'static>; 1] = [Attribute::of_key_length(128)];
static KEY_192: [Attribute<'static>; 1] = [Attribute::of_key_length(192)];
static KEY_256: [Attribute<'static>; 1] = [Attribute::of_key_length(256)];

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

/// The number of a combined-mode cipher; `None` for ICV lengths that have none.
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

/// The number of a combined-mode algorithm of ESP.
pub(crate) const fn esp_combined(alg: EspCombined) -> Option<Algorithm> {
    match alg {
        EspCombined::Aead(alg) => aead(alg),
        EspCombined::Gmac(bits) => Some(Algorithm::aes(EncrId::NULL_AUTH_AES_GMAC, bits)),
    }
}

/// The number of a cipher.
pub(crate) const fn cipher(alg: CipherAlg) -> Algorithm {
    match alg {
        CipherAlg::Null => Algorithm::new(TransformType::ENCR, EncrId::NULL.0),
        CipherAlg::AesCbc(bits) => Algorithm::aes(EncrId::AES_CBC, bits),
        CipherAlg::AesCtr(bits) => Algorithm::aes(EncrId::AES_CTR, bits),
        CipherAlg::DesCbc => Algorithm::new(TransformType::ENCR, EncrId::DES.0),
        CipherAlg::TripleDesCbc => Algorithm::new(TransformType::ENCR, EncrId::TRIPLE_DES.0),
    }
}

/// The number of a MAC; `None` for truncations that have none.
pub(crate) fn mac(alg: MacAlg) -> Option<Algorithm> {
    let id = match alg.kind() {
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

const ICVS: [u8; 3] = [8, 12, 16];

/// Every combined-mode cipher that has a number.
pub(crate) fn all_aeads() -> impl Iterator<Item = AeadAlg> {
    let gcm = |bits| ICVS.into_iter().map(move |icv| AeadAlg::AesGcm { bits, icv });
    let ccm = |bits| ICVS.into_iter().map(move |icv| AeadAlg::AesCcm { bits, icv });
    let aes = AesBits::ALL.into_iter();
    aes.flat_map(move |bits| gcm(bits).chain(ccm(bits))).chain([AeadAlg::ChaCha20Poly1305])
}

/// Every cipher that has a number.
pub(crate) fn all_ciphers() -> impl Iterator<Item = CipherAlg> {
    let aes = AesBits::ALL.into_iter().flat_map(|bits| [CipherAlg::AesCbc(bits), CipherAlg::AesCtr(bits)]);
    aes.chain([CipherAlg::Null, CipherAlg::DesCbc, CipherAlg::TripleDesCbc])
}

/// Every MAC that has a number.
pub(crate) fn all_macs() -> impl Iterator<Item = MacAlg> {
    use MacKind::{AesCmac, AesGmac, AesXcbc, HmacMd5, HmacSha1, HmacSha256, HmacSha384, HmacSha512};
    let kinds = [HmacMd5, HmacSha1, HmacSha256, HmacSha384, HmacSha512, AesXcbc, AesCmac];
    let gmacs = AesBits::ALL.into_iter().map(AesGmac);
    kinds.into_iter().chain(gmacs).map(MacAlg::standard)
}
