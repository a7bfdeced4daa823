//! OCSP and CRLs made by OpenSSL: who may answer, for which certificate, and for how long.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::{Provider, Providers, SignatureError};
use casemate_pki::{
    CertFault, CertStatus, IssuedCert, NONCE_LEN, StatusAnswer, StatusFault, StatusUris, StatusVerifier,
    StoreLimits, TrustStore, VerifyOptions,
};

/// thisUpdate of the responses: 2026-11-26 17:37:06.
const MADE: u64 = 1795714626;
/// 2027-01-01.
const NOW: u64 = 1_798_761_600;
const NONCE: [u8; NONCE_LEN] = [7; NONCE_LEN];

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("data/status/", $name)).as_slice()
    };
}

const GOOD: IssuedCert<'static> = IssuedCert { cert: data!("good.der"), issuer: data!("ca.der") };
const REVOKED: IssuedCert<'static> = IssuedCert { cert: data!("revoked.der"), issuer: data!("ca.der") };
const UNKNOWN: IssuedCert<'static> = IssuedCert { cert: data!("unknown.der"), issuer: data!("ca.der") };

fn at<T>(now: u64, check: impl FnOnce(&StatusVerifier<'_>) -> T) -> T {
    let (options, providers) = (VerifyOptions::default(), [&AWS_LC as &dyn Provider]);
    check(&StatusVerifier { now, options: &options, providers: &Providers(&providers) })
}

fn ocsp(issued: IssuedCert<'_>, response: &[u8]) -> Result<CertStatus, StatusFault> {
    at(NOW, |verifier| verifier.verify_ocsp(issued, response, Some(&NONCE), &[])).map(|answer| answer.status)
}

/// The request is the one for which OpenSSL has made the responses.
#[test]
fn a_request_names_the_certificate_and_has_the_nonce() {
    let request = at(NOW, |verifier| verifier.ocsp_request(GOOD, Some(&NONCE)));
    assert_eq!(request.as_deref(), Ok(data!("good.req")));
}

#[test]
fn the_issuer_and_its_responder_tell_the_status() {
    for response in [
        data!("good.ocsp"),
        data!("by-ca.ocsp"),
        data!("by-key.ocsp"),
        data!("no-nonce.ocsp"),
        data!("sha256.ocsp"),
    ] {
        assert_eq!(ocsp(GOOD, response), Ok(CertStatus::Good));
    }
    assert_eq!(ocsp(REVOKED, data!("revoked.ocsp")), Ok(CertStatus::Revoked));
    assert_eq!(ocsp(UNKNOWN, data!("unknown.ocsp")), Err(StatusFault::UnknownToResponder));
}

#[test]
fn no_other_signer_tells_the_status() {
    for (response, signer) in [
        (data!("by-server.ocsp"), "a certificate of the CA for another purpose"),
        (data!("by-foreign.ocsp"), "a responder of another CA"),
        (data!("by-expired.ocsp"), "a responder whose certificate has expired"),
    ] {
        assert_eq!(ocsp(GOOD, response), Err(StatusFault::Signer), "{signer}");
    }
    // A responder with the purpose, and with the name of the CA as its issuer: its certificate is not signed
    // by it.
    let invalid = Err(StatusFault::Signature(SignatureError::Invalid));
    assert_eq!(ocsp(GOOD, data!("by-forged.ocsp")), invalid);
    // A responder that the administrator trusts.
    let foreign = |trusted: &[&[u8]]| {
        at(NOW, |verifier| verifier.verify_ocsp(GOOD, data!("by-foreign.ocsp"), Some(&NONCE), trusted))
    };
    assert_eq!(foreign(&[data!("responder.der")]), Err(StatusFault::Signer));
    assert_eq!(foreign(&[data!("foreign.der")]).map(|answer| answer.status), Ok(CertStatus::Good));
    // A CA that has not issued the certificate.
    let other = IssuedCert { issuer: data!("other.der"), ..GOOD };
    assert_eq!(ocsp(other, data!("good.ocsp")), Err(StatusFault::Issuer(CertFault::UnknownIssuer)));
    // The good answer, changed to one about the revoked certificate.
    for response in [data!("good.ocsp"), data!("by-ca.ocsp")] {
        let mut forged = response.to_vec();
        let serial = forged.windows(4).position(|value| value == [2, 2, 0x10, 1]).unwrap();
        forged[serial + 3] = 2;
        assert_eq!(ocsp(REVOKED, &forged), invalid);
    }
}

#[test]
fn a_response_is_for_one_certificate_and_one_request() {
    assert_eq!(ocsp(REVOKED, data!("good.ocsp")), Err(StatusFault::OtherCertificate));
    assert_eq!(ocsp(GOOD, data!("sha384.ocsp")), Err(StatusFault::OtherCertificate), "an unsupported hash");
    assert_eq!(ocsp(GOOD, data!("replayed.ocsp")), Err(StatusFault::Nonce));
    // A trusted responder that answers for several CAs: this one has the same name and another key.
    let twin =
        at(NOW, |verifier| verifier.verify_ocsp(GOOD, data!("twin.ocsp"), None, &[data!("foreign.der")]));
    assert_eq!(twin, Err(StatusFault::OtherCertificate));
    // Without a request, as in CERT payloads, any nonce will do.
    let stapled = at(NOW, |verifier| verifier.verify_ocsp(GOOD, data!("replayed.ocsp"), None, &[]));
    assert_eq!(stapled.map(|answer| answer.status), Ok(CertStatus::Good));
}

#[test]
fn responses_end() {
    let until = |now, response| {
        at(now, |verifier| {
            verifier.verify_ocsp(GOOD, response, Some(&NONCE), &[]).map(|answer| answer.valid_until)
        })
    };
    let short = data!("short.ocsp");
    assert_eq!(until(MADE, short), Ok(MADE + 60));
    assert_eq!(until(MADE + 60, short), Ok(MADE + 60));
    assert_eq!(until(MADE + 61, short), Err(StatusFault::Stale));
    // Without nextUpdate: for five minutes.
    let no_next = data!("no-next.ocsp");
    assert_eq!(until(MADE + 300, no_next), Ok(MADE + 300));
    assert_eq!(until(MADE + 301, no_next), Err(StatusFault::Stale));
    // The clock of the responder may be five minutes ahead.
    let by_ca = data!("by-ca.ocsp");
    assert!(until(MADE - 290, by_ca).is_ok());
    assert_eq!(until(MADE - 310, by_ca), Err(StatusFault::NotYetValid));
}

#[test]
fn refusals_of_responders_and_damaged_responses_are_told_apart() {
    assert_eq!(ocsp(GOOD, &[0x30, 3, 0x0A, 1, 3]), Err(StatusFault::Refused(3)));
    assert_eq!(ocsp(GOOD, &[0x30, 3, 0x0A, 1, 0]), Err(StatusFault::Malformed));
    assert_eq!(ocsp(GOOD, b"<html>"), Err(StatusFault::Malformed));
    assert_eq!(ocsp(GOOD, &vec![0; 70_000]), Err(StatusFault::TooLarge));
    let response = data!("good.ocsp");
    for len in 0..response.len() {
        assert!(ocsp(GOOD, &response[..len]).is_err(), "{len}");
    }
}

#[test]
fn crls_tell_the_status_of_what_their_issuer_has_issued() {
    let crl = |issued, der: &[u8]| at(NOW, |verifier| verifier.verify_crl(issued, der));
    let status = |issued, der: &[u8]| crl(issued, der).map(|answer| answer.status);
    assert_eq!(status(GOOD, data!("crl.crl")), Ok(CertStatus::Good));
    assert_eq!(status(REVOKED, data!("crl.crl")), Ok(CertStatus::Revoked));
    assert_eq!(status(GOOD, data!("old.crl")), Err(StatusFault::Stale));
    assert_eq!(status(REVOKED, data!("old.crl")), Ok(CertStatus::Revoked), "it stays revoked");
    assert_eq!(status(GOOD, data!("other.crl")), Err(StatusFault::OtherScope));
    assert_eq!(status(GOOD, data!("good.ocsp")), Err(StatusFault::Malformed));
    let mut forged = data!("crl.crl").to_vec();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(status(GOOD, &forged), Err(StatusFault::Signature(SignatureError::Invalid)));
    let before = at(MADE - 3_600, |verifier| verifier.verify_crl(GOOD, data!("crl.crl")));
    assert_eq!(before, Err(StatusFault::NotYetValid));
}

#[test]
fn files_of_the_administrator_tell_the_status_too() {
    let mut store = TrustStore::new(StoreLimits::default());
    let status = |store: &TrustStore, issued| at(NOW, |verifier| store.crl_status(issued, verifier));
    assert_eq!(status(&store, REVOKED), None);
    store.add_crl(data!("old.crl")).unwrap();
    assert_eq!(status(&store, GOOD), None);
    let revoked = |answer: Option<StatusAnswer>| answer.is_some_and(|it| it.status == CertStatus::Revoked);
    assert!(revoked(status(&store, REVOKED)));
    store.add_crl(data!("crl.crl")).unwrap();
    assert!(
        status(&store, GOOD)
            .is_some_and(|answer| answer.status == CertStatus::Good && answer.valid_until > NOW)
    );
    assert!(revoked(status(&store, REVOKED)));
}

#[test]
fn a_path_lists_its_certificates_with_their_issuers() {
    let mut store = TrustStore::new(StoreLimits::default());
    store.add_root(data!("ca.der")).unwrap();
    let path = at(NOW, |verifier| {
        store.verify(&[data!("good.der")], NOW, &VerifyOptions::default(), verifier.providers)
    });
    assert_eq!(path.unwrap().issued().collect::<Vec<_>>(), [GOOD]);
}

/// Points for some reasons or with another issuer are left out, as are other kinds of access.
#[test]
fn uris_are_read_from_certificates() {
    let uris = StatusUris::of(data!("good.der"));
    assert_eq!(uris.ocsp, ["http://ocsp.test:8880/", "ldap://ocsp.test/"]);
    assert_eq!(uris.crls, ["http://ca.test/ca.crl", "http://ca2.test/ca.crl"]);
    assert!(StatusUris::of(data!("ca.der")).is_empty());
    assert!(StatusUris::of(b"no certificate").is_empty());
}
