//! Both roles of each method against each other.

mod support;

use casemate_eap::{EapFault, MAX_PACKETS, Method};
use casemate_wire::ike::EapCode;
use support::{
    AuthenticatorSide, IDENTITY, PASSWORD, Packet, PeerSide, Script, Secrets, Step, TYPE_IDENTITY, TYPE_NAK,
    TYPE_NOTIFICATION, converse,
};

fn secrets() -> Secrets {
    Secrets::with_password(IDENTITY, PASSWORD)
}

#[test]
fn each_method_authenticates_the_right_password() {
    for method in Method::WITH_PASSWORD {
        for known in [None, Some(IDENTITY)] {
            let mut authenticator = AuthenticatorSide::new(known, &[method], secrets());
            let outcome = converse(&mut PeerSide::carol(method), &mut authenticator);
            let result = outcome.authenticator.unwrap();
            assert_eq!((result.method, &*result.identity), (Some(method), IDENTITY));
            assert_eq!(result.msk.as_ref().map(|msk| msk.len()), method.derives_keys().then_some(64));
            assert_eq!(outcome.peer, Ok(result), "{method}");
        }
    }
}

#[test]
fn two_conversations_have_different_keys() {
    let run = || {
        let mut peer = PeerSide::carol(Method::MsChapV2);
        converse(&mut peer, &mut AuthenticatorSide::of_carol(Method::MsChapV2)).peer.unwrap().msk
    };
    // The same challenges, as the random numbers are the same.
    assert_eq!(run(), run());
    let mut other = AuthenticatorSide::of_carol(Method::MsChapV2).with_rng(Script(vec![9; 40]));
    let outcome = converse(&mut PeerSide::carol(Method::MsChapV2), &mut other);
    assert_ne!(outcome.peer.unwrap().msk, run());
}

/// Codes, EAP types, MSCHAPv2 operation codes and lengths of all packets.
fn shape(packets: &[Packet]) -> Vec<(EapCode, Vec<u8>, usize)> {
    let first = |packet: &Packet| packet.data.iter().take(2).copied().collect();
    packets.iter().map(|packet| (packet.code, first(packet), packet.data.len())).collect()
}

#[test]
fn an_unknown_identity_gets_the_same_packets_as_a_wrong_password() {
    for method in Method::WITH_PASSWORD {
        let run = |server: Secrets| {
            let mut peer = PeerSide::carol(method);
            let outcome = converse(&mut peer, &mut AuthenticatorSide::new(None, &[method], server));
            assert_eq!(outcome.peer, Err(EapFault::Refused), "{method}");
            (shape(&outcome.packets), outcome.authenticator.unwrap_err())
        };
        let (wrong, fault) = run(Secrets::with_password(IDENTITY, b"lion"));
        assert_eq!(fault, EapFault::WrongPassword);
        let (unknown, fault) = run(Secrets::with_password(b"dave", PASSWORD));
        assert_eq!(fault, EapFault::NoPassword);
        assert_eq!(wrong, unknown, "{method}");
        let (empty, fault) = run(Secrets::with_password(IDENTITY, b""));
        assert_eq!(fault, EapFault::NoPassword);
        assert_eq!(wrong, empty, "{method}");
    }
}

/// What the authenticator computes with instead of an unknown password is no password either.
#[test]
fn an_unknown_identity_has_no_password() {
    for method in Method::WITH_PASSWORD {
        for decoy in [&b"no password"[..], b"\0", b" "] {
            let mut peer = PeerSide::new(IDENTITY, &[method], Secrets::with_password(IDENTITY, decoy));
            let mut authenticator = AuthenticatorSide::new(None, &[method], Secrets::default());
            assert_eq!(converse(&mut peer, &mut authenticator).authenticator, Err(EapFault::NoPassword));
        }
    }
}

#[test]
fn a_peer_without_password_says_so() {
    for method in Method::WITH_PASSWORD {
        let mut peer = PeerSide::new(IDENTITY, &[method], Secrets::default());
        let outcome = converse(&mut peer, &mut AuthenticatorSide::of_carol(method));
        assert_eq!(outcome.peer, Err(EapFault::NoPassword));
    }
}

#[test]
fn a_nt_hash_is_enough_for_mschapv2_and_for_nothing_else() {
    // MD4 of "clientPass", RFC 2759 section 9.2.
    let hash = b"\x44\xEB\xBA\x8D\x53\x12\xB8\xD6\x11\x47\x44\x11\xF5\x69\x89\xAE";
    let run = |method, hash: &[u8]| {
        let mut peer = PeerSide::new(IDENTITY, &[method], Secrets::with_password(IDENTITY, b"clientPass"));
        let server = Secrets::with_hash(IDENTITY, hash);
        converse(&mut peer, &mut AuthenticatorSide::new(None, &[method], server)).authenticator.err()
    };
    assert_eq!(run(Method::MsChapV2, hash), None);
    assert_eq!(run(Method::MsChapV2, &[7; 16]), Some(EapFault::WrongPassword));
    assert_eq!(run(Method::Gtc, hash), Some(EapFault::NoPassword));
    assert_eq!(run(Method::Md5, hash), Some(EapFault::NoPassword));
}

#[test]
fn mschapv2_needs_a_password_in_utf_8() {
    let secrets = || Secrets::with_password(IDENTITY, b"\xFFtiger");
    let mut peer = PeerSide::new(IDENTITY, &[Method::MsChapV2], secrets());
    let outcome = converse(&mut peer, &mut AuthenticatorSide::of_carol(Method::MsChapV2));
    assert_eq!(outcome.peer, Err(EapFault::PasswordEncoding));
    let mut authenticator = AuthenticatorSide::new(None, &[Method::MsChapV2], secrets());
    let outcome = converse(&mut PeerSide::carol(Method::MsChapV2), &mut authenticator);
    assert_eq!(outcome.authenticator, Err(EapFault::PasswordEncoding));
    // The peer sees a wrong password.
    assert_eq!(outcome.peer, Err(EapFault::Refused));
    let mut peer = PeerSide::new(IDENTITY, &[Method::Gtc], secrets());
    let outcome = converse(&mut peer, &mut AuthenticatorSide::new(None, &[Method::Gtc], secrets()));
    assert!(outcome.peer.is_ok());
}

#[test]
fn methods_without_algorithms_fail_at_their_beginning() {
    for (method, first) in [
        (Method::MsChapV2, Some(EapFault::Unsupported)),
        (Method::Md5, Some(EapFault::Unsupported)),
        (Method::Gtc, None),
    ] {
        let step = AuthenticatorSide::new(Some(IDENTITY), &[method], secrets().without_algorithms()).start();
        assert_eq!(first, matches!(step, Step::Failed(_)).then(|| step.fault()));
        let mut peer = PeerSide::new(IDENTITY, &[method], secrets().without_algorithms());
        assert_eq!(first, converse(&mut peer, &mut AuthenticatorSide::of_carol(method)).peer.err());
    }
}

#[test]
fn a_domain_belongs_to_the_identity_but_not_to_the_proof() {
    let domain_identity = b"OFFICE\\carol";
    let secrets = || Secrets::with_password(domain_identity, PASSWORD);
    let mut peer = PeerSide::new(domain_identity, &[Method::MsChapV2], secrets());
    let mut authenticator = AuthenticatorSide::new(None, &[Method::MsChapV2], secrets());
    let outcome = converse(&mut peer, &mut authenticator);
    assert_eq!(outcome.authenticator.unwrap().identity, domain_identity);
    let mut authenticator =
        AuthenticatorSide::new(None, &[Method::MsChapV2], Secrets::with_password(IDENTITY, PASSWORD));
    let mut peer = PeerSide::new(domain_identity, &[Method::MsChapV2], secrets());
    assert_eq!(converse(&mut peer, &mut authenticator).authenticator, Err(EapFault::NoPassword));
}

/// The example of RFC 2759 section 9.2 as packets of draft-kamath-pppext-eap-mschapv2-02, for both roles.
#[test]
fn packets_of_the_example_in_rfc_2759() {
    let (identity, password, name) = (b"User", b"clientPass", b"casemate");
    let (authenticator_challenge, peer_challenge) = (b"[]|}{?/><,`!2&&(", b"!@#$%^&*()_+:3|~");
    let nt_response =
        b"\x82\x30\x9E\xCD\x8D\x70\x8B\x5E\xA0\x8F\xAA\x39\x81\xCD\x83\x54\x42\x33\x11\x4A\x3D\x85\xD6\xDF";
    let secrets = || Secrets::with_password(identity, password);
    let mut peer =
        PeerSide::new(identity, &[Method::MsChapV2], secrets()).with_rng(Script(peer_challenge.to_vec()));
    // The first random byte is the identifier.
    let mut authenticator = AuthenticatorSide::new(Some(identity), &[Method::MsChapV2], secrets())
        .with_rng(Script([&[0xFF], &authenticator_challenge[..]].concat()));
    let outcome = converse(&mut peer, &mut authenticator);
    assert_eq!(outcome.peer, outcome.authenticator);
    let success = b"S=407A5589115FD0D6209F510FE9C04566932CDA56 M=Welcome";
    let expected = [
        Packet::new(
            EapCode::REQUEST,
            0xFF,
            &[&[26, 1, 0xFF, 0, 29, 16], &authenticator_challenge[..], name].concat(),
        ),
        Packet::new(
            EapCode::RESPONSE,
            0xFF,
            &[&[26, 2, 0xFF, 0, 58, 49], &peer_challenge[..], &[0; 8], nt_response, &[0], identity].concat(),
        ),
        Packet::new(EapCode::REQUEST, 0, &[&[26, 3, 0xFF, 0, 56], &success[..]].concat()),
        Packet::new(EapCode::RESPONSE, 0, &[26, 3]),
        Packet::new(EapCode::SUCCESS, 0, &[]),
    ];
    assert_eq!(outcome.packets, expected);
}

/// Success messages of strongSwan (with the final zero byte), hostapd and FreeRADIUS, and lower-case digits.
#[test]
fn success_messages_of_other_implementations() {
    for (digits, rest) in [
        ("407A5589115FD0D6209F510FE9C04566932CDA56", " M=Welcome2strongSwan\0"),
        ("407A5589115FD0D6209F510FE9C04566932CDA56", " M=OK"),
        ("407A5589115FD0D6209F510FE9C04566932CDA56", ""),
        ("407a5589115fd0d6209f510fe9c04566932cda56", ""),
    ] {
        let secrets = Secrets::with_password(b"User", b"clientPass");
        let mut peer = PeerSide::new(b"User", &[Method::MsChapV2], secrets)
            .with_rng(Script(b"!@#$%^&*()_+:3|~".to_vec()));
        let challenge = [&[26, 1, 7, 0, 21, 16], &b"[]|}{?/><,`!2&&("[..]].concat();
        peer.request(7, &challenge).packet();
        let message = format!("S={digits}{rest}");
        let len = 4 + message.len() as u8;
        let request = [&[26, 3, 8, 0, len], message.as_bytes()].concat();
        assert_eq!(peer.request(8, &request).packet(), Packet::new(EapCode::RESPONSE, 8, &[26, 3]));
        let msk = match peer.receive(&Packet::new(EapCode::SUCCESS, 8, &[])) {
            Step::Succeeded(result) => result.msk.unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(msk.expose()[..4], [0xD5, 0xF0, 0xE9, 0x52]);
    }
}

/// RFC 3748 section 5.4 with the computation of RFC 1994: `printf '\x2atiger0123456789abcdef' | md5sum`.
#[test]
fn md5_response_of_a_known_challenge() {
    let mut peer = PeerSide::carol(Method::Md5);
    let response = peer.request(0x2A, &[&[4, 16], &b"0123456789abcdefmoon"[..]].concat()).packet();
    let value = b"\xB6\x3E\x46\x9E\x0A\xF3\x1B\x3F\xC7\xDC\x06\xBB\xE7\x2B\x5F\xAF";
    assert_eq!(response, Packet::new(EapCode::RESPONSE, 0x2A, &[&[4, 16], &value[..]].concat()));
}

#[test]
fn the_peer_refuses_a_method_and_gets_its_own() {
    let mut peer = PeerSide::carol(Method::Md5);
    let mut authenticator = AuthenticatorSide::new(None, &Method::WITH_PASSWORD, secrets());
    let outcome = converse(&mut peer, &mut authenticator);
    assert_eq!(outcome.authenticator.unwrap().method, Some(Method::Md5));
    assert_eq!(outcome.packets[3].data, [TYPE_NAK, Method::Md5.id()]);
}

#[test]
fn no_method_in_common() {
    let mut peer = PeerSide::carol(Method::Md5);
    let outcome = converse(&mut peer, &mut AuthenticatorSide::of_carol(Method::Gtc));
    assert_eq!((outcome.peer, outcome.authenticator), (Err(EapFault::Refused), Err(EapFault::NoMethod)));
}

#[test]
fn the_authenticator_prefers_its_own_order() {
    let mut peer = PeerSide::new(IDENTITY, &Method::WITH_PASSWORD, secrets());
    let mut authenticator = AuthenticatorSide::new(None, &[Method::Md5, Method::MsChapV2], secrets());
    assert_eq!(converse(&mut peer, &mut authenticator).peer.unwrap().method, Some(Method::Md5));
}

/// RFC 3748 section 5.3.1: for types that a peer does not know, also expanded ones.
#[test]
fn the_peer_refuses_unknown_types_with_its_methods() {
    for kind in [5, 13, 21, 25, 52, 253, 254, 255] {
        let mut peer = PeerSide::new(IDENTITY, &Method::WITH_PASSWORD, secrets());
        assert_eq!(peer.request(1, &[kind, 0, 0]).packet().data, [TYPE_NAK, 26, 6, 4], "{kind}");
        // The authenticator may propose another one.
        assert_eq!(peer.request(2, &[Method::Gtc.id()]).packet().data, [&[6], PASSWORD].concat());
    }
    for kind in [0, TYPE_NAK] {
        assert_eq!(PeerSide::carol(Method::Gtc).request(1, &[kind]).fault(), EapFault::NoMethod);
    }
    assert_eq!(PeerSide::new(IDENTITY, &[], secrets()).request(1, &[6]).fault(), EapFault::NoMethod);
}

#[test]
fn notifications_are_acknowledged_and_change_nothing() {
    let mut peer = PeerSide::carol(Method::Gtc);
    for identifier in 0..3 {
        let response = peer.request(identifier, &[&[TYPE_NOTIFICATION], &b"hello"[..]].concat()).packet();
        assert_eq!(response, Packet::new(EapCode::RESPONSE, identifier, &[TYPE_NOTIFICATION]));
    }
    assert_eq!(peer.request(3, &[TYPE_IDENTITY]).packet().data, [&[TYPE_IDENTITY], IDENTITY].concat());
    peer.request(4, &[Method::Gtc.id()]).packet();
    peer.request(5, &[TYPE_NOTIFICATION]).packet();
    assert!(matches!(peer.receive(&Packet::new(EapCode::SUCCESS, 5, &[])), Step::Succeeded(_)));
}

#[test]
fn an_identity_ends_at_a_zero_byte_and_has_a_maximum_length() {
    let run = |identity: &[u8]| {
        let mut authenticator = AuthenticatorSide::new(None, &[Method::Gtc], secrets());
        let request = authenticator.start().packet();
        assert_eq!(request.data, [TYPE_IDENTITY]);
        let step = authenticator.respond(request.identifier, &[&[TYPE_IDENTITY], identity].concat());
        match step {
            Step::Send(request) => {
                match authenticator.respond(request.identifier, &[&[6], PASSWORD].concat()) {
                    Step::Succeeded(result) => Ok(result.identity),
                    Step::Failed(fault) => Err(fault),
                    Step::Send(packet) => panic!("{packet:?}"),
                }
            }
            step => Err(step.fault()),
        }
    };
    assert_eq!(run(b"carol\0moon"), Ok(IDENTITY.to_vec()));
    assert_eq!(run(b"\0carol"), Err(EapFault::NoPassword));
    assert_eq!(run(&[b'c'; 253]), Err(EapFault::NoPassword));
    assert_eq!(run(&[b'c'; 254]), Err(EapFault::Malformed));
}

#[test]
fn a_conversation_has_a_maximum_number_of_packets() {
    let mut peer = PeerSide::carol(Method::Gtc);
    for _ in 0..MAX_PACKETS {
        peer.request(0, &[TYPE_NOTIFICATION]).packet();
    }
    assert_eq!(peer.request(0, &[TYPE_NOTIFICATION]).fault(), EapFault::TooManyPackets);
}
