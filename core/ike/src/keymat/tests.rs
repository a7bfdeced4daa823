use super::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind};
use casemate_rustcrypto::RUSTCRYPTO;

const PROVIDERS: Providers<'_> = Providers(&[&RUSTCRYPTO]);

/// One IKE SA of strongswan.txt.
struct Known {
    name: &'static str,
    words: BTreeMap<&'static str, &'static str>,
}

impl Known {
    fn bytes(&self, name: &str) -> Vec<u8> {
        let pair = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
        self.words[name].as_bytes().chunks(2).map(pair).collect()
    }

    fn secret(&self, name: &str) -> SecretBytes {
        SecretBytes::new(&self.bytes(name))
    }

    fn spis(&self) -> Spis {
        let spi = |name: &str| IkeSpi(u64::from_str_radix(self.words[name], 16).unwrap());
        (spi("spi_i"), spi("spi_r"))
    }

    fn prf(&self) -> PrfAlg {
        PrfAlg::ALL.into_iter().find(|prf| prf.keyword() == self.words["prf"]).unwrap()
    }

    fn suite(&self) -> SkSuite {
        let (b128, b192, b256) = (AesBits::B128, AesBits::B192, AesBits::B256);
        let mac = MacAlg::standard;
        match self.name.split_once(' ').unwrap().0 {
            "gcm" => SkSuite::Combined(AeadAlg::aes_gcm(b128, 16).unwrap()),
            "ccm" => SkSuite::Combined(AeadAlg::aes_ccm(b256, 8).unwrap()),
            "chacha" => SkSuite::Combined(AeadAlg::ChaCha20Poly1305),
            "cbc" => SkSuite::Separate(CipherAlg::AesCbc(b256), mac(MacKind::HmacSha256)),
            "sha1" => SkSuite::Separate(CipherAlg::AesCbc(b128), mac(MacKind::HmacSha1)),
            "ctr" => SkSuite::Separate(CipherAlg::AesCtr(b192), mac(MacKind::AesXcbc)),
            "cmac" => SkSuite::Separate(CipherAlg::AesCbc(b128), mac(MacKind::AesCmac)),
            other => panic!("{other}"),
        }
    }

    fn keys(&self) -> SaKeys {
        let [d, ai, ar, ei, er, pi, pr] =
            ["d", "ai", "ar", "ei", "er", "pi", "pr"].map(|name| self.secret(name));
        SaKeys { d, ai, ar, ei, er, pi, pr }
    }
}

/// Every SA of the file; a second one that replaced the one before it comes with that.
fn all() -> Vec<Known> {
    let mut all: Vec<Known> = Vec::new();
    for line in include_str!("strongswan.txt").lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            all.push(Known { name, words: BTreeMap::new() });
        } else if let Some((name, value)) = line.split_once('=') {
            all.last_mut().unwrap().words.insert(name.trim(), value.trim());
        }
    }
    all
}

#[test]
fn strongswan_makes_the_same_keys() {
    let all = all();
    assert_eq!(all.len(), 14);
    for pair in all.chunks(2) {
        let (first, second) = (&pair[0], &pair[1]);
        for known in pair {
            let (ni, nr) = (known.bytes("ni"), known.bytes("nr"));
            let nonces = Nonces { initiator: &ni, responder: &nr };
            let (prf, suite, shared) = (known.prf(), known.suite(), known.secret("shared"));
            let keys = if known.name.ends_with("first") {
                SaKeys::first(prf, suite, &shared, nonces, known.spis(), &PROVIDERS)
            } else {
                let old = (first.prf(), &first.secret("d"));
                SaKeys::rekeyed(old, (prf, suite), &shared, nonces, known.spis(), &PROVIDERS)
            };
            let keys = keys.unwrap();
            assert!(keys == known.keys(), "{}", known.name);
        }
        assert!(second.name.ends_with("rekeyed"));
    }
}

#[test]
fn strongswan_makes_the_same_keys_of_child_sas() {
    for known in all().iter().filter(|known| known.name.ends_with("first")) {
        let (ni, nr, expected) = (known.bytes("ni"), known.bytes("nr"), known.secret("child"));
        let nonces = Nonces { initiator: &ni, responder: &nr };
        assert_eq!(expected.len(), 40, "two keys of AES-GCM-128 with their salts");
        let keymat = child((known.prf(), &known.secret("d")), None, nonces, 40, &PROVIDERS).unwrap();
        assert!(keymat == expected, "{}", known.name);
        // With a new g^ir the keys are others.
        let shared = known.secret("shared");
        let keymat = child((known.prf(), &known.secret("d")), Some(&shared), nonces, 40, &PROVIDERS).unwrap();
        assert!(keymat != expected, "{}", known.name);
    }
}
