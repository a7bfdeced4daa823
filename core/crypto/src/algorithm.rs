//! Algorithm identifiers and their key, IV and tag lengths (IANA "IKEv2 Parameters", transform types 1 and 3;
//! RFC 8221).

use core::fmt;

/// AES key size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AesBits {
    /// 128 bits.
    B128,
    /// 192 bits.
    B192,
    /// 256 bits.
    B256,
}

impl AesBits {
    /// All key sizes, in ascending order.
    pub const ALL: [Self; 3] = [Self::B128, Self::B192, Self::B256];

    /// Key length in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::B128 => 16,
            Self::B192 => 24,
            Self::B256 => 32,
        }
    }

    /// Key length in bits.
    pub const fn bits(self) -> usize {
        match self {
            Self::B128 => 128,
            Self::B192 => 192,
            Self::B256 => 256,
        }
    }

    /// Returns the key size of a key of `bytes` bytes; `None` if AES has no such key size.
    pub const fn from_bytes(bytes: usize) -> Option<Self> {
        match bytes {
            16 => Some(Self::B128),
            24 => Some(Self::B192),
            32 => Some(Self::B256),
            _ => None,
        }
    }
}

/// Error: the parameters describe no defined algorithm, for example an ICV length that the RFC does not
/// define.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidAlgorithm;

/// A combined-mode cipher: encrypts and authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AeadAlg {
    /// AES-GCM (RFC 4106); `icv` is 8, 12 or 16 bytes.
    AesGcm {
        /// Key size.
        bits: AesBits,
        /// ICV length in bytes.
        icv: u8,
    },
    /// AES-CCM (RFC 4309); `icv` is 8, 12 or 16 bytes.
    AesCcm {
        /// Key size.
        bits: AesBits,
        /// ICV length in bytes.
        icv: u8,
    },
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
}

impl AeadAlg {
    /// Returns AES-GCM with an ICV of `icv` bytes (RFC 4106 section 6: 8, 12 or 16).
    pub const fn aes_gcm(bits: AesBits, icv: usize) -> Result<Self, InvalidAlgorithm> {
        match icv {
            8 | 12 | 16 => Ok(Self::AesGcm { bits, icv: icv as u8 }),
            _ => Err(InvalidAlgorithm),
        }
    }

    /// Returns AES-CCM with an ICV of `icv` bytes (RFC 4309 section 6: 8, 12 or 16).
    pub const fn aes_ccm(bits: AesBits, icv: usize) -> Result<Self, InvalidAlgorithm> {
        match icv {
            8 | 12 | 16 => Ok(Self::AesCcm { bits, icv: icv as u8 }),
            _ => Err(InvalidAlgorithm),
        }
    }

    /// Key length in bytes, without the salt.
    pub const fn key_len(self) -> usize {
        match self {
            Self::AesGcm { bits, .. } | Self::AesCcm { bits, .. } => bits.bytes(),
            Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Length of the salt at the start of the nonce, in bytes.
    pub const fn salt_len(self) -> usize {
        match self {
            Self::AesGcm { .. } | Self::ChaCha20Poly1305 => 4,
            Self::AesCcm { .. } => 3,
        }
    }

    /// Length of the IV in each packet, in bytes.
    pub const fn iv_len(self) -> usize {
        8
    }

    /// Length of the nonce (salt and IV), in bytes.
    pub const fn nonce_len(self) -> usize {
        match self {
            Self::AesGcm { .. } | Self::ChaCha20Poly1305 => 12,
            Self::AesCcm { .. } => 11,
        }
    }

    /// ICV length in bytes.
    pub const fn icv_len(self) -> usize {
        match self {
            Self::AesGcm { icv, .. } | Self::AesCcm { icv, .. } => icv as usize,
            Self::ChaCha20Poly1305 => 16,
        }
    }
}

impl fmt::Display for AeadAlg {
    /// Writes the IANA name, with the key length where the name does not contain it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AesGcm { bits, icv } => write!(f, "ENCR_AES_GCM_{icv}-{}", bits.bits()),
            Self::AesCcm { bits, icv } => write!(f, "ENCR_AES_CCM_{icv}-{}", bits.bits()),
            Self::ChaCha20Poly1305 => f.write_str("ENCR_CHACHA20_POLY1305"),
        }
    }
}

/// A combined-mode cipher without an IV in the packet: the IV is the sequence number (RFC 8750). For ESP
/// only, because messages of IKE contain no value that never repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImplicitIvAlg {
    /// AES-CCM with an ICV of 8 bytes.
    AesCcm8(AesBits),
    /// AES-GCM with an ICV of 16 bytes.
    AesGcm16(AesBits),
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

impl ImplicitIvAlg {
    /// The variant of `aead` with an implicit IV; `None` if RFC 8750 defines none.
    pub const fn new(aead: AeadAlg) -> Option<Self> {
        match aead {
            AeadAlg::AesCcm { bits, icv: 8 } => Some(Self::AesCcm8(bits)),
            AeadAlg::AesGcm { bits, icv: 16 } => Some(Self::AesGcm16(bits)),
            AeadAlg::ChaCha20Poly1305 => Some(Self::ChaCha20Poly1305),
            AeadAlg::AesCcm { .. } | AeadAlg::AesGcm { .. } => None,
        }
    }

    /// The cipher, which takes the same key, salt and nonce as with an IV in the packet.
    pub const fn aead(self) -> AeadAlg {
        match self {
            Self::AesCcm8(bits) => AeadAlg::AesCcm { bits, icv: 8 },
            Self::AesGcm16(bits) => AeadAlg::AesGcm { bits, icv: 16 },
            Self::ChaCha20Poly1305 => AeadAlg::ChaCha20Poly1305,
        }
    }
}

impl fmt::Display for ImplicitIvAlg {
    /// Writes the IANA name, with the key length where the name does not contain it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AesCcm8(bits) => write!(f, "ENCR_AES_CCM_8_IIV-{}", bits.bits()),
            Self::AesGcm16(bits) => write!(f, "ENCR_AES_GCM_16_IIV-{}", bits.bits()),
            Self::ChaCha20Poly1305 => f.write_str("ENCR_CHACHA20_POLY1305_IIV"),
        }
    }
}

/// A cipher without integrity protection; it is always combined with a MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CipherAlg {
    /// NULL encryption (RFC 2410).
    Null,
    /// AES-CBC (RFC 3602).
    AesCbc(AesBits),
    /// AES-CTR (RFC 3686).
    AesCtr(AesBits),
    /// Camellia-CBC (RFC 5529), whose keys have the lengths of AES keys.
    CamelliaCbc(AesBits),
    /// DES-CBC (RFC 2405). Broken; only for repeating published measurements and for old peers.
    DesCbc,
    /// 3DES-CBC (RFC 2451). Obsolete; only for repeating published measurements and for old peers.
    TripleDesCbc,
}

impl CipherAlg {
    /// Key length in bytes: without the nonce of AES-CTR, with the parity bits of DES.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::AesCbc(bits) | Self::AesCtr(bits) | Self::CamelliaCbc(bits) => bits.bytes(),
            Self::DesCbc => 8,
            Self::TripleDesCbc => 24,
        }
    }

    /// Length of the nonce that is part of the key material, in bytes (RFC 3686 section 4).
    pub const fn salt_len(self) -> usize {
        match self {
            Self::AesCtr(_) => 4,
            _ => 0,
        }
    }

    /// Length of the IV in each packet, in bytes.
    pub const fn iv_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::AesCbc(_) | Self::CamelliaCbc(_) => 16,
            Self::AesCtr(_) | Self::DesCbc | Self::TripleDesCbc => 8,
        }
    }

    /// Block size to which the plaintext is padded, in bytes.
    pub const fn block_len(self) -> usize {
        match self {
            Self::Null | Self::AesCtr(_) => 1,
            Self::AesCbc(_) | Self::CamelliaCbc(_) => 16,
            Self::DesCbc | Self::TripleDesCbc => 8,
        }
    }

    /// Whether the cipher is a key stream, so that an IV must never repeat under one key.
    pub const fn is_counter_mode(self) -> bool {
        matches!(self, Self::AesCtr(_))
    }
}

impl fmt::Display for CipherAlg {
    /// Writes the IANA name, with the key length where the name does not contain it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("ENCR_NULL"),
            Self::AesCbc(bits) => write!(f, "ENCR_AES_CBC-{}", bits.bits()),
            Self::AesCtr(bits) => write!(f, "ENCR_AES_CTR-{}", bits.bits()),
            Self::CamelliaCbc(bits) => write!(f, "ENCR_CAMELLIA_CBC-{}", bits.bits()),
            Self::DesCbc => f.write_str("ENCR_DES"),
            Self::TripleDesCbc => f.write_str("ENCR_3DES"),
        }
    }
}

/// A MAC function, without its tag length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MacKind {
    /// HMAC-MD5 (RFC 2403). Obsolete; only for repeating published measurements and for old peers.
    HmacMd5,
    /// HMAC-SHA-1 (RFC 2404).
    HmacSha1,
    /// HMAC-SHA-256 (RFC 4868).
    HmacSha256,
    /// HMAC-SHA-384 (RFC 4868).
    HmacSha384,
    /// HMAC-SHA-512 (RFC 4868).
    HmacSha512,
    /// AES-XCBC-MAC (RFC 3566).
    AesXcbc,
    /// AES-CMAC (RFC 4494).
    AesCmac,
    /// AES-GMAC (RFC 4543), which takes a nonce.
    AesGmac(AesBits),
}

impl MacKind {
    /// Key length in bytes, without the salt of GMAC. For HMAC it is the output length of the hash (RFC 4868
    /// section 2.1.1).
    pub const fn key_len(self) -> usize {
        match self {
            Self::HmacMd5 | Self::AesXcbc | Self::AesCmac => 16,
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
            Self::AesGmac(bits) => bits.bytes(),
        }
    }

    /// Length of the untruncated tag, in bytes.
    pub const fn full_tag_len(self) -> usize {
        match self {
            Self::HmacMd5 | Self::AesXcbc | Self::AesCmac | Self::AesGmac(_) => 16,
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }

    /// Length to which the RFCs truncate the tag, in bytes.
    pub const fn standard_tag_len(self) -> usize {
        match self {
            Self::HmacMd5 | Self::HmacSha1 | Self::AesXcbc | Self::AesCmac => 12,
            Self::HmacSha256 | Self::AesGmac(_) => 16,
            Self::HmacSha384 => 24,
            Self::HmacSha512 => 32,
        }
    }
}

/// A MAC algorithm: a MAC function and the length of its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MacAlg {
    kind: MacKind,
    tag_len: u8,
}

impl MacAlg {
    /// Returns the MAC with the tag length of the RFCs, e.g. HMAC-SHA2-256-128.
    pub const fn standard(kind: MacKind) -> Self {
        Self { kind, tag_len: kind.standard_tag_len() as u8 }
    }

    /// Returns the MAC with its whole tag, e.g. HMAC-SHA1-160 (RFC 4595).
    pub const fn untruncated(kind: MacKind) -> Self {
        Self { kind, tag_len: kind.full_tag_len() as u8 }
    }

    /// Returns the MAC truncated to `tag_len` bytes, for peers that truncate differently (Linux's
    /// `hmac(sha256)` with 96 bits). The minimum is 8 bytes; GMAC is never truncated (RFC 4543 section 2).
    pub const fn truncated(kind: MacKind, tag_len: usize) -> Result<Self, InvalidAlgorithm> {
        let min = match kind {
            MacKind::AesGmac(_) => 16,
            _ => 8,
        };
        if tag_len < min || tag_len > kind.full_tag_len() {
            return Err(InvalidAlgorithm);
        }
        Ok(Self { kind, tag_len: tag_len as u8 })
    }

    /// The MAC function.
    pub const fn kind(self) -> MacKind {
        self.kind
    }

    /// Key length in bytes, without the salt of GMAC.
    pub const fn key_len(self) -> usize {
        self.kind.key_len()
    }

    /// Length of the tag (ICV) in bytes.
    pub const fn tag_len(self) -> usize {
        self.tag_len as usize
    }

    /// Length of the salt at the start of the nonce, in bytes; 0 for all MACs except GMAC.
    pub const fn salt_len(self) -> usize {
        if self.takes_nonce() { 4 } else { 0 }
    }

    /// Length of the IV in each packet, in bytes; 0 for all MACs except GMAC.
    pub const fn iv_len(self) -> usize {
        if self.takes_nonce() { 8 } else { 0 }
    }

    /// Whether the MAC takes a nonce, which must never repeat under one key.
    pub const fn takes_nonce(self) -> bool {
        matches!(self.kind, MacKind::AesGmac(_))
    }
}

impl fmt::Display for MacAlg {
    /// Writes the IANA name; for a non-standard truncation, the name contains the tag length in bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = usize::from(self.tag_len).saturating_mul(8);
        match self.kind {
            MacKind::HmacMd5 => write!(f, "AUTH_HMAC_MD5_{bits}"),
            MacKind::HmacSha1 => write!(f, "AUTH_HMAC_SHA1_{bits}"),
            MacKind::HmacSha256 => write!(f, "AUTH_HMAC_SHA2_256_{bits}"),
            MacKind::HmacSha384 => write!(f, "AUTH_HMAC_SHA2_384_{bits}"),
            MacKind::HmacSha512 => write!(f, "AUTH_HMAC_SHA2_512_{bits}"),
            MacKind::AesXcbc => write!(f, "AUTH_AES_XCBC_{bits}"),
            MacKind::AesCmac => write!(f, "AUTH_AES_CMAC_{bits}"),
            MacKind::AesGmac(aes) => write!(f, "AUTH_AES_{}_GMAC", aes.bits()),
        }
    }
}
