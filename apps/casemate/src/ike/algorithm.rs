//! Wireshark's names of algorithms, in the rows of its `ikev2_decryption_table`.

use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind};
use casemate_ike::SkSuite;

/// What the column of encryption says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    Combined(AeadAlg),
    Cipher(CipherAlg),
}

const BITS: [(&str, AesBits); 3] = [("128", AesBits::B128), ("192", AesBits::B192), ("256", AesBits::B256)];

/// From a name such as `AES-CBC-256 [RFC3602]`; what is in brackets says nothing new and may be missing. Wireshark 4.0 has no
/// name for ChaCha20-Poly1305, which is `CHACHA20_POLY1305` here.
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
        _ => {
            aes("AES-CBC-", "").map(CipherAlg::AesCbc).or_else(|| aes("AES-CTR-", "").map(CipherAlg::AesCtr))
        }
    };
    cipher.map(Encryption::Cipher)
}

/// From a name such as `HMAC_SHA2_256_128 [RFC4868]`; `Some(None)` is NONE. Wireshark 4.0 has no name for AES-XCBC and
/// AES-CMAC, which are `AES_XCBC_96` and `AES_CMAC_96` here.
pub(super) fn integrity(name: &str) -> Option<Option<MacAlg>> {
    let kind = match plain(name) {
        "NONE" => return Some(None),
        "HMAC_MD5_96" => MacKind::HmacMd5,
        "HMAC_SHA1_96" => MacKind::HmacSha1,
        "HMAC_SHA2_256_128" => MacKind::HmacSha256,
        "HMAC_SHA2_384_192" => MacKind::HmacSha384,
        "HMAC_SHA2_512_256" => MacKind::HmacSha512,
        "AES_XCBC_96" => MacKind::AesXcbc,
        "AES_CMAC_96" => MacKind::AesCmac,
        _ => return None,
    };
    Some(Some(MacAlg::standard(kind)))
}

/// Both columns together; `None` if one must have what the other lacks.
pub(super) fn suite(encryption: Encryption, integrity: Option<MacAlg>) -> Option<SkSuite> {
    match (encryption, integrity) {
        (Encryption::Combined(alg), None) => Some(SkSuite::Combined(alg)),
        (Encryption::Cipher(cipher), Some(mac)) => Some(SkSuite::Separate(cipher, mac)),
        _ => None,
    }
}

/// Both columns for a suite: what [`encryption`] and [`integrity`] read. Wireshark wants them to the letter, RFC included.
pub(crate) fn names(suite: SkSuite) -> (String, &'static str) {
    match suite {
        SkSuite::Combined(alg) => (combined_name(alg), "NONE [RFC4306]"),
        SkSuite::Separate(cipher, mac) => (cipher_name(cipher), mac_name(mac)),
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
        CipherAlg::DesCbc | CipherAlg::Null => cipher.to_string(),
    }
}

fn mac_name(mac: MacAlg) -> &'static str {
    match mac.kind() {
        MacKind::HmacMd5 => "HMAC_MD5_96 [RFC2403]",
        MacKind::HmacSha1 => "HMAC_SHA1_96 [RFC2404]",
        MacKind::HmacSha256 => "HMAC_SHA2_256_128 [RFC4868]",
        MacKind::HmacSha384 => "HMAC_SHA2_384_192 [RFC4868]",
        MacKind::HmacSha512 => "HMAC_SHA2_512_256 [RFC4868]",
        MacKind::AesXcbc => "AES_XCBC_96",
        MacKind::AesCmac | MacKind::AesGmac(_) => "AES_CMAC_96",
    }
}

/// The name without the RFC behind it.
fn plain(name: &str) -> &str {
    name.split_once(" [").map_or(name, |(name, _)| name).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_their_rfc() {
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
        for name in ["", "AES-CBC-512", "AES-GCM-128 with 10 octet ICV [RFC5282]", "NULL [RFC2410]"] {
            assert_eq!(encryption(name), None, "{name}");
        }
        assert_eq!(integrity("NONE [RFC4306]"), Some(None));
        assert_eq!(integrity("HMAC_SHA1_96"), Some(Some(MacAlg::standard(MacKind::HmacSha1))));
        assert_eq!(integrity("HMAC_SHA3"), None);
    }

    #[test]
    fn one_column_asks_for_the_other() {
        let (aead, cipher) = (encryption("CHACHA20_POLY1305"), encryption("AES-CBC-128"));
        let mac = integrity("HMAC_SHA1_96").unwrap();
        assert!(suite(aead.unwrap(), None).is_some() && suite(cipher.unwrap(), mac).is_some());
        assert!(suite(aead.unwrap(), mac).is_none() && suite(cipher.unwrap(), None).is_none());
    }
}
