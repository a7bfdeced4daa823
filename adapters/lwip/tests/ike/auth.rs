//! Who is trusted, and what C is told of it.

use crate::host::{Speaker, Wanted, talk};
use casemate_crypto::{KeyLimits, PrivateKey, Provider as _};
use casemate_lwip::*;
use casemate_rustcrypto::RUSTCRYPTO;
use std::ffi::CString;

/// The first of January 2027, when the certificates are valid.
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

/// Both sides with one key, of each kind.
pub(crate) fn raw_keys() -> impl Iterator<Item = (&'static str, Wanted)> {
    let keys =
        [("ed25519", key!("ed25519")), ("p256", key!("p256")), ("p521", key!("p521")), ("rsa", key!("rsa"))];
    keys.into_iter().map(|(name, key)| {
        (name, Wanted { auth: RAW_KEY, peer_key: public(&key), private_key: key, ..Wanted::shared() })
    })
}

fn certified(own: &[u8], key: Vec<u8>) -> Wanted {
    Wanted {
        auth: CERTIFICATE,
        certificates: [own, &pki!("sub.pem")].concat(),
        private_key: key,
        authorities: pki!("root.pem"),
        ..Wanted::shared()
    }
}

/// A session with what each wants and knows of the time.
fn session(one: (&Wanted, Option<u64>), other: (&Wanted, Option<u64>)) -> (Speaker, Speaker) {
    let (mut a, mut b) = (Speaker::new(1), Speaker::new(2));
    for (side, (wanted, time)) in [(&mut a, one), (&mut b, other)] {
        assert_eq!(side.add(wanted), 0);
        time.into_iter().for_each(|time| side.clock(time));
    }
    assert_eq!(a.initiate(c"peer/all"), 0);
    talk(&mut a, &mut b);
    (a, b)
}

fn is_up(side: &Speaker) -> bool {
    side.has_seen(EVENT_IKE_UP) && side.has_seen(EVENT_CHILD_UP) && side.children() == 1
}

#[test]
fn shared_and_raw_keys_need_no_clock() {
    let all = raw_keys().chain([("shared", Wanted::shared())]);
    for (name, wanted) in all {
        let (a, b) = session((&wanted, None), (&wanted, None));
        assert!(is_up(&a) && is_up(&b), "{name}: {:?} {:?}", a.events, b.events);
    }
}

#[test]
fn a_wrong_key_is_refused_and_said_so() {
    let keys: Vec<Wanted> = raw_keys().map(|(_, wanted)| wanted).collect();
    let impostor = Wanted { private_key: keys[1].private_key.clone(), ..keys[0].clone() };
    let (a, b) = session((&impostor, None), (&keys[0], None));
    assert!(!is_up(&a) && !is_up(&b));
    assert!(
        b.events.iter().any(|(kind, _, why)| *kind == EVENT_IKE_DOWN && !why.is_empty()),
        "{:?}",
        b.events
    );
    assert!(
        a.events.iter().any(|(kind, _, why)| *kind == EVENT_IKE_DOWN && why.contains("refused")),
        "{:?}",
        a.events
    );
}

#[test]
fn certificates_are_judged_by_the_time_of_day() {
    let names = |own: &str, peer: &str, wanted: Wanted| Wanted {
        ids: Some((CString::new(own).unwrap(), CString::new(peer).unwrap())),
        ..wanted
    };
    let (moon, sun) = ("moon.casemate.test", "sun.casemate.test");
    let one = names(moon, sun, certified(&pki!("moon.pem"), pki!("moon.key")));
    let other = names(sun, moon, certified(&pki!("sun.pem"), pki!("sun.key")));
    let (a, b) = session((&one, Some(NEW_YEAR)), (&other, Some(NEW_YEAR)));
    assert!(is_up(&a) && is_up(&b), "{:?} {:?}", a.events, b.events);
    // Who was not told the time takes no certificate.
    let (a, b) = session((&one, Some(NEW_YEAR)), (&other, None));
    assert!(!is_up(&a) && !is_up(&b));
    assert!(b.events.iter().any(|(_, _, why)| why.contains("not valid yet")), "{:?}", b.events);
    // And the peer is not somebody else.
    let mars = names("mars.casemate.test", sun, certified(&pki!("moon.pem"), pki!("moon.key")));
    let (a, b) = session((&mars, Some(NEW_YEAR)), (&names(sun, "%any", other), Some(NEW_YEAR)));
    assert!(!is_up(&a) && !is_up(&b));
    assert!(b.events.iter().any(|(_, _, why)| why.contains("identity")), "{:?}", b.events);
}

#[test]
fn what_is_wrong_has_a_name() {
    let text = |text: &str| Some(CString::new(text).unwrap());
    let raw = raw_keys().next().unwrap().1;
    let certificate = certified(&pki!("moon.pem"), pki!("moon.key"));
    for (wanted, code) in [
        (Wanted { auth: 9, ..Wanted::shared() }, Code::Value),
        (Wanted { proposals: text("aes128"), ..Wanted::shared() }, Code::Suite),
        (Wanted { proposals: text(""), ..Wanted::shared() }, Code::Suite),
        (Wanted { child_proposals: text("aes128gcm15"), ..Wanted::shared() }, Code::Suite),
        (Wanted { local_traffic: text("10.0.0.0/33"), ..Wanted::shared() }, Code::Traffic),
        (Wanted { ids: text("a").zip(text("10.0.0.0/8")), ..Wanted::shared() }, Code::Identity),
        (Wanted { private_key: vec![], ..raw.clone() }, Code::Key),
        (Wanted { peer_key: vec![0x30, 0], ..raw.clone() }, Code::Key),
        (Wanted { certificates: vec![], ..certificate.clone() }, Code::Certificate),
        (Wanted { authorities: vec![0x30, 0], ..certificate.clone() }, Code::Certificate),
        (Wanted { private_key: pki!("sun.key"), ..certificate.clone() }, Code::Certificate),
        (Wanted { name: c"of more than thirty-one characters", ..Wanted::shared() }, Code::Name),
        (Wanted { name: c"a/b", ..Wanted::shared() }, Code::Name),
    ] {
        let mut a = Speaker::new(1);
        assert_eq!(a.add(&wanted), code as i32);
        assert_eq!(a.initiate(c"peer"), Code::Absent as i32, "nothing is left of it");
    }
    let mut a = Speaker::new(1);
    assert_eq!([a.add(&raw), a.add(&raw)], [0, Code::Name as i32]);
}
