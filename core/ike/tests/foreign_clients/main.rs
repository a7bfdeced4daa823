//! Messages of the clients of Windows, Android, iOS and macOS, and what this program answers as responder.
//! `tests/data/foreign-clients/ORIGIN.md` says which are recorded bytes and which are made from facts.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test may fail"
)]

#[path = "../hostile/forge.rs"]
mod forge;
mod messages;
#[path = "../pair/mod.rs"]
mod pair;
#[path = "../pair/passwords.rs"]
mod passwords;

use casemate_crypto::{AesBits, CipherAlg, KexMethod, MacAlg, MacKind, PrfAlg, Provider, Providers};
use casemate_eap::Method;
use casemate_ike::config::{
    AdditionalKexes, ChildAlgorithms, Connection, EapIdentity, IkeEncryption, IkeProposal, LocalEap,
    LocalMethod, ike_proposals,
};
use casemate_ike::{Context, Path};
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};
use forge::{Attack, Raw, RawFragment, notifies, read_plain, without};
use messages::{Request, Transform, asks_for, bytes, everything, sa};
use pair::{Pair, connection, with_pool};
use passwords::{Passwords, by_eap};
use std::sync::Arc;

const RAW_INIT: &str = include_str!("../data/foreign-clients/android-ike-sa-init.hex");
const RAW_AUTH: &str = include_str!("../data/foreign-clients/android-ike-auth-decrypted.hex");

/// The answer of a responder with these proposals to a first request. It has the algorithms of the program,
/// obsolete ones included.
fn answer(proposals: Option<Vec<IkeProposal>>, message: &[u8]) -> Vec<Raw> {
    let mut right = connection("right", "left");
    if let Some(proposals) = proposals {
        right.proposals = proposals;
    }
    let Pair { mut right, left, now } = Pair::new(connection("left", "right"), right);
    let list: [&dyn Provider; 2] = [&casemate_rustcrypto::RustCrypto, &casemate_legacy::LEGACY];
    let providers = Providers(&list);
    let mut context = Context {
        now,
        unix_time: 0,
        rng: &mut right.rng,
        providers: &providers,
        credentials: &*right.keys,
        routes: &right.routes,
    };
    let path = Path { local: (right.addr, 500).into(), remote: (left.addr, 500).into() };
    right.ike.receive(&mut message.to_vec(), path, &mut right.host, &mut context);
    let sent: Vec<_> = std::iter::from_fn(|| right.ike.next_transmit()).collect();
    assert_eq!(sent.len(), 1, "one answer");
    let (header, payloads) = read_plain(&sent[0].message);
    assert!(header.flags.response && header.exchange == ExchangeType::IKE_SA_INIT);
    assert_eq!(header.spi_i.0.to_be_bytes(), message[..8]);
    payloads
}

/// AES-CBC with these parts of a suite.
fn cbc(bits: AesBits, mac: MacKind, prf: PrfAlg, kex: KexMethod) -> Option<Vec<IkeProposal>> {
    let encryption = IkeEncryption::Separate(vec![CipherAlg::AesCbc(bits)], vec![MacAlg::standard(mac)]);
    let additional = AdditionalKexes::new();
    Some(vec![IkeProposal { encryption, prfs: vec![prf], kex: vec![kex], additional }])
}

fn windows_1024() -> Option<Vec<IkeProposal>> {
    cbc(AesBits::B256, MacKind::HmacSha256, PrfAlg::HmacSha256, KexMethod::Modp1024)
}

/// Number and transforms of the only proposal of an SA payload.
fn chosen(answer: &[Raw]) -> (u8, Vec<Transform>) {
    let body = &answer.iter().find(|payload| payload.kind == PayloadType::SA).unwrap().body;
    let mut rest = &body[8 + usize::from(body[6])..];
    let mut transforms = vec![];
    while let [_, _, high, low, kind, _, tail @ ..] = rest {
        let bits = if *low > 8 { u16::from_be_bytes([tail[4], tail[5]]) } else { 0 };
        transforms.push((*kind, u16::from_be_bytes([tail[0], tail[1]]), bits));
        rest = &rest[usize::from(*high) << 8 | usize::from(*low)..];
    }
    transforms.sort_unstable();
    (body[4], transforms)
}

/// Checks which proposal is chosen, and that the response has the group of the client, NAT detection and
/// support for fragmentation.
fn check_chosen(
    name: &str,
    request: &Request,
    proposals: Option<Vec<IkeProposal>>,
    number: u8,
    transforms: &[Transform],
) {
    let payloads = answer(proposals, &request.message());
    assert_eq!(chosen(&payloads), (number, transforms.to_vec()), "{name}");
    let ke = &payloads.iter().find(|payload| payload.kind == PayloadType::KE).unwrap().body;
    assert_eq!(u16::from_be_bytes([ke[0], ke[1]]), request.kex.0, "{name}");
    let notifies = notifies(&payloads);
    let has = |kind| notifies.iter().any(|(known, _)| *known == kind);
    assert!(has(NotifyType::NAT_DETECTION_SOURCE_IP) && has(NotifyType::NAT_DETECTION_DESTINATION_IP));
    // Also to clients that do not announce it; they ignore the notification (RFC 7296 section 3.10.1).
    assert!(has(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED), "{name}");
}

fn check_refused(
    name: &str,
    proposals: Option<Vec<IkeProposal>>,
    message: &[u8],
    refusal: (NotifyType, Vec<u8>),
) {
    assert_eq!(notifies(&answer(proposals, message)), [refusal], "{name}");
}

#[test]
fn windows_with_its_defaults_needs_the_1024_bit_group() {
    let request = messages::windows_defaults();
    let none = (NotifyType::NO_PROPOSAL_CHOSEN, vec![]);
    check_refused("defaults of this program", None, &request.message(), none);
    // Of twelve proposals, the eleventh is the only acceptable one.
    let transforms = [(1, 12, 256), (2, 5, 0), (3, 12, 0), (4, 2, 0)];
    check_chosen("Windows", &request, windows_1024(), 11, &transforms);
}

#[test]
fn windows_with_better_algorithms_is_served_by_the_defaults() {
    let transforms = [(1, 12, 128), (2, 5, 0), (3, 12, 0), (4, 14, 0)];
    check_chosen("group 14", &messages::windows_group14(), None, 1, &transforms);
    let transforms = [(1, 12, 128), (2, 6, 0), (3, 13, 0), (4, 19, 0)];
    check_chosen("P-256", &messages::windows_p256(), None, 1, &transforms);
}

#[test]
fn android_is_served_by_the_defaults() {
    let transforms = [(1, 20, 128), (2, 5, 0), (4, 16, 0)];
    check_chosen("Android", &messages::android(), None, 2, &transforms);
    // A gateway without the group of the public value names one of the others.
    let x25519 = cbc(AesBits::B256, MacKind::HmacSha256, PrfAlg::HmacSha256, KexMethod::X25519);
    let other = (NotifyType::INVALID_KE_PAYLOAD, vec![0, 31]);
    check_refused("X25519 only", x25519, &messages::android().message(), other);
}

#[test]
fn the_app_for_android_is_told_which_group_to_use() {
    let modp2048 = cbc(AesBits::B256, MacKind::HmacSha256, PrfAlg::HmacSha256, KexMethod::Modp2048);
    let other = (NotifyType::INVALID_KE_PAYLOAD, vec![0, 14]);
    check_refused("group 24", modp2048, &messages::android_app().message(), other);
}

#[test]
fn apple_clients_are_served_by_the_defaults() {
    let transforms = [(1, 12, 256), (2, 5, 0), (3, 12, 0), (4, 14, 0)];
    check_chosen("iOS", &messages::ios(), None, 1, &transforms);
    let transforms = [(1, 20, 256), (2, 5, 0), (4, 19, 0)];
    check_chosen("macOS", &messages::macos(), None, 1, &transforms);
}

/// `proposals = default, aes256-sha256-modp1024` of docs/manual/remote-access.md.
#[test]
fn the_gateway_of_the_manual_serves_all() {
    let proposals: Vec<_> = ike_proposals().into_iter().chain(windows_1024().unwrap()).collect();
    let groups = [
        (messages::windows_defaults(), 2),
        (messages::windows_group14(), 14),
        (messages::windows_p256(), 19),
        (messages::android(), 16),
        (messages::ios(), 14),
        (messages::macos(), 19),
    ];
    for (request, group) in groups {
        let (_, transforms) = chosen(&answer(Some(proposals.clone()), &request.message()));
        assert!(transforms.contains(&(4, group, 0)), "{transforms:?}");
    }
}

#[test]
fn recorded_bytes_of_android_s_tests() {
    let message = bytes(RAW_INIT);
    assert_eq!(message.len(), 336);
    check_refused("defaults", None, &message, (NotifyType::NO_PROPOSAL_CHOSEN, vec![]));
    let sha1 = cbc(AesBits::B128, MacKind::HmacSha1, PrfAlg::HmacSha1, KexMethod::Modp1024);
    let expected = vec![(1, 12, 128), (2, 2, 0), (3, 2, 0), (4, 2, 0)];
    assert_eq!(chosen(&answer(sha1, &message)), (1, expected));
}

/// Configuration attributes that the clients ask for: Windows, iOS and Android.
const ATTRIBUTES: [(&str, &[u16]); 4] = [
    ("Windows", &[1, 3, 4, 23456, 8, 10, 23457]),
    ("iOS", &[1, 2, 6, 3, 8, 12, 10, 25]),
    ("Android", &[1, 8, 3, 10, 7]),
    ("unknown", &[1, 3, 0x7fff, 9999]),
];

/// The first IKE_AUTH of a client: its own SA, selectors and requests with the identity and proof of `auth`.
fn client_auth(auth: &[Raw], attributes: &[u16], esp: &[Vec<Transform>]) -> Vec<Raw> {
    let mut payloads = auth.to_vec();
    for kind in [PayloadType::CP, PayloadType::SA, PayloadType::TS_I, PayloadType::TS_R] {
        payloads = without(&payloads, kind);
    }
    payloads.extend([
        Raw::new(PayloadType::CERTREQ, &[&[4][..], &[0x33; 400]].concat()),
        Raw::notify(NotifyType::MOBIKE_SUPPORTED, &[]),
        Raw::new(PayloadType::CP, &asks_for(attributes)),
        Raw::notify(NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED, &[]),
        Raw::notify(NotifyType::NON_FIRST_FRAGMENTS_ALSO, &[]),
        Raw::new(PayloadType::SA, &sa(3, &[0x6d, 1, 2, 3], esp)),
        Raw::new(PayloadType::TS_I, &everything()),
        Raw::new(PayloadType::TS_R, &everything()),
    ]);
    payloads
}

fn esp() -> Vec<Vec<Transform>> {
    vec![vec![(1, 12, 256), (3, 2, 0), (5, 0, 0)], vec![(1, 12, 256), (3, 12, 0), (5, 0, 0)]]
}

/// The attributes of a Configuration payload.
fn attributes(answer: &[Raw]) -> Vec<(u16, Vec<u8>)> {
    let body = &answer.iter().find(|payload| payload.kind == PayloadType::CP).unwrap().body;
    assert_eq!(body[0], 2, "CFG_REPLY");
    let mut rest = &body[4..];
    let mut all = vec![];
    while let [k0, k1, l0, l1, tail @ ..] = rest {
        let (value, next) = tail.split_at(u16::from_be_bytes([*l0, *l1]).into());
        all.push((u16::from_be_bytes([*k0, *k1]), value.to_vec()));
        rest = next;
    }
    all
}

fn pair_with_pool() -> (Connection, Connection, impl FnOnce(Connection, Connection) -> Pair) {
    let (left, right, pool) = with_pool("10.9.0.9", &["0.0.0.0"]);
    let make = move |left, right| {
        let mut pair = Pair::new(left, right);
        pair.right.add_pool(&pool);
        pair
    };
    (left, right, make)
}

#[test]
fn requests_for_addresses_are_answered() {
    for (name, asked) in ATTRIBUTES {
        let (left, right, make) = pair_with_pool();
        let (mut attack, auth) = Attack::half_open(make(left, right));
        let answer = attack.ask(ExchangeType::IKE_AUTH, &client_auth(&auth, asked, &esp()));
        let given = attributes(&answer);
        assert!(given.contains(&(1, vec![10, 9, 0, 1])), "{name}: {given:?}");
        assert!(given.contains(&(3, vec![10, 9, 9, 9])), "{name}: {given:?}");
        assert!(given.iter().all(|(kind, _)| [1, 3].contains(kind)), "{name}: {given:?}");
        assert_eq!(chosen(&answer), (2, vec![(1, 12, 256), (3, 12, 0), (5, 0, 0)]), "{name}");
        let selector = &answer.iter().find(|payload| payload.kind == PayloadType::TS_I).unwrap().body;
        assert_eq!(selector[12..20], [10, 9, 0, 1, 10, 9, 0, 1], "{name}: only its own address");
        attack.check_alive();
    }
}

/// Windows sends its long list of CAs in two fragments (RFC 7383).
#[test]
fn a_request_in_fragments_is_answered() {
    let (left, right, make) = pair_with_pool();
    let (mut attack, auth) = Attack::half_open(make(left, right));
    let inside = client_auth(&auth, ATTRIBUTES[0].1, &esp());
    let plaintext = forge::chain(&inside, PayloadType::NONE);
    let (first, second) = plaintext.split_at(500);
    let header = attack.forger.header(ExchangeType::IKE_AUTH, 1, false);
    let parts = [(1, inside[0].kind, first), (2, PayloadType::NONE, second)];
    let [none, answers] = parts.map(|(number, kind, part)| {
        let fragment = Some(RawFragment { number, total: 2 });
        let message = attack.forger.seal_with(&header, &[], fragment, kind, part);
        attack.give(&message)
    });
    assert!(none.is_empty());
    let (_, answer) = attack.forger.open(&answers[0]);
    assert!(attributes(&answer).contains(&(1, vec![10, 9, 0, 1])));
}

/// Without an AUTH payload, the client asks for EAP (RFC 7296 section 2.16).
#[test]
fn clients_without_proof_get_an_eap_request() {
    for (name, asked) in ATTRIBUTES {
        let (mut left, mut right, make) = pair_with_pool();
        left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::MsChapV2] });
        right.remote.method = by_eap(EapIdentity::Asked, vec![Method::MsChapV2]);
        let mut pair = make(left, right);
        pair.left.keys = Passwords::new(&[("left", "open")]);
        pair.right.keys = Passwords::new(&[("left", "open")]);
        let (mut attack, auth) = Attack::half_open(pair);
        assert!(auth.iter().all(|payload| payload.kind != PayloadType::AUTH));
        let answer = attack.ask(ExchangeType::IKE_AUTH, &client_auth(&auth, asked, &esp()));
        let kinds: Vec<_> = answer.iter().map(|payload| payload.kind).collect();
        assert_eq!(kinds, [PayloadType::ID_R, PayloadType::AUTH, PayloadType::EAP], "{name}");
        // A request (code 1) for the identity (type 1).
        let eap = &answer[2].body;
        assert_eq!((eap[0], eap[4]), (1, 1), "{name}");
    }
}

/// The payloads of Android's test, decrypted by it: AES-CBC-128 with SHA-1, all IPv4 addresses.
#[test]
fn recorded_payloads_of_android_s_ike_auth() {
    let mut recorded = chain(PayloadType::ID_I, &bytes(RAW_AUTH));
    let kinds: Vec<_> = recorded.iter().map(|payload| payload.kind).collect();
    use PayloadType as P;
    assert_eq!(kinds, [P::ID_I, P::ID_R, P::AUTH, P::SA, P::TS_I, P::TS_R, P::NOTIFY, P::NOTIFY]);
    let right_child = |connection: &mut Connection| {
        let child = Arc::make_mut(&mut connection.children[0]);
        let algorithms = ChildAlgorithms::EspSeparate(
            vec![CipherAlg::AesCbc(AesBits::B128)],
            vec![MacAlg::standard(MacKind::HmacSha1)],
        );
        child.proposals[0].algorithms = algorithms;
        child.proposals.truncate(1);
    };
    let mut right = connection("right", "left");
    right_child(&mut right);
    let (mut attack, auth) = Attack::half_open(Pair::new(connection("left", "right"), right));
    // Identities and proof of this session; the rest is recorded.
    recorded
        .splice(..3, auth.into_iter().filter(|payload| [P::ID_I, P::ID_R, P::AUTH].contains(&payload.kind)));
    let answer = attack.ask(ExchangeType::IKE_AUTH, &recorded);
    assert_eq!(chosen(&answer), (1, vec![(1, 12, 128), (3, 2, 0), (5, 0, 0)]));
    assert_eq!(attack.pair.right.children().len(), 1);
    attack.check_alive();
}

/// Payloads in clear text that begin with this one. Padding may follow the last.
fn chain(first: PayloadType, mut rest: &[u8]) -> Vec<Raw> {
    let (mut kind, mut all) = (first, vec![]);
    while kind != PayloadType::NONE {
        let (payload, next) = rest.split_at(u16::from_be_bytes([rest[2], rest[3]]).into());
        all.push(Raw::new(kind, &payload[4..]));
        (kind, rest) = (PayloadType(payload[0]), next);
    }
    all
}
