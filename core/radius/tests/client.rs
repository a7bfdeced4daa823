//! The client against a server of the test: answers, forgeries, retransmission and the choice of the server.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_crypto::{PasswordAlgorithms, SecretBytes};
use casemate_legacy::LEGACY;
use casemate_radius::{
    AccessRequest, AccountingRequest, AccountingStatus, Algorithms, Answer, Client, Code, Dynamic,
    ErrorCause, Packet, RadiusFault, RequestId, Retransmission, SOURCE_PORTS, Server, ServerId, Silence,
    TerminateCause, Transmit, Usage, Verdict,
};
use casemate_test_support::TestRng;
use std::net::SocketAddr;
use std::time::Duration;

const SECRET: &[u8] = b"a secret of gateway and server";
const AUTH: u8 = 80;

fn server(number: u8) -> Server {
    let at = |port| SocketAddr::from(([192, 0, 2, number], port));
    Server {
        name: format!("server-{number}"),
        auth: at(1812),
        acct: at(1813),
        secret: SecretBytes::new(SECRET),
        nas_identifier: b"gateway".to_vec(),
    }
}

fn access(eap: &[u8]) -> AccessRequest {
    AccessRequest {
        user_name: b"carol".to_vec(),
        eap: eap.to_vec(),
        state: None,
        nas_addr: [192, 0, 2, 9].into(),
        called_id: "192.0.2.9[500]".into(),
        calling_id: "192.0.2.1[500]".into(),
    }
}

/// A client with its random numbers.
struct Fixture {
    client: Client,
    rng: TestRng,
}

impl Fixture {
    fn new(servers: u8) -> Self {
        let how = Retransmission { tries: 2, timeout: Duration::from_secs(2), base_permille: 1_500 };
        Self { client: Client::new((1..=servers).map(server).collect(), how), rng: TestRng::new(1) }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Client, &mut Algorithms<'_>) -> T) -> T {
        act(&mut self.client, &mut Algorithms { md5: &LEGACY, rng: &mut self.rng })
    }

    fn ask(&mut self, request: AccessRequest, at: Option<ServerId>) -> (RequestId, Transmit) {
        let id = self.with(|client, with| client.authenticate(request, at, Duration::ZERO, with)).unwrap();
        (id, self.client.next_transmit().unwrap())
    }

    fn receive(&mut self, from: SocketAddr, datagram: &[u8]) -> Result<(), RadiusFault> {
        self.receive_at(0, from, datagram)
    }

    fn receive_at(&mut self, port: u16, from: SocketAddr, datagram: &[u8]) -> Result<(), RadiusFault> {
        self.with(|client, with| client.receive(port, from, datagram, with))
    }

    fn sent_at(&mut self, seconds: u64) -> Vec<Transmit> {
        self.with(|client, with| client.handle_timeouts(Duration::from_secs(seconds), with));
        std::iter::from_fn(|| self.client.next_transmit()).collect()
    }
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 16] {
    let pad =
        |with: u8| -> Vec<u8> { (0..64).map(|at| key.get(at).copied().unwrap_or_default() ^ with).collect() };
    LEGACY.md5(&[&pad(0x5C), &LEGACY.md5(&[&pad(0x36), message])])
}

/// A response with a Message-Authenticator behind the other attributes, as FreeRADIUS 3.2.1 sends it.
fn respond(request: &[u8], code: u8, attributes: &[u8], secret: &[u8], has_message: bool) -> Vec<u8> {
    let request = Packet::parse(request).unwrap();
    let mut attributes = attributes.to_vec();
    if has_message {
        attributes.extend([AUTH, 18]);
        attributes.extend([0; 16]);
    }
    let [hi, lo] = (20 + attributes.len() as u16).to_be_bytes();
    let head = [code, request.identifier, hi, lo];
    if has_message {
        let mac = hmac(secret, &[&head, &request.authenticator[..], &attributes].concat());
        let at = attributes.len() - 16;
        attributes[at..].copy_from_slice(&mac);
    }
    let digest = LEGACY.md5(&[&head, &request.authenticator, &attributes, secret]);
    [&head, &digest[..], &attributes].concat()
}

fn attribute(packet: &Packet<'_>, kind: u8) -> Vec<Vec<u8>> {
    let of_kind = packet.attributes().filter(|attribute| attribute.kind == kind);
    of_kind.map(|attribute| attribute.value.to_vec()).collect()
}

#[test]
fn a_request_begins_with_its_message_authenticator_and_splits_eap() {
    let eap = vec![3; 600];
    let (_, sent) = Fixture::new(1).ask(access(&eap), None);
    let packet = Packet::parse(&sent.packet).unwrap();
    assert_eq!((packet.code, sent.to), (Code::ACCESS_REQUEST, server(1).auth));
    assert_eq!(packet.attributes().next().unwrap().kind, AUTH);
    let mut zeroed = sent.packet.clone();
    zeroed[22..38].fill(0);
    assert_eq!(attribute(&packet, AUTH), [hmac(SECRET, &zeroed).to_vec()]);
    let parts = attribute(&packet, 79);
    assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [253, 253, 94]);
    assert_eq!(attribute(&packet, 1), [b"carol".to_vec()]);
    assert_eq!(attribute(&packet, 61), [vec![0, 0, 0, 5]]);
}

#[test]
fn cve_2024_3596_only_a_proven_response_of_the_server_counts() {
    let mut it = Fixture::new(1);
    let (id, sent) = it.ask(access(&[2, 1, 0, 5, 1]), None);
    let other = SocketAddr::from(([192, 0, 2, 8], 1812));
    let attributes = [24, 4, 7, 7, 79, 6, 3, 1, 0, 4, 25, 3, 9];
    let good = respond(&sent.packet, 2, &attributes, SECRET, true);
    let mut wrong_id = good.clone();
    wrong_id[1] = wrong_id[1].wrapping_add(1);
    let mut changed = good.clone();
    changed[22] ^= 1;
    // A digest that is valid without the Message-Authenticator: what CVE-2024-3596 forges.
    let forged = respond(&sent.packet, 2, &attributes, SECRET, false);
    for (from, packet, fault) in [
        (other, &good, RadiusFault::Unexpected),
        (sent.to, &wrong_id, RadiusFault::Unexpected),
        (sent.to, &changed, RadiusFault::WrongAuthenticator),
        (sent.to, &forged, RadiusFault::NoMessageAuthenticator),
        (
            sent.to,
            &respond(&sent.packet, 2, &attributes, b"another secret", true),
            RadiusFault::WrongAuthenticator,
        ),
        (sent.to, &respond(&sent.packet, 5, &attributes, SECRET, true), RadiusFault::Unexpected),
    ] {
        assert_eq!(it.receive(from, packet), Err(fault));
        assert_eq!(it.client.next_event(), None);
    }
    it.receive(sent.to, &good).unwrap();
    let event = it.client.next_event().unwrap();
    let Answer::Access(_, response) = event.answer else { panic!() };
    assert_eq!((event.request, response.verdict), (id, Verdict::Accept));
    assert_eq!(response.eap, [3, 1, 0, 4]);
    assert_eq!((response.state, response.classes), (Some(vec![7, 7]), vec![vec![9]]));
    assert_eq!(it.receive(sent.to, &good), Err(RadiusFault::Unexpected), "a second time");
}

/// RFC 2865 section 5.44 allows one User-Name.
#[test]
fn a_server_names_one_user() {
    for (attributes, expected) in [
        (&[][..], None),
        (&[1, 3, b'a'], Some(&b"a"[..])),
        (&[1, 3, b'a', 1, 3, b'a'], Some(b"a")),
        (&[1, 3, b'a', 1, 3, b'b'], None),
        (&[1, 2], None),
        (&[1, 2, 1, 3, b'a'], None),
    ] {
        let mut it = Fixture::new(1);
        let (_, sent) = it.ask(access(&[2, 1, 0, 5, 1]), None);
        it.receive(sent.to, &respond(&sent.packet, 2, attributes, SECRET, true)).unwrap();
        let Answer::Access(_, response) = it.client.next_event().unwrap().answer else { panic!() };
        assert_eq!(response.user_name.as_deref(), expected, "{attributes:?}");
    }
}

#[test]
fn a_silent_server_is_asked_again_and_then_the_next_one() {
    let mut it = Fixture::new(2);
    let (id, sent) = it.ask(access(&[1]), None);
    assert_eq!(it.client.next_timeout(), Some(Duration::from_secs(2)));
    assert!(it.sent_at(1).is_empty());
    assert_eq!(it.sent_at(2), [sent], "the same packet");
    assert_eq!(it.client.next_timeout(), Some(Duration::from_secs(5)));
    let next = it.sent_at(5);
    assert_eq!((next.len(), next[0].to), (1, server(2).auth));
    let (first, after) = (server(1), Duration::from_secs(5));
    let silence = Silence { server: first.name, addr: first.auth, after };
    assert_eq!((it.client.next_silence(), it.client.next_silence()), (Some(silence), None));
    // Another request avoids the silent server.
    let other = it.with(|client, with| client.authenticate(access(&[1]), None, Duration::from_secs(5), with));
    assert_eq!(it.client.next_transmit().unwrap().to, server(2).auth);
    it.client.cancel(other.unwrap());
    it.sent_at(7);
    it.sent_at(10);
    let event = it.client.next_event().unwrap();
    assert_eq!((event.request, event.answer), (id, Answer::NoServer));
    assert_eq!(it.client.next_timeout(), None);
    assert_eq!(it.client.next_silence().unwrap().addr, server(2).auth);
}

#[test]
fn a_conversation_stays_with_its_server() {
    let mut it = Fixture::new(2);
    let (_, sent) = it.ask(access(&[1]), None);
    let challenge = respond(&sent.packet, 11, &[24, 3, 7, 79, 7, 1, 1, 0, 5, 4], SECRET, true);
    it.receive(sent.to, &challenge).unwrap();
    let Answer::Access(at, response) = it.client.next_event().unwrap().answer else { panic!() };
    let (id, sent) = it.ask(AccessRequest { state: response.state, ..access(&[1]) }, Some(at));
    assert_eq!(attribute(&Packet::parse(&sent.packet).unwrap(), 24), [vec![7]]);
    it.sent_at(2);
    assert!(it.sent_at(5).is_empty(), "no other server knows the State");
    let event = it.client.next_event().unwrap();
    assert_eq!((event.request, event.answer), (id, Answer::NoServer));
}

#[test]
fn all_half_open_ike_sas_of_a_gateway_have_identifiers_of_their_own() {
    let mut it = Fixture::new(1);
    let sent: Vec<_> = (0..4_096).map(|_| it.ask(access(&[1]), None)).collect();
    let slot = |sent: &Transmit| (sent.source_port, sent.packet[1]);
    let slots: std::collections::BTreeSet<_> = sent.iter().map(|(_, sent)| slot(sent)).collect();
    assert_eq!(slots.len(), 4_096);
    assert!(sent.iter().all(|(_, sent)| sent.source_port < SOURCE_PORTS));
    let full = it.with(|client, with| client.authenticate(access(&[1]), None, Duration::ZERO, with));
    assert_eq!(full, Err(RadiusFault::Full));
    // The response must come to the source port of its request.
    let (id, request) = &sent[777];
    let response = respond(&request.packet, 3, &[79, 6, 4, 1, 0, 4], SECRET, true);
    let other = (request.source_port + 1) % SOURCE_PORTS;
    assert_eq!(it.receive_at(other, request.to, &response), Err(RadiusFault::WrongAuthenticator));
    it.receive_at(request.source_port, request.to, &response).unwrap();
    assert_eq!(it.client.next_event().unwrap().request, *id);
    assert_eq!(slot(&it.ask(access(&[1]), None).1), slot(request));
    it.client.cancel(sent[3_000].0);
    assert_eq!(slot(&it.ask(access(&[1]), None).1), slot(&sent[3_000].1));
}

#[test]
fn without_a_server_the_answer_comes_at_once() {
    let mut it = Fixture::new(0);
    it.with(|client, with| client.authenticate(access(&[1]), None, Duration::ZERO, with)).unwrap();
    assert_eq!(it.client.next_event().unwrap().answer, Answer::NoServer);
}

fn record(status: AccountingStatus, usage: Usage) -> AccountingRequest {
    AccountingRequest {
        status,
        session_id: "1-1".into(),
        user_name: b"carol".to_vec(),
        classes: vec![vec![1, 2]],
        addrs: vec![[10, 77, 0, 9].into()],
        nas_addr: [192, 0, 2, 9].into(),
        called_id: "192.0.2.9[500]".into(),
        calling_id: "192.0.2.1[500]".into(),
        duration: Duration::from_secs(61),
        usage,
    }
}

#[test]
fn a_record_counts_beyond_32_bits() {
    let mut it = Fixture::new(1);
    let usage = Usage { input_bytes: (3 << 32) + 5, input_packets: 6, output_bytes: 7, output_packets: 8 };
    let record = record(AccountingStatus::Stop(TerminateCause::UserRequest), usage);
    it.with(|client, with| client.account(record, Duration::ZERO, with)).unwrap();
    let sent = it.client.next_transmit().unwrap();
    let packet = Packet::parse(&sent.packet).unwrap();
    assert_eq!((packet.code, sent.to), (Code::ACCOUNTING_REQUEST, server(1).acct));
    let number = |kind: u8| attribute(&packet, kind).iter().map(|value| value[3]).collect::<Vec<_>>();
    assert_eq!([40, 42, 52, 47, 43, 53, 48, 46, 49].map(number).concat(), [2, 5, 3, 6, 7, 0, 8, 61, 1]);
    assert_eq!((attribute(&packet, 25), attribute(&packet, 8)), (vec![vec![1, 2]], vec![vec![10, 77, 0, 9]]));
    // RFC 2866 section 3: the Request Authenticator is a digest of the packet.
    let digest = LEGACY.md5(&[&sent.packet[..4], &[0; 16], &sent.packet[20..], SECRET]);
    assert_eq!(packet.authenticator, digest);
    let wrong = respond(&sent.packet, 5, &[], b"another secret", false);
    assert_eq!(it.receive(sent.to, &wrong), Err(RadiusFault::WrongAuthenticator));
    it.receive(sent.to, &respond(&sent.packet, 5, &[], SECRET, false)).unwrap();
    assert_eq!(it.client.next_event().unwrap().answer, Answer::Accounted);
}

/// The sessions of records, in the order in which they are sent.
fn sessions(sent: &[Transmit]) -> Vec<String> {
    let session = |sent: &Transmit| attribute(&Packet::parse(&sent.packet).unwrap(), 44).concat();
    sent.iter().map(|sent| String::from_utf8(session(sent)).unwrap()).collect()
}

impl Fixture {
    fn stop_sessions(&mut self, count: usize) -> Vec<RequestId> {
        let stop = AccountingStatus::Stop(TerminateCause::NasReboot);
        let stops = (0..count).map(|number| AccountingRequest {
            session_id: number.to_string(),
            ..record(stop, Usage::default())
        });
        stops
            .map(|stop| self.with(|client, with| client.account(stop, Duration::ZERO, with)).unwrap())
            .collect()
    }
}

#[test]
fn records_wait_for_identifiers_and_none_is_lost() {
    let mut it = Fixture::new(1);
    it.stop_sessions(900);
    assert_eq!(it.client.records(), 900);
    let (mut recorded, mut answered) = (Vec::new(), 0);
    loop {
        let sent = it.sent_at(0);
        if sent.is_empty() {
            break;
        }
        assert!(sent.len() <= 256);
        recorded.extend(sessions(&sent));
        for request in &sent {
            it.receive(request.to, &respond(&request.packet, 5, &[], SECRET, false)).unwrap();
            answered += 1;
        }
    }
    assert_eq!(recorded, (0..900).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!((answered, it.client.records()), (900, 0));
    assert!(std::iter::from_fn(|| it.client.next_event()).all(|event| event.answer == Answer::Accounted));
}

#[test]
fn records_go_to_the_next_server_in_their_order_and_then_count_as_lost() {
    let mut it = Fixture::new(2);
    let ids = it.stop_sessions(300);
    assert_eq!(it.sent_at(0).len(), 256);
    assert_eq!(it.sent_at(2).len(), 256, "a second time");
    let next = it.sent_at(5);
    assert!(next.iter().all(|sent| sent.to == server(2).acct));
    assert_eq!(sessions(&next), (0..256).map(|number| number.to_string()).collect::<Vec<_>>());
    let mut lost = Vec::new();
    for seconds in 6..60 {
        it.sent_at(seconds);
        lost.extend(std::iter::from_fn(|| it.client.next_event()));
    }
    assert!(lost.iter().all(|event| event.answer == Answer::NotAccounted));
    assert_eq!(lost.iter().map(|event| event.request).collect::<Vec<_>>(), ids);
    assert_eq!((it.client.records(), it.client.next_timeout()), (0, None));
}

#[test]
fn the_room_for_records_is_bounded_and_interim_updates_leave_half_of_it() {
    let mut it = Fixture::new(1);
    let mut add = |status, name_len: usize| {
        let record =
            AccountingRequest { user_name: vec![b'c'; name_len], ..record(status, Usage::default()) };
        it.with(|client, with| client.account(record, Duration::ZERO, with)).is_ok()
    };
    let stop = AccountingStatus::Stop(TerminateCause::NasReboot);
    let interims = (0..200_000).take_while(|_| add(AccountingStatus::Interim, 5)).count();
    let stops = (0..200_000).take_while(|_| add(stop, 5)).count();
    assert_eq!((interims, stops), (65_536 + 256, 65_536));
    assert!(!add(AccountingStatus::Start, 5));
    // The same with long names, of which fewer have room.
    let mut it = Fixture::new(1);
    let mut add = |status| {
        let record = AccountingRequest { classes: vec![vec![1; 253]; 8], ..record(status, Usage::default()) };
        it.with(|client, with| client.account(record, Duration::ZERO, with)).is_ok()
    };
    let interims = (0..200_000).take_while(|_| add(AccountingStatus::Interim)).count();
    let stops = (0..200_000).take_while(|_| add(stop)).count();
    assert!((13_000..17_000).contains(&interims) && (13_000..17_000).contains(&stops), "{interims} {stops}");
}

fn dynamic(code: u8, attributes: &[u8]) -> Vec<u8> {
    let [hi, lo] = (20 + attributes.len() as u16).to_be_bytes();
    let head = [code, 9, hi, lo];
    let digest = LEGACY.md5(&[&head, &[0; 16], attributes, SECRET]);
    [&head, &digest[..], attributes].concat()
}

#[test]
fn a_disconnect_request_names_sessions_and_a_coa_request_is_refused() {
    let secret = SecretBytes::new(SECRET);
    let parse = |bytes: &[u8]| Dynamic::parse(bytes, &LEGACY, &secret);
    let request = parse(&dynamic(40, &[1, 7, b'c', b'a', b'r', b'o', b'l', 8, 6, 10, 77, 0, 9])).unwrap();
    let wanted = request.request.clone().unwrap();
    assert_eq!((wanted.user_name, wanted.addr), (Some(b"carol".to_vec()), Some([10, 77, 0, 9].into())));
    let response = request.respond(Err(ErrorCause::SessionNotFound), &LEGACY, &secret).unwrap();
    let nak = Packet::parse(&response).unwrap();
    assert_eq!((nak.code, attribute(&nak, 101)), (Code::DISCONNECT_NAK, vec![vec![0, 0, 1, 247]]));
    let response = request.respond(Ok(()), &LEGACY, &secret).unwrap();
    assert_eq!(Packet::parse(&response).unwrap().code, Code::DISCONNECT_ACK);
    // An attribute that is ignored could have excluded sessions.
    let odd = parse(&dynamic(40, &[1, 3, b'c', 5, 6, 0, 0, 0, 1])).unwrap();
    assert_eq!(odd.request, Err(ErrorCause::UnsupportedAttribute));
    assert_eq!(parse(&dynamic(40, &[])).unwrap().request, Err(ErrorCause::MissingAttribute));
    let coa = parse(&dynamic(43, &[1, 3, b'c'])).unwrap();
    assert_eq!(coa.request, Err(ErrorCause::UnsupportedExtension));
    let response = coa.respond(Err(ErrorCause::UnsupportedExtension), &LEGACY, &secret).unwrap();
    assert_eq!(Packet::parse(&response).unwrap().code, Code::COA_NAK);
    let mut changed = dynamic(40, &[1, 3, b'c']);
    changed[22] ^= 1;
    assert_eq!(parse(&changed), Err(RadiusFault::WrongAuthenticator));
    assert_eq!(parse(&dynamic(1, &[1, 3, b'c'])), Err(RadiusFault::Unexpected));
}
