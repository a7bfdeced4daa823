//! Authentication with raw public keys and with certificates.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate::{
    AuthKeys, Authorities, ConnectionKeys, Context, Datapath, Endpoint, LocalKey, Notice, PeerRejection,
    PeerTrust,
};
use casemate_crypto::{KeyLimits, PrivateKey, Provider, Providers, SigningKey};
use casemate_datapath::Config;
use casemate_ike::config::{
    AddrPattern, ChildConfig, Connection, IdPattern, Identity, LocalAuth, LocalMethod, RemoteAuth,
    RemoteMethod,
};
use casemate_ike::{Event, IkeSettings, Path};
use casemate_pki::{CertFault, LocalCert, Revocation, StoreLimits, TrustStore, VerifyOptions, pem};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Instant};
use casemate_test_support::TestRng;
use common::NoRoutes;
use std::sync::Arc;

const LIST: [&dyn Provider; 1] = [&RUSTCRYPTO];
/// 1 January 2027, when the certificates are valid.
const NEW_YEAR: u64 = 1_798_761_600;
const MOON: &str = "moon.casemate.test";
const SUN: &str = "sun.casemate.test";

macro_rules! ike_key {
    ($name:literal) => {
        PrivateKey::from_der(
            include_bytes!(concat!("../../ike/tests/data/", $name, ".der")),
            KeyLimits::default(),
        )
        .unwrap()
    };
}

macro_rules! pki {
    ($name:literal) => {
        &include_bytes!(concat!("../../pki/tests/data/", $name))[..]
    };
}

fn signing(key: &PrivateKey) -> Box<dyn SigningKey> {
    RUSTCRYPTO.signing_key(key).unwrap()
}

/// The local raw key and that of the peer.
fn raw(own: &PrivateKey, peer: &PrivateKey) -> AuthKeys {
    let peer = PeerTrust::Raw(signing(peer).public_key().clone());
    AuthKeys { shared: None, own: Some(LocalKey::Raw(signing(own))), peer: Some(peer) }
}

fn cert(text: &[u8]) -> Vec<u8> {
    pem::certificates(text).unwrap().remove(0)
}

/// A local certificate issued by the intermediate CA, and trust in the root.
fn certified(own: &[u8], key: &[u8]) -> AuthKeys {
    let key = PrivateKey::from_der(pem::private_key(key).unwrap().expose(), KeyLimits::default()).unwrap();
    let chain = [cert(own), cert(pki!("sub.pem"))];
    let own = LocalCert::new(&[&chain[0], &chain[1]], signing(&key), KeyLimits::default()).unwrap();
    let mut store = TrustStore::new(StoreLimits::default());
    store.add_root(&cert(pki!("root.pem"))).unwrap();
    let options = VerifyOptions { revocation: Revocation::Relaxed, ..VerifyOptions::default() };
    let authorities = Authorities::new(store, options, &Providers(&LIST));
    AuthKeys {
        shared: None,
        own: Some(LocalKey::Certificate(own)),
        peer: Some(PeerTrust::Certificate(authorities)),
    }
}

struct KeyedEndpoint {
    endpoint: Endpoint,
    keys: ConnectionKeys,
    rng: TestRng,
    unix_time: u64,
    events: Vec<Event>,
}

/// Identity, keys and time of one side.
struct HostKeys {
    id: &'static str,
    keys: AuthKeys,
    unix_time: u64,
}

impl HostKeys {
    /// A host that does not know the time.
    const fn without_time(id: &'static str, keys: AuthKeys) -> Self {
        Self { id, keys, unix_time: 0 }
    }
}

impl KeyedEndpoint {
    fn new(number: u8, host: HostKeys, peer_id: &str) -> Self {
        let HostKeys { id, keys, unix_time } = host;
        let local =
            LocalAuth { id: Some(Identity::Fqdn(id.into())), method: LocalMethod::Certificate(vec![]) };
        let remote = RemoteAuth {
            id: IdPattern::Exact(Identity::Fqdn(peer_id.into())),
            method: RemoteMethod::Certificate("peer".into()),
        };
        let mut connection = Connection::new("peer", local, remote);
        let only = |number: u8| vec![AddrPattern::Range(AddrRange::single([192, 0, 2, number].into()))];
        (connection.local_addrs, connection.remote_addrs) = (only(number), only(3 - number));
        connection.children = vec![Arc::new(ChildConfig::new("all"))];
        let mut all = ConnectionKeys::new();
        all.insert("peer", keys);
        let endpoint = Endpoint::new(Datapath::new(Config::server(1)), IkeSettings::DEVICE);
        let mut side =
            Self { endpoint, keys: all, rng: TestRng::new(number.into()), unix_time, events: vec![] };
        side.act(|endpoint, context| endpoint.configure(vec![Arc::new(connection)], &[], context).unwrap());
        side
    }

    fn act<T>(&mut self, act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> T) -> T {
        let mut context = Context {
            now: Instant::from_secs(1_000),
            unix_time: self.unix_time,
            rng: &mut self.rng,
            providers: &Providers(&LIST),
            credentials: &self.keys,
            routes: &NoRoutes,
        };
        let done = act(&mut self.endpoint, &mut context);
        let notices = std::iter::from_fn(|| self.endpoint.next_notice());
        self.events.extend(notices.filter_map(|notice| match notice {
            Notice::Ike(event) => Some(event),
            _ => None,
        }));
        done
    }

    fn is_up(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::ChildUp(_)))
    }
}

/// Initiates at the first side and exchanges messages.
fn talk(mut a: KeyedEndpoint, mut b: KeyedEndpoint) -> (KeyedEndpoint, KeyedEndpoint) {
    a.act(|endpoint, context| {
        let (connection, child) = endpoint.config_by_name("all").unwrap();
        endpoint.initiate(&connection, child.as_ref(), context).unwrap();
    });
    for _ in 0..10 {
        for _ in 0..2 {
            while let Some(mut transmit) = a.endpoint.next_transmit() {
                let path = Path { local: transmit.path.remote, remote: transmit.path.local };
                b.act(|endpoint, context| endpoint.receive_ike(&mut transmit.message, path, context));
            }
            core::mem::swap(&mut a, &mut b);
        }
    }
    (a, b)
}

fn pair(left: HostKeys, right: HostKeys) -> (KeyedEndpoint, KeyedEndpoint) {
    let (left_id, right_id) = (left.id, right.id);
    talk(KeyedEndpoint::new(1, left, right_id), KeyedEndpoint::new(2, right, left_id))
}

#[test]
fn raw_keys_authenticate_both_sides() {
    let keys = [ike_key!("ed25519"), ike_key!("p256"), ike_key!("rsa")];
    for (at, key) in keys.iter().enumerate() {
        let other = &keys[(at + 1) % keys.len()];
        // Raw keys work without the current time.
        let (a, b) = pair(
            HostKeys::without_time("left", raw(key, other)),
            HostKeys::without_time("right", raw(other, key)),
        );
        assert!(a.is_up() && b.is_up(), "{at}: {:?} {:?}", a.events, b.events);
    }
}

#[test]
fn wrong_raw_key_is_rejected_by_both_sides() {
    let (ours, theirs, other) = (ike_key!("ed25519"), ike_key!("p256"), ike_key!("p384"));
    let is_refused =
        |side: &KeyedEndpoint| side.events.iter().any(|event| matches!(event, Event::Fault { .. }));
    let (a, _) = pair(
        HostKeys::without_time("left", raw(&ours, &other)),
        HostKeys::without_time("right", raw(&theirs, &ours)),
    );
    assert!(!a.is_up() && is_refused(&a), "{:?}", a.events);
    let (a, b) = pair(
        HostKeys::without_time("left", raw(&ours, &theirs)),
        HostKeys::without_time("right", raw(&theirs, &other)),
    );
    assert!(!a.is_up() && !b.is_up() && is_refused(&b), "{:?}", b.events);
    let nothing = AuthKeys { peer: None, ..raw(&theirs, &ours) };
    let (_, b) =
        pair(HostKeys::without_time("left", raw(&ours, &theirs)), HostKeys::without_time("right", nothing));
    assert_eq!(b.keys.take_rejection(), Some(PeerRejection::NoKey));
    assert_eq!(b.keys.take_rejection(), None);
}

#[test]
fn certificates_authenticate_both_sides() {
    let moon = |id| HostKeys { id, keys: certified(pki!("moon.pem"), pki!("moon.key")), unix_time: NEW_YEAR };
    let sun = |unix_time| HostKeys { id: SUN, keys: certified(pki!("sun.pem"), pki!("sun.key")), unix_time };
    let (a, b) = pair(moon(MOON), sun(NEW_YEAR));
    assert!(a.is_up() && b.is_up(), "{:?} {:?}", a.events, b.events);
    // Without the current time no certificate is valid.
    let (a, b) = pair(moon(MOON), sun(0));
    assert!(!a.is_up() && !b.is_up());
    assert_eq!(b.keys.take_rejection(), Some(PeerRejection::Certificate(CertFault::NotYetValid)));
    // A certificate is valid for its own identity only.
    let (a, b) = pair(moon("mars.casemate.test"), sun(NEW_YEAR));
    assert!(!a.is_up() && !b.is_up());
    assert_eq!(b.keys.take_rejection(), Some(PeerRejection::OtherName));
}
