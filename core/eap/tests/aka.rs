//! EAP-AKA and EAP-AKA' with both roles against each other, and with the faults of peers and servers.

// Helpers outside of #[test] functions.
#![allow(clippy::indexing_slicing)]

mod support;

use casemate_eap::{EapFault, Method, NetworkSequence, SequenceNumbers, Subscriber, UsimSequence};
use casemate_wire::ike::EapCode;
use std::cell::RefCell;
use support::{AuthenticatorSide, Outcome, Packet, PeerSide, Secrets, Step, converse, converse_with};

const IDENTITY: &[u8] = b"0232010000000000@nai.epc.mnc001.mcc232.3gppnetwork.org";
const K: [u8; 16] = [0x11; 16];
const OPC: [u8; 16] = [0x22; 16];
const METHODS: [Method; 2] = [Method::Aka, Method::AkaPrime];

const CHALLENGE: u8 = 1;
const AUTHENTICATION_REJECT: u8 = 2;
const SYNCHRONIZATION_FAILURE: u8 = 4;
const ID: u8 = 5;
const NOTIFICATION: u8 = 12;
const CLIENT_ERROR: u8 = 14;

const AT_RAND: u8 = 1;
const AT_AUTN: u8 = 2;
const AT_RES: u8 = 3;
const AT_MAC: u8 = 11;
const AT_KDF_INPUT: u8 = 23;
const AT_KDF: u8 = 24;
const AT_CHECKCODE: u8 = 134;
const AT_RESULT_IND: u8 = 135;
const AT_BIDDING: u8 = 136;

/// Sequence numbers of one side.
#[derive(Default)]
struct Numbers(RefCell<(NetworkSequence, Option<UsimSequence>)>);

impl SequenceNumbers for Numbers {
    fn change_network(&self, _identity: &[u8], change: &mut dyn FnMut(&mut NetworkSequence)) {
        change(&mut self.0.borrow_mut().0);
    }

    fn change_usim(&self, _identity: &[u8], change: &mut dyn FnMut(&mut UsimSequence)) {
        change(self.0.borrow_mut().1.get_or_insert(UsimSequence::NEW));
    }
}

fn with_keys(identity: &[u8], k: [u8; 16]) -> Secrets {
    let subscriber = Subscriber::new(&k, &OPC, Subscriber::DEFAULT_AMF);
    Secrets::with_subscriber(identity, subscriber, Box::new(Numbers::default()))
}

fn secrets() -> Secrets {
    with_keys(IDENTITY, K)
}

fn peer(methods: &[Method]) -> PeerSide {
    PeerSide::new(IDENTITY, methods, secrets())
}

fn server(methods: &[Method]) -> AuthenticatorSide {
    AuthenticatorSide::new(None, methods, secrets())
}

/// Sequence number of the home network.
fn set_sqn(server: &AuthenticatorSide, sqn: u64) {
    let numbers = server.secrets.numbers();
    numbers.change_network(IDENTITY, &mut |network| *network = NetworkSequence::new(sqn));
}

/// The attributes of a packet: type and value.
fn attributes(packet: &Packet) -> Vec<(u8, Vec<u8>)> {
    let mut rest = &packet.data[4..];
    let mut found = Vec::new();
    while let [kind, units, ..] = *rest {
        let (attribute, later) = rest.split_at(usize::from(units) * 4);
        found.push((kind, attribute[2..].to_vec()));
        rest = later;
    }
    found
}

fn kinds(packet: &Packet) -> Vec<u8> {
    attributes(packet).into_iter().map(|(kind, _)| kind).collect()
}

/// Subtypes of the messages of the method.
fn subtypes(outcome: &Outcome) -> Vec<u8> {
    let of_method = |packet: &&Packet| matches!(packet.data.first(), Some(23 | 50));
    outcome.packets.iter().filter(of_method).map(|packet| packet.data[1]).collect()
}

#[test]
fn both_sides_derive_the_same_key() {
    for method in METHODS {
        for known in [None, Some(IDENTITY)] {
            let mut server = AuthenticatorSide::new(known, &[method], secrets());
            let outcome = converse(&mut peer(&[method]), &mut server);
            let done = outcome.authenticator.as_ref().unwrap();
            assert_eq!((done.method, &*done.identity), (Some(method), IDENTITY));
            assert_eq!(outcome.peer.as_ref(), Ok(done));
            assert_eq!(subtypes(&outcome), [CHALLENGE, CHALLENGE, NOTIFICATION, NOTIFICATION]);
        }
    }
}

#[test]
fn another_key_of_the_network_is_rejected_by_the_peer() {
    for method in METHODS {
        let mut server = AuthenticatorSide::new(None, &[method], with_keys(IDENTITY, [0x12; 16]));
        let outcome = converse(&mut peer(&[method]), &mut server);
        assert_eq!(outcome.peer, Err(EapFault::WrongAuthenticator));
        assert_eq!(outcome.authenticator, Err(EapFault::Refused));
        assert_eq!(subtypes(&outcome), [CHALLENGE, AUTHENTICATION_REJECT]);
    }
}

#[test]
fn a_wrong_res_is_refused_with_a_notification() {
    for method in METHODS {
        let outcome = converse_with(&mut peer(&[method]), &mut server(&[method]), |index, packet| {
            if index == 3 {
                // RES, which AT_MAC protects as well.
                packet.data[8] ^= 1;
            }
        });
        assert_eq!(outcome.authenticator, Err(EapFault::WrongPassword));
        assert_eq!(outcome.peer, Err(EapFault::Refused));
        assert_eq!(subtypes(&outcome), [CHALLENGE, CHALLENGE, NOTIFICATION, NOTIFICATION]);
    }
}

#[test]
fn used_sequence_numbers_are_resynchronised_once() {
    for method in METHODS {
        let (mut peer, mut first) = (peer(&[method]), server(&[method]));
        set_sqn(&first, 32 * 1000);
        assert!(converse(&mut peer, &mut first).peer.is_ok());
        // A home network that has lost its numbers.
        let (mut peer, mut second) = (peer.again(IDENTITY, &[method]), server(&[method]));
        let outcome = converse(&mut peer, &mut second);
        assert!(outcome.peer.is_ok());
        assert_eq!(outcome.peer, outcome.authenticator);
        assert_eq!(subtypes(&outcome)[..3], [CHALLENGE, SYNCHRONIZATION_FAILURE, CHALLENGE]);
        // It has stored what it learned: SEQ and IND of the first home network, and the next ones.
        let mut sqn = 0;
        second.secrets.numbers().change_network(IDENTITY, &mut |network| sqn = network.sqn());
        assert_eq!(sqn, 32 * 1000 + 2 * 33);
        let mut third = second.again(None, &[method]);
        let outcome = converse(&mut peer.again(IDENTITY, &[method]), &mut third);
        assert_eq!(subtypes(&outcome), [CHALLENGE, CHALLENGE, NOTIFICATION, NOTIFICATION]);
    }
}

#[test]
fn a_used_vector_is_not_accepted_again() {
    for method in METHODS {
        let mut peer = peer(&[method]);
        let mut server = AuthenticatorSide::new(Some(IDENTITY), &[method], secrets());
        let challenge = server.start().packet();
        assert_eq!(peer.receive(&challenge).packet().data[1], CHALLENGE);
        let mut again = peer.again(IDENTITY, &[method]);
        assert_eq!(again.receive(&challenge).packet().data[1], SYNCHRONIZATION_FAILURE);
        // Neither this time nor for ever.
        assert_eq!(again.receive(&challenge).packet().data[1], CLIENT_ERROR);
        let failure = Packet::new(EapCode::FAILURE, 0, &[]);
        assert_eq!(again.receive(&failure).fault(), EapFault::SequenceNumber);
    }
}

#[test]
fn a_forged_synchronisation_failure_changes_no_number() {
    for method in METHODS {
        let mut server = AuthenticatorSide::new(Some(IDENTITY), &[method], secrets());
        let request = server.start().packet();
        let kdf = if method == Method::AkaPrime { &[AT_KDF, 1, 0, 1][..] } else { &[] };
        let auts = [&[method.id(), SYNCHRONIZATION_FAILURE, 0, 0, 4, 4][..], &[7; 14], kdf].concat();
        assert_eq!(server.respond(request.identifier, &auts).packet().data[1], NOTIFICATION);
        let mut sqn = 0;
        server.secrets.numbers().change_network(IDENTITY, &mut |network| sqn = network.sqn());
        assert_eq!(sqn, 33, "that of the first vector");
    }
}

/// The identity is no subscriber: a pseudonym of another server.
#[test]
fn the_permanent_identity_is_asked_for_and_the_messages_are_protected() {
    for method in METHODS {
        let run = |change: fn(usize, &mut Packet)| {
            let mut server = server(&[method]);
            let mut packets = 0;
            converse_with(&mut peer(&[method]), &mut server, |index, packet| {
                packets = index;
                if index == 1 {
                    packet.data = [&[1][..], b"2pseudonym"].concat();
                }
                change(index, packet);
            })
        };
        let outcome = run(|_, _| {});
        assert_eq!(outcome.authenticator.as_ref().unwrap().identity, IDENTITY);
        assert_eq!(outcome.peer, outcome.authenticator);
        assert_eq!(subtypes(&outcome), [ID, ID, CHALLENGE, CHALLENGE, NOTIFICATION, NOTIFICATION]);
        // The request asked for something else on its way: AT_ANY_ID_REQ.
        let outcome = run(|index, packet| {
            if index == 2 {
                packet.data[4] = 13
            }
        });
        assert_eq!(outcome.peer, Err(EapFault::WrongAuthenticator));
        assert_eq!(outcome.authenticator, Err(EapFault::Refused));
    }
}

#[test]
fn an_unknown_subscriber_is_refused() {
    let mut server = AuthenticatorSide::new(None, &[Method::Aka], with_keys(b"other", K));
    let outcome = converse(&mut peer(&[Method::Aka]), &mut server);
    assert_eq!((outcome.peer, outcome.authenticator), (Err(EapFault::Refused), Err(EapFault::NoPassword)));
    let mut peer = PeerSide::new(IDENTITY, &[Method::Aka], with_keys(b"other", K));
    assert_eq!(converse(&mut peer, &mut self::server(&[Method::Aka])).peer, Err(EapFault::NoPassword));
}

/// A peer may not prove another identity than the configuration demands.
#[test]
fn a_required_identity_is_not_replaced() {
    let mut server = AuthenticatorSide::new(Some(b"admin"), &[Method::Aka], secrets());
    let outcome = converse(&mut peer(&[Method::Aka]), &mut server);
    assert_eq!(outcome.authenticator, Err(EapFault::OtherIdentity));
}

#[test]
fn each_identity_is_asked_for_once_and_in_order() {
    let ask = |kind| [23, ID, 0, 0, kind, 1, 0, 0];
    let (any, full, permanent) = (13, 17, 10);
    let mut asked = peer(&[Method::Aka]);
    for kind in [any, full, permanent] {
        let response = asked.request(kind, &ask(kind)).packet();
        assert_eq!(attributes(&response)[0].1[2..2 + IDENTITY.len()], *IDENTITY);
    }
    for order in [[any, any], [full, any], [permanent, full], [permanent, permanent]] {
        let mut asked = peer(&[Method::Aka]);
        asked.request(1, &ask(order[0])).packet();
        assert_eq!(asked.request(2, &ask(order[1])).packet().data[1], CLIENT_ERROR);
    }
    let mut two = peer(&[Method::Aka]);
    assert_eq!(two.request(1, &[23, ID, 0, 0, 13, 1, 0, 0, 10, 1, 0, 0]).packet().data[1], CLIENT_ERROR);
}

#[test]
fn no_bidding_down_from_aka_prime() {
    let both = [Method::AkaPrime, Method::Aka];
    // The first proposal of EAP-AKA' is lost: the authenticator believes that the peer has refused it.
    let mut server = server(&both);
    let mut peer = peer(&both);
    let request = server.start().packet();
    let identity = peer.receive(&request).packet();
    let prime = server.receive(&identity).packet();
    assert_eq!(prime.data[0], Method::AkaPrime.id());
    let challenge = server.respond(prime.identifier, &[3, Method::Aka.id()]).packet();
    assert!(kinds(&challenge).contains(&AT_BIDDING));
    let response = peer.receive(&challenge).packet();
    assert_eq!(response.data[1], AUTHENTICATION_REJECT);
    assert_eq!(server.receive(&response).fault(), EapFault::Refused);
    let failure = Packet::new(EapCode::FAILURE, response.identifier, &[]);
    assert_eq!(peer.receive(&failure).fault(), EapFault::BiddingDown);
    // A peer that has only EAP-AKA ignores the attribute.
    let outcome = converse(&mut self::peer(&[Method::Aka]), &mut self::server(&both));
    assert_eq!(outcome.peer.unwrap().method, Some(Method::Aka));
}

/// A challenge of EAP-AKA' with these key derivation functions in place of the first one.
fn with_kdfs(challenge: &Packet, functions: &[u8]) -> Packet {
    let mut data = challenge.data[..4].to_vec();
    for (kind, value) in attributes(challenge) {
        if kind == AT_KDF {
            functions.iter().for_each(|function| data.extend([AT_KDF, 1, 0, *function]));
        } else {
            data.extend([kind, ((value.len() + 2) / 4) as u8]);
            data.extend(value);
        }
    }
    Packet { data, ..challenge.clone() }
}

#[test]
fn key_derivation_functions_are_negotiated() {
    let challenge = || {
        let mut server = AuthenticatorSide::new(Some(IDENTITY), &[Method::AkaPrime], secrets());
        server.start().packet()
    };
    let subtype = |peer: &mut PeerSide, functions: &[u8]| {
        peer.receive(&with_kdfs(&challenge(), functions)).packet().data[1]
    };
    let new = || peer(&[Method::AkaPrime]);
    // The default is not the first one: the peer asks for it.
    let mut asked = new();
    let response = asked.receive(&with_kdfs(&challenge(), &[2, 1])).packet();
    assert_eq!(response.data, [50, CHALLENGE, 0, 0, AT_KDF, 1, 0, 1]);
    // The list must not differ from what was asked for; AT_MAC of the changed challenge is wrong in any case.
    for changed in [&[1, 1, 2][..], &[1], &[1, 2], &[2, 1]] {
        let mut asked = new();
        asked.receive(&with_kdfs(&challenge(), &[2, 1])).packet();
        assert_eq!(subtype(&mut asked, changed), CLIENT_ERROR, "{changed:?}");
    }
    for unacceptable in [&[][..], &[2], &[2, 3], &[1, 1], &[2, 2, 1], &[1, 2, 2]] {
        assert_eq!(subtype(&mut new(), unacceptable), AUTHENTICATION_REJECT, "{unacceptable:?}");
    }
}

#[test]
fn an_empty_network_name_is_no_network() {
    let mut server = AuthenticatorSide::new(Some(IDENTITY), &[Method::AkaPrime], secrets());
    let challenge = server.start().packet();
    assert!(kinds(&challenge).starts_with(&[AT_RAND, AT_AUTN, AT_KDF, AT_KDF_INPUT]));
    // Behind RAND, AUTN and AT_KDF: AT_KDF_INPUT with its length.
    let at = 4 + 20 + 20 + 4;
    assert_eq!(challenge.data[at..at + 4], [AT_KDF_INPUT, 2, 0, 4]);
    let empty = [&challenge.data[..at], &[AT_KDF_INPUT, 1, 0, 0], &challenge.data[at + 8..]].concat();
    let response = peer(&[Method::AkaPrime]).request(challenge.identifier, &empty).packet();
    assert_eq!(response.data[1], AUTHENTICATION_REJECT);
}

#[test]
fn success_is_not_accepted_before_the_notification() {
    for method in METHODS {
        let mut server = AuthenticatorSide::new(Some(IDENTITY), &[method], secrets());
        let mut peer = peer(&[method]);
        let challenge = server.start().packet();
        let response = peer.receive(&challenge).packet();
        assert!(kinds(&response).ends_with(&[AT_CHECKCODE, AT_RESULT_IND, AT_MAC]));
        let success = Packet::new(EapCode::SUCCESS, 0, &[]);
        assert_eq!(peer.receive(&success).fault(), EapFault::EarlySuccess);
        let mut early = self::peer(&[method]);
        assert_eq!(early.receive(&success).fault(), EapFault::EarlySuccess);
        let notification = [method.id(), NOTIFICATION, 0, 0, 12, 1, 0x80, 0];
        assert_eq!(early.again(IDENTITY, &[method]).request(1, &notification).packet().data[1], CLIENT_ERROR);
    }
}

#[test]
fn an_unprotected_notification_is_no_success() {
    for method in METHODS {
        let mut server = AuthenticatorSide::new(Some(IDENTITY), &[method], secrets());
        let mut peer = peer(&[method]);
        peer.receive(&server.start().packet()).packet();
        let notification = [method.id(), NOTIFICATION, 0, 0, 12, 1, 0x80, 0];
        assert_eq!(peer.request(9, &notification).packet().data[1], CLIENT_ERROR);
        let success = Packet::new(EapCode::SUCCESS, 9, &[]);
        assert_eq!(peer.receive(&success).fault(), EapFault::EarlySuccess);
    }
}

/// Fast re-authentication is not supported: a peer that has no such identity is asked for nothing.
#[test]
fn re_authentication_is_refused() {
    let mut peer = peer(&[Method::Aka]);
    assert_eq!(peer.request(1, &[23, 13, 0, 0]).packet().data, [23, CLIENT_ERROR, 0, 0, 22, 1, 0, 0]);
    let failure = Packet::new(EapCode::FAILURE, 1, &[]);
    assert_eq!(peer.receive(&failure).fault(), EapFault::OutOfState);
}

/// CVE-2023-26463 and similar faults: attributes whose lengths do not fit.
#[test]
fn attributes_with_wrong_lengths_are_refused() {
    let mut lists: Vec<Vec<u8>> = vec![
        vec![AT_RAND, 0],
        vec![AT_RAND, 0, 0, 0],
        vec![200, 0, 0, 0],
        vec![AT_RAND],
        vec![AT_RAND, 1, 0, 0],
        vec![AT_RAND, 5, 0, 0],
        vec![AT_AUTN, 255],
        vec![AT_MAC, 1, 0, 0],
        [&[AT_MAC, 6][..], &[0; 22]].concat(),
        [&[4, 3][..], &[0; 10]].concat(),
        [&[4, 5][..], &[0; 18]].concat(),
        vec![14, 1, 0, 1],
        vec![14, 2, 0, 5, 0, 0, 0, 0],
        vec![14, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![12, 2, 0, 0, 0, 0, 0, 0],
        vec![10, 2, 0, 0, 0, 0, 0, 0],
        vec![AT_KDF, 2, 0, 1, 0, 0, 0, 0],
        vec![AT_KDF_INPUT, 1, 0, 1],
        // AT_PADDING outside of AT_ENCR_DATA, and an unknown attribute that may not be skipped.
        vec![6, 1, 0, 0],
        vec![99, 1, 0, 0],
        [&[AT_RAND, 5][..], &[0; 18], &[AT_RAND, 5], &[0; 18]].concat(),
        [AT_KDF, 1, 0, 1].repeat(17),
    ];
    // RES of no bits, of three bytes, of 17 bytes, of 33 bits, and with too much padding.
    for (units, bits) in [(1, 0_u16), (2, 24), (6, 136), (3, 33), (4, 32)] {
        let mut res = [&[AT_RES, units][..], &bits.to_be_bytes()].concat();
        res.resize(usize::from(units) * 4, 0);
        lists.push(res);
    }
    for method in METHODS {
        for attributes in &lists {
            let data = [&[method.id(), CHALLENGE, 0, 0], &**attributes].concat();
            let response = peer(&[method]).request(1, &data).packet();
            assert_eq!(response.data[1], CLIENT_ERROR, "{attributes:?}");
            let mut server = AuthenticatorSide::new(Some(IDENTITY), &[method], secrets());
            let identifier = server.start().packet().identifier;
            assert_eq!(server.respond(identifier, &data).fault(), EapFault::Malformed, "{attributes:?}");
        }
        for short in [&[][..], &[1], &[1, 0]] {
            let data = [&[method.id()], short].concat();
            assert_eq!(peer(&[method]).request(1, &data).packet().data[1], CLIENT_ERROR);
        }
    }
}

#[test]
fn each_bit_of_a_challenge_is_protected() {
    for method in METHODS {
        let mut server = AuthenticatorSide::new(Some(IDENTITY), &[method], secrets());
        let challenge = server.start().packet();
        for bit in 8..challenge.data.len() * 8 {
            let mut wrong = challenge.clone();
            wrong.data[bit / 8] ^= 1 << (bit % 8);
            let step = peer(&[method]).receive(&wrong);
            // Another subtype may be a message that is answered, but none that leads to RES.
            if let Step::Send(response) = step {
                assert!(!kinds(&response).contains(&AT_RES), "{method} {bit}");
            }
        }
        assert!(kinds(&peer(&[method]).receive(&challenge).packet()).contains(&AT_RES));
    }
}

#[test]
fn each_bit_of_the_response_is_protected() {
    for method in METHODS {
        for bit in 8.. {
            let mut server = AuthenticatorSide::new(Some(IDENTITY), &[method], secrets());
            let mut response = peer(&[method]).receive(&server.start().packet()).packet();
            if bit >= response.data.len() * 8 {
                break;
            }
            response.data[bit / 8] ^= 1 << (bit % 8);
            match server.receive(&response) {
                Step::Send(request) => {
                    assert_eq!(request.data.get(4..8), Some(&[12, 1, 0x40, 0][..]), "{bit}")
                }
                Step::Failed(_) => {}
                Step::Succeeded(_) => panic!("{method} {bit}"),
            }
        }
    }
}
