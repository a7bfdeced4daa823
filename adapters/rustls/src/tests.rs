//! EAP conversations whose both sides use these sessions.

use crate::session::client_of;
use crate::{CertificateVerifier, NotAccepted, OwnCertificate, ShownCertificates, server};
use casemate_crypto::{KeyLimits, PasswordAlgorithms, PrivateKey, Providers, SecretBytes};
use casemate_eap::{
    Authenticated, Authenticator, AuthenticatorStep, CertificateStatus, EapContext, EapCredentials, EapFault,
    EapPacket, LocalAuthenticator, Method, Peer, PeerStep, TlsRole, TlsSession,
};
use casemate_legacy::LEGACY;
use casemate_pki::pem;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_test_support::CountingRng;
use casemate_test_support::allocator::{TestAllocator, bytes_in_use};
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use std::sync::{Arc, Mutex};

const PROVIDERS: Providers<'static> = Providers(&[&RUSTCRYPTO]);

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("../../../core/pki/tests/data/", $name))
    };
}

/// A certificate with its private key, in PEM.
#[derive(Clone, Copy)]
struct Pair {
    cert: &'static [u8],
    key: &'static [u8],
}

const ED25519: Pair = Pair { cert: data!("moon.pem"), key: data!("moon.key") };
const P384: Pair = Pair { cert: data!("sun.pem"), key: data!("sun.key") };
const RSA: Pair = Pair { cert: data!("sub.pem"), key: data!("sub.key") };

impl Pair {
    fn der(self) -> Vec<u8> {
        pem::certificates(self.cert).unwrap().remove(0)
    }

    /// The chain contains the certificate several times, so that a message has several fragments.
    fn own(self) -> OwnCertificate {
        let key = pem::private_key(self.key).unwrap();
        let key = PrivateKey::from_der(key.expose(), KeyLimits::default()).unwrap();
        OwnCertificate {
            chain: vec![self.der(); 4],
            ocsp_response: None,
            key: PROVIDERS.signing_key(&key).map(Arc::from).unwrap(),
        }
    }
}

/// Accepts one certificate. Its status is what `answers` says, then accepted.
struct Only {
    cert: Vec<u8>,
    answers: Mutex<Vec<CertificateStatus>>,
}

impl CertificateVerifier for Only {
    fn verify(&self, shown: &ShownCertificates<'_>) -> Result<(), NotAccepted> {
        assert!(shown.unix_time > 1_700_000_000);
        if shown.chain[0] == self.cert { Ok(()) } else { Err(NotAccepted) }
    }

    fn status(&self) -> CertificateStatus {
        self.answers.lock().unwrap().pop().unwrap_or(CertificateStatus::Accepted)
    }

    fn authorities(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// One side of a conversation.
struct Party {
    versions: &'static [&'static SupportedProtocolVersion],
    own: Option<Pair>,
    expected: Pair,
    /// Answers to the questions for the status of the other certificate, the last one first.
    answers: &'static [CertificateStatus],
    password: SecretBytes,
}

impl EapCredentials for Party {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        Some(&LEGACY)
    }

    fn password(&self, identity: &[u8]) -> Option<&SecretBytes> {
        (identity == b"carol").then_some(&self.password)
    }

    fn tls(&self, role: TlsRole<'_>) -> Result<Box<dyn TlsSession>, EapFault> {
        let expected = Arc::new(Only { cert: self.expected.der(), answers: Mutex::new(self.answers.into()) });
        match role {
            TlsRole::Client { has_certificate } => {
                client_of(self.versions, expected, self.own.filter(|_| has_certificate).map(Pair::own))
            }
            TlsRole::Server { client } => {
                let own = self.own.ok_or(EapFault::NoCertificate)?.own();
                server(own, client.is_some().then_some(expected as _))
            }
        }
    }
}

type Version = &'static [&'static SupportedProtocolVersion];
const VERSIONS: [Version; 2] = [&[&TLS12], &[&TLS13]];

fn sides(versions: Version, client: Pair, server: Pair) -> [Party; 2] {
    let password = || SecretBytes::new(b"sesame");
    let side = |own, expected| Party { versions, own, expected, answers: &[], password: password() };
    [side(Some(client), server), side(Some(server), client)]
}

/// The results of the peer and of the authenticator, and the number of requests.
struct Outcome {
    peer: Result<Authenticated, EapFault>,
    server: Result<Authenticated, EapFault>,
    requests: usize,
    /// How often each side has waited.
    waits: [usize; 2],
}

/// Runs a conversation. The peer proves the identity `carol`.
fn converse(method: Method, [client, server]: &[Party; 2]) -> Outcome {
    let (mut rng, mut requests, mut waits) = (CountingRng(7), 0, [0; 2]);
    let mut server_context = EapContext { rng: &mut rng, providers: &PROVIDERS, credentials: server };
    let mut peer_rng = CountingRng(99);
    let mut peer_context = EapContext { rng: &mut peer_rng, providers: &PROVIDERS, credentials: client };
    let mut peer = Peer::new(b"carol".into(), vec![method]);
    let mut authenticator = LocalAuthenticator::new(None, vec![method]);
    let mut step = authenticator.start(&mut server_context);
    loop {
        let (packet, done): (EapPacket, _) = match step {
            AuthenticatorStep::Request(packet) => (packet, None),
            AuthenticatorStep::Succeeded(packet, done) => (packet, Some(Ok(done))),
            AuthenticatorStep::Failed(packet, fault) => (packet, Some(Err(fault))),
            AuthenticatorStep::Pending => {
                waits[1] += 1;
                step = authenticator.poll(&mut server_context);
                continue;
            }
        };
        requests += 1;
        let mut answer = peer.receive(&packet.as_payload(), &mut peer_context);
        while peer.is_pending() {
            waits[0] += 1;
            answer = peer.poll();
        }
        let response = match (answer, done) {
            (PeerStep::Respond(response), None) => response,
            (PeerStep::Succeeded(peer), Some(server)) => {
                return Outcome { peer: Ok(peer), server, requests, waits };
            }
            (PeerStep::Failed(fault), server) => {
                // Without a result, the authenticator waits for a response.
                let server = server.unwrap_or(Err(EapFault::Refused));
                return Outcome { peer: Err(fault), server, requests, waits };
            }
            (step, done) => panic!("{step:?} after {done:?}"),
        };
        step = authenticator.receive(&response.as_payload(), &mut server_context);
    }
}

#[test]
fn methods_with_tls_derive_the_same_key_on_both_sides() {
    for method in [Method::Tls, Method::Ttls, Method::Peap] {
        for versions in VERSIONS {
            for (client, server) in [(ED25519, P384), (P384, RSA), (RSA, ED25519)] {
                let outcome = converse(method, &sides(versions, client, server));
                let (peer, server) = (outcome.peer.unwrap(), outcome.server.unwrap());
                assert_eq!(peer, server);
                assert_eq!(peer.msk.map(|msk| msk.len()), Some(64));
                assert_eq!(peer.identity, b"carol");
                assert!(outcome.requests > 5, "no fragments: {} requests", outcome.requests);
            }
        }
    }
}

/// Nothing goes on before the status of the other certificate is known.
#[test]
fn both_sides_wait_for_the_status_of_certificates() {
    use CertificateStatus::{Accepted, Pending, Refused};
    for (method, versions) in
        [Method::Tls, Method::Ttls, Method::Peap].into_iter().flat_map(|m| VERSIONS.map(|v| (m, v)))
    {
        for waiting in [0, 1] {
            if waiting == 1 && method != Method::Tls {
                // The client has no certificate.
                continue;
            }
            let mut sides = sides(versions, ED25519, P384);
            sides[waiting].answers = &[Accepted, Pending, Pending];
            let outcome = converse(method, &sides);
            assert_eq!(outcome.peer.unwrap(), outcome.server.unwrap());
            assert_eq!((outcome.waits[waiting], outcome.waits[1 - waiting]), (2, 0), "{method}");
            sides[waiting].answers = &[Refused, Pending];
            let outcome = converse(method, &sides);
            let results = [outcome.peer, outcome.server];
            assert_eq!(results[waiting], Err(EapFault::PeerCertificate), "{method}");
            assert_eq!(results[1 - waiting], Err(EapFault::Refused), "{method}");
            assert_eq!(outcome.waits[waiting], 1);
        }
    }
}

#[test]
fn every_conversation_has_another_key() {
    let msk = || converse(Method::Tls, &sides(VERSIONS[1], ED25519, P384)).peer.unwrap().msk;
    assert_ne!(msk(), msk());
}

/// strongSwan's server used the key of a client certificate that it did not trust.
#[test]
fn cve_2023_26463_a_client_with_another_certificate_is_refused() {
    for versions in VERSIONS {
        let mut sides = sides(versions, ED25519, P384);
        sides[1].expected = RSA;
        let outcome = converse(Method::Tls, &sides);
        assert_eq!(outcome.server, Err(EapFault::PeerCertificate));
        assert_eq!(outcome.peer, Err(EapFault::Refused));
    }
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    for versions in VERSIONS {
        let mut sides = sides(versions, ED25519, P384);
        sides[0].own = None;
        let outcome = converse(Method::Tls, &sides);
        assert_eq!(outcome.server, Err(EapFault::PeerCertificate));
        assert_eq!(outcome.peer, Err(EapFault::Refused));
    }
}

/// No password, no hash of it and no identity is sent to a server with another certificate.
#[test]
fn a_server_with_another_certificate_is_refused() {
    for method in [Method::Tls, Method::Ttls, Method::Peap] {
        for versions in VERSIONS {
            let mut sides = sides(versions, ED25519, P384);
            sides[0].expected = RSA;
            let outcome = converse(method, &sides);
            assert_eq!(outcome.peer, Err(EapFault::PeerCertificate));
            assert!(outcome.server.is_err());
        }
    }
}

/// The proof of a certificate is the signature in the handshake.
#[test]
fn a_certificate_without_its_private_key_is_refused() {
    for versions in VERSIONS {
        let stolen = Pair { cert: ED25519.cert, key: RSA.key };
        let mut sides = sides(versions, stolen, P384);
        sides[1].expected = ED25519;
        assert_eq!(converse(Method::Tls, &sides).server, Err(EapFault::PeerCertificate));
    }
}

#[test]
fn a_wrong_password_in_the_tunnel_is_refused() {
    for (versions, method) in VERSIONS.into_iter().flat_map(|v| [(v, Method::Ttls), (v, Method::Peap)]) {
        let mut sides = sides(versions, ED25519, P384);
        sides[0].password = SecretBytes::new(b"guess");
        let outcome = converse(method, &sides);
        assert!(outcome.peer.is_err() && outcome.server.is_err());
    }
}

#[test]
fn a_server_without_a_certificate_fails() {
    let mut sides = sides(VERSIONS[1], ED25519, P384);
    sides[1].own = None;
    assert_eq!(converse(Method::Tls, &sides).server, Err(EapFault::NoCertificate));
}

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::new();

/// A handshake record of this length with the begin of a longer message.
fn incomplete_message(len: u16) -> Vec<u8> {
    let mut record = [&[22, 3, 1][..], &len.to_be_bytes(), &[1, 0, 0xF0, 0]].concat();
    record.resize(5 + usize::from(len), 0);
    record
}

/// The engine counts what the session says, so that must not be less than what is on the heap.
#[test]
fn a_server_says_how_much_memory_it_holds() {
    for versions in VERSIONS {
        for first in [None, Some(incomplete_message(15_000)), Some(incomplete_message(200))] {
            let [client, server] = sides(versions, RSA, P384);
            let mut client = client.tls(TlsRole::Client { has_certificate: true }).unwrap();
            let mut next = first.clone();
            let base = bytes_in_use();
            let mut server = server.tls(TlsRole::Server { client: Some(b"carol") }).unwrap();
            // Heap that is not the server's.
            let mut others = 0;
            for _ in 0..3 {
                let used = usize::try_from(bytes_in_use() - base - others).unwrap();
                let held = server.held_bytes();
                assert!(used <= held && held < used + 30_000, "{used} bytes, {held} are counted");
                let before = bytes_in_use();
                let message = next.take().unwrap_or_else(|| client.take_output());
                others += bytes_in_use() - before;
                let _ = server.receive(&message);
                let output = server.take_output();
                others += i64::try_from(output.capacity()).unwrap();
                let before = bytes_in_use();
                let _ = client.receive(&output);
                drop((message, output));
                others += bytes_in_use() - before;
            }
            assert_eq!(server.established().is_some(), first.is_none());
        }
    }
}
