//! The wait for the status of a peer's certificates, between complete engines with signatures.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_crypto::{
    HashAlg, KeyLimits, PrivateKey, Provider, Providers, PublicKey, Rng, SecretBytes, SignatureAlg,
    SignatureError, SigningKey,
};
use casemate_ike::config::{Connection, Identity, LocalMethod, RemoteMethod};
use casemate_ike::{
    AuthorityHash, Credentials, DownReason, NotTrusted, OwnKey, PeerCertificates, PeerFault, PeerStatus,
    StateFault, StatusQuery,
};
use casemate_rustcrypto::RUSTCRYPTO;
use pair::{IkePeer, Pair, connection, deliver};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// What is known of the peer's certificate, and the questions for it.
#[derive(Clone)]
struct Status(Rc<RefCell<Known>>);

struct Known {
    answer: PeerStatus,
    /// `is_last` of each question.
    questions: Vec<bool>,
}

impl Status {
    fn new(answer: PeerStatus) -> Self {
        Self(Rc::new(RefCell::new(Known { answer, questions: Vec::new() })))
    }

    fn set(&self, answer: PeerStatus) {
        self.0.borrow_mut().answer = answer;
    }

    fn questions(&self) -> Vec<bool> {
        self.0.borrow().questions.clone()
    }
}

/// A key, and a trusted key.
struct Keys {
    own: Box<dyn SigningKey>,
    /// The public key that is shown instead of a certificate.
    shown: Vec<u8>,
    trusted: PublicKey,
    status: Status,
    #[cfg(feature = "eap")]
    password: SecretBytes,
}

impl Keys {
    fn boxed(own: Box<dyn SigningKey>, trusted: PublicKey, status: Status) -> Box<Self> {
        Box::new(Self {
            own,
            shown: trusted.spki().to_vec(),
            trusted,
            status,
            #[cfg(feature = "eap")]
            password: SecretBytes::new(b"sesame"),
        })
    }
}

impl Credentials for Keys {
    fn shared_key(&self, _: &Connection, _: &Identity, _: &Identity) -> Option<&SecretBytes> {
        None
    }

    fn own_key(&self, _: &Connection, _: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        Some(OwnKey { key: &*self.own, chain: vec![&self.shown], subject: None })
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

    fn peer_status(&self, _: &Connection, query: &StatusQuery<'_>, _: &Providers<'_>) -> PeerStatus {
        assert_eq!(query.shown.chain, [self.trusted.spki()]);
        let mut known = self.status.0.borrow_mut();
        known.questions.push(query.is_last);
        known.answer
    }

    fn accepts_signature(&self, _: &Connection, _: &Identity, _: SignatureAlg) -> bool {
        true
    }

    fn signature_algorithms(&self, _: &Connection) -> &[SignatureAlg] {
        &[SignatureAlg::Ecdsa(HashAlg::Sha256)]
    }

    fn dn_matches(&self, _: &str, _: &[u8]) -> bool {
        false
    }

    #[cfg(feature = "eap")]
    fn eap(&self) -> &dyn casemate_eap::EapCredentials {
        self
    }
}

#[cfg(feature = "eap")]
impl casemate_eap::EapCredentials for Keys {
    fn algorithms(&self) -> Option<&dyn casemate_crypto::PasswordAlgorithms> {
        None
    }

    fn password(&self, _: &[u8]) -> Option<&SecretBytes> {
        Some(&self.password)
    }
}

fn signing_key(der: &[u8]) -> Box<dyn SigningKey> {
    RUSTCRYPTO.signing_key(&PrivateKey::from_der(der, KeyLimits::default()).unwrap()).unwrap()
}

const P256: &[u8] = include_bytes!("data/p256.der");

/// A key whose signatures are invalid, as those of another key are.
struct WrongKey(Box<dyn SigningKey>);

impl SigningKey for WrongKey {
    fn public_key(&self) -> &PublicKey {
        self.0.public_key()
    }

    fn sign(&self, alg: SignatureAlg, message: &[u8], rng: &mut dyn Rng) -> Result<Vec<u8>, SignatureError> {
        self.0.sign(alg, &message[1..], rng)
    }
}

/// Two hosts with one key. The left host checks with `left`, the right one with `right`.
fn pair(left: &Status, right: &Status) -> Pair {
    pair_with(left, right, |_, _| {})
}

fn pair_with(left: &Status, right: &Status, change: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let side = |own, peer| {
        let mut connection = connection(own, peer);
        connection.local.method = LocalMethod::Certificate(vec![]);
        connection.remote.method = RemoteMethod::Certificate(String::new());
        connection
    };
    let (mut of_left, mut of_right) = (side("left", "right"), side("right", "left"));
    change(&mut of_left, &mut of_right);
    let mut pair = Pair::new(of_left, of_right);
    for (peer, status) in [(&mut pair.left, left), (&mut pair.right, right)] {
        let own = signing_key(P256);
        let trusted = own.public_key().clone();
        peer.keys = Keys::boxed(own, trusted, status.clone());
    }
    pair.left.initiate(pair.now);
    pair
}

/// The status has become known.
fn go_on(peer: &mut IkePeer, pair_now: casemate_sa::Instant) {
    let id = peer.ike.status().next().unwrap().id;
    assert!(peer.with_context(pair_now, |ike, host, context| ike.continue_authentication(id, host, context)));
}

fn is_refused(peer: &IkePeer) -> bool {
    let fault = PeerFault::State(StateFault::Certificate);
    peer.down_reasons().contains(&DownReason::Fault(fault))
}

#[test]
fn what_is_known_needs_no_wait() {
    let (left, right) = (Status::new(PeerStatus::Accepted), Status::new(PeerStatus::Accepted));
    let mut pair = pair(&left, &right);
    pair.run();
    pair.check_children(1);
    assert_eq!((left.questions(), right.questions()), (vec![false], vec![false]));
}

#[test]
fn the_responder_waits() {
    for (answer, is_accepted) in [(PeerStatus::Accepted, true), (PeerStatus::Refused, false)] {
        let (left, right) = (Status::new(PeerStatus::Accepted), Status::new(PeerStatus::Pending));
        let mut pair = pair(&left, &right);
        pair.run();
        // The repetitions of the request change nothing.
        pair.advance(Duration::from_secs(8));
        assert_eq!((right.questions().len(), pair.right.ike.half_open_count()), (1, 1));
        assert!(pair.right.children().is_empty());
        right.set(answer);
        go_on(&mut pair.right, pair.now);
        pair.run();
        assert_eq!(right.questions(), [false, false]);
        if is_accepted {
            pair.check_children(1);
        } else {
            assert!(is_refused(&pair.right) && pair.left.children().is_empty());
            assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
        }
    }
}

#[test]
fn the_initiator_waits() {
    for (answer, is_accepted) in [(PeerStatus::Accepted, true), (PeerStatus::Refused, false)] {
        let (left, right) = (Status::new(PeerStatus::Pending), Status::new(PeerStatus::Accepted));
        let mut pair = pair(&left, &right);
        pair.deliver_to_right();
        pair.deliver_to_left();
        pair.deliver_to_right();
        let response: Vec<_> = pair.right.sent.iter().cloned().collect();
        pair.deliver_to_left();
        // The response, repeated by the network.
        response.into_iter().for_each(|transmit| deliver(&mut pair.left, transmit, pair.now));
        // The request was answered, so it is not repeated.
        pair.advance(Duration::from_secs(8));
        assert!(pair.left.children().is_empty() && pair.left.sent.is_empty());
        assert_eq!(left.questions(), [false]);
        left.set(answer);
        go_on(&mut pair.left, pair.now);
        pair.run();
        if is_accepted {
            pair.check_children(1);
        } else {
            assert!(is_refused(&pair.left));
            // The peer was told.
            assert!(pair.right.children().is_empty());
        }
        assert!(pair.left.leaked_spis().is_empty());
    }
}

/// After 15 seconds the answer is final. Another pending one refuses the peer.
#[test]
fn the_wait_ends() {
    for (answer, is_accepted) in [(PeerStatus::Accepted, true), (PeerStatus::Pending, false)] {
        for waits_left in [true, false] {
            let [waiting, other] = [PeerStatus::Pending, PeerStatus::Accepted].map(Status::new);
            let mut pair = if waits_left { pair(&waiting, &other) } else { pair(&other, &waiting) };
            pair.run();
            // An answer that leads to another question does not make the wait longer.
            pair.advance(Duration::from_secs(10));
            go_on(if waits_left { &mut pair.left } else { &mut pair.right }, pair.now);
            pair.advance(Duration::from_secs(4));
            assert_eq!(waiting.questions(), [false, false]);
            waiting.set(answer);
            pair.advance(Duration::from_secs(1));
            assert_eq!(waiting.questions(), [false, false, true]);
            let waiter = if waits_left { &pair.left } else { &pair.right };
            assert_eq!(waiter.children().len(), usize::from(is_accepted));
            assert_eq!(is_refused(waiter), !is_accepted);
        }
    }
}

/// CVE-2022-40617: nothing may be fetched for a peer that has not proved that the certificate is its own.
#[test]
fn nothing_is_asked_before_the_proof() {
    for impostor_is_left in [true, false] {
        let [left, right] = [PeerStatus::Accepted; 2].map(Status::new);
        let mut pair = pair(&left, &right);
        let trusted = signing_key(P256).public_key().clone();
        // It shows the trusted certificate and signs with another key.
        let own: Box<dyn SigningKey> = Box::new(WrongKey(signing_key(P256)));
        let (impostor, status) =
            if impostor_is_left { (&mut pair.left, &right) } else { (&mut pair.right, &left) };
        impostor.keys = Keys::boxed(own, trusted, Status::new(PeerStatus::Accepted));
        pair.run();
        let victim = if impostor_is_left { &pair.right } else { &pair.left };
        assert!(victim.children().is_empty());
        let wrong = DownReason::Fault(StateFault::AuthMismatch.into());
        assert!(victim.down_reasons().contains(&wrong), "{:?}", victim.down_reasons());
        assert!(status.questions().is_empty());
    }
}

/// A command ends the IKE SA during the wait. The responder considers it established.
#[test]
fn the_peer_is_told_of_the_end_of_the_wait() {
    let (left, right) = (Status::new(PeerStatus::Pending), Status::new(PeerStatus::Accepted));
    let mut pair = pair(&left, &right);
    pair.run();
    assert_eq!(pair.right.children().len(), 1);
    let id = pair.left.ike.status().next().unwrap().id;
    pair.left
        .with_context(pair.now, |ike, host, context| ike.terminate(id, DownReason::Local, host, context));
    pair.run();
    assert!(pair.right.children().is_empty() && pair.right.ike.ike_sa_count() == 0);
    assert!(pair.left.leaked_spis().is_empty() && pair.left.ike.ike_sa_count() == 0);
}

/// Nothing of EAP leaves the initiator before the status of the responder is known.
#[cfg(feature = "eap")]
#[test]
fn eap_waits_for_the_status_of_the_responder() {
    use casemate_eap::Method;
    use casemate_ike::config::{EapIdentity, LocalEap, RemoteEap};
    for answer in [PeerStatus::Accepted, PeerStatus::Refused] {
        let (left, right) = (Status::new(PeerStatus::Pending), Status::new(PeerStatus::Accepted));
        let mut pair = pair_with(&left, &right, |left, right| {
            let methods = vec![Method::Gtc];
            left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: methods.clone() });
            right.remote.method =
                RemoteMethod::Eap(RemoteEap { identity: EapIdentity::Ike, methods, groups: Vec::new() });
        });
        pair.run();
        pair.advance(Duration::from_secs(5));
        assert_eq!((left.questions(), pair.left.sent.len()), (vec![false], 0));
        left.set(answer);
        go_on(&mut pair.left, pair.now);
        pair.run();
        match answer {
            PeerStatus::Accepted => pair.check_children(1),
            _ => assert!(is_refused(&pair.left) && pair.right.children().is_empty()),
        }
        // The responder does not ask: its peer has no certificate.
        assert!(right.questions().is_empty());
    }
}

/// Each round of authentication (RFC 4739) waits for the status of its own certificate, with a time of its
/// own.
#[cfg(feature = "eap")]
#[test]
fn each_round_waits_for_its_status() {
    use casemate_ike::config::{FurtherRounds, IdPattern, LocalAuth, RemoteAuth};
    let second_rounds = |prover: &mut Connection, verifier: &mut Connection| {
        let id = Identity::Fqdn("second".into());
        let local = LocalAuth { id: Some(id.clone()), method: LocalMethod::Certificate(vec![]) };
        let method = RemoteMethod::Certificate(String::new());
        let remote = RemoteAuth { id: IdPattern::Exact(id), method };
        prover.further_rounds = FurtherRounds::new(vec![local], vec![]);
        verifier.further_rounds = FurtherRounds::new(vec![], vec![remote]);
    };
    for (answer, waits_left) in [
        (PeerStatus::Accepted, true),
        (PeerStatus::Accepted, false),
        (PeerStatus::Refused, true),
        (PeerStatus::Refused, false),
    ] {
        let [waiting, other] = [PeerStatus::Pending, PeerStatus::Accepted].map(Status::new);
        let mut pair = match waits_left {
            true => pair_with(&waiting, &other, |left, right| second_rounds(right, left)),
            false => pair_with(&other, &waiting, second_rounds),
        };
        for asked in [1, 3] {
            pair.run();
            pair.advance(Duration::from_secs(10));
            assert_eq!(waiting.questions(), vec![false; asked], "{waits_left}");
            let waiter = if waits_left { &mut pair.left } else { &mut pair.right };
            assert!(waiter.children().is_empty());
            waiting.set(if asked == 1 { PeerStatus::Accepted } else { answer });
            go_on(waiter, pair.now);
            waiting.set(PeerStatus::Pending);
        }
        pair.run();
        assert_eq!(waiting.questions(), [false; 4]);
        if answer == PeerStatus::Accepted {
            pair.check_children(1);
        } else {
            assert!(is_refused(if waits_left { &pair.left } else { &pair.right }));
            assert!(pair.left.children().is_empty() && pair.right.children().is_empty());
        }
        assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
    }
}

/// The answer may arrive after the IKE SA has ended, or twice.
#[test]
fn late_answers_have_no_effect() {
    let (left, right) = (Status::new(PeerStatus::Accepted), Status::new(PeerStatus::Pending));
    let mut pair = pair(&left, &right);
    pair.run();
    right.set(PeerStatus::Accepted);
    for _ in 0..2 {
        go_on(&mut pair.right, pair.now);
        pair.run();
    }
    pair.check_children(1);
    go_on(&mut pair.left, pair.now);
    let id = pair.right.ike.status().next().unwrap().id;
    pair.right
        .with_context(pair.now, |ike, host, context| ike.terminate(id, DownReason::Local, host, context));
    pair.run();
    let exists = pair
        .right
        .with_context(pair.now, |ike, host, context| ike.continue_authentication(id, host, context));
    assert!(!exists);
}
