//! Signature vectors: signatures of OpenSSL, and RSA forgeries that other programs accepted.
//! `wycheproof/signature.rs` contains those of Wycheproof.

use crate::cavp::{Record, records};
use crate::check::expect_eq;
use crate::report::{Family, Report};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use casemate_crypto::{HashAlg, KeyLimits, Provider, PublicKey, SignatureAlg, SignatureError};

/// Runs all files.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    report.families.extend([openssl(provider), forgeries(provider)]);
}

/// A signature and whether it is valid.
pub(crate) struct Case<'a> {
    pub(crate) id: String,
    pub(crate) alg: SignatureAlg,
    pub(crate) key: PublicKey,
    pub(crate) message: &'a [u8],
    pub(crate) signature: &'a [u8],
    pub(crate) holds: bool,
}

/// Runs a case if the provider supports the algorithm.
pub(crate) fn check(family: &mut Family, provider: &dyn Provider, case: &Case<'_>) {
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
