//! Transform types and the transforms of each type (RFC 7296 section 3.3.2).

use super::registry;

registry! {
    /// "Transform Type Values".
    TransformType(u8) {
        ENCR = 1, "ENCR", "RFC 7296 section 3.3.2";
        PRF = 2, "PRF", "RFC 7296 section 3.3.2";
        INTEG = 3, "INTEG", "RFC 7296 section 3.3.2";
        KE = 4, "KE", "RFC 7296 section 3.3.2 as D-H; named anew by RFC 9370";
        ESN = 5, "ESN", "RFC 7296 section 3.3.2";
        ADDKE1 = 6, "ADDKE1", "RFC 9370";
        ADDKE2 = 7, "ADDKE2", "RFC 9370";
        ADDKE3 = 8, "ADDKE3", "RFC 9370";
        ADDKE4 = 9, "ADDKE4", "RFC 9370";
        ADDKE5 = 10, "ADDKE5", "RFC 9370";
        ADDKE6 = 11, "ADDKE6", "RFC 9370";
        ADDKE7 = 12, "ADDKE7", "RFC 9370";
    }
}

impl TransformType {
    /// Name of transform `id` of this type, if both have a name in this module.
    pub const fn id_name(self, id: u16) -> Option<&'static str> {
        match self {
            Self::ENCR => EncrId(id).name(),
            Self::PRF => PrfId(id).name(),
            Self::INTEG => IntegId(id).name(),
            Self::ESN => SequenceNumbers(id).name(),
            Self::KE
            | Self::ADDKE1
            | Self::ADDKE2
            | Self::ADDKE3
            | Self::ADDKE4
            | Self::ADDKE5
            | Self::ADDKE6
            | Self::ADDKE7 => KeMethod(id).name(),
            _ => None,
        }
    }
}

registry! {
    /// "Encryption Algorithm Transform IDs".
    EncrId(u16) {
        DES_IV64 = 1, "ENCR_DES_IV64", "RFC 7296 section 3.3.2, unspecified";
        DES = 2, "ENCR_DES", "RFC 2405";
        TRIPLE_DES = 3, "ENCR_3DES", "RFC 2451";
        RC5 = 4, "ENCR_RC5", "RFC 2451";
        IDEA = 5, "ENCR_IDEA", "RFC 2451";
        CAST = 6, "ENCR_CAST", "RFC 2451";
        BLOWFISH = 7, "ENCR_BLOWFISH", "RFC 2451";
        TRIPLE_IDEA = 8, "ENCR_3IDEA", "RFC 7296 section 3.3.2, unspecified";
        DES_IV32 = 9, "ENCR_DES_IV32", "RFC 7296 section 3.3.2, unspecified";
        NULL = 11, "ENCR_NULL", "RFC 2410";
        AES_CBC = 12, "ENCR_AES_CBC", "RFC 3602";
        AES_CTR = 13, "ENCR_AES_CTR", "RFC 3686";
        AES_CCM_8 = 14, "ENCR_AES_CCM_8", "RFC 4309";
        AES_CCM_12 = 15, "ENCR_AES_CCM_12", "RFC 4309";
        AES_CCM_16 = 16, "ENCR_AES_CCM_16", "RFC 4309";
        AES_GCM_8 = 18, "ENCR_AES_GCM_8", "RFC 4106";
        AES_GCM_12 = 19, "ENCR_AES_GCM_12", "RFC 4106";
        AES_GCM_16 = 20, "ENCR_AES_GCM_16", "RFC 4106";
        NULL_AUTH_AES_GMAC = 21, "ENCR_NULL_AUTH_AES_GMAC", "RFC 4543";
        CAMELLIA_CBC = 23, "ENCR_CAMELLIA_CBC", "RFC 5529";
        CAMELLIA_CTR = 24, "ENCR_CAMELLIA_CTR", "RFC 5529";
        CAMELLIA_CCM_8 = 25, "ENCR_CAMELLIA_CCM_8", "RFC 5529";
        CAMELLIA_CCM_12 = 26, "ENCR_CAMELLIA_CCM_12", "RFC 5529";
        CAMELLIA_CCM_16 = 27, "ENCR_CAMELLIA_CCM_16", "RFC 5529";
        CHACHA20_POLY1305 = 28, "ENCR_CHACHA20_POLY1305", "RFC 7634";
        AES_CCM_8_IIV = 29, "ENCR_AES_CCM_8_IIV", "RFC 8750";
        AES_GCM_16_IIV = 30, "ENCR_AES_GCM_16_IIV", "RFC 8750";
        CHACHA20_POLY1305_IIV = 31, "ENCR_CHACHA20_POLY1305_IIV", "RFC 8750";
    }
}

registry! {
    /// "Pseudorandom Function Transform IDs".
    PrfId(u16) {
        HMAC_MD5 = 1, "PRF_HMAC_MD5", "RFC 7296 section 3.3.2";
        HMAC_SHA1 = 2, "PRF_HMAC_SHA1", "RFC 7296 section 3.3.2";
        HMAC_TIGER = 3, "PRF_HMAC_TIGER", "RFC 7296 section 3.3.2, unspecified";
        AES128_XCBC = 4, "PRF_AES128_XCBC", "RFC 4434";
        HMAC_SHA2_256 = 5, "PRF_HMAC_SHA2_256", "RFC 4868";
        HMAC_SHA2_384 = 6, "PRF_HMAC_SHA2_384", "RFC 4868";
        HMAC_SHA2_512 = 7, "PRF_HMAC_SHA2_512", "RFC 4868";
        AES128_CMAC = 8, "PRF_AES128_CMAC", "RFC 4615";
    }
}

registry! {
    /// "Integrity Algorithm Transform IDs".
    IntegId(u16) {
        NONE = 0, "NONE", "RFC 7296 section 3.3.2";
        HMAC_MD5_96 = 1, "AUTH_HMAC_MD5_96", "RFC 2403";
        HMAC_SHA1_96 = 2, "AUTH_HMAC_SHA1_96", "RFC 2404";
        DES_MAC = 3, "AUTH_DES_MAC", "RFC 7296 section 3.3.2, unspecified";
        KPDK_MD5 = 4, "AUTH_KPDK_MD5", "RFC 7296 section 3.3.2, unspecified";
        AES_XCBC_96 = 5, "AUTH_AES_XCBC_96", "RFC 3566";
        HMAC_MD5_128 = 6, "AUTH_HMAC_MD5_128", "RFC 4595";
        HMAC_SHA1_160 = 7, "AUTH_HMAC_SHA1_160", "RFC 4595";
        AES_CMAC_96 = 8, "AUTH_AES_CMAC_96", "RFC 4494";
        AES_128_GMAC = 9, "AUTH_AES_128_GMAC", "RFC 4543";
        AES_192_GMAC = 10, "AUTH_AES_192_GMAC", "RFC 4543";
        AES_256_GMAC = 11, "AUTH_AES_256_GMAC", "RFC 4543";
        HMAC_SHA2_256_128 = 12, "AUTH_HMAC_SHA2_256_128", "RFC 4868";
        HMAC_SHA2_384_192 = 13, "AUTH_HMAC_SHA2_384_192", "RFC 4868";
        HMAC_SHA2_512_256 = 14, "AUTH_HMAC_SHA2_512_256", "RFC 4868";
    }
}

registry! {
    /// "Key Exchange Method Transform IDs", the Diffie-Hellman groups.
    KeMethod(u16) {
        NONE = 0, "NONE", "RFC 7296 section 3.3.2";
        MODP_768 = 1, "768-bit MODP Group", "RFC 7296 appendix B.1";
        MODP_1024 = 2, "1024-bit MODP Group", "RFC 7296 appendix B.2";
        MODP_1536 = 5, "1536-bit MODP Group", "RFC 3526";
        MODP_2048 = 14, "2048-bit MODP Group", "RFC 3526";
        MODP_3072 = 15, "3072-bit MODP Group", "RFC 3526";
        MODP_4096 = 16, "4096-bit MODP Group", "RFC 3526";
        MODP_6144 = 17, "6144-bit MODP Group", "RFC 3526";
        MODP_8192 = 18, "8192-bit MODP Group", "RFC 3526";
        ECP_256 = 19, "256-bit random ECP group", "RFC 5903";
        ECP_384 = 20, "384-bit random ECP group", "RFC 5903";
        ECP_521 = 21, "521-bit random ECP group", "RFC 5903";
        MODP_1024_160 = 22, "1024-bit MODP Group with 160-bit Prime Order Subgroup", "RFC 5114";
        MODP_2048_224 = 23, "2048-bit MODP Group with 224-bit Prime Order Subgroup", "RFC 5114";
        MODP_2048_256 = 24, "2048-bit MODP Group with 256-bit Prime Order Subgroup", "RFC 5114";
        ECP_192 = 25, "192-bit Random ECP Group", "RFC 5114";
        ECP_224 = 26, "224-bit Random ECP Group", "RFC 5114";
        BRAINPOOL_P224R1 = 27, "brainpoolP224r1", "RFC 6954";
        BRAINPOOL_P256R1 = 28, "brainpoolP256r1", "RFC 6954";
        BRAINPOOL_P384R1 = 29, "brainpoolP384r1", "RFC 6954";
        BRAINPOOL_P512R1 = 30, "brainpoolP512r1", "RFC 6954";
        CURVE25519 = 31, "Curve25519", "RFC 8031";
        CURVE448 = 32, "Curve448", "RFC 8031";
        ML_KEM_512 = 35, "ml-kem-512", "IANA";
        ML_KEM_768 = 36, "ml-kem-768", "IANA";
        ML_KEM_1024 = 37, "ml-kem-1024", "IANA";
    }
}

impl KeMethod {
    /// Length in bytes of a public value of this group, in both directions. `None` if the group is unknown or
    /// the lengths differ by direction.
    ///
    /// MODP: the length of the prime (RFC 7296 section 3.4). ECP: both coordinates (RFC 5903 section 7, RFC
    /// 6954 section 3). Curve25519 and Curve448: RFC 8031 section 3.1.
    pub const fn public_len(self) -> Option<usize> {
        let len = match self {
            Self::CURVE25519 => 32,
            Self::ECP_192 => 48,
            Self::ECP_224 | Self::BRAINPOOL_P224R1 | Self::CURVE448 => 56,
            Self::ECP_256 | Self::BRAINPOOL_P256R1 => 64,
            Self::MODP_768 | Self::ECP_384 | Self::BRAINPOOL_P384R1 => 96,
            Self::MODP_1024 | Self::MODP_1024_160 | Self::BRAINPOOL_P512R1 => 128,
            Self::ECP_521 => 132,
            Self::MODP_1536 => 192,
            Self::MODP_2048 | Self::MODP_2048_224 | Self::MODP_2048_256 => 256,
            Self::MODP_3072 => 384,
            Self::MODP_4096 => 512,
            Self::MODP_6144 => 768,
            Self::MODP_8192 => 1_024,
            _ => return None,
        };
        Some(len)
    }
}

registry! {
    /// "Extended Sequence Numbers Transform IDs".
    SequenceNumbers(u16) {
        PLAIN = 0, "No Extended Sequence Numbers", "RFC 7296 section 3.3.2";
        EXTENDED = 1, "Extended Sequence Numbers", "RFC 7296 section 3.3.2";
    }
}
