//! Wireshark's algorithm names in the rows of its `ikev2_decryption_table`.

use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind};
use casemate_ike::SkSuite;

/// The encryption column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    Combined(AeadAlg),
    Cipher(CipherAlg),
}

/// The integrity column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Integrity {
    /// NONE: the cipher is a combined mode, or the messages have no ICV.
    None,
    Mac(MacAlg),
    /// An ICV of `icv` bytes that is not checked.
    Unchecked {
        icv: usize,
    },
}

const BITS: [(&str, AesBits); 3] = [("128", AesBits::B128), ("192", AesBits::B192), ("256", AesBits::B256)];

/// Parses a name such as `AES-CBC-256 [RFC3602]`. The part in brackets is redundant and may be missing.
/// Wireshark 4.0 has no name for ChaCha20-Poly1305, which is `CHACHA20_POLY1305` here.
pub(super) fn encryption(name: &str) -> Option<Encryption> {
    let name = plain(name);
    let aes = |prefix: &str, suffix: &str| {
        let bits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
        BITS.into_iter().find(|(text, _)| *text == bits).map(|(_, bits)| bits)
    };
    for (icv, suffix) in [(8, " with 8 octet ICV"), (12, " with 12 octet ICV"), (16, " with 16 octet ICV")] {
        if let Some(bits) = aes("AES-GCM-", suffix) {
            return AeadAlg::aes_gcm(bits, icv).ok().map(Encryption::Combined);
        }
        if let Some(bits) = aes("AES-CCM-", suffix) {
            return AeadAlg::aes_ccm(bits, icv).ok().map(Encryption::Combined);
        }
    }
    let cipher = match name {
        "CHACHA20_POLY1305" => return Some(Encryption::Combined(AeadAlg::ChaCha20Poly1305)),
        "3DES" => Some(CipherAlg::TripleDesCbc),
        "NULL" => Some(CipherAlg::Null),
        _ => {
            aes("AES-CBC-", "").map(CipherAlg::AesCbc).or_else(|| aes("AES-CTR-", "").map(CipherAlg::AesCtr))
        }
    };
    cipher.map(Encryption::Cipher)
}

/// Parses a name such as `HMAC_SHA2_256_128 [RFC4868]` or `ANY 96-bits of Authentication [No Checking]`.
/// Wireshark 4.0 has no name for AES-XCBC and AES-CMAC, which are `AES_XCBC_96` and `AES_CMAC_96` here.
pub(super) fn integrity(name: &str) -> Option<Integrity> {
    let truncated = |kind, bytes| MacAlg::truncated(kind, bytes).ok().map(Integrity::Mac);
    let name = plain(name);
    if let Some(any) = name.strip_prefix("ANY ") {
        return unchecked(any);
    }
    let kind = match name {
        "NONE" => return Some(Integrity::None),
        "HMAC_MD5_128" => return truncated(MacKind::HmacMd5, 16),
        "HMAC_SHA1_160" => return truncated(MacKind::HmacSha1, 20),
        "HMAC_SHA2_256_96" => return truncated(MacKind::HmacSha256, 12),
        "HMAC_MD5_96" => MacKind::HmacMd5,
        "HMAC_SHA1_96" => MacKind::HmacSha1,
        "HMAC_SHA2_256_128" => MacKind::HmacSha256,
        "HMAC_SHA2_384_192" => MacKind::HmacSha384,
        "HMAC_SHA2_512_256" => MacKind::HmacSha512,
        "AES_XCBC_96" => MacKind::AesXcbc,
        "AES_CMAC_96" => MacKind::AesCmac,
        _ => return None,
    };
    Some(Integrity::Mac(MacAlg::standard(kind)))
}

/// Parses the text after `ANY `: a length in bits that Wireshark supports, then `-bits of Authentication`
/// or, as in Wireshark's table of ESP SAs, ` bit authentication`.
fn unchecked(text: &str) -> Option<Integrity> {
    let (bits, unit) = text.split_once(['-', ' '])?;
    let is_known =
        ["bits of authentication", "bit of authentication", "bits authentication", "bit authentication"]
            .iter()
            .any(|known| unit.eq_ignore_ascii_case(known));
    let icv = [8, 12, 16, 20, 24, 32].into_iter().find(|icv| (icv * 8).to_string() == bits)?;
    is_known.then_some(Integrity::Unchecked { icv })
}

/// The columns of a suite.
pub(crate) struct SuiteNames {
    pub(crate) encryption: String,
    pub(crate) integrity: &'static str,
}

/// Both columns for a suite, in the form that [`encryption`] and [`integrity`] parse. Wireshark requires
/// the exact text, RFC included.
pub(crate) fn names(suite: SkSuite) -> SuiteNames {
    match suite {
        SkSuite::Combined(alg) => SuiteNames { encryption: combined_name(alg), integrity: "NONE [RFC4306]" },
        SkSuite::Separate(cipher, mac) => {
            SuiteNames { encryption: cipher_name(cipher), integrity: mac_name(mac) }
        }
    }
}

fn combined_name(alg: AeadAlg) -> String {
    match alg {
        AeadAlg::AesGcm { bits, icv } => {
            format!("AES-GCM-{} with {icv} octet ICV [RFC5282]", bits.bits())
        }
        AeadAlg::AesCcm { bits, icv } => {
            format!("AES-CCM-{} with {icv} octet ICV [RFC5282]", bits.bits())
        }
        AeadAlg::ChaCha20Poly1305 => "CHACHA20_POLY1305".into(),
    }
}

fn cipher_name(cipher: CipherAlg) -> String {
    match cipher {
        CipherAlg::AesCbc(bits) => format!("AES-CBC-{} [RFC3602]", bits.bits()),
        CipherAlg::AesCtr(bits) => format!("AES-CTR-{} [RFC5930]", bits.bits()),
        CipherAlg::TripleDesCbc => "3DES [RFC2451]".into(),
        // Wireshark has no name for these.
        CipherAlg::CamelliaCbc(_) | CipherAlg::DesCbc | CipherAlg::Null => cipher.to_string(),
    }
}

fn mac_name(mac: MacAlg) -> &'static str {
    match mac.kind() {
        MacKind::HmacMd5 => "HMAC_MD5_96 [RFC2403]",
        MacKind::HmacSha1 if mac == MacAlg::untruncated(MacKind::HmacSha1) => "HMAC_SHA1_160 [RFC4595]",
        MacKind::HmacSha1 => "HMAC_SHA1_96 [RFC2404]",
        MacKind::HmacSha256 => "HMAC_SHA2_256_128 [RFC4868]",
        MacKind::HmacSha384 => "HMAC_SHA2_384_192 [RFC4868]",
        MacKind::HmacSha512 => "HMAC_SHA2_512_256 [RFC4868]",
        MacKind::AesXcbc => "AES_XCBC_96",
        MacKind::AesCmac | MacKind::AesGmac(_) => "AES_CMAC_96",
    }
}

/// The name without the RFC after it.
fn plain(name: &str) -> &str {
    name.split_once(" [").map_or(name, |(name, _)| name).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_rfc() {
        let gcm = AeadAlg::aes_gcm(AesBits::B256, 16).unwrap();
        assert_eq!(encryption("AES-GCM-256 with 16 octet ICV [RFC5282]"), Some(Encryption::Combined(gcm)));
        let ccm = AeadAlg::aes_ccm(AesBits::B128, 8).unwrap();
        assert_eq!(encryption("AES-CCM-128 with 8 octet ICV"), Some(Encryption::Combined(ccm)));
        let cipher = |name| match encryption(name) {
            Some(Encryption::Cipher(cipher)) => cipher,
            other => panic!("{other:?}"),
        };
        assert_eq!(cipher("AES-CBC-192 [RFC3602]"), CipherAlg::AesCbc(AesBits::B192));
        assert_eq!(cipher("AES-CTR-128 [RFC5930]"), CipherAlg::AesCtr(AesBits::B128));
        assert_eq!(cipher("3DES [RFC2451]"), CipherAlg::TripleDesCbc);
        assert_eq!(cipher("NULL [RFC2410]"), CipherAlg::Null);
        for name in ["", "AES-CBC-512", "AES-GCM-128 with 10 octet ICV [RFC5282]", "NULLS"] {
            assert_eq!(encryption(name), None, "{name}");
        }
        assert_eq!(integrity("NONE [RFC4306]"), Some(Integrity::None));
        let sha1 = MacAlg::standard(MacKind::HmacSha1);
        assert_eq!(integrity("HMAC_SHA1_96"), Some(Integrity::Mac(sha1)));
        assert_eq!(integrity("HMAC_SHA3"), None);
    }

    /// The names in the table `esp_integ` of the ISAKMP dissector of Wireshark 4.0.
    #[test]
    fn all_integrity_algorithms_of_wireshark_are_known() {
        for (name, tag_len) in [
            ("HMAC_MD5_96 [RFC2403]", 12),
            ("HMAC_SHA1_96 [RFC2404]", 12),
            ("HMAC_MD5_128 [RFC4595]", 16),
            ("HMAC_SHA1_160 [RFC4595]", 20),
            ("HMAC_SHA2_256_96 [draft-ietf-ipsec-ciph-sha-256-00]", 12),
            ("HMAC_SHA2_256_128 [RFC4868]", 16),
            ("HMAC_SHA2_384_192 [RFC4868]", 24),
            ("HMAC_SHA2_512_256 [RFC4868]", 32),
        ] {
            let Some(Integrity::Mac(mac)) = integrity(name) else { panic!("{name}") };
            assert_eq!(mac.tag_len(), tag_len, "{name}");
        }
        for bits in [64, 96, 128, 160, 192, 256] {
            let unchecked = Some(Integrity::Unchecked { icv: bits / 8 });
            assert_eq!(integrity(&format!("ANY {bits}-bits of Authentication [No Checking]")), unchecked);
            assert_eq!(integrity(&format!("ANY {bits} bit authentication [no checking]")), unchecked);
        }
        for name in
            ["ANY", "ANY 96", "ANY 100-bits of Authentication", "ANY 96-bits", "ANY -bits of Authentication"]
        {
            assert_eq!(integrity(name), None, "{name}");
        }
    }
}
