//! Complete sessions with signatures by each kind of key: valid ones are accepted, and invalid ones rejected
//! (RFC 7296 section 2.15, RFC 7427).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod pair;

use casemate_crypto::{
    HashAlg, KeyLimits, PrivateKey, Provider, Providers, PublicKey, Rng, SecretBytes, SignatureAlg,
    SignatureError, SigningKey,
};
use casemate_ike::config::{Connection, Identity, LocalMethod, RemoteMethod};
use casemate_ike::{
    AuthorityHash, Context, Credentials, DownReason, Event, Host, Ike, IkeSettings, NotTrusted, OwnKey, Path,
    PeerCertificates, PeerFault, StateFault, Transmit,
};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::Instant;
use pair::{OneRoute, RecordingRng, SpiReserver, connection};
use std::sync::Arc;

macro_rules! key {
    ($name:literal) => {
        PrivateKey::from_der(include_bytes!(concat!("data/", $name, ".der")), KeyLimits::default()).unwrap()
    };
}

/// Defect of the signatures of a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The last bit is changed.
    Bit,
    /// The signature is one byte too short.
    Short,
    /// The signature covers another text.
    OtherText,
}

struct Signer {
    key: Box<dyn SigningKey>,
    flaw: Flaw,
}

impl SigningKey for Signer {
    fn public_key(&self) -> &PublicKey {
        self.key.public_key()
    }

    fn sign(&self, alg: SignatureAlg, message: &[u8], rng: &mut dyn Rng) -> Result<Vec<u8>, SignatureError> {
        let text = if self.flaw == Flaw::OtherText { &message[1..] } else { message };
        let mut value = self.key.sign(alg, text, rng)?;
        match self.flaw {
            Flaw::Bit => *value.last_mut().unwrap() ^= 1,
            Flaw::Short => drop(value.pop()),
            Flaw::None | Flaw::OtherText => {}
        }
        Ok(value)
    }
}

/// Our key, and a trusted key.
struct SignatureCredentials {
    own: Signer,
    /// Our public key, presented instead of a certificate.
    shown: Vec<u8>,
    trusted: PublicKey,
    makes: Vec<SignatureAlg>,
}

impl Credentials for SignatureCredentials {
    fn shared_key(&self, _: &Connection, _: &Identity, _: &Identity) -> Option<&SecretBytes> {
        None
    }

    fn own_key(&self, _: &Connection, _: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        Some(OwnKey { key: &self.own, chain: vec![&self.shown], subject: None })
    }

    fn authorities(&self, _: &Connection) -> Vec<AuthorityHash> {
        vec![[7; 20]]
    }

    fn verify_peer(
        &self,
        _: &Connection,
        shown: &PeerCertificates<'_>,
        _: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        if shown.chain == [self.trusted.spki()] { Ok(self.trusted.clone()) } else { Err(NotTrusted) }
    }

    fn accepts_signature(&self, _: &Connection, _: &Identity, _: SignatureAlg) -> bool {
        true
    }

    fn signature_algorithms(&self, _: &Connection) -> &[SignatureAlg] {
        &self.makes
    }

    fn dn_matches(&self, _: &str, _: &[u8]) -> bool {
        false
    }
}

fn public(key: &PrivateKey) -> PublicKey {
    RUSTCRYPTO.signing_key(key).unwrap().public_key().clone()
}

struct SignaturePeer {
    ike: Ike,
    keys: SignatureCredentials,
    host: SpiReserver,
    rng: RecordingRng,
    events: Vec<Event>,
}

impl SignaturePeer {
    /// A side with the identity `own` that signs with `key`, and trusts `trusted`.
    fn new(
        own: &str,
        peer: &str,
        key: &PrivateKey,
        trusted: &PublicKey,
        alg: SignatureAlg,
        flaw: Flaw,
    ) -> Self {
        let mut connection = connection(own, peer);
        connection.local.method = LocalMethod::Certificate(vec![]);
        connection.remote.method = RemoteMethod::Certificate(String::new());
        let mut ike = Ike::new(IkeSettings::SERVER);
        ike.configure(vec![Arc::new(connection)], &[]);
        let key = RUSTCRYPTO.signing_key(key).unwrap();
        let shown = key.public_key().spki().to_vec();
        let keys = SignatureCredentials {
            own: Signer { key, flaw },
            shown,
            trusted: trusted.clone(),
            makes: vec![alg],
        };
        let rng = RecordingRng::new(if own == "left" { 1 } else { 2 });
        Self { ike, keys, host: SpiReserver::default(), rng, events: vec![] }
    }

    fn act<T>(&mut self, act: impl FnOnce(&mut Ike, &mut dyn Host, &mut Context<'_>) -> T) -> T {
        let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
        let mut context = Context {
            now: Instant::from_secs(1_000),
            unix_time: 0,
            rng: &mut self.rng,
            providers: &Providers(&list),
            credentials: &self.keys,
            routes: &OneRoute::default(),
        };
        let done = act(&mut self.ike, &mut self.host, &mut context);
        self.events.extend(std::iter::from_fn(|| self.ike.next_event()));
        done
    }

    fn take_all_from(&mut self, other: &mut Self) -> bool {
        let sent: Vec<Transmit> = std::iter::from_fn(|| other.ike.next_transmit()).collect();
        let any = !sent.is_empty();
        for Transmit { path, mut message, .. } in sent {
            let path = Path { local: path.remote, remote: path.local };
            self.act(|ike, host, context| ike.receive(&mut message, path, host, context));
        }
        any
    }

    fn is_up(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::IkeUp { .. }))
    }

    fn has_child(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::ChildUp(_)))
    }

    fn down_reasons(&self) -> Vec<DownReason> {
        let down = |event: &Event| match event {
            Event::IkeDown { reason: why, .. } => Some(*why),
            _ => None,
        };
        self.events.iter().filter_map(down).collect()
    }
}

/// Runs both sides after the left one started.
fn meet(mut left: SignaturePeer, mut right: SignaturePeer) -> (SignaturePeer, SignaturePeer) {
    let connection = left.ike.connections()[0].clone();
    let child = connection.children[0].clone();
    left.act(|ike, host, context| ike.initiate(&connection, Some(&child), None, host, context)).unwrap();
    while right.take_all_from(&mut left) | left.take_all_from(&mut right) {}
    (left, right)
}

fn sides(
    key: &PrivateKey,
    alg: SignatureAlg,
    left_flaw: Flaw,
    right_flaw: Flaw,
) -> (SignaturePeer, SignaturePeer) {
    let public = public(key);
    let left = SignaturePeer::new("left", "right", key, &public, alg, left_flaw);
    (left, SignaturePeer::new("right", "left", key, &public, alg, right_flaw))
}

/// Each kind of key with each of its signature algorithms.
fn keys_and_algs() -> Vec<(PrivateKey, SignatureAlg)> {
    use HashAlg::{Sha256, Sha384, Sha512};
    let hashes = [Sha256, Sha384, Sha512];
    let rsa = hashes.into_iter().flat_map(|hash| [SignatureAlg::RsaPss(hash), SignatureAlg::RsaPkcs1(hash)]);
    let mut keys_and_algs: Vec<_> = rsa.map(|alg| (key!("rsa"), alg)).collect();
    keys_and_algs.extend(hashes.map(|hash| (key!("p256"), SignatureAlg::Ecdsa(hash))));
    keys_and_algs.extend(hashes.map(|hash| (key!("p384"), SignatureAlg::Ecdsa(hash))));
    keys_and_algs.extend(hashes.map(|hash| (key!("p521"), SignatureAlg::Ecdsa(hash))));
    keys_and_algs.push((key!("ed25519"), SignatureAlg::Ed25519));
    keys_and_algs
}

#[test]
fn valid_signatures_of_every_kind_are_accepted() {
    let keys_and_algs = keys_and_algs();
    assert_eq!(keys_and_algs.len(), 16);
    for (key, alg) in keys_and_algs {
        let (left, right) = sides(&key, alg, Flaw::None, Flaw::None);
        let (left, right) = meet(left, right);
        assert!(left.is_up() && right.is_up(), "{alg:?}: {:?} {:?}", left.events, right.events);
        assert!(left.has_child() && right.has_child(), "{alg:?}");
    }
}

#[test]
fn an_initiator_with_a_wrong_signature_is_refused() {
    for (key, alg) in keys_and_algs() {
        for flaw in [Flaw::Bit, Flaw::Short, Flaw::OtherText] {
            let (left, right) = sides(&key, alg, flaw, Flaw::None);
            let (left, right) = meet(left, right);
            assert!(!left.is_up() && !right.is_up() && !right.has_child(), "{alg:?} {flaw:?}");
            let mismatch = DownReason::Fault(PeerFault::State(StateFault::AuthMismatch));
            assert_eq!(right.down_reasons(), [mismatch], "{alg:?} {flaw:?}");
            assert_eq!(left.down_reasons().len(), 1, "{alg:?} {flaw:?}");
        }
    }
}

#[test]
fn a_responder_with_a_wrong_signature_is_refused() {
    for (key, alg) in keys_and_algs() {
        for flaw in [Flaw::Bit, Flaw::OtherText] {
            let (left, right) = sides(&key, alg, Flaw::None, flaw);
            let (left, right) = meet(left, right);
            assert!(!left.is_up() && !left.has_child(), "{alg:?} {flaw:?}");
            let mismatch = DownReason::Fault(PeerFault::State(StateFault::AuthMismatch));
            assert_eq!(left.down_reasons(), [mismatch], "{alg:?} {flaw:?}");
            // RFC 7296 section 2.21.2: the peer considered itself authenticated and is told otherwise.
            assert_eq!(right.down_reasons().len(), 1, "{alg:?} {flaw:?}");
        }
    }
}

/// OpenBSD CVE-2020-16088: a signature by another key than the certificate's.
#[test]
fn cve_2020_16088_the_key_is_the_certificates() {
    let (own, other) = (key!("p256"), key!("ed25519"));
    let alg = SignatureAlg::Ecdsa(HashAlg::Sha256);
    let mut left = SignaturePeer::new("left", "right", &own, &public(&other), alg, Flaw::None);
    left.keys.trusted = public(&own);
    let right =
        |trusted: &PrivateKey| SignaturePeer::new("right", "left", &own, &public(trusted), alg, Flaw::None);
    // An untrusted certificate.
    let (refused, right_side) = meet(left, right(&other));
    assert!(!refused.is_up() && !right_side.is_up());
    let fault = |fault| [DownReason::Fault(PeerFault::State(fault))];
    assert_eq!(right_side.down_reasons(), fault(StateFault::Certificate));
    // A trusted certificate presented by a host with another key, of the same kind and of another kind.
    for (signs, alg, expected) in [
        (key!("p384"), SignatureAlg::Ecdsa(HashAlg::Sha256), StateFault::AuthMismatch),
        (key!("ed25519"), SignatureAlg::Ed25519, StateFault::SignatureAlgorithm),
        (key!("rsa"), SignatureAlg::RsaPss(HashAlg::Sha256), StateFault::SignatureAlgorithm),
    ] {
        let mut left = SignaturePeer::new("left", "right", &signs, &public(&own), alg, Flaw::None);
        left.keys.shown = public(&own).spki().to_vec();
        let (left, right_side) = meet(left, right(&own));
        assert!(!left.is_up() && !right_side.is_up(), "{alg:?}");
        assert_eq!(right_side.down_reasons(), fault(expected), "{alg:?}");
    }
}
