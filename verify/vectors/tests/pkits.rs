//! NIST PKITS: certificates and CRLs of the Public Key Interoperability Test Suite. The file name of an end
//! entity says whether it is valid. `DIFFERENT` lists deviations of Casemate with reasons.
//!
//! The suite specifies a path for each test. Here, the store contains all CAs and CRLs, and the path is
//! searched.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::Providers;
use casemate_pki::{CertFault, PolicyOid, Revocation, StoreLimits, TrustStore, VerifiedCert, VerifyOptions};
use std::fs;

/// 1 January 2020. The certificates are valid from 2010 to 2030.
const NOW: u64 = 1_577_836_800;

const CERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/pkits/certs");
const CRLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/pkits/crls");

/// The files of a directory, sorted: name without extension, and content.
fn files(directory: &str) -> Vec<(String, Vec<u8>)> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = names
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Expected verdict of tests with a verdict in their name. The others depend on the required policies:
/// [`POLICIES`].
fn expected(name: &str) -> Option<bool> {
    match name.strip_suffix("EE")? {
        valid if valid.starts_with("Valid") => Some(true),
        invalid if invalid.starts_with("Invalid") => Some(false),
        _ => None,
    }
}

/// Deviations from the file name, with reasons. All but one reject a valid certificate.
const DIFFERENT: &[(&str, &[&str])] = &[
    (
        "a CRL must be signed with the key that signed the certificate, not with another key of the same CA",
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
        "indirect CRLs (of other issuers) are not supported",
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
        "distribution points are compared by full name, not by a name relative to the issuer",
        &["ValiddistributionPointTest4EE", "ValiddistributionPointTest7EE"],
    ),
    (
        "CRLs for some reasons only are not supported",
        &["ValidonlySomeReasonsTest18EE", "ValidonlySomeReasonsTest19EE"],
    ),
    (
        "an entry of a delta CRL that ends a revocation has no effect before the next complete CRL",
        &["ValiddeltaCRLTest5EE"],
    ),
    ("DSA is not supported", &["ValidDSAParameterInheritanceTest5EE", "ValidDSASignaturesTest4EE"]),
];

/// End entities with the numbers of the required NIST test policies, and the verdicts of sections 4.8, 4.10
/// and 4.12 of the suite.
const POLICIES: &[(&str, &[u8], bool)] = &[
    ("ValidCertificatePathTest1EE", &[1], true),
    ("ValidCertificatePathTest1EE", &[2], false),
    // The suite demands one of the policies; Casemate demands all.
    ("ValidCertificatePathTest1EE", &[1, 2], false),
    ("AllCertificatesNoPoliciesTest2EE", &[], true),
    ("AllCertificatesNoPoliciesTest2EE", &[1], false),
    ("DifferentPoliciesTest3EE", &[], true),
    ("DifferentPoliciesTest3EE", &[1], false),
    ("DifferentPoliciesTest3EE", &[2], false),
    ("DifferentPoliciesTest4EE", &[], false),
    ("DifferentPoliciesTest5EE", &[], false),
    ("OverlappingPoliciesTest6EE", &[], true),
    ("OverlappingPoliciesTest6EE", &[1], true),
    ("OverlappingPoliciesTest6EE", &[2], false),
    ("DifferentPoliciesTest7EE", &[], false),
    ("DifferentPoliciesTest8EE", &[], false),
    ("DifferentPoliciesTest9EE", &[], false),
    ("AllCertificatesSamePoliciesTest10EE", &[], true),
    ("AllCertificatesSamePoliciesTest10EE", &[1], true),
    ("AllCertificatesSamePoliciesTest10EE", &[2], true),
    ("AllCertificatesSamePoliciesTest10EE", &[1, 2], true),
    ("AllCertificatesanyPolicyTest11EE", &[], true),
    ("AllCertificatesanyPolicyTest11EE", &[1], true),
    ("DifferentPoliciesTest12EE", &[], false),
    ("AllCertificatesSamePoliciesTest13EE", &[1], true),
    ("AllCertificatesSamePoliciesTest13EE", &[2], true),
    ("AllCertificatesSamePoliciesTest13EE", &[3], true),
    ("AnyPolicyTest14EE", &[1], true),
    ("AnyPolicyTest14EE", &[2], false),
    ("UserNoticeQualifierTest15EE", &[], true),
    ("UserNoticeQualifierTest16EE", &[], true),
    ("UserNoticeQualifierTest17EE", &[], true),
    ("UserNoticeQualifierTest18EE", &[1], true),
    ("UserNoticeQualifierTest18EE", &[2], true),
    ("UserNoticeQualifierTest19EE", &[], true),
    ("CPSPointerQualifierTest20EE", &[1], true),
    ("ValidPolicyMappingTest1EE", &[1], true),
    ("ValidPolicyMappingTest1EE", &[2], false),
    ("ValidPolicyMappingTest3EE", &[1], false),
    ("ValidPolicyMappingTest3EE", &[2], true),
    ("ValidPolicyMappingTest5EE", &[1], true),
    ("ValidPolicyMappingTest5EE", &[6], false),
    ("ValidPolicyMappingTest6EE", &[1], true),
    ("ValidPolicyMappingTest6EE", &[6], false),
    ("ValidPolicyMappingTest12EE", &[1], true),
    ("ValidPolicyMappingTest12EE", &[2], true),
    ("inhibitAnyPolicyTest3EE", &[], true),
];

/// The root and all CAs.
fn store(certs: &[(String, Vec<u8>)]) -> TrustStore {
    let mut store =
        TrustStore::new(StoreLimits { roots: 1, intermediates: 512, crls: 256, ..StoreLimits::default() });
    for (name, der) in certs {
        match &name[..] {
            "TrustAnchorRootCertificate" => store.add_root(der).unwrap(),
            name if name.ends_with("EE") => {}
            _ => match store.add_intermediate(der) {
                Ok(()) => {}
                Err(why) => println!("{name}: {why}"),
            },
        }
    }
    store
}

#[test]
fn required_policies_decide() {
    let certs = files(CERTS);
    let store = store(&certs);
    let mut wrong = Vec::new();
    for (name, numbers, expected) in POLICIES {
        let (_, der) = certs.iter().find(|(known, _)| known == name).unwrap();
        let policy = |number| PolicyOid::parse(&format!("2.16.840.1.101.3.2.1.48.{number}")).unwrap();
        let policies = numbers.iter().map(policy).collect();
        let options = VerifyOptions { policies, ..VerifyOptions::default() };
        let verdict = store.verify(&[der], NOW, &options, &Providers(&[&AWS_LC]));
        let fault = verdict.map(|_: VerifiedCert| ()).err();
        if fault != (!expected).then_some(CertFault::Policy) {
            wrong.push(format!("{name} with {numbers:?}: expected {expected}, got {fault:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn verdicts_match_the_suite() {
    let certs = files(CERTS);
    let mut store = store(&certs);
    let crls: Vec<_> = files(CRLS).iter().map(|(_, der)| store.add_crl(der)).collect();
    let count = |verdict: Result<bool, CertFault>| crls.iter().filter(|crl| **crl == verdict).count();
    // Not used: indirect CRLs, CRLs for some reasons only, unknown critical extensions; and a CRL whose
    // signature is not a whole number of bytes.
    assert_eq!([Ok(true), Ok(false), Err(CertFault::MalformedCrl)].map(count), [157, 15, 1]);
    let options = VerifyOptions { revocation: Revocation::Strict, ..VerifyOptions::default() };
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
    println!("{} invalid, {} valid, deviations:", run[0], run[1]);
    DIFFERENT.iter().for_each(|(why, names)| println!("  {}: {why}", names.len()));
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(run, [115, 88]);
}
