//! Signatures of keys in another device, which are awaited: between complete engines, in every message that
//! has one.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_crypto::{
    HashAlg, KeyLimits, PrivateKey, Provider, Providers, PublicKey, Rng, SecretBytes, SignatureAlg,
    SignatureError, SigningKey,
};
use casemate_ike::config::{Connection, FurtherRounds, IdPattern, Identity, LocalAuth, LocalMethod};
use casemate_ike::config::{RemoteAuth, RemoteMethod};
use casemate_ike::{
    AuthorityHash, Credentials, DownReason, IkeSaId, NotTrusted, OwnKey, PeerCertificates, SignatureQuery,
    Signing, StateFault,
};
use casemate_rustcrypto::RUSTCRYPTO;
use pair::{IkePeer, Pair, connection};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

const P256: &[u8] = include_bytes!("data/p256.der");

/// A device that signs what it was told to sign.
#[derive(Clone, Default)]
struct Device(Rc<RefCell<DeviceState>>);

#[derive(Default)]
struct DeviceState {
    /// Whether a signature needs a wait.
    is_slow: bool,
    is_broken: bool,
    /// Messages whose signatures are done.
    done: BTreeSet<Vec<u8>>,
    /// Messages whose signatures are being made.
    waiting: BTreeSet<Vec<u8>>,
    /// `is_last` of each query.
    queries: Vec<bool>,
}

impl Device {
    fn new(is_slow: bool) -> Self {
        Self(Rc::new(RefCell::new(DeviceState { is_slow, ..DeviceState::default() })))
    }

    /// Finishes the signatures. Returns whether there were any.
    fn finish(&self) -> bool {
        let mut state = self.0.borrow_mut();
        let waiting = std::mem::take(&mut state.waiting);
        state.done.extend(waiting.iter().cloned());
        !waiting.is_empty()
    }

    fn queries(&self) -> Vec<bool> {
        self.0.borrow().queries.clone()
    }

    fn answer(&self, query: &SignatureQuery<'_>, sign: impl FnOnce() -> Vec<u8>) -> Signing {
        let mut state = self.0.borrow_mut();
        state.queries.push(query.is_last);
        if state.is_broken {
            return Signing::Failed;
        }
        if !state.is_slow || state.done.contains(query.message) {
            return Signing::Signed(sign());
        }
        state.waiting.insert(query.message.to_vec());
        Signing::Pending
    }
}

/// A key whose signatures only the device makes.
struct DeviceKey(PublicKey);

impl SigningKey for DeviceKey {
    fn public_key(&self) -> &PublicKey {
        &self.0
    }

    fn sign(&self, _: SignatureAlg, _: &[u8], _: &mut dyn Rng) -> Result<Vec<u8>, SignatureError> {
        Err(SignatureError::Failed)
    }
}

struct Keys {
    own: DeviceKey,
    inside: Box<dyn SigningKey>,
    device: Device,
    #[cfg(feature = "eap")]
    password: SecretBytes,
}

impl Keys {
    fn boxed(device: Device) -> Box<Self> {
        let key = PrivateKey::from_der(P256, KeyLimits::default()).unwrap();
        let inside = RUSTCRYPTO.signing_key(&key).unwrap();
        Box::new(Self {
            own: DeviceKey(inside.public_key().clone()),
            inside,
            device,
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
        Some(OwnKey { key: &self.own, chain: vec![], subject: None })
    }

    fn authorities(&self, _: &Connection) -> Vec<AuthorityHash> {
        vec![]
    }

    fn verify_peer(
        &self,
        _: &Connection,
        _: &PeerCertificates<'_>,
        _: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        Ok(self.own.0.clone())
    }

    fn accepts_signature(&self, _: &Connection, _: &Identity, _: SignatureAlg) -> bool {
        true
    }

    fn signature_algorithms(&self, _: &Connection) -> &[SignatureAlg] {
        &[SignatureAlg::Ecdsa(HashAlg::Sha256)]
    }

    fn is_external(&self, key: &dyn SigningKey) -> bool {
        key.public_key() == &self.own.0
    }

    fn sign(&self, query: &SignatureQuery<'_>, rng: &mut dyn Rng) -> Signing {
        assert_eq!(query.key.public_key(), &self.own.0);
        self.device.answer(query, || self.inside.sign(query.alg, query.message, rng).unwrap())
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
        Some(&casemate_legacy::LEGACY)
    }

    fn password(&self, _: &[u8]) -> Option<&SecretBytes> {
        Some(&self.password)
    }
}

fn pair_with(left: &Device, right: &Device, change: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let side = |own, peer| {
        let mut connection = connection(own, peer);
        connection.local.method = LocalMethod::Certificate(vec![]);
        connection.remote.method = RemoteMethod::Certificate(String::new());
        connection
    };
    let (mut of_left, mut of_right) = (side("left", "right"), side("right", "left"));
    change(&mut of_left, &mut of_right);
    let mut pair = Pair::new(of_left, of_right);
    pair.left.keys = Keys::boxed(left.clone());
    pair.right.keys = Keys::boxed(right.clone());
    pair.left.initiate(pair.now);
    pair
}

fn pair(left: &Device, right: &Device) -> Pair {
    pair_with(left, right, |_, _| {})
}

fn id(peer: &IkePeer) -> IkeSaId {
    peer.ike.status().next().unwrap().id
}

/// The device of a host is done.
fn go_on(peer: &mut IkePeer, device: &Device, now: casemate_sa::Instant) {
    assert!(device.finish(), "no signature is awaited");
    let id = id(peer);
    peer.with_context(now, |ike, host, context| ike.continue_authentication(id, host, context));
}

fn has_failed(peer: &IkePeer) -> bool {
    peer.down_reasons().contains(&DownReason::Fault(StateFault::OwnSignature.into()))
}

#[test]
fn the_initiator_waits_for_its_signature() {
    let (left, right) = (Device::new(true), Device::new(false));
    let mut pair = pair(&left, &right);
    pair.run();
    // Neither a repetition of the first request nor one of its response changes anything.
    pair.advance(Duration::from_secs(8));
    assert_eq!((left.queries(), right.queries()), (vec![false], vec![]));
    assert!(pair.left.sent.is_empty(), "the response has arrived");
    go_on(&mut pair.left, &left, pair.now);
    pair.run();
    pair.check_children(1);
    assert_eq!(left.queries(), [false, false]);
}

#[test]
fn the_responder_waits_for_its_signature() {
    let (left, right) = (Device::new(false), Device::new(true));
    let mut pair = pair(&left, &right);
    pair.run();
    pair.advance(Duration::from_secs(8));
    assert_eq!((right.queries(), pair.right.ike.half_open_count()), (vec![false], 1));
    go_on(&mut pair.right, &right, pair.now);
    pair.run();
    pair.check_children(1);
    assert_eq!(right.queries(), [false, false]);
}

#[test]
fn the_wait_for_a_signature_ends() {
    for left_waits in [true, false] {
        let [slow, other] = [true, false].map(Device::new);
        let mut pair = if left_waits { pair(&slow, &other) } else { pair(&other, &slow) };
        pair.run();
        pair.advance(Duration::from_secs(14));
        let waiter = if left_waits { &pair.left } else { &pair.right };
        assert!(!has_failed(waiter));
        pair.advance(Duration::from_secs(1));
        let waiter = if left_waits { &pair.left } else { &pair.right };
        assert!(has_failed(waiter), "{left_waits}");
        assert_eq!(slow.queries(), [false, true]);
        assert!(pair.left.children().is_empty() && pair.right.children().is_empty());
        assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
    }
}

#[test]
fn a_broken_device_ends_the_attempt() {
    for left_is_broken in [true, false] {
        let [broken, other] = [true, false].map(Device::new);
        broken.0.borrow_mut().is_broken = true;
        let mut pair = if left_is_broken { pair(&broken, &other) } else { pair(&other, &broken) };
        pair.run();
        assert!(has_failed(if left_is_broken { &pair.left } else { &pair.right }));
        assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
    }
}

/// An IKE SA that is closed during the wait leaves nothing behind.
#[test]
fn a_wait_can_be_given_up() {
    let (left, right) = (Device::new(true), Device::new(false));
    let mut pair = pair(&left, &right);
    pair.run();
    let id = id(&pair.left);
    pair.left
        .with_context(pair.now, |ike, host, context| ike.terminate(id, DownReason::Local, host, context));
    let exists =
        pair.left.with_context(pair.now, |ike, host, context| ike.continue_authentication(id, host, context));
    assert!(!exists && pair.left.leaked_spis().is_empty());
}

/// Rounds after the first one (RFC 4739), on both sides.
#[cfg(feature = "eap")]
#[test]
fn later_rounds_wait_too() {
    let round = |name: &str| {
        let id = Identity::Fqdn(name.into());
        let local = LocalAuth { id: Some(id.clone()), method: LocalMethod::Certificate(vec![]) };
        let method = RemoteMethod::Certificate(String::new());
        (local, RemoteAuth { id: IdPattern::Exact(id), method })
    };
    for left_waits in [true, false] {
        let [slow, other] = [true, false].map(Device::new);
        let change = |left: &mut Connection, right: &mut Connection| {
            let ((left_proves, left_is), (right_proves, right_is)) = (round("left2"), round("right2"));
            left.further_rounds = FurtherRounds::new(vec![left_proves], vec![right_is]);
            right.further_rounds = FurtherRounds::new(vec![right_proves], vec![left_is]);
        };
        let mut pair = match left_waits {
            true => pair_with(&slow, &other, change),
            false => pair_with(&other, &slow, change),
        };
        for _ in 0..2 {
            pair.run();
            assert!(pair.left.children().is_empty() && pair.right.children().is_empty());
            go_on(if left_waits { &mut pair.left } else { &mut pair.right }, &slow, pair.now);
        }
        pair.run();
        pair.check_children(1);
        assert_eq!(slow.queries(), [false; 4]);
    }
}

/// The responder signs in its first response to a peer that uses EAP.
#[cfg(feature = "eap")]
#[test]
fn the_signature_before_eap_is_awaited() {
    use casemate_eap::Method;
    use casemate_ike::config::{EapIdentity, LocalEap, RemoteEap};
    let (left, right) = (Device::new(false), Device::new(true));
    let mut pair = pair_with(&left, &right, |left, right| {
        let methods = vec![Method::MsChapV2];
        left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: methods.clone() });
        right.remote.method =
            RemoteMethod::Eap(RemoteEap { identity: EapIdentity::Ike, methods, groups: Vec::new() });
    });
    pair.run();
    assert!(pair.left.children().is_empty());
    go_on(&mut pair.right, &right, pair.now);
    pair.run();
    pair.check_children(1);
    assert_eq!(right.queries(), [false, false]);
}
