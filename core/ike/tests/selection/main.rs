//! Selection among several connections for a peer that initiates: by its address, its identity and its proof.
//! The cases are those of strongSwan's scenarios rw-psk-rsa-mixed, rw-sig-auth and ikev2-multi-ca.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

#[path = "../pair/mod.rs"]
mod pair;

use casemate_crypto::{
    HashAlg, KeyLimits, PrivateKey, Provider, Providers, PublicKey, SecretBytes, SignatureAlg, SigningKey,
};
use casemate_ike::config::{
    AddrPattern, Childless, Connection, Encapsulation, Fragmentation, IdPattern, Identity, LocalMethod, Pool,
    RemoteMethod,
};
use casemate_ike::{
    AuthorityHash, Context, Credentials, DownReason, Event, Host, Ike, IkeSettings, NotTrusted, OwnKey, Path,
    PeerCertificates, PeerFault, StateFault, Transmit,
};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Instant, UdpEncap};
use casemate_wire::ike::{Body, Message, NotifyType};
use pair::{OneRoute, RecordingRng, SpiReserver};
use std::sync::Arc;

macro_rules! key {
    ($name:literal) => {
        PrivateKey::from_der(include_bytes!(concat!("../data/", $name, ".der")), KeyLimits::default())
            .unwrap()
    };
}

mod impostor;

fn signing(key: &PrivateKey) -> Box<dyn SigningKey> {
    RUSTCRYPTO.signing_key(key).unwrap()
}

/// Keys instead of certificates. A connection trusts a key as it would trust an authority.
struct SelectionCredentials {
    own: Box<dyn SigningKey>,
    shown: Vec<u8>,
    makes: Vec<SignatureAlg>,
    rules: Vec<Rule>,
    secret: SecretBytes,
}

/// A key that a connection trusts.
struct Rule {
    connection: &'static str,
    key: PublicKey,
    /// Accepted signature algorithms; empty for all.
    takes: Vec<SignatureAlg>,
}

impl SelectionCredentials {
    fn new(own: &PrivateKey, makes: &[SignatureAlg]) -> Self {
        let own = signing(own);
        let shown = own.public_key().spki().to_vec();
        Self { own, shown, makes: makes.into(), rules: vec![], secret: SecretBytes::new(b"of the two") }
    }

    fn trusting(mut self, connection: &'static str, key: &PrivateKey, takes: &[SignatureAlg]) -> Self {
        self.rules.push(Rule { connection, key: signing(key).public_key().clone(), takes: takes.into() });
        self
    }

    fn of(&self, connection: &Connection) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.connection == connection.name)
    }
}

impl Credentials for SelectionCredentials {
    fn shared_key(&self, _: &Connection, _: &Identity, _: &Identity) -> Option<&SecretBytes> {
        Some(&self.secret)
    }

    fn own_key(&self, _: &Connection, wanted: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        // Presented if any authority is requested.
        let chain = if wanted.is_empty() { vec![] } else { vec![&*self.shown] };
        Some(OwnKey { key: &*self.own, chain, subject: None })
    }

    fn authorities(&self, connection: &Connection) -> Vec<AuthorityHash> {
        self.of(connection).map(|rule| [rule.connection.as_bytes()[0]; 20]).collect()
    }

    fn verify_peer(
        &self,
        connection: &Connection,
        shown: &PeerCertificates<'_>,
        _: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        let trusted = self.of(connection).find(|rule| shown.chain == [rule.key.spki()]);
        trusted.map(|rule| rule.key.clone()).ok_or(NotTrusted)
    }

    fn accepts_signature(&self, connection: &Connection, _: &Identity, alg: SignatureAlg) -> bool {
        self.of(connection).any(|rule| rule.takes.is_empty() || rule.takes.contains(&alg))
    }

    fn signature_algorithms(&self, _: &Connection) -> &[SignatureAlg] {
        &self.makes
    }

    fn dn_matches(&self, _: &str, _: &[u8]) -> bool {
        false
    }
}

struct SelectionPeer {
    ike: Ike,
    keys: SelectionCredentials,
    host: SpiReserver,
    rng: RecordingRng,
    events: Vec<Event>,
    /// All sent messages.
    sent: Vec<Vec<u8>>,
    now: Instant,
}

impl SelectionPeer {
    fn new(seed: u64, connections: Vec<Connection>, keys: SelectionCredentials) -> Self {
        Self::with(IkeSettings::SERVER, seed, connections, &[], keys)
    }

    fn with(
        settings: IkeSettings,
        seed: u64,
        connections: Vec<Connection>,
        pools: &[Pool],
        keys: SelectionCredentials,
    ) -> Self {
        let mut ike = Ike::new(settings);
        ike.configure(connections.into_iter().map(Arc::new).collect(), pools);
        let now = Instant::from_secs(1_000);
        Self {
            ike,
            keys,
            host: SpiReserver::default(),
            rng: RecordingRng::new(seed),
            events: vec![],
            sent: vec![],
            now,
        }
    }

    fn act<T>(&mut self, act: impl FnOnce(&mut Ike, &mut dyn Host, &mut Context<'_>) -> T) -> T {
        let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
        let mut context = Context {
            now: self.now,
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
            other.sent.push(message.clone());
            let path = Path { local: path.remote, remote: path.local };
            self.act(|ike, host, context| ike.receive(&mut message, path, host, context));
        }
        any
    }

    /// Connection of the IKE SA.
    fn connection(&self) -> Option<String> {
        let up = |event: &Event| match event {
            Event::IkeUp { connection, .. } => Some(connection.name.clone()),
            _ => None,
        };
        self.events.iter().find_map(up)
    }

    fn fault(&self) -> Option<StateFault> {
        self.events.iter().find_map(|event| match event {
            Event::IkeDown { reason: DownReason::Fault(PeerFault::State(fault)), .. } => Some(*fault),
            _ => None,
        })
    }
}

/// The left side starts its only connection. Returns the connection that the right side selects, or the
/// fault.
fn right_takes(left: &mut SelectionPeer, right: &mut SelectionPeer) -> Result<String, StateFault> {
    let connection = left.ike.connections()[0].clone();
    let child = connection.children.first().cloned();
    left.act(|ike, host, context| ike.initiate(&connection, child.as_ref(), None, host, context)).unwrap();
    while right.take_all_from(left) | left.take_all_from(right) {}
    let taken = right.connection();
    assert_eq!(left.connection().is_some(), taken.is_some(), "{:?} {:?}", left.events, right.events);
    taken.ok_or_else(|| right.fault().unwrap_or(StateFault::NoConnection))
}

fn signs(mut connection: Connection) -> Connection {
    connection.local.method = LocalMethod::Certificate(vec![]);
    connection.remote.method = RemoteMethod::Certificate(String::new());
    connection
}

/// Connection of the initiator.
fn left() -> Connection {
    pair::connection("left", "right")
}

/// A connection that accepts any peer from any address.
fn right(name: &str) -> Connection {
    let mut connection = pair::connection("right", "left");
    connection.name = name.into();
    connection.remote_addrs = vec![AddrPattern::Any];
    connection.remote.id = IdPattern::Any;
    connection
}

const SHA256: SignatureAlg = SignatureAlg::Ecdsa(HashAlg::Sha256);
const SHA384: SignatureAlg = SignatureAlg::Ecdsa(HashAlg::Sha384);
const SHA512: SignatureAlg = SignatureAlg::Ecdsa(HashAlg::Sha512);

/// rw-psk-rsa-mixed, in both orders of the connections.
#[test]
fn selection_by_authentication_method() {
    let (ours, theirs) = (key!("p256"), key!("p384"));
    for order in [["psk", "signature"], ["signature", "psk"]] {
        for wanted in order {
            let connections = order.map(|name| if name == "psk" { right(name) } else { signs(right(name)) });
            let begins = if wanted == "psk" { left() } else { signs(left()) };
            let left_keys = SelectionCredentials::new(&ours, &[]).trusting("left", &theirs, &[]);
            let right_keys = SelectionCredentials::new(&theirs, &[]).trusting("signature", &ours, &[]);
            let mut left = SelectionPeer::new(1, vec![begins], left_keys);
            let mut right = SelectionPeer::new(2, connections.into(), right_keys);
            assert_eq!(right_takes(&mut left, &mut right), Ok(wanted.into()), "{order:?}");
        }
    }
}

/// rw-sig-auth.
#[test]
fn selection_by_signature_algorithm() {
    let (ours, theirs) = (key!("p256"), key!("p384"));
    for (makes, expected) in [
        (SHA384, Ok("research".into())),
        (SHA512, Ok("accounting".into())),
        (SHA256, Err(StateFault::SignatureAlgorithm)),
    ] {
        let left_keys = SelectionCredentials::new(&ours, &[makes]).trusting("left", &theirs, &[]);
        let right_keys = SelectionCredentials::new(&theirs, &[])
            .trusting("research", &ours, &[SHA384])
            .trusting("accounting", &ours, &[SHA512]);
        let mut left = SelectionPeer::new(1, vec![signs(left())], left_keys);
        let mut right =
            SelectionPeer::new(2, vec![signs(right("research")), signs(right("accounting"))], right_keys);
        assert_eq!(right_takes(&mut left, &mut right), expected, "{makes:?}");
    }
}

/// ikev2-multi-ca.
#[test]
fn selection_by_certification_authority() {
    let (research, sales, gateway) = (key!("p256"), key!("ed25519"), key!("p384"));
    let untrusted = key!("p521");
    for (key, expected) in [
        (&research, Ok("research".into())),
        (&sales, Ok("sales".into())),
        (&untrusted, Err(StateFault::Certificate)),
    ] {
        let left_keys = SelectionCredentials::new(key, &[]).trusting("left", &gateway, &[]);
        let right_keys = SelectionCredentials::new(&gateway, &[])
            .trusting("research", &research, &[])
            .trusting("sales", &sales, &[]);
        let mut left = SelectionPeer::new(1, vec![signs(left())], left_keys);
        let mut right =
            SelectionPeer::new(2, vec![signs(right("research")), signs(right("sales"))], right_keys);
        assert_eq!(right_takes(&mut left, &mut right), expected);
        // All authorities are requested while the peer is unknown.
        let certreq: Vec<u8> = Message::parse(&right.sent[0])
            .unwrap()
            .payloads()
            .filter_map(|payload| match Body::parse(&payload.unwrap()).unwrap() {
                Body::CertReq(request) => {
                    Some(request.hashes().iter().map(|hash| hash[0]).collect::<Vec<_>>())
                }
                _ => None,
            })
            .flatten()
            .collect();
        assert_eq!(certreq, [b'r', b's']);
    }
}

fn announces(message: &[u8], kind: NotifyType) -> bool {
    let message = Message::parse(message).unwrap();
    let mut bodies = message.payloads().map(|payload| payload.unwrap());
    bodies.any(|payload| matches!(Body::parse(&payload), Ok(Body::Notify(notify)) if notify.kind == kind))
}

/// A feature of any candidate is announced, and used by the candidate that is selected.
#[test]
fn features_of_all_candidates_are_announced() {
    let key = key!("p256");
    for childless in [false, true] {
        let mut able = right("able");
        able.remote.id = IdPattern::Exact(Identity::Fqdn("left".into()));
        let mut unable = right("unable");
        (unable.fragmentation, unable.childless) = (Fragmentation::No, Childless::Never);
        let mut begins = left();
        if childless {
            begins.childless = Childless::Force;
        }
        let mut left = SelectionPeer::new(1, vec![begins], SelectionCredentials::new(&key, &[]));
        let mut right =
            SelectionPeer::new(2, vec![unable.clone(), able], SelectionCredentials::new(&key, &[]));
        assert_eq!(right_takes(&mut left, &mut right), Ok("able".into()));
        assert!(announces(&right.sent[0], NotifyType::IKEV2_FRAGMENTATION_SUPPORTED));
        assert!(announces(&right.sent[0], NotifyType::CHILDLESS_IKEV2_SUPPORTED));
        // A single connection announces neither.
        let mut left = SelectionPeer::new(
            1,
            vec![pair::connection("left", "right")],
            SelectionCredentials::new(&key, &[]),
        );
        let mut right = SelectionPeer::new(2, vec![unable], SelectionCredentials::new(&key, &[]));
        assert_eq!(right_takes(&mut left, &mut right), Ok("unable".into()));
        assert!(!announces(&right.sent[0], NotifyType::IKEV2_FRAGMENTATION_SUPPORTED));
        assert!(!announces(&right.sent[0], NotifyType::CHILDLESS_IKEV2_SUPPORTED));
    }
}

#[test]
fn selection_by_childless_policy() {
    let key = key!("p256");
    let with = |name: &str, childless| Connection { childless, ..right(name) };
    for (begins, expected) in [(Childless::Force, "never-not"), (Childless::Never, "never")] {
        let begins = Connection { childless: begins, ..left() };
        let mut left = SelectionPeer::new(1, vec![begins], SelectionCredentials::new(&key, &[]));
        let connections = vec![with("never", Childless::Never), with("never-not", Childless::Force)];
        let mut right = SelectionPeer::new(2, connections, SelectionCredentials::new(&key, &[]));
        assert_eq!(right_takes(&mut left, &mut right), Ok(expected.into()));
    }
}

#[test]
fn selection_by_address_and_identity() {
    let key = key!("p256");
    let at = |name: &str, addrs: AddrRange| Connection {
        remote_addrs: vec![AddrPattern::Range(addrs)],
        ..right(name)
    };
    let host = AddrRange::single(pair::LEFT.parse().unwrap());
    let subnet = AddrRange::prefix("192.0.2.0".parse().unwrap(), 24).unwrap();
    let range = AddrRange::prefix("192.0.2.0".parse().unwrap(), 25).unwrap();
    let both = Connection {
        remote_addrs: vec![AddrPattern::Range(subnet), AddrPattern::Range(host)],
        ..right("both")
    };
    let named = |connection: Connection, id: &str| {
        let mut connection = connection;
        connection.remote.id = IdPattern::Exact(Identity::Fqdn(id.into()));
        connection
    };
    for (connections, expected) in [
        (vec![right("any"), at("subnet", subnet), at("host", host)], "host"),
        (vec![right("any"), at("all", AddrRange::ANY_V4), at("subnet", subnet)], "subnet"),
        (vec![at("host", host), named(right("named"), "LEFT")], "named"),
        // The order of the configuration decides between equally specific addresses, whatever their form.
        (vec![at("subnet", subnet), at("range", range)], "subnet"),
        (vec![at("range", range), at("subnet", subnet)], "range"),
        (vec![at("host", host), at("host again", host)], "host"),
        (vec![at("any", AddrRange::ANY_V4), both, at("host", host)], "both"),
        (vec![named(at("other", host), "other"), right("any")], "any"),
        // A connection that names the peer but requires another proof is skipped.
        (vec![signs(named(right("named"), "left")), right("any")], "any"),
    ] {
        let mut left = SelectionPeer::new(1, vec![left()], SelectionCredentials::new(&key, &[]));
        let mut right = SelectionPeer::new(
            2,
            connections,
            SelectionCredentials::new(&key, &[]).trusting("named", &key, &[]),
        );
        assert_eq!(right_takes(&mut left, &mut right), Ok(expected.into()));
    }
}

#[test]
fn the_best_candidate_gives_the_reason_of_a_rejection() {
    let (ours, theirs) = (key!("p256"), key!("p384"));
    let named = |mut connection: Connection| {
        connection.remote.id = IdPattern::Exact(Identity::Fqdn("left".into()));
        connection
    };
    for (connections, expected) in [
        (vec![right("psk")], StateFault::AuthMethod),
        (vec![named(right("psk")), signs(right("signature"))], StateFault::Certificate),
        (vec![signs(right("signature")), right("psk")], StateFault::Certificate),
    ] {
        let left_keys = SelectionCredentials::new(&ours, &[]).trusting("left", &theirs, &[]);
        let mut left = SelectionPeer::new(1, vec![signs(left())], left_keys);
        let mut right = SelectionPeer::new(
            2,
            connections,
            SelectionCredentials::new(&theirs, &[]).trusting("signature", &theirs, &[]),
        );
        assert_eq!(right_takes(&mut left, &mut right), Err(expected));
    }
}

/// UDP encapsulation of the inbound and the outbound SA of the Child SA.
fn encap(side: &SelectionPeer) -> [Option<UdpEncap>; 2] {
    let up = side.events.iter().find_map(|event| match event {
        Event::ChildUp(up) => Some([up.inbound.encap, up.outbound.encap]),
        _ => None,
    });
    up.unwrap()
}

#[test]
fn both_sides_encapsulate_as_announced_in_the_first_exchange() {
    let of = |always: bool| if always { Encapsulation::Always } else { Encapsulation::IfNat };
    for (first, chosen) in [(true, false), (false, true), (true, true), (false, false)] {
        let any = Connection { encapsulation: of(first), ..right("any") };
        let mut named = Connection { encapsulation: of(chosen), ..right("named") };
        named.remote.id = IdPattern::Exact(Identity::Fqdn("left".into()));
        let key = key!("p256");
        let mut left = SelectionPeer::new(1, vec![left()], SelectionCredentials::new(&key, &[]));
        let mut right = SelectionPeer::new(2, vec![any, named], SelectionCredentials::new(&key, &[]));
        assert_eq!(right_takes(&mut left, &mut right), Ok("named".into()));
        for side in [&left, &right] {
            let is_used = encap(side).map(|encap| encap.is_some());
            assert_eq!(is_used, [first; 2], "announced {first}, configured {chosen}");
        }
    }
}

#[test]
fn two_sides_that_prefer_udp_encapsulate() {
    use Encapsulation::{Always, Auto, IfNat};
    let expected = [
        (Auto, Auto, true),
        (Auto, IfNat, false),
        (IfNat, Auto, false),
        (IfNat, IfNat, false),
        (Auto, Always, true),
        (Always, Auto, true),
    ];
    for (ours, theirs, is_expected) in expected {
        let key = key!("p256");
        let credentials = || SelectionCredentials::new(&key, &[]);
        let initiator = Connection { encapsulation: ours, ..left() };
        let responder = Connection { encapsulation: theirs, ..right("right") };
        let mut left = SelectionPeer::new(1, vec![initiator], credentials());
        let mut right = SelectionPeer::new(2, vec![responder], credentials());
        assert_eq!(right_takes(&mut left, &mut right), Ok("right".into()));
        for side in [&left, &right] {
            let is_used = encap(side).map(|encap| encap.is_some());
            assert_eq!(is_used, [is_expected; 2], "{ours:?} and {theirs:?}");
        }
    }
}
