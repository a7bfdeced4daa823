//! Bugs that other implementations of EAP had, one test for each, named after its CVE or report.

mod support;

use casemate_eap::{EapFault, MAX_PACKETS, Method};
use casemate_wire::ike::EapCode;
use support::{
    AuthenticatorSide, IDENTITY, PASSWORD, Packet, PeerSide, Script, Secrets, Step, TYPE_IDENTITY, TYPE_NAK,
    TYPE_NOTIFICATION, converse, converse_with,
};

const MSCHAPV2: u8 = 26;
const CHALLENGE: [u8; 16] = [0x11; 16];

/// A challenge of MSCHAPv2 with a name.
fn challenge() -> Vec<u8> {
    [&[MSCHAPV2, 1, 7, 0, 25, 16], &CHALLENGE[..], b"moon"].concat()
}

/// A packet of MSCHAPv2 with a header that fits.
fn mschapv2(op: u8, body: &[u8]) -> Vec<u8> {
    let [hi, lo] = (body.len() as u16 + 4).to_be_bytes();
    [&[MSCHAPV2, op, 7, hi, lo], body].concat()
}

fn success() -> Packet {
    Packet::new(EapCode::SUCCESS, 7, &[])
}

/// strongSwan took EAP-Success for the end of a conversation before the method had finished, and the
/// responder with it for authenticated. wpa_supplicant (CVE-2023-52160) took one before the inner method of
/// PEAP.
#[test]
fn cve_2021_45079_early_success() {
    for method in Method::WITH_PASSWORD {
        let mut peer = PeerSide::carol(method);
        assert_eq!(peer.receive(&success()).fault(), EapFault::EarlySuccess, "{method}");
        let mut peer = PeerSide::carol(method);
        peer.request(1, &[TYPE_IDENTITY]).packet();
        assert_eq!(peer.receive(&success()).fault(), EapFault::EarlySuccess, "{method}");
        let mut peer = PeerSide::carol(method);
        peer.request(1, &[99]).packet();
        assert_eq!(peer.receive(&success()).fault(), EapFault::EarlySuccess, "{method}");
    }
    let mut peer = PeerSide::carol(Method::MsChapV2);
    peer.request(1, &challenge()).packet();
    assert_eq!(peer.receive(&success()).fault(), EapFault::EarlySuccess);
    // Afterwards the conversation has ended.
    assert_eq!(peer.receive(&success()).fault(), EapFault::OutOfState);
}

/// The peer acknowledged a failure, and the authenticator changes its mind.
#[test]
fn success_after_a_failure_request() {
    let mut peer = PeerSide::carol(Method::MsChapV2);
    peer.request(1, &challenge()).packet();
    let failure = mschapv2(4, b"E=691 R=0 C=00112233445566778899AABBCCDDEEFF V=3 M=no");
    assert_eq!(peer.request(2, &failure).packet().data, [MSCHAPV2, 4]);
    assert_eq!(peer.receive(&success()).fault(), EapFault::EarlySuccess);
}

/// strongSwan's server took the final success response of the peer as the first one, without a proof.
#[test]
fn cve_2015_8023_mschapv2_success_response_without_a_proof() {
    let full = mschapv2(3, b"S=407A5589115FD0D6209F510FE9C04566932CDA56");
    for data in [&[MSCHAPV2, 3][..], &[MSCHAPV2, 3, 7, 0, 4], &full] {
        let mut authenticator = AuthenticatorSide::of_carol(Method::MsChapV2).with_rng(Script(vec![7]));
        let request = authenticator.start().packet();
        let fault = authenticator.respond(request.identifier, data).fault();
        assert!(matches!(fault, EapFault::OutOfState | EapFault::Malformed), "{fault}");
        assert_eq!(authenticator.respond(request.identifier, data).fault(), EapFault::OutOfState);
    }
}

/// The same after a wrong response, which the authenticator has refused.
#[test]
fn mschapv2_success_response_after_a_failure_request() {
    let mut authenticator = AuthenticatorSide::of_carol(Method::MsChapV2).with_rng(Script(vec![7]));
    let first = authenticator.start().packet();
    let wrong = [&[49], &[0; 49][..], IDENTITY].concat();
    let failure = authenticator.respond(first.identifier, &mschapv2(2, &wrong)).packet();
    assert_eq!(failure.data[..2], [MSCHAPV2, 4]);
    assert_eq!(authenticator.respond(failure.identifier, &[MSCHAPV2, 3]).fault(), EapFault::OutOfState);
}

/// strongSwan computed the length of the message as that of the packet minus that of the header, without
/// comparing them, and copied the message into a buffer of that length.
#[test]
fn cve_2025_62291_mschapv2_requests_shorter_than_their_header() {
    for op in [3, 4] {
        for len in 0..5 {
            for claimed in [0, len, 4, 5, 0xFFFF] {
                let mut peer = PeerSide::carol(Method::MsChapV2);
                peer.request(1, &challenge()).packet();
                let [hi, lo] = (claimed as u16).to_be_bytes();
                let step = peer.request(2, &[MSCHAPV2, op, 7, hi, lo, b'E'][..1 + len]);
                let is_right = len == 4 && claimed == 4 && op == 4;
                match step {
                    Step::Send(packet) if is_right => assert_eq!(packet.data, [MSCHAPV2, 4]),
                    step => assert_eq!(step.fault(), EapFault::Malformed, "{op} {len} {claimed}"),
                }
            }
        }
    }
}

/// All packets of all methods, cut at each length and with each possible end: too short is a fault.
#[test]
fn truncated_packets() {
    let run = |method, cut_packet, len| {
        let mut peer = PeerSide::carol(method);
        converse_with(&mut peer, &mut AuthenticatorSide::new(None, &[method], secrets()), |at, packet| {
            if at == cut_packet {
                packet.data.truncate(len);
            }
        })
    };
    for method in Method::WITH_PASSWORD {
        let whole = run(method, usize::MAX, 0);
        for (at, packet) in whole.packets.iter().enumerate() {
            for len in 0..packet.data.len() {
                let outcome = run(method, at, len);
                // Only the prompt of GTC has any length; MSCHAPv2 has a length field.
                let is_text = method == Method::Gtc && at == 2 && len > 0;
                assert_eq!(outcome.authenticator.is_ok(), is_text, "{method} packet {at} of {len} bytes");
            }
        }
    }
}

fn secrets() -> Secrets {
    Secrets::with_password(IDENTITY, PASSWORD)
}

/// The length field must be that of the packet: pppd (pull request 211) and radius-eap (pull request 23) read
/// beyond the end, or panicked.
#[test]
fn mschapv2_lengths_that_contradict_each_other() {
    for claimed in [0_u16, 3, 4, 24, 26, 255, 0xFFFF] {
        let mut request = challenge();
        request[3..5].copy_from_slice(&claimed.to_be_bytes());
        assert_eq!(PeerSide::carol(Method::MsChapV2).request(1, &request).fault(), EapFault::Malformed);
    }
    for value_size in [0, 15, 17, 255] {
        let body = [&[value_size], &CHALLENGE[..], b"moon"].concat();
        let mut peer = PeerSide::carol(Method::MsChapV2);
        assert_eq!(peer.request(1, &mschapv2(1, &body)).fault(), EapFault::Malformed);
    }
    for value_size in [0, 16, 24, 48, 50, 255] {
        let mut authenticator = AuthenticatorSide::of_carol(Method::MsChapV2).with_rng(Script(vec![7]));
        let identifier = authenticator.start().packet().identifier;
        let body = [&[value_size], &[0; 49][..], IDENTITY].concat();
        assert_eq!(authenticator.respond(identifier, &mschapv2(2, &body)).fault(), EapFault::Malformed);
    }
}

/// pppd compared the length of the value with the wrong bound, and copied a name of any length.
#[test]
fn cve_2020_8597_md5_challenge_with_a_long_name_or_value() {
    for (data, is_valid) in [
        (&[4][..], false),
        (&[4, 0], false),
        (&[4, 1], false),
        (&[4, 255, 1, 2, 3], false),
        (&[4, 1, 9], true),
        (&[[4, 1, 9].as_slice(), &[b'n'; 60_000]].concat(), true),
        (&[[4, 255].as_slice(), &[9; 255]].concat(), true),
    ] {
        let step = PeerSide::carol(Method::Md5).request(1, data);
        match step {
            Step::Send(packet) if is_valid => assert_eq!(packet.data.len(), 18),
            step => assert_eq!((step.fault(), is_valid), (EapFault::Malformed, false)),
        }
        let mut authenticator = AuthenticatorSide::of_carol(Method::Md5);
        let identifier = authenticator.start().packet().identifier;
        let expected = if is_valid { EapFault::WrongPassword } else { EapFault::Malformed };
        assert_eq!(authenticator.respond(identifier, data).fault(), expected);
    }
}

/// OpenBSD compared as many bytes of the password as the peer had sent: none.
#[test]
fn cve_2026_55706_proofs_of_no_or_few_bytes() {
    for method in Method::WITH_PASSWORD {
        for len in 0..PASSWORD.len() {
            let mut authenticator = AuthenticatorSide::of_carol(method).with_rng(Script(vec![7]));
            let identifier = authenticator.start().packet().identifier;
            let data = match method {
                Method::Gtc => [&[6], &PASSWORD[..len]].concat(),
                Method::Md5 => [&[4, len as u8], &[0; 16][..len]].concat(),
                Method::MsChapV2 => mschapv2(2, &[&[len as u8], &[0; 49][..len], IDENTITY].concat()),
                _ => unreachable!(),
            };
            let fault = authenticator.respond(identifier, &data).fault();
            assert!(matches!(fault, EapFault::WrongPassword | EapFault::Malformed), "{method}: {fault}");
        }
    }
}

/// A user without password cannot authenticate, whatever the method.
#[test]
fn an_empty_password_authenticates_no_user() {
    for method in Method::WITH_PASSWORD {
        let empty = || Secrets::with_password(IDENTITY, b"");
        let mut authenticator = AuthenticatorSide::new(Some(IDENTITY), &[method], empty());
        let outcome = converse(&mut PeerSide::carol(method), &mut authenticator);
        assert_eq!(outcome.authenticator, Err(EapFault::NoPassword));
        let outcome = converse(
            &mut PeerSide::new(IDENTITY, &[method], empty()),
            &mut AuthenticatorSide::of_carol(method),
        );
        assert_eq!(outcome.peer, Err(EapFault::NoPassword));
    }
    let mut authenticator =
        AuthenticatorSide::new(Some(IDENTITY), &[Method::Gtc], Secrets::with_password(IDENTITY, b""));
    let identifier = authenticator.start().packet().identifier;
    assert_eq!(authenticator.respond(identifier, &[6]).fault(), EapFault::NoPassword);
}

/// FreeRADIUS accepted its own values of EAP-pwd as the proof of the peer, as did hostapd (CVE-2019-9497).
#[test]
fn cve_2019_11234_reflected_values_prove_nothing() {
    // The authenticator gets its own challenge as that of the peer.
    let mut authenticator = AuthenticatorSide::of_carol(Method::MsChapV2).with_rng(Script(vec![7; 17]));
    let first = authenticator.start().packet();
    let own = &first.data[6..22];
    let body = [&[49], own, &[0; 8], own, &own[..8], &[0], IDENTITY].concat();
    let failure = authenticator.respond(first.identifier, &mschapv2(2, &body)).packet();
    assert_eq!(failure.data[..2], [MSCHAPV2, 4]);
    // The peer gets its own proof back.
    let mut peer = PeerSide::carol(Method::MsChapV2);
    let response = peer.request(1, &challenge()).packet();
    let nt_response: String = response.data[30..50].iter().map(|byte| format!("{byte:02X}")).collect();
    let message = format!("S={nt_response} M=OK");
    assert_eq!(peer.request(2, &mschapv2(3, message.as_bytes())).fault(), EapFault::WrongAuthenticator);
    // MD5: the authenticator gets its own challenge back.
    let mut authenticator = AuthenticatorSide::of_carol(Method::Md5);
    let first = authenticator.start().packet();
    assert_eq!(authenticator.respond(first.identifier, &first.data).fault(), EapFault::WrongPassword);
}

/// An authenticator that does not know the password: without the proof, or with a wrong one.
#[test]
fn a_success_request_without_the_proof() {
    for (body, expected) in [
        (&b""[..], EapFault::Malformed),
        (b"S=", EapFault::Malformed),
        (b"M=Welcome", EapFault::Malformed),
        (b"M=Welcome S=407A5589115FD0D6209F510FE9C04566932CDA56", EapFault::Malformed),
        (b"S=407A5589115FD0D6209F510FE9C04566932CDA5", EapFault::Malformed),
        (b"S=407A5589115FD0D6209F510FE9C04566932CDA5G", EapFault::Malformed),
        (b"S=+07A5589115FD0D6209F510FE9C04566932CDA56", EapFault::Malformed),
        (b"S= M=Welcome                              ", EapFault::Malformed),
        (b"s=407A5589115FD0D6209F510FE9C04566932CDA56", EapFault::Malformed),
        (b"S=407A5589115FD0D6209F510FE9C04566932CDA56", EapFault::WrongAuthenticator),
        (b"S=0000000000000000000000000000000000000000 M=OK", EapFault::WrongAuthenticator),
    ] {
        let mut peer = PeerSide::carol(Method::MsChapV2);
        peer.request(1, &challenge()).packet();
        assert_eq!(peer.request(2, &mschapv2(3, body)).fault(), expected, "{body:?}");
        assert_eq!(peer.receive(&success()).fault(), EapFault::OutOfState);
    }
}

/// wpa_supplicant and hostapd (CVE-2019-11555) and FreeRADIUS (CVE-2022-41860) dereferenced what an earlier
/// message would have set.
#[test]
fn cve_2019_11555_each_operation_in_each_state_of_the_peer() {
    let requests = |op| [vec![MSCHAPV2, op], mschapv2(op, b""), mschapv2(op, &challenge()[5..])];
    for op in 0..=255 {
        for data in requests(op) {
            // Before the challenge.
            let step = PeerSide::carol(Method::MsChapV2).request(1, &data);
            let is_challenge = op == 1 && data.len() == 26;
            assert_eq!(matches!(step, Step::Send(_)), is_challenge, "{data:?}");
            // After it; a failure request is the only one that needs no proof.
            let mut peer = PeerSide::carol(Method::MsChapV2);
            peer.request(1, &challenge()).packet();
            let step = peer.request(2, &data);
            assert_eq!(matches!(step, Step::Send(_)), op == 4 && data.len() > 2, "{data:?}");
            // After a failure.
            let mut peer = PeerSide::carol(Method::MsChapV2);
            peer.request(1, &challenge()).packet();
            peer.request(2, &mschapv2(4, b"E=691")).packet();
            assert!(matches!(peer.request(3, &data), Step::Failed(_)), "{data:?}");
        }
    }
}

#[test]
fn cve_2022_41860_each_operation_in_each_state_of_the_authenticator() {
    for op in 0..=255 {
        for data in [vec![MSCHAPV2, op], mschapv2(op, b""), mschapv2(op, &[49; 60])] {
            let mut authenticator = AuthenticatorSide::of_carol(Method::MsChapV2).with_rng(Script(vec![7]));
            let identifier = authenticator.start().packet().identifier;
            let step = authenticator.respond(identifier, &data);
            // A wrong response leads to a failure request.
            assert_eq!(matches!(step, Step::Send(_)), op == 2 && data.len() > 50, "{data:?}");
        }
    }
}

/// A second challenge would let an authenticator collect responses (RFC 3748 section 2.1: one method).
#[test]
fn a_repeated_challenge() {
    for method in Method::WITH_PASSWORD {
        let request = match method {
            Method::MsChapV2 => challenge(),
            Method::Md5 => [&[4, 16], &CHALLENGE[..]].concat(),
            Method::Gtc => vec![6],
            _ => unreachable!(),
        };
        let mut peer = PeerSide::carol(method);
        peer.request(1, &request).packet();
        assert_eq!(peer.request(2, &request).fault(), EapFault::OutOfState);
    }
}

/// An authenticator that offers a second attempt, or another password, gets none (RFC 2759 sections 6 and 7).
#[test]
fn no_second_attempt_and_no_change_of_the_password() {
    for message in ["E=691 R=1 C=00112233445566778899AABBCCDDEEFF V=3", "E=648 R=0 C=00 V=3", "E=", "\0", ""]
    {
        let mut peer = PeerSide::carol(Method::MsChapV2);
        peer.request(1, &challenge()).packet();
        assert_eq!(peer.request(2, &mschapv2(4, message.as_bytes())).packet().data, [MSCHAPV2, 4]);
        assert_eq!(peer.receive(&Packet::new(EapCode::FAILURE, 2, &[])).fault(), EapFault::Refused);
    }
    // The authenticator refuses a peer that tries again.
    let mut authenticator = AuthenticatorSide::of_carol(Method::MsChapV2).with_rng(Script(vec![7]));
    let first = authenticator.start().packet();
    let wrong = mschapv2(2, &[&[49], &[0; 49][..], IDENTITY].concat());
    let failure = authenticator.respond(first.identifier, &wrong).packet();
    assert!(failure.data.windows(3).any(|text| text == b"R=0"));
    assert!(matches!(authenticator.respond(failure.identifier, &wrong), Step::Failed(_)));
}

/// Success and failure responses have one byte behind the type.
#[test]
fn mschapv2_acknowledgements_of_other_lengths() {
    for length in [0, 2, 4, 60] {
        let mut authenticator = AuthenticatorSide::new(None, &[Method::MsChapV2], secrets());
        let mut peer = PeerSide::carol(Method::MsChapV2);
        let outcome = converse_with(&mut peer, &mut authenticator, |at, packet| {
            if at == 5 {
                assert_eq!(packet.data, [MSCHAPV2, 3]);
                packet.data.resize(1 + length, 0);
            }
        });
        assert_eq!(outcome.authenticator, Err(EapFault::Malformed));
    }
}

/// Wrong identifiers of responses, and of MSCHAPv2.
#[test]
fn wrong_identifiers() {
    for method in Method::WITH_PASSWORD {
        let honest = |identifier_change: u8, at: usize| {
            let mut authenticator = AuthenticatorSide::new(None, &[method], secrets());
            converse_with(&mut PeerSide::carol(method), &mut authenticator, |packet_at, packet| {
                if packet_at == at {
                    packet.identifier = packet.identifier.wrapping_add(identifier_change);
                }
            })
            .authenticator
        };
        for change in [1, 2, 128, 255] {
            assert_eq!(honest(change, 1), Err(EapFault::OutOfState));
            assert_eq!(honest(change, 3), Err(EapFault::OutOfState));
        }
        assert!(honest(0, 1).is_ok());
    }
    let mut authenticator = AuthenticatorSide::of_carol(Method::MsChapV2).with_rng(Script(vec![8]));
    let identifier = authenticator.start().packet().identifier;
    let response = mschapv2(2, &[&[49], &[0; 49][..], IDENTITY].concat());
    assert_eq!(authenticator.respond(identifier, &response).fault(), EapFault::OutOfState);
}

/// RFC 3748 section 4.2: a success or failure has the identifier of the response, whatever ends the
/// conversation.
#[test]
fn the_last_packet_has_the_identifier_of_the_last_response() {
    for data in [&[6, b'x'][..], &[TYPE_NAK, 0], &[99]] {
        for offset in [0, 1] {
            let mut authenticator = AuthenticatorSide::of_carol(Method::Gtc);
            let identifier = authenticator.start().packet().identifier;
            assert!(matches!(authenticator.respond(identifier.wrapping_add(offset), data), Step::Failed(_)));
            assert_eq!(authenticator.last, Some(Packet::new(EapCode::FAILURE, identifier, &[])));
        }
    }
}

/// RFC 3748 section 2.1: no other method after the first response to one.
#[test]
fn another_method_in_the_middle() {
    let mut peer = PeerSide::new(IDENTITY, &Method::WITH_PASSWORD, secrets());
    peer.request(1, &challenge()).packet();
    assert_eq!(peer.request(2, &[Method::Gtc.id()]).fault(), EapFault::OutOfState);
    let mut peer = PeerSide::new(IDENTITY, &Method::WITH_PASSWORD, secrets());
    peer.request(1, &challenge()).packet();
    assert_eq!(peer.request(2, &[TYPE_IDENTITY]).fault(), EapFault::OutOfState);
    for data in [&[&[6], PASSWORD].concat()[..], &[TYPE_IDENTITY, b'x'], &[TYPE_NOTIFICATION], &[254]] {
        let mut authenticator = AuthenticatorSide::new(Some(IDENTITY), &Method::WITH_PASSWORD, secrets());
        let first = authenticator.start().packet();
        assert_eq!(first.data[0], MSCHAPV2);
        assert_eq!(authenticator.respond(first.identifier, data).fault(), EapFault::OutOfState);
    }
}

/// The identity that was proved is the one that was named first.
#[test]
fn a_second_identity() {
    let mut authenticator = AuthenticatorSide::new(None, &[Method::Gtc], secrets());
    let first = authenticator.start().packet();
    let second = authenticator.respond(first.identifier, &[&[TYPE_IDENTITY], IDENTITY].concat()).packet();
    let step = authenticator.respond(second.identifier, &[TYPE_IDENTITY, b'd', b'a', b'v', b'e']);
    assert_eq!(step.fault(), EapFault::OutOfState);
}

/// RFC 3748 section 5.3.1: a Nak refuses the first request of a method only.
#[test]
fn a_nak_after_the_method_began() {
    let mut authenticator =
        AuthenticatorSide::new(Some(IDENTITY), &Method::WITH_PASSWORD, secrets()).with_rng(Script(vec![7]));
    let first = authenticator.start().packet();
    let wrong = mschapv2(2, &[&[49], &[0; 49][..], IDENTITY].concat());
    let failure = authenticator.respond(first.identifier, &wrong).packet();
    assert_eq!(authenticator.respond(failure.identifier, &[TYPE_NAK, 6]).fault(), EapFault::OutOfState);
}

/// A Nak chooses among the configured methods, and each of them once.
#[test]
fn naks_that_propose_anything() {
    let everything: Vec<u8> = [TYPE_NAK].into_iter().chain(0..=255).collect();
    let mut authenticator =
        AuthenticatorSide::new(Some(IDENTITY), &[Method::MsChapV2, Method::Md5], secrets());
    let mut request = authenticator.start().packet();
    assert_eq!(request.data[0], MSCHAPV2);
    request = authenticator.respond(request.identifier, &everything).packet();
    assert_eq!(request.data[0], Method::Md5.id());
    assert_eq!(authenticator.respond(request.identifier, &everything).fault(), EapFault::NoMethod);
    for nothing in [&[TYPE_NAK][..], &[TYPE_NAK, 0], &[TYPE_NAK, 6], &[TYPE_NAK, MSCHAPV2], &[TYPE_NAK, 254]]
    {
        let mut authenticator = AuthenticatorSide::of_carol(Method::MsChapV2);
        let identifier = authenticator.start().packet().identifier;
        assert_eq!(authenticator.respond(identifier, nothing).fault(), EapFault::NoMethod);
    }
    // Before a method was proposed.
    let mut authenticator = AuthenticatorSide::new(None, &Method::WITH_PASSWORD, secrets());
    let identifier = authenticator.start().packet().identifier;
    assert_eq!(authenticator.respond(identifier, &[TYPE_NAK, 6]).fault(), EapFault::OutOfState);
}

/// Packets that only the other side sends.
#[test]
fn packets_from_the_wrong_side() {
    for method in Method::WITH_PASSWORD {
        for code in
            [EapCode::REQUEST, EapCode::SUCCESS, EapCode::FAILURE, EapCode(0), EapCode(5), EapCode(255)]
        {
            let mut authenticator = AuthenticatorSide::of_carol(method);
            let first = authenticator.start().packet();
            let step = authenticator.receive(&Packet::new(code, first.identifier, &first.data));
            assert_eq!(step.fault(), EapFault::OutOfState);
        }
        for code in [EapCode::RESPONSE, EapCode(0), EapCode(5), EapCode(6), EapCode(255)] {
            let mut peer = PeerSide::carol(method);
            let step = peer.receive(&Packet::new(code, 1, &[TYPE_IDENTITY]));
            assert_eq!(step.fault(), EapFault::OutOfState);
        }
    }
}

/// After its end, a conversation accepts nothing, and a second start does not begin another one.
#[test]
fn packets_after_the_end() {
    for method in Method::WITH_PASSWORD {
        let (mut peer, mut authenticator) =
            (PeerSide::carol(method), AuthenticatorSide::new(None, &[method], secrets()));
        let outcome = converse(&mut peer, &mut authenticator);
        assert!(outcome.peer.is_ok());
        for packet in &outcome.packets {
            assert_eq!(peer.receive(packet).fault(), EapFault::OutOfState);
            assert_eq!(authenticator.receive(packet).fault(), EapFault::OutOfState);
        }
        assert_eq!(authenticator.start().fault(), EapFault::OutOfState);
    }
    let mut authenticator = AuthenticatorSide::of_carol(Method::Gtc);
    authenticator.start().packet();
    assert_eq!(authenticator.start().fault(), EapFault::OutOfState);
    // A response before the start.
    let mut authenticator = AuthenticatorSide::of_carol(Method::Gtc);
    assert_eq!(authenticator.respond(0, &[&[6], PASSWORD].concat()).fault(), EapFault::OutOfState);
}

/// Each end is final: the right packet does not continue a conversation that has failed, or succeed twice.
#[test]
fn the_right_packet_after_the_end() {
    let mut authenticator = AuthenticatorSide::new(None, &[Method::Gtc], secrets());
    let identifier = authenticator.start().packet().identifier;
    let identity = [&[TYPE_IDENTITY], IDENTITY].concat();
    assert_eq!(authenticator.respond(identifier.wrapping_add(1), &identity).fault(), EapFault::OutOfState);
    assert_eq!(authenticator.respond(identifier, &identity).fault(), EapFault::OutOfState);
    let mut authenticator = AuthenticatorSide::of_carol(Method::Gtc);
    let identifier = authenticator.start().packet().identifier;
    let password = [&[6], PASSWORD].concat();
    assert!(matches!(authenticator.respond(identifier, &password), Step::Succeeded(_)));
    assert_eq!(authenticator.respond(identifier, &password).fault(), EapFault::OutOfState);
}

/// FreeRADIUS (CVE-2014-2015) copied long passwords into buffers for short ones; names and passwords of any
/// length, and packets as long as IKE can carry.
#[test]
fn long_names_and_passwords() {
    for len in [200, 253, 257, 1_000, 65_000, 70_000] {
        let password = vec![b'p'; len];
        let identity = vec![b'i'; len.min(253)];
        for method in Method::WITH_PASSWORD {
            let secrets = || Secrets::with_password(&identity, &password);
            let mut peer = PeerSide::new(&identity, &[method], secrets());
            let mut authenticator = AuthenticatorSide::new(None, &[method], secrets());
            assert!(converse(&mut peer, &mut authenticator).peer.is_ok(), "{method} {len}");
        }
        let mut peer = PeerSide::new(&vec![b'i'; len], &[Method::MsChapV2], {
            Secrets::with_password(&vec![b'i'; len], &password)
        });
        // Beyond that, the length field is too small.
        let is_writable = len <= 65_481;
        assert_eq!(matches!(peer.request(1, &challenge()), Step::Send(_)), is_writable);
        let mut authenticator = AuthenticatorSide::of_carol(Method::MsChapV2).with_rng(Script(vec![7]));
        let identifier = authenticator.start().packet().identifier;
        let body = [&[49], &[0; 49][..], &vec![b'n'; len.min(65_400)]].concat();
        let step = authenticator.respond(identifier, &mschapv2(2, &body));
        assert_eq!(matches!(step, Step::Send(_)), len <= 256);
    }
}

/// Requests without end; the peer may answer each one.
#[test]
fn a_conversation_without_end() {
    for data in [&[TYPE_IDENTITY][..], &[TYPE_NOTIFICATION], &[13]] {
        let mut peer = PeerSide::carol(Method::MsChapV2);
        let sent = (0..=MAX_PACKETS).take_while(|at| matches!(peer.request(*at as u8, data), Step::Send(_)));
        assert_eq!(sent.count(), MAX_PACKETS as usize);
    }
}
