//! Suites that Linux supports, with Linux's algorithm names (net/xfrm/xfrm_algo.c). Sizes are in bytes,
//! ICVs in bits as in iproute2. Suite names are strongSwan's keywords.

use std::fmt::Write as _;

/// Algorithms of an SA.
#[derive(Debug, Clone)]
pub(crate) struct Suite {
    pub(crate) name: String,
    parts: Vec<Part>,
    /// Whether an IV must never repeat, in which case Casemate needs a counter file.
    pub(crate) counter_mode: bool,
}

/// Algorithm in an `ip xfrm state` command.
#[derive(Debug, Clone)]
struct Part {
    /// `enc`, `auth-trunc` or `aead`.
    keyword: &'static str,
    algorithm: &'static str,
    /// Length of the key with its salt, in bytes.
    key: usize,
    /// Length of the ICV in bits, if the keyword has one.
    icv: Option<u16>,
}

impl Suite {
    /// Arguments of an `ip xfrm state` command, with keys from `key`.
    pub(crate) fn words(&self, mut key: impl FnMut(usize) -> String) -> String {
        let mut words = String::new();
        for part in &self.parts {
            let _ = write!(words, " {} '{}' {}", part.keyword, part.algorithm, key(part.key));
            if let Some(icv) = part.icv {
                let _ = write!(words, " {icv}");
            }
        }
        words
    }

    /// Keys in `words` with their purpose, without empty keys.
    pub(crate) fn keys(&self, mut key: impl FnMut(usize) -> String) -> Vec<(&'static str, String)> {
        let keyed = self.parts.iter().filter(|part| part.key > 0);
        keyed.map(|part| (if part.is_integrity() { INTEGRITY } else { ENCRYPTION }, key(part.key))).collect()
    }
}

impl Part {
    /// Whether the algorithm only authenticates. Linux treats GMAC as an encryption mode.
    fn is_integrity(&self) -> bool {
        self.keyword == "auth-trunc" || self.algorithm == GMAC
    }
}

/// Linux's name of GMAC.
const GMAC: &str = "rfc4543(gcm(aes))";

const ENCRYPTION: &str = "encryption-key";
const INTEGRITY: &str = "integrity-key";

/// An algorithm of a suite with separate encryption and integrity.
#[derive(Clone, Copy)]
struct Algorithm {
    /// Name in the name of the suite.
    name: &'static str,
    /// Linux's name.
    kernel_name: &'static str,
    /// Length of the key in bytes, with the nonce of counter mode.
    key: usize,
}

/// A MAC.
#[derive(Clone, Copy)]
struct Mac {
    algorithm: Algorithm,
    /// Length of the ICV in bits.
    icv: u16,
}

const fn mac(name: &'static str, kernel_name: &'static str, key: usize, icv: u16) -> Mac {
    Mac { algorithm: cipher(name, kernel_name, key), icv }
}

const fn cipher(name: &'static str, kernel_name: &'static str, key: usize) -> Algorithm {
    Algorithm { name, kernel_name, key }
}

const MACS: &[Mac] = &[
    mac("sha1", "hmac(sha1)", 20, 96),
    mac("sha256", "hmac(sha256)", 32, 128),
    // Linux's hmac(sha256) without an explicit length.
    mac("sha256_96", "hmac(sha256)", 32, 96),
    mac("sha384", "hmac(sha384)", 48, 192),
    mac("sha512", "hmac(sha512)", 64, 256),
    mac("aesxcbc", "xcbc(aes)", 16, 96),
    mac("aescmac", "cmac(aes)", 16, 96),
    mac("md5", "hmac(md5)", 16, 96),
];

const CIPHERS: &[Algorithm] = &[
    cipher("null", "ecb(cipher_null)", 0),
    cipher("aes128", "cbc(aes)", 16),
    cipher("aes192", "cbc(aes)", 24),
    cipher("aes256", "cbc(aes)", 32),
    cipher("aes128ctr", "rfc3686(ctr(aes))", 20),
    cipher("aes192ctr", "rfc3686(ctr(aes))", 28),
    cipher("aes256ctr", "rfc3686(ctr(aes))", 36),
    cipher("des", "cbc(des)", 8),
    cipher("3des", "cbc(des3_ede)", 24),
];

/// All ciphers and all MACs, in common combinations.
const PAIRS: &[(&str, &[&str])] = &[
    ("null", &["sha1", "sha256", "sha256_96", "sha384", "sha512", "aesxcbc", "aescmac", "md5"]),
    ("aes128", &["sha1", "sha256", "sha256_96", "sha384", "sha512", "aesxcbc", "aescmac", "md5"]),
    ("aes192", &["sha256"]),
    ("aes256", &["sha1", "sha256", "sha384", "sha512"]),
    ("aes128ctr", &["sha1", "aesxcbc"]),
    ("aes192ctr", &["sha256"]),
    ("aes256ctr", &["sha512"]),
    ("des", &["md5"]),
    ("3des", &["sha1", "md5"]),
];

/// ESP suites.
pub(crate) fn esp() -> Vec<Suite> {
    let mut suites = Vec::new();
    for (cipher, macs) in PAIRS {
        suites.extend(macs.iter().filter_map(|mac| pair(cipher, mac)));
    }
    for (bits, key) in [(128, 16), (192, 24), (256, 32)] {
        for icv in [64, 96, 128] {
            let bytes = icv / 8;
            suites.push(aead(format!("aes{bits}gcm{bytes}"), "rfc4106(gcm(aes))", key + 4, icv));
            suites.push(aead(format!("aes{bits}ccm{bytes}"), "rfc4309(ccm(aes))", key + 3, icv));
        }
        suites.push(aead(format!("null-aes{bits}gmac"), GMAC, key + 4, 128));
    }
    suites.push(aead("chacha20poly1305".into(), "rfc7539esp(chacha20,poly1305)", 36, 128));
    suites
}

/// AH suites. Linux has no GMAC for AH.
pub(crate) fn ah() -> Vec<Suite> {
    MACS.iter()
        .map(|&mac| Suite {
            name: mac.algorithm.name.into(),
            parts: vec![mac_part(mac)],
            counter_mode: false,
        })
        .collect()
}

/// Suites with these names, in the order of the names.
pub(crate) fn pick(all: &[Suite], names: &[&str]) -> Vec<Suite> {
    names.iter().filter_map(|name| all.iter().find(|suite| suite.name == *name)).cloned().collect()
}

fn pair(cipher: &str, mac: &str) -> Option<Suite> {
    let encryption = CIPHERS.iter().find(|row| row.name == cipher)?;
    let &integrity = MACS.iter().find(|row| row.algorithm.name == mac)?;
    let (algorithm, key) = (encryption.kernel_name, encryption.key);
    Some(Suite {
        name: format!("{cipher}-{mac}"),
        parts: vec![Part { keyword: "enc", algorithm, key, icv: None }, mac_part(integrity)],
        counter_mode: algorithm.contains("ctr("),
    })
}

fn mac_part(mac: Mac) -> Part {
    let Algorithm { kernel_name: algorithm, key, .. } = mac.algorithm;
    Part { keyword: "auth-trunc", algorithm, key, icv: Some(mac.icv) }
}

fn aead(name: String, algorithm: &'static str, key: usize, icv: u16) -> Suite {
    Suite { name, parts: vec![Part { keyword: "aead", algorithm, key, icv: Some(icv) }], counter_mode: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn suite_names_are_unique_and_all_ciphers_are_used() {
        let pairs: usize = PAIRS.iter().map(|(_, macs)| macs.len()).sum();
        let esp = esp();
        assert_eq!(esp.len(), pairs + 22);
        assert_eq!(esp.iter().map(|suite| &suite.name).collect::<BTreeSet<_>>().len(), esp.len());
        assert_eq!(ah().len(), MACS.len());
        for Algorithm { name: cipher, .. } in CIPHERS {
            assert!(PAIRS.iter().any(|(name, _)| name == cipher), "{cipher} is in no pair");
        }
    }

    #[test]
    fn words_are_iproute2_arguments() {
        let suites = esp();
        let words = |name: &str| pick(&suites, &[name])[0].words(|bytes| format!("<{bytes}>"));
        assert_eq!(words("aes128-sha1"), " enc 'cbc(aes)' <16> auth-trunc 'hmac(sha1)' <20> 96");
        assert_eq!(words("aes256gcm8"), " aead 'rfc4106(gcm(aes))' <36> 64");
    }
}
