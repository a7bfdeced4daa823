//! x509-limbo: test cases for certificate paths, with a verdict for each case. `DIFFERENT` lists deviations
//! of Casemate with reasons.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::Providers;
use casemate_pki::{CertFault, PeerName, Revocation, StoreLimits, TrustStore, VerifyOptions, pem};
use serde_json::Value;

fn text<'v>(case: &'v Value, field: &str) -> &'v str {
    case[field].as_str().unwrap()
}

fn list<'v>(case: &'v Value, field: &str) -> Vec<&'v str> {
    case[field].as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}

/// Seconds since 1970 of a time such as `2024-01-01T00:00:00+00:00`, by Howard Hinnant's formula.
fn seconds(time: &str) -> u64 {
    let number = |range: std::ops::Range<usize>| time[range].parse::<i64>().unwrap();
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468;
    (days * 86_400 + number(11..13) * 3600 + number(14..16) * 60 + number(17..19)) as u64
}

#[derive(Debug)]
#[allow(dead_code, reason = "shown when a case differs")]
enum Why {
    Fault(CertFault),
    Name,
}

fn verdict(case: &Value) -> Result<(), Why> {
    let mut store = TrustStore::new(StoreLimits::default());
    let der = |text: &str| pem::certificates(text.as_bytes()).unwrap().remove(0);
    for root in list(case, "trusted_certs") {
        // Unreadable roots are not trusted.
        let _ = store.add_root(&der(root));
    }
    for crl in case["crls"].as_array().into_iter().flatten() {
        let crl = pem::crls(crl.as_str().unwrap().as_bytes()).unwrap().remove(0);
        store.add_crl(&crl).map_err(Why::Fault)?;
    }
    let mut chain = vec![der(text(case, "peer_certificate"))];
    chain.extend(list(case, "untrusted_intermediates").into_iter().map(der));
    let chain: Vec<_> = chain.iter().map(Vec::as_slice).collect();
    let mut options = VerifyOptions::default();
    if let Some(depth) = case["max_chain_depth"].as_u64() {
        options.max_intermediates = depth as usize;
    }
    if case["features"].as_array().unwrap().iter().any(|feature| feature == "has-crl") {
        options.revocation = Revocation::Strict;
    }
    let now = case["validation_time"].as_str().map_or(1_700_000_000, seconds);
    let found = store.verify(&chain, now, &options, &Providers(&[&AWS_LC])).map_err(Why::Fault)?;
    let name = &case["expected_peer_name"];
    let is_named = match name["kind"].as_str() {
        Some("DNS") => found.has_name(&PeerName::Dns(text(name, "value"))),
        Some("IP") => found.has_name(&PeerName::Ip(text(name, "value").parse().unwrap())),
        Some(other) => panic!("unexpected kind of name {other}"),
        None => true,
    };
    if is_named { Ok(()) } else { Err(Why::Name) }
}

/// Deviations from the verdict of the file, with reasons.
const DIFFERENT: &[(&str, &[&str])] = &[
    ("CRLs without a number are in use: `openssl ca` creates them", &["crl::crlnumber-missing"]),
    (
        "the certificate of an IKE peer must contain a key for signing (RFC 4945 section 5.1.3.2)",
        &["pathlen::validation-ignores-pathlen-in-leaf", "rfc5280::ca-as-leaf"],
    ),
    (
        "requirements of RFC 5280 for CAs, not for verifiers",
        &[
            "rfc5280::aki::leaf-missing-aki",
            "rfc5280::aki::intermediate-missing-aki",
            "rfc5280::aki::cross-signed-root-missing-aki",
            "rfc5280::nc::permitted-dns-match-noncritical",
            "rfc5280::pc::ica-noncritical-pc",
            "rfc5280::san::noncritical-with-empty-subject",
            "rfc5280::san::underscore-dns",
            "rfc5280::serial::too-long",
            "rfc5280::serial::zero",
            "rfc5280::ski::root-missing-ski",
            "rfc5280::ski::intermediate-missing-ski",
            "rfc5280::root-non-critical-basic-constraints",
        ],
    ),
    (
        "an IKE peer's certificate may be for serverAuth, clientAuth, ipsecIKE, any or no purpose",
        &[
            "rfc5280::eku::ee-wrong-eku",
            "webpki::eku::ee-anyeku",
            "webpki::eku::ee-critical-eku",
            "webpki::eku::ee-without-eku",
            "webpki::eku::root-has-eku",
        ],
    ),
    (
        "rules of the CA/Browser Forum for the Web",
        &[
            "webpki::aki::root-with-aki-missing-keyidentifier",
            "webpki::aki::root-with-aki-authoritycertissuer",
            "webpki::aki::root-with-aki-authoritycertserialnumber",
            "webpki::aki::root-with-aki-all-fields",
            "webpki::aki::root-with-aki-ski-mismatch",
            "webpki::san::san-critical-with-nonempty-subject",
            "webpki::forbidden-rsa-not-divisible-by-8-in-root",
            "webpki::forbidden-rsa-key-not-divisible-by-8-in-leaf",
            "webpki::ee-basicconstraints-ca",
        ],
    ),
    (
        "the common name is ignored; the expected name must be in subjectAltName",
        &[
            "webpki::cn::ipv4-hex-mismatch",
            "webpki::cn::ipv4-leading-zeros-mismatch",
            "webpki::cn::ipv6-uppercase-mismatch",
            "webpki::cn::ipv6-uncompressed-mismatch",
            "webpki::cn::ipv6-non-rfc5952-mismatch",
            "webpki::cn::punycode-not-in-san",
            "webpki::cn::utf8-vs-punycode-mismatch",
            "webpki::cn::not-in-san",
            "webpki::cn::case-mismatch",
        ],
    ),
    ("URLs in certificates are ignored: nothing is fetched", &["webpki::malformed-aia"]),
    (
        "a wildcard is not an identity of an IKE peer",
        &[
            "webpki::nc::nc-permits-dns-san-pattern",
            "webpki::san::leftmost-wildcard-san",
            "online::docs.python.org",
        ],
    ),
];

#[test]
fn verdicts_match_the_suite() {
    let file = include_str!("../data/x509-limbo/limbo-without-bettertls.json");
    let file: Value = serde_json::from_str(file).unwrap();
    let cases = file["testcases"].as_array().unwrap();
    let (mut wrong, mut run) = (Vec::new(), [0, 0]);
    for case in cases {
        let (id, expected) = (text(case, "id"), text(case, "expected_result") == "SUCCESS");
        let verdict = verdict(case);
        run[usize::from(expected)] += 1;
        let differs = DIFFERENT.iter().any(|(_, ids)| ids.contains(&id));
        if (verdict.is_ok() == expected) == differs {
            wrong.push(format!("{id}: expected {expected}, got {verdict:?}"));
        }
    }
    println!("{} invalid, {} valid, deviations:", run[0], run[1]);
    DIFFERENT.iter().for_each(|(why, ids)| println!("  {}: {why}", ids.len()));
    assert_eq!(run, [145, 63]);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
