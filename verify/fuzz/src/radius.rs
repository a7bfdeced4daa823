//! Packets of RADIUS servers: responses, and requests to end sessions.

use crate::Target;
use crate::input::{Input, Script};
use casemate_crypto::{PasswordAlgorithms, SecretBytes};
use casemate_legacy::LEGACY;
use casemate_radius::{AccessRequest, Algorithms, Answer, Client, Dynamic, Packet, Retransmission, Server};
use casemate_test_support::TestRng;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) const TARGET: Target = Target {
    name: "radius",
    about: "RADIUS: attributes fill the packet, and only a response with a valid Message-Authenticator counts",
    max_len: 4_200,
    run,
    seeds,
    dictionary: &[],
};

const SECRET: &[u8] = b"a secret";

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (is_proven, code) = (input.flag(), input.u8());
    let body = input.rest();
    if let Ok(packet) = Packet::parse(body) {
        let len: usize = packet.attributes().map(|attribute| attribute.value.len() + 2).sum();
        assert_eq!(20 + len, usize::from(u16::from_be_bytes([body[2], body[3]])));
    }
    let secret = SecretBytes::new(SECRET);
    assert!(Dynamic::parse(body, &LEGACY, &secret).is_err(), "nobody has computed the authenticator");
    if let Ok(request) = Dynamic::parse(&prove_request(code, body), &LEGACY, &secret) {
        request.respond(request.request.clone().map(|_| ()), &LEGACY, &secret).unwrap();
    }
    check_response(is_proven, code, body);
}

/// Sends a request and receives `body` as its response, or as the attributes of a proven response.
fn check_response(is_proven: bool, code: u8, body: &[u8]) {
    let addr = SocketAddr::from(([192, 0, 2, 1], 1812));
    let server = Server {
        name: "server".into(),
        auth: addr,
        acct: addr,
        secret: SecretBytes::new(SECRET),
        nas_identifier: b"gateway".to_vec(),
    };
    let request = AccessRequest {
        user_name: b"carol".to_vec(),
        eap: vec![2, 1, 0, 5, 1],
        state: None,
        nas_addr: [192, 0, 2, 9].into(),
        called_id: String::new(),
        calling_id: String::new(),
    };
    let mut rng = TestRng::new(1);
    let mut algorithms = Algorithms { md5: &LEGACY, rng: &mut rng };
    let mut client = Client::new(vec![server], Retransmission::DEFAULT);
    client.authenticate(request, None, Duration::ZERO, &mut algorithms).unwrap();
    let sent = client.next_transmit().unwrap();
    let datagram = if is_proven { prove_response(code, body, &sent.packet) } else { body.to_vec() };
    let received = client.receive(0, addr, &datagram, &algorithms);
    match (received, client.next_event()) {
        (Ok(()), Some(event)) => {
            assert!(is_proven, "nobody has computed the authenticators");
            let Answer::Access(_, response) = event.answer else { panic!("another answer") };
            assert!(response.msk.is_none_or(|key| key.len() == 64));
            assert!(response.addrs.len() <= 2 && response.classes.len() <= 8);
        }
        (Err(_), None) => assert!(client.next_timeout().is_some(), "a discarded packet ends nothing"),
        other => panic!("{other:?}"),
    }
}

/// A packet with these attributes, whose authenticator is a digest of it (RFC 5176 section 2.3).
fn prove_request(code: u8, attributes: &[u8]) -> Vec<u8> {
    let head = head(code, 7, attributes.len());
    let digest = LEGACY.md5(&[&head, &[0; 16], attributes, SECRET]);
    [&head, &digest[..], attributes].concat()
}

/// A response with these attributes behind its Message-Authenticator.
fn prove_response(code: u8, attributes: &[u8], request: &[u8]) -> Vec<u8> {
    let mut attributes = [&[80, 18], &[0; 16][..], attributes].concat();
    let head = head(code, request[1], attributes.len());
    let mac = hmac(&[&head, &request[4..20], &attributes].concat());
    attributes[2..18].copy_from_slice(&mac);
    let digest = LEGACY.md5(&[&head, &request[4..20], &attributes, SECRET]);
    [&head, &digest[..], &attributes].concat()
}

fn head(code: u8, identifier: u8, attributes: usize) -> [u8; 4] {
    let [hi, lo] = (20 + attributes as u16).to_be_bytes();
    [code, identifier, hi, lo]
}

fn hmac(message: &[u8]) -> [u8; 16] {
    let pad = |with: u8| -> Vec<u8> {
        (0..64).map(|at| SECRET.get(at).copied().unwrap_or_default() ^ with).collect()
    };
    LEGACY.md5(&[&pad(0x5C), &LEGACY.md5(&[&pad(0x36), message])])
}

fn seeds() -> Vec<Vec<u8>> {
    let with = |code: u8, attributes: &[u8]| Script::default().u8(1).u8(code).bytes(attributes).finish();
    let key = [&[26, 58, 0, 0, 1, 55, 16, 52, 0x80, 1], &[3; 48][..]].concat();
    vec![
        with(2, &[79, 6, 3, 1, 0, 4, 8, 6, 10, 0, 0, 1, 27, 6, 0, 0, 0, 60, 25, 3, 1]),
        with(11, &[79, 7, 1, 1, 0, 5, 4, 24, 3, 9]),
        with(3, &[79, 6, 4, 1, 0, 4]),
        with(2, &key),
        with(40, &[1, 3, b'c', 44, 3, b'1']),
    ]
}
