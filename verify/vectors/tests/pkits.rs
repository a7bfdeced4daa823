//! NIST's PKITS: the certificates and CRLs of the Public Key Interoperability Test Suite. Whether an end entity is valid stands in the
//! name of its file. Where Casemate decides otherwise stands in `DIFFERENT`, with the reason.
//!
//! The suite gives a path for each test. Here all CAs and CRLs are in the store at once, and the path is found.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::Providers;
use casemate_pki::{CertFault, Options, Revocation, StoreLimits, TrustStore};
use std::fs;

/// The first of January 2020: the certificates are valid from 2010 to 2030.
const NOW: u64 = 1_577_836_800;

const CERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/pkits/certs");
const CRLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/pkits/crls");

/// The files of a directory, sorted: name without its end, and content.
fn files(directory: &str) -> Vec<(String, Vec<u8>)> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = names
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Tests of which the verdict is in the name. The others are about which policies a path has.
fn expected(name: &str) -> Option<bool> {
    match name.strip_suffix("EE")? {
        valid if valid.starts_with("Valid") => Some(true),
        invalid if invalid.starts_with("Invalid") => Some(false),
        _ => None,
    }
}

/// What is decided otherwise than the name says, and why. All but one are refused though they are valid.
const DIFFERENT: &[(&str, &[&str])] = &[
    (
        "policyConstraints are refused, as nobody can say which policies are wanted",
        &[
            "ValidPolicyMappingTest11EE",
            "ValidPolicyMappingTest12EE",
            "ValidPolicyMappingTest13EE",
            "ValidPolicyMappingTest14EE",
            "ValidPolicyMappingTest1EE",
            "ValidPolicyMappingTest3EE",
            "ValidPolicyMappingTest5EE",
            "ValidPolicyMappingTest6EE",
            "ValidPolicyMappingTest9EE",
            "ValidinhibitAnyPolicyTest2EE",
            "ValidinhibitPolicyMappingTest2EE",
            "ValidinhibitPolicyMappingTest4EE",
            "ValidrequireExplicitPolicyTest1EE",
            "ValidrequireExplicitPolicyTest2EE",
            "ValidrequireExplicitPolicyTest4EE",
        ],
    ),
    (
        "a CRL is verified with the key that signed the certificate, and with no other of the same CA",
        &[
            "ValidBasicSelfIssuedCRLSigningKeyTest6EE",
            "ValidBasicSelfIssuedNewWithOldTest4EE",
            "ValidBasicSelfIssuedOldWithNewTest1EE",
            "ValidDNnameConstraintsTest19EE",
            "ValidSelfIssuedinhibitAnyPolicyTest7EE",
            "ValidSelfIssuedinhibitAnyPolicyTest9EE",
            "ValidSelfIssuedinhibitPolicyMappingTest7EE",
            "ValidSelfIssuedpathLenConstraintTest15EE",
            "ValidSelfIssuedpathLenConstraintTest17EE",
            "ValidSelfIssuedrequireExplicitPolicyTest6EE",
            "ValidSeparateCertificateandCRLKeysTest19EE",
        ],
    ),
    (
        "CRLs of other issuers are not taken",
        &[
            "ValidIDPwithindirectCRLTest22EE",
            "ValidIDPwithindirectCRLTest24EE",
            "ValidIDPwithindirectCRLTest25EE",
            "ValidcRLIssuerTest28EE",
            "ValidcRLIssuerTest29EE",
            "ValidcRLIssuerTest30EE",
            "ValidcRLIssuerTest33EE",
        ],
    ),
    (
        "a distribution point is compared by its full name, not by one relative to the issuer",
        &["ValiddistributionPointTest4EE", "ValiddistributionPointTest7EE"],
    ),
    (
        "CRLs about some reasons only are not taken",
        &["ValidonlySomeReasonsTest18EE", "ValidonlySomeReasonsTest19EE"],
    ),
    (
        "deltas are not taken: what only they revoke is not known, and what they take off the list stays on it",
        &["InvaliddeltaCRLTest4EE", "ValiddeltaCRLTest5EE"],
    ),
    ("DSA is not there", &["ValidDSAParameterInheritanceTest5EE", "ValidDSASignaturesTest4EE"]),
];

#[test]
fn paths_are_valid_or_not() {
    let certs = files(CERTS);
    let mut store =
        TrustStore::new(StoreLimits { roots: 1, intermediates: 512, crls: 256, ..StoreLimits::default() });
    for (name, der) in &certs {
        match &name[..] {
            "TrustAnchorRootCertificate" => store.add_root(der).unwrap(),
            name if name.ends_with("EE") => {}
            _ => match store.add_intermediate(der) {
                Ok(()) => {}
                Err(why) => println!("{name}: {why}"),
            },
        }
    }
    let crls: Vec<_> = files(CRLS).iter().map(|(_, der)| store.add_crl(der)).collect();
    let count = |verdict: Result<bool, CertFault>| crls.iter().filter(|crl| **crl == verdict).count();
    // Deltas, CRLs of other issuers or for some reasons, unknown critical extensions; and one whose signature is no bytes.
    assert_eq!([Ok(true), Ok(false), Err(CertFault::MalformedCrl)].map(count), [153, 19, 1]);
    let options = Options { revocation: Revocation::Strict, ..Options::default() };
    let (mut wrong, mut run) = (Vec::new(), [0, 0]);
    for (name, der) in &certs {
        let Some(expected) = expected(name) else { continue };
        let verdict: Result<_, CertFault> = store.verify(&[der], NOW, &options, &Providers(&[&AWS_LC]));
        run[usize::from(expected)] += 1;
        let differs = DIFFERENT.iter().any(|(_, names)| names.contains(&&name[..]));
        if (verdict.is_ok() == expected) == differs {
            wrong.push(format!("{name}: expected {expected}, got {:?}", verdict.map(|_| ())));
        }
    }
    println!("{} invalid, {} valid, of them decided otherwise:", run[0], run[1]);
    DIFFERENT.iter().for_each(|(why, names)| println!("  {}: {why}", names.len()));
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(run, [115, 88]);
}
