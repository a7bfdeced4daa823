//! Keys, certificates and CRLs: the parsers of casemate-pki and casemate-crypto.

use crate::Target;
use casemate_app::revocation::HttpUri;
use casemate_crypto::der::{self, Reader};
use casemate_crypto::{
    AeadAlg, AeadKey, CipherAlg, CipherKey, Curve, KeyError, KeyLimits, MacAlg, MacKey, PrivateKey, Provider,
    Providers, PublicKey, SignatureAlg, SignatureError, ecdsa_from_fixed, ecdsa_to_fixed,
};
use casemate_pki::{
    CertFault, DnPattern, IssuedCert, MAX_URI_LEN, MAX_URIS, PeerName, PolicyOid, Revocation, StatusUris,
    StatusVerifier, StoreLimits, TrustStore, VerifyOptions, pem,
};
use casemate_rustcrypto::RUSTCRYPTO;
use std::net::Ipv4Addr;

/// Provider that accepts every signature. Otherwise no input would pass the first check.
struct AcceptAllSignatures;

impl Provider for AcceptAllSignatures {
    fn name(&self) -> &'static str {
        "credulous"
    }

    fn aead(&self, _: AeadAlg, _: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    fn cipher(&self, _: CipherAlg, _: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    fn mac(&self, _: MacAlg, _: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    fn verify(&self, _: SignatureAlg, _: &PublicKey, _: &[u8], _: &[u8]) -> Result<(), SignatureError> {
        Ok(())
    }
}

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("../../../core/pki/tests/data/", $name))
    };
}

/// 2027-01-01. The certificates of core/pki's tests are valid then.
const NOW: u64 = 1_798_761_600;

fn root() -> Vec<u8> {
    pem::certificates(data!("root.pem")).unwrap().remove(0)
}

fn sub() -> Vec<u8> {
    pem::certificates(data!("sub.pem")).unwrap().remove(0)
}

fn moon() -> Vec<u8> {
    pem::certificates(data!("moon.pem")).unwrap().remove(0)
}

pub(crate) const KEYS: Target = Target {
    name: "keys",
    about: "public and private keys, algorithm identifiers, ECDSA signatures: a parsed value is encoded unchanged",
    max_len: 2_000,
    run: run_keys,
    seeds: key_seeds,
    dictionary: &[],
};

fn run_keys(bytes: &[u8]) {
    let limits = KeyLimits { min_rsa_bits: 0, ..KeyLimits::default() };
    if let Ok(key) = PublicKey::from_spki(bytes, limits) {
        assert_eq!(key.spki(), bytes, "the key has another encoding");
        assert!(SignatureAlg::ALL.into_iter().any(|alg| alg.accepts_key(key.kind())));
    }
    let points = Curve::ALL.map(|curve| PublicKey::ec(curve, bytes));
    for key in points.into_iter().chain([PublicKey::rsa(bytes, &[1, 0, 1], limits)]).flatten() {
        assert_eq!(PublicKey::from_spki(key.spki(), limits).as_ref(), Ok(&key));
    }
    if let Ok(PrivateKey::Rsa(key)) = PrivateKey::from_der(bytes, limits) {
        assert!(key.numbers().is_ok() && key.public().bits() >= 1024);
    }
    if let Ok(alg) = SignatureAlg::from_algorithm_identifier(bytes) {
        assert_eq!(SignatureAlg::from_algorithm_identifier(alg.algorithm_identifier()), Ok(alg));
    }
    for curve in Curve::ALL {
        if let Ok(fixed) = ecdsa_to_fixed(curve, bytes) {
            assert_eq!(
                ecdsa_from_fixed(curve, &fixed).as_deref(),
                Ok(bytes),
                "the signature has another encoding"
            );
        }
    }
    if let Ok(inside) = Reader::only(der::SEQUENCE, bytes) {
        assert_eq!(der::write(der::SEQUENCE, &[inside.rest()]), bytes, "the value has another encoding");
    }
}

fn key_seeds() -> Vec<Vec<u8>> {
    let keys = [&data!("moon.key")[..], data!("sun.key"), data!("sub.key"), data!("sub-pkcs1.key")];
    let mut seeds: Vec<_> = keys.map(|text| pem::private_key(text).unwrap().expose().to_vec()).into();
    seeds.extend(SignatureAlg::ALL.map(|alg| alg.algorithm_identifier().to_vec()));
    seeds.extend(Curve::ALL.map(|curve| vec![4; 1 + 2 * curve.field_len()]));
    seeds.push(vec![0xFF; 128]);
    // Any SEQUENCE of a certificate may be a key.
    for der in [root(), sub(), moon()] {
        let starts = (0..der.len()).filter(|at| der[*at] == der::SEQUENCE);
        seeds.extend(
            starts.filter_map(|at| Reader::new(&der[at..]).read_any().ok()).map(|value| value.whole.to_vec()),
        );
    }
    seeds
}

pub(crate) const CERTIFICATE: Target = Target {
    name: "certificate",
    about: "certificates of a peer, a CA and a root, with signatures that always verify",
    max_len: 4_000,
    run: run_certificate,
    seeds: certificate_seeds,
    dictionary: &[],
};

/// Input: length of the peer's certificate (two bytes), the certificate, and a CA certificate.
fn run_certificate(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk() else { return };
    let (peer, ca) = rest.split_at(usize::from(u16::from_be_bytes(*len)).min(rest.len()));
    let mut store = TrustStore::new(StoreLimits::default());
    let is_certificate = store.add_root(ca).is_ok();
    assert_eq!(store.accepted_authorities().count(), usize::from(is_certificate));
    verify_chain(&store, &[peer, ca]);
    // `ca` as an intermediate CA below a valid root.
    let mut store = TrustStore::new(StoreLimits::default());
    store.add_root(&root()).unwrap();
    verify_chain(&store, &[peer, ca]);
}

fn verify_chain(store: &TrustStore, chain: &[&[u8]]) {
    for accept_sha1 in [false, true] {
        let options = VerifyOptions { accept_sha1, ..VerifyOptions::default() };
        let Ok(found) = store.verify(chain, NOW, &options, &Providers(&[&AcceptAllSignatures])) else {
            continue;
        };
        assert_eq!(found.der(), chain[0]);
        // The path ends at a root.
        assert!(store.accepted_authorities().any(|root| Some(root) == found.issuers().last()));
        for name in [
            PeerName::Dns("moon.casemate.test"),
            PeerName::Email("moon@gate.casemate.test"),
            PeerName::Ip(Ipv4Addr::new(192, 0, 2, 1).into()),
            PeerName::Dn(chain[0]),
        ] {
            found.has_name(&name);
        }
        found.subject_matches(&DnPattern::new([(&[0x55, 4, 6][..], "*")]));
        assert!(!found.has_name(&PeerName::Dns("")) && !found.has_name(&PeerName::Dn(&[0x30, 0])));
    }
}

fn certificate_seeds() -> Vec<Vec<u8>> {
    let input = |peer: &[u8], ca: &[u8]| [&(peer.len() as u16).to_be_bytes()[..], peer, ca].concat();
    vec![input(&moon(), &sub()), input(&moon(), &root()), input(&sub(), &root()), input(&root(), &root())]
}

pub(crate) const CRL: Target = Target {
    name: "crl",
    about: "CRLs with signatures that always verify: a CRL may reject a path, but never makes one valid",
    max_len: 2_000,
    run: run_crl,
    seeds: crl_seeds,
    dictionary: &[],
};

fn run_crl(bytes: &[u8]) {
    let mut store = TrustStore::new(StoreLimits::default());
    store.add_root(&root()).unwrap();
    let _ = store.add_crl(bytes);
    let verify = |revocation| {
        let options = VerifyOptions { revocation, ..VerifyOptions::default() };
        store.verify(&[&moon(), &sub()], NOW, &options, &Providers(&[&AcceptAllSignatures])).map(|_| ())
    };
    let relaxed = verify(Revocation::Relaxed);
    assert!(matches!(relaxed, Ok(()) | Err(CertFault::Revoked)), "{relaxed:?}");
    // The CA and its root have one CRL each; one alone is not sufficient.
    let strict = verify(Revocation::Strict);
    assert!(matches!(strict, Err(CertFault::Revoked | CertFault::RevocationUnknown)), "{strict:?}");
}

fn crl_seeds() -> Vec<Vec<u8>> {
    [&data!("root.crl")[..], data!("sub.crl")].map(|text| pem::crls(text).unwrap().remove(0)).into()
}

pub(crate) const POLICY_OID: Target = Target {
    name: "policy-oid",
    about: "object identifiers of certificate policies, as in `cert_policy`",
    max_len: 200,
    run: run_policy_oid,
    seeds: || ["1.3.6.1.4.1.36906.1.1.1", "2.5.29.32.0", "2.999", "0.40"].map(|oid| oid.into()).into(),
    dictionary: &[],
};

fn run_policy_oid(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Some(oid) = PolicyOid::parse(text) {
        assert_eq!(oid.to_string(), text);
    }
}

pub(crate) const PEM: Target = Target {
    name: "pem",
    about: "PEM files: parsed objects are not empty",
    max_len: 4_000,
    run: run_pem,
    seeds: pem_seeds,
    dictionary: &[
        "-----BEGIN CERTIFICATE-----",
        "-----END CERTIFICATE-----",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PUBLIC KEY-----",
    ],
};

fn run_pem(bytes: &[u8]) {
    for found in [pem::certificates(bytes), pem::crls(bytes)] {
        assert!(found.is_err() || found.is_ok_and(|found| !found.is_empty()));
    }
    let _ = (pem::private_key(bytes), pem::public_key(bytes));
}

fn pem_seeds() -> Vec<Vec<u8>> {
    let files = [&data!("moon.pem")[..], data!("sub.crl"), data!("moon.key"), data!("sub-pkcs1.key")];
    files.map(<[u8]>::to_vec).into()
}

pub(crate) const STATUS: Target = Target {
    name: "certificate-status",
    about: "OCSP responses, CRLs and URIs of certificates, with signatures that always verify: no answer \
            is about \
            another certificate",
    max_len: 3_000,
    run: run_status,
    seeds: status_seeds,
    dictionary: &[],
};

macro_rules! status_data {
    ($name:literal) => {
        include_bytes!(concat!("../../../core/pki/tests/data/status/", $name)).as_slice()
    };
}

/// Input: an OCSP response, a CRL, a certificate, or a URI.
fn run_status(bytes: &[u8]) {
    let uris = StatusUris::of(bytes);
    for list in [&uris.crls, &uris.ocsp] {
        let is_text =
            |uri: &String| uri.len() <= MAX_URI_LEN && uri.bytes().all(|byte| byte.is_ascii_graphic());
        assert!(list.len() <= MAX_URIS && list.iter().all(is_text));
    }
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(uri) = HttpUri::parse(text)
    {
        assert_eq!(uri.to_string(), text);
    }
    let (options, providers) = (VerifyOptions::default(), Providers(&[&AcceptAllSignatures, &RUSTCRYPTO]));
    let verifier = StatusVerifier { now: NOW, options: &options, providers: &providers };
    let (ca, good) = (status_data!("ca.der"), status_data!("good.der"));
    let issued = IssuedCert { cert: good, issuer: ca };
    let other = IssuedCert { issuer: status_data!("other.der"), ..issued };
    for nonce in [Some(&[7; 32]), None] {
        if let Ok(answer) = verifier.verify_ocsp(issued, bytes, nonce, &[]) {
            assert!(answer.valid_until >= NOW);
            assert!(verifier.verify_ocsp(other, bytes, nonce, &[]).is_err(), "an answer for two issuers");
        }
    }
    if verifier.verify_crl(issued, bytes).is_ok() {
        assert!(verifier.verify_crl(other, bytes).is_err(), "a CRL of two issuers");
    }
    let as_peer = IssuedCert { cert: bytes, issuer: ca };
    let _ = verifier.ocsp_request(as_peer, Some(&[7; 32]));
    let _ = verifier.verify_ocsp(as_peer, status_data!("good.ocsp"), None, &[bytes]);
}

fn status_seeds() -> Vec<Vec<u8>> {
    [
        status_data!("good.ocsp"),
        status_data!("by-ca.ocsp"),
        status_data!("by-key.ocsp"),
        status_data!("revoked.ocsp"),
        status_data!("sha256.ocsp"),
        status_data!("crl.crl"),
        status_data!("good.der"),
        status_data!("responder.der"),
        b"http://[2001:db8::1]:8880/a?b",
    ]
    .map(<[u8]>::to_vec)
    .into()
}
