//! Names of suites in strongSwan's notation: `aes128gcm16`, `aes256-sha384`, `null-sha256`, and for AH
//! `sha256`. `3des` and `md5` are always parsed, but have a provider only with the feature `legacy`.

use casemate_crypto::{AeadAlg, AesBits, AhSuite, CipherAlg, EspSuite, MacAlg, MacKind};

/// Returns the ESP suite with this name.
pub(crate) fn esp(name: &str) -> Option<EspSuite> {
    match name.split_once('-') {
        None => combined(name).map(EspSuite::Combined),
        Some((cipher_name, mac_name)) => Some(EspSuite::Separate(cipher(cipher_name)?, mac(mac_name)?)),
    }
}

/// Returns the AH suite with this name.
pub(crate) fn ah(name: &str) -> Option<AhSuite> {
    mac(name).map(AhSuite)
}

fn combined(name: &str) -> Option<AeadAlg> {
    if name == "chacha20poly1305" {
        return Some(AeadAlg::ChaCha20Poly1305);
    }
    let (bits, rest) = aes(name)?;
    if let Some(icv) = rest.strip_prefix("gcm") {
        return AeadAlg::aes_gcm(bits, icv.parse().ok()?).ok();
    }
    AeadAlg::aes_ccm(bits, rest.strip_prefix("ccm")?.parse().ok()?).ok()
}

fn cipher(name: &str) -> Option<CipherAlg> {
    if name == "null" {
        return Some(CipherAlg::Null);
    }
    if name == "3des" {
        return Some(CipherAlg::TripleDesCbc);
    }
    match aes(name)? {
        (bits, "") => Some(CipherAlg::AesCbc(bits)),
        (bits, "ctr") => Some(CipherAlg::AesCtr(bits)),
        _ => None,
    }
}

fn mac(name: &str) -> Option<MacAlg> {
    let kind = match name {
        "md5" => MacKind::HmacMd5,
        "sha1" => MacKind::HmacSha1,
        "sha256" => MacKind::HmacSha256,
        // The truncation that Linux uses by default.
        "sha256_96" => return MacAlg::truncated(MacKind::HmacSha256, 12).ok(),
        "sha384" => MacKind::HmacSha384,
        "sha512" => MacKind::HmacSha512,
        "aesxcbc" => MacKind::AesXcbc,
        "aescmac" => MacKind::AesCmac,
        _ => match aes(name)? {
            (bits, "gmac") => MacKind::AesGmac(bits),
            _ => return None,
        },
    };
    Some(MacAlg::standard(kind))
}

/// Splits a name such as `aes128ctr` into the key length and the rest.
fn aes(name: &str) -> Option<(AesBits, &str)> {
    let rest = name.strip_prefix("aes")?;
    let with = |bits: &str, value| rest.strip_prefix(bits).map(|rest| (value, rest));
    with("128", AesBits::B128).or_else(|| with("192", AesBits::B192)).or_else(|| with("256", AesBits::B256))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn suites_are_named_as_in_strongswan() {
        for (name, iana) in [
            ("aes128gcm16", "ENCR_AES_GCM_16-128"),
            ("aes256ccm8", "ENCR_AES_CCM_8-256"),
            ("chacha20poly1305", "ENCR_CHACHA20_POLY1305"),
            ("aes192-sha384", "ENCR_AES_CBC-192/AUTH_HMAC_SHA2_384_192"),
            ("3des-md5", "ENCR_3DES/AUTH_HMAC_MD5_96"),
            ("aes128ctr-aesxcbc", "ENCR_AES_CTR-128/AUTH_AES_XCBC_96"),
            ("null-aes128gmac", "ENCR_NULL/AUTH_AES_128_GMAC"),
        ] {
            assert_eq!(esp(name).map(|suite| suite.to_string()).as_deref(), Some(iana), "{name}");
        }
        assert_eq!(esp("aes128-sha256_96").map(|suite| suite.icv_len()), Some(12));
        assert_eq!(ah("sha256").map(|suite| suite.to_string()).as_deref(), Some("AUTH_HMAC_SHA2_256_128"));
        for nothing in [
            "",
            "aes128",
            "aes128gcm",
            "aes128gcm15",
            "aes64gcm16",
            "null",
            "aes128-",
            "sha256",
            "AES128GCM16",
        ] {
            assert_eq!(esp(nothing), None, "{nothing}");
        }
        assert_eq!(ah("aes128gcm16"), None);
    }
}
