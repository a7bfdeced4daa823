//! Authentication methods and the errors that C gets.

use crate::host::{IkeHost, TestConnection, exchange_messages};
use casemate_crypto::{KeyLimits, PrivateKey, Provider as _};
use casemate_lwip::*;
use casemate_rustcrypto::RUSTCRYPTO;
use std::ffi::CString;

/// 1 January 2027, when the certificates are valid.
const NEW_YEAR: u64 = 1_798_761_600;

macro_rules! pki {
    ($name:literal) => {
        include_bytes!(concat!("../../../../core/pki/tests/data/", $name)).to_vec()
    };
}

macro_rules! key {
    ($name:literal) => {
        include_bytes!(concat!("../../../../core/ike/tests/data/", $name, ".der")).to_vec()
    };
}

fn public(private: &[u8]) -> Vec<u8> {
    let key = PrivateKey::from_der(private, KeyLimits::default()).unwrap();
    RUSTCRYPTO.signing_key(&key).unwrap().public_key().spki().to_vec()
}

/// Returns configurations in which both sides use the same raw key, one per key type.
pub(crate) fn raw_keys() -> impl Iterator<Item = (&'static str, TestConnection)> {
    let keys =
        [("ed25519", key!("ed25519")), ("p256", key!("p256")), ("p521", key!("p521")), ("rsa", key!("rsa"))];
    keys.into_iter().map(|(name, key)| {
        (
            name,
            TestConnection {
                auth: RAW_KEY,
                peer_key: public(&key),
                private_key: key,
                ..TestConnection::shared()
            },
        )
    })
}

fn certified(own: &[u8], key: Vec<u8>) -> TestConnection {
    TestConnection {
        auth: CERTIFICATE,
        certificates: [own, &pki!("sub.pem")].concat(),
        private_key: key,
        authorities: pki!("root.pem"),
        ..TestConnection::shared()
    }
}

/// Creates a host with a connection, and with a clock if there is a time.
fn host(number: u8, connection: &TestConnection, time: Option<u64>) -> IkeHost {
    let mut host = IkeHost::new(number);
    assert_eq!(host.add(connection), 0);
    time.into_iter().for_each(|time| host.clock(time));
    host
}

/// Initiates the connection of `a`, and exchanges messages until none is left.
fn session(mut a: IkeHost, mut b: IkeHost) -> (IkeHost, IkeHost) {
    assert_eq!(a.initiate(c"peer/all"), 0);
    exchange_messages(&mut a, &mut b);
    (a, b)
}

fn is_up(side: &IkeHost) -> bool {
    side.has_seen(EVENT_IKE_UP) && side.has_seen(EVENT_CHILD_UP) && side.children() == 1
}

#[test]
fn shared_and_raw_keys_need_no_clock() {
    let all = raw_keys().chain([("shared", TestConnection::shared())]);
    for (name, connection) in all {
        let (a, b) = session(host(1, &connection, None), host(2, &connection, None));
        assert!(is_up(&a) && is_up(&b), "{name}: {:?} {:?}", a.events, b.events);
    }
}

#[test]
fn a_wrong_key_is_refused_and_reported() {
    let keys: Vec<TestConnection> = raw_keys().map(|(_, connection)| connection).collect();
    let impostor = TestConnection { private_key: keys[1].private_key.clone(), ..keys[0].clone() };
    let (a, b) = session(host(1, &impostor, None), host(2, &keys[0], None));
    assert!(!is_up(&a) && !is_up(&b));
    assert!(
        b.events.iter().any(|event| event.kind == EVENT_IKE_DOWN && !event.reason.is_empty()),
        "{:?}",
        b.events
    );
    assert!(
        a.events.iter().any(|event| event.kind == EVENT_IKE_DOWN && event.reason.contains("refused")),
        "{:?}",
        a.events
    );
}

#[test]
fn certificates_need_the_time_of_day() {
    let names = |own: &str, peer: &str, connection: TestConnection| TestConnection {
        ids: Some((CString::new(own).unwrap(), CString::new(peer).unwrap())),
        ..connection
    };
    let (moon, sun) = ("moon.casemate.test", "sun.casemate.test");
    let one = names(moon, sun, certified(&pki!("moon.pem"), pki!("moon.key")));
    let other = names(sun, moon, certified(&pki!("sun.pem"), pki!("sun.key")));
    let (a, b) = session(host(1, &one, Some(NEW_YEAR)), host(2, &other, Some(NEW_YEAR)));
    assert!(is_up(&a) && is_up(&b), "{:?} {:?}", a.events, b.events);
    // Without a clock no certificate is accepted.
    let (a, b) = session(host(1, &one, Some(NEW_YEAR)), host(2, &other, None));
    assert!(!is_up(&a) && !is_up(&b));
    assert!(b.events.iter().any(|event| event.reason.contains("not valid yet")), "{:?}", b.events);
    // The peer must have the configured identity.
    let mars = names("mars.casemate.test", sun, certified(&pki!("moon.pem"), pki!("moon.key")));
    let other = names(sun, "%any", other);
    let (a, b) = session(host(1, &mars, Some(NEW_YEAR)), host(2, &other, Some(NEW_YEAR)));
    assert!(!is_up(&a) && !is_up(&b));
    assert!(b.events.iter().any(|event| event.reason.contains("identity")), "{:?}", b.events);
}

#[test]
fn invalid_values_return_the_right_status() {
    let text = |text: &str| Some(CString::new(text).unwrap());
    let raw = raw_keys().next().unwrap().1;
    let certificate = certified(&pki!("moon.pem"), pki!("moon.key"));
    for (connection, code) in [
        (TestConnection { auth: 9, ..TestConnection::shared() }, Status::Value),
        (TestConnection { proposals: text("aes128"), ..TestConnection::shared() }, Status::Suite),
        (TestConnection { proposals: text(""), ..TestConnection::shared() }, Status::Suite),
        (TestConnection { child_proposals: text("aes128gcm15"), ..TestConnection::shared() }, Status::Suite),
        (TestConnection { local_traffic: text("10.0.0.0/33"), ..TestConnection::shared() }, Status::Traffic),
        (
            TestConnection { ids: text("a").zip(text("10.0.0.0/8")), ..TestConnection::shared() },
            Status::Identity,
        ),
        (TestConnection { private_key: vec![], ..raw.clone() }, Status::Key),
        (TestConnection { peer_key: vec![0x30, 0], ..raw.clone() }, Status::Key),
        (TestConnection { certificates: vec![], ..certificate.clone() }, Status::Certificate),
        (TestConnection { authorities: vec![0x30, 0], ..certificate.clone() }, Status::Certificate),
        (TestConnection { private_key: pki!("sun.key"), ..certificate.clone() }, Status::Certificate),
        (
            TestConnection { name: c"of more than thirty-one characters", ..TestConnection::shared() },
            Status::Name,
        ),
        (TestConnection { name: c"a/b", ..TestConnection::shared() }, Status::Name),
    ] {
        let mut a = IkeHost::new(1);
        assert_eq!(a.add(&connection), code as i32);
        assert_eq!(
            a.initiate(c"peer"),
            Status::Absent as i32,
            "the refused connection left something behind"
        );
    }
    let mut a = IkeHost::new(1);
    assert_eq!([a.add(&raw), a.add(&raw)], [0, Status::Name as i32]);
}
