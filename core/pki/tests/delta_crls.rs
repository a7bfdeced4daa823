//! Delta CRLs (RFC 5280 section 5.2.4): they revoke certificates that the complete CRL does not list yet.
#![cfg(feature = "status")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::{Provider, Providers};
use casemate_pki::{
    CertFault, CertStatus, IssuedCert, Revocation, StatusFault, StatusVerifier, StoreLimits, TrustStore,
    VerifyOptions, delta_crl_uris, is_base_of_delta,
};

/// 2027-01-01.
const NOW: u64 = 1_798_761_600;

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("data/delta/", $name)).as_slice()
    };
}

const GOOD: &[u8] = data!("1.der");
const REVOKED: &[u8] = data!("2.der");
const SUSPENDED: &[u8] = data!("3.der");
const BASE: &[u8] = data!("base.crl");
const DELTA: &[u8] = data!("delta.crl");

fn with_verifier<T>(check: impl FnOnce(&StatusVerifier<'_>) -> T) -> T {
    let (options, providers) = (VerifyOptions::default(), [&AWS_LC as &dyn Provider]);
    check(&StatusVerifier { now: NOW, options: &options, providers: &Providers(&providers) })
}

fn issued(cert: &'static [u8]) -> IssuedCert<'static> {
    IssuedCert { cert, issuer: data!("ca.der") }
}

#[test]
fn a_delta_crl_revokes_and_does_not_end_a_revocation() {
    let complete = |cert, crl| with_verifier(|verifier| verifier.verify_crl(issued(cert), crl));
    let delta = |cert, crl| with_verifier(|verifier| verifier.verify_delta_crl(issued(cert), crl));
    for (cert, by_complete, by_delta) in [
        (GOOD, CertStatus::Good, CertStatus::Good),
        (REVOKED, CertStatus::Good, CertStatus::Revoked),
        (SUSPENDED, CertStatus::Revoked, CertStatus::Good),
    ] {
        assert_eq!(complete(cert, BASE).map(|answer| answer.status), Ok(by_complete));
        assert_eq!(delta(cert, DELTA).map(|answer| answer.status), Ok(by_delta));
    }
    assert_eq!(complete(GOOD, DELTA), Err(StatusFault::OtherScope), "a delta CRL is not complete");
    assert_eq!(delta(GOOD, BASE), Err(StatusFault::OtherScope));
}

#[test]
fn the_complete_crl_and_the_certificate_say_where_the_delta_crl_is() {
    assert_eq!(delta_crl_uris(GOOD, BASE), ["http://ca.test/delta.crl", "http://ca.test/cert-delta.crl"]);
    assert_eq!(delta_crl_uris(data!("ca.der"), DELTA), [""; 0]);
    assert_eq!(delta_crl_uris(b"no certificate", b"no CRL"), [""; 0]);
}

#[test]
fn a_delta_crl_belongs_to_a_complete_one() {
    assert!(is_base_of_delta(BASE, DELTA));
    assert!(!is_base_of_delta(DELTA, BASE), "no delta CRL");
    // The extension deltaCRLIndicator, with base number 1, changed to 2 and to 0.
    let at = DELTA.windows(5).position(|bytes| bytes == [4, 3, 2, 1, 1]).unwrap() + 4;
    for (number, belongs) in [(2, false), (0, true)] {
        let mut changed = DELTA.to_vec();
        changed[at] = number;
        assert_eq!(is_base_of_delta(BASE, &changed), belongs, "{number}");
    }
}

/// A store with CRL files, and the requirement that the status of each certificate is known.
fn verify(crls: &[&[u8]], cert: &[u8]) -> Result<(), CertFault> {
    let mut store = TrustStore::new(StoreLimits::default());
    store.add_root(data!("ca.der")).unwrap();
    for crl in crls {
        assert!(store.add_crl(crl).unwrap());
    }
    let options = VerifyOptions { revocation: Revocation::Strict, ..VerifyOptions::default() };
    with_verifier(|verifier| store.verify(&[cert], NOW, &options, verifier.providers)).map(drop)
}

#[test]
fn files_of_delta_crls_count_beside_a_complete_one() {
    for (crls, cert, expected) in [
        (&[BASE, DELTA][..], GOOD, Ok(())),
        (&[BASE, DELTA], REVOKED, Err(CertFault::Revoked)),
        (&[BASE, DELTA], SUSPENDED, Err(CertFault::Revoked)),
        (&[BASE], REVOKED, Ok(())),
        (&[DELTA], REVOKED, Err(CertFault::Revoked)),
        (&[DELTA], GOOD, Err(CertFault::RevocationUnknown)),
    ] {
        assert_eq!(verify(crls, cert), expected);
    }
}

#[test]
fn the_status_by_files_uses_delta_crls() {
    let mut store = TrustStore::new(StoreLimits::default());
    let status = |store: &TrustStore, cert| {
        with_verifier(|verifier| store.crl_status(issued(cert), verifier)).map(|answer| answer.status)
    };
    store.add_crl(DELTA).unwrap();
    assert_eq!((status(&store, GOOD), status(&store, REVOKED)), (None, Some(CertStatus::Revoked)));
    store.add_crl(BASE).unwrap();
    assert_eq!(status(&store, GOOD), Some(CertStatus::Good));
    assert_eq!(status(&store, REVOKED), Some(CertStatus::Revoked));
}
