//! Properties of conversations with any packets.

mod support;

use casemate_eap::{EapFault, Method};
use casemate_wire::ike::EapCode;
use proptest::collection::vec;
use proptest::prelude::*;
use support::{
    AuthenticatorSide, IDENTITY, PASSWORD, Packet, PeerSide, Secrets, Step, converse, converse_with,
};

fn method() -> impl Strategy<Value = Method> {
    proptest::sample::select(&Method::WITH_PASSWORD[..])
}

/// Any packet. Most of them have an EAP type, an operation code and a length that mean something.
fn packet() -> impl Strategy<Value = Packet> {
    let code = prop_oneof![4 => Just(1), 4 => Just(2), 1 => Just(3), 1 => Just(4), 1 => any::<u8>()];
    let kind = prop_oneof![6 => proptest::sample::select(&[1_u8, 2, 3, 4, 6, 26][..]), 1 => any::<u8>()];
    let mschapv2 = (1_u8..5, any::<u8>(), vec(any::<u8>(), 0..80)).prop_map(|(op, id, body)| {
        let [hi, lo] = (body.len() as u16 + 4).to_be_bytes();
        [&[26, op, id, hi, lo], &*body].concat()
    });
    let data = prop_oneof![
        1 => vec(any::<u8>(), 0..80),
        2 => (kind, vec(any::<u8>(), 0..80)).prop_map(|(kind, data)| [&[kind], &*data].concat()),
        2 => mschapv2,
    ];
    (code, any::<u8>(), data)
        .prop_map(|(code, identifier, data)| Packet::new(EapCode(code), identifier, &data))
}

/// Sends the packets to an authenticator. `fits`: whether a packet gets the code and the identifier that the
/// authenticator expects, which otherwise few packets have.
fn attack(authenticator: &mut AuthenticatorSide, mut identifier: u8, packets: &[(Packet, bool)]) -> bool {
    for (packet, fits) in packets {
        let mut packet = packet.clone();
        if *fits {
            (packet.code, packet.identifier) = (EapCode::RESPONSE, identifier);
        }
        match authenticator.receive(&packet) {
            Step::Send(request) => identifier = request.identifier,
            Step::Succeeded(_) => return true,
            Step::Failed(_) => {}
        }
    }
    false
}

proptest! {
    #[test]
    fn no_packets_authenticate_without_the_password(
        method in method(),
        knows_identity: bool,
        packets in vec((packet(), any::<bool>()), 1..12),
    ) {
        let identity = knows_identity.then_some(IDENTITY);
        let secrets = Secrets::with_password(IDENTITY, PASSWORD);
        let mut authenticator = AuthenticatorSide::new(identity, &[method], secrets);
        let identifier = authenticator.start().packet().identifier;
        prop_assert!(!attack(&mut authenticator, identifier, &packets));
    }

    /// After some steps of a peer with another password, so also after the authenticator has refused it.
    #[test]
    fn no_packets_turn_a_wrong_password_into_success(
        method in method(),
        steps in 0_usize..4,
        packets in vec((packet(), any::<bool>()), 1..12),
    ) {
        let secrets = Secrets::with_password(IDENTITY, PASSWORD);
        let mut authenticator = AuthenticatorSide::new(None, &[method], secrets);
        let mut peer = PeerSide::new(IDENTITY, &[method], Secrets::with_password(IDENTITY, b"lion"));
        let mut request = authenticator.start().packet();
        for _ in 0..steps {
            let Step::Send(response) = peer.receive(&request) else { break };
            let Step::Send(next) = authenticator.receive(&response) else { break };
            request = next;
        }
        prop_assert!(!attack(&mut authenticator, request.identifier, &packets));
    }

    /// MSCHAPv2: an authenticator without the password convinces no peer.
    #[test]
    fn no_packets_convince_a_peer_of_mschapv2(packets in vec((packet(), any::<bool>()), 1..12)) {
        let mut peer = PeerSide::new(IDENTITY, &[Method::MsChapV2], Secrets::with_password(IDENTITY, PASSWORD));
        for (packet, fits) in &packets {
            let mut packet = packet.clone();
            if *fits {
                packet.code = EapCode::REQUEST;
            }
            prop_assert!(!matches!(peer.receive(&packet), Step::Succeeded(_)), "{packet:?}");
        }
    }

    #[test]
    fn any_packets_leave_a_peer_without_panic(method in method(), packets in vec(packet(), 1..12)) {
        let mut peer = PeerSide::carol(method);
        for packet in &packets {
            peer.receive(packet);
        }
    }

    /// A changed packet makes both sides fail, or changes something that means nothing: then both have the
    /// same key.
    #[test]
    fn a_changed_byte_never_leads_to_different_keys(
        method in method(),
        changed in 0_usize..8,
        at in any::<proptest::sample::Index>(),
        flip in 1_u8..,
    ) {
        let mut authenticator =
            AuthenticatorSide::new(None, &[method], Secrets::with_password(IDENTITY, PASSWORD));
        let outcome = converse_with(&mut PeerSide::carol(method), &mut authenticator, |index, packet| {
            if index == changed && !packet.data.is_empty() {
                let at = at.index(packet.data.len());
                packet.data[at] ^= flip;
            }
        });
        if let (Ok(peer), Ok(authenticator)) = (&outcome.peer, &outcome.authenticator) {
            prop_assert_eq!(peer, authenticator);
        }
        prop_assert!(outcome.peer.is_err() || outcome.authenticator.is_ok());
    }

    #[test]
    fn only_equal_passwords_authenticate(method in method(), ours in "\\PC{1,20}", theirs in "\\PC{1,20}") {
        for (password, expected) in [(&theirs, ours == theirs), (&ours, true)] {
            let peer_secrets = Secrets::with_password(IDENTITY, ours.as_bytes());
            let secrets = Secrets::with_password(IDENTITY, password.as_bytes());
            let outcome = converse(
                &mut PeerSide::new(IDENTITY, &[method], peer_secrets),
                &mut AuthenticatorSide::new(None, &[method], secrets),
            );
            prop_assert_eq!(outcome.authenticator.is_ok(), expected);
            prop_assert_eq!(outcome.peer.is_ok(), expected);
            if !expected {
                prop_assert_eq!(outcome.authenticator, Err(EapFault::WrongPassword));
            }
        }
    }
}
