//! Which user a peer has proved to be, after a conversation with a server of the test.

use super::*;
use crate::radius::Order;
use crate::swanctl::{GroupSources, RadiusConfig};
use casemate_crypto::{Providers, SecretBytes};
use casemate_eap::NoCredentials;
use casemate_ike::config::{Connection, Identity};
use casemate_linux::process::SystemRng;
use casemate_radius::{Retransmission, TerminationAction};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;

const GTC: &[u8] = &[6];
const MSCHAPV2: &[u8] = &[26, 1];
const TLS: &[u8] = &[13, 0x20];
const TTLS: &[u8] = &[21, 0x20];
const PEAP: &[u8] = &[25, 0x20];
const AKA: &[u8] = &[23, 1, 0, 0];
/// Requests for an identity. The peer responds with another one than its EAP identity, and with the same.
const AKA_ASKS: &[u8] = &[23, AKA_IDENTITY, 0, 0, 13, 1, 0, 0];
const AKA_ASKS_AGAIN: &[u8] = &[23, AKA_IDENTITY, 0, 0, 10, 1, 0, 0];

fn response(verdict: Verdict, packet: &Eap<'_>, user_name: Option<&[u8]>) -> Box<AccessResponse> {
    Box::new(AccessResponse {
        verdict,
        eap: encode(packet).unwrap(),
        state: None,
        classes: Vec::new(),
        filter_id: None,
        user_name: user_name.map(Vec::from),
        msk: Some(SecretBytes::new(&[7; 64])),
        addrs: Vec::new(),
        session_timeout: None,
        termination: TerminationAction::End,
        interim_interval: None,
    })
}

/// The result for a peer with the EAP identity `carol@example.org` after these requests of the server, and
/// the User-Name for accounting.
fn converse(
    requests: &[&[u8]],
    user_name: Option<&[u8]>,
    trusts_user_name: bool,
) -> (Authenticated, Vec<u8>) {
    let config = RadiusConfig {
        servers: Vec::new(),
        retransmission: Retransmission::DEFAULT,
        ids_have_port: false,
        groups: GroupSources::default(),
        trusts_user_name,
        accounting: None,
        dae: None,
    };
    let (waker, _woken) = UnixStream::pair().unwrap();
    let ((to_thread, orders), (reports, reported)) = (channel(), channel());
    let id = Identity::Email("carol@example.org".into());
    let connection = Connection::with_shared_key("users", Identity::Fqdn("gateway".into()), id.clone());
    let session = EapSession {
        ike: IkeSaId::for_tests(1),
        connection: &connection,
        peer: &id,
        identity: Some(id.to_eap()),
        path: Path { local: "192.0.2.1:500".parse().unwrap(), remote: "192.0.2.2:500".parse().unwrap() },
    };
    let mut relay = RelayAuthenticator::new(RadiusLink::new(to_thread, waker, reports, &config), &session);
    let (mut rng, providers) = (SystemRng::new().unwrap(), Providers(&[]));
    let mut context = EapContext { rng: &mut rng, providers: &providers, credentials: &NoCredentials };
    assert!(matches!(relay.start(&mut context), AuthenticatorStep::Pending));
    let answer = |response| {
        let Order::Access { reply, .. } = orders.recv().unwrap() else { panic!("no request") };
        reply.send(AccessAnswer::Response(ServerId::for_tests(0), response)).ok().unwrap();
    };
    for (identifier, data) in (1..).zip(requests) {
        answer(response(Verdict::Challenge, &Eap { code: EapCode::REQUEST, identifier, data }, None));
        assert!(matches!(relay.poll(&mut context), AuthenticatorStep::Request(_)));
        let data = match *data {
            AKA_ASKS => aka_response(b"dave@example.org"),
            AKA_ASKS_AGAIN => aka_response(CLAIMED.as_bytes()),
            other => other.into(),
        };
        let step = relay.receive(&Eap { code: EapCode::RESPONSE, identifier, data: &data }, &mut context);
        assert!(matches!(step, AuthenticatorStep::Pending));
    }
    answer(response(Verdict::Accept, &Eap { code: EapCode::SUCCESS, identifier: 9, data: &[] }, user_name));
    let AuthenticatorStep::Succeeded(_, done) = relay.poll(&mut context) else { panic!("not accepted") };
    let Ok(Report::Accepted { user_name, .. }) = reported.try_recv() else { panic!("no report") };
    (done, user_name)
}

/// A response with AT_IDENTITY.
fn aka_response(identity: &[u8]) -> Vec<u8> {
    let (len, units) = (identity.len(), identity.len().div_ceil(4) + 1);
    let [len_byte, units_byte] = [len, units].map(|number| u8::try_from(number).unwrap());
    let padding = vec![0; 4 * (units - 1) - len];
    [&[23, AKA_IDENTITY, 0, 0, 14, units_byte, 0, len_byte], identity, &padding].concat()
}

fn proven(requests: &[&[u8]], user_name: Option<&str>, trusts_user_name: bool) -> Option<String> {
    let (done, _) = converse(requests, user_name.map(str::as_bytes), trusts_user_name);
    done.proven_name().map(|name| String::from_utf8(name.into()).unwrap())
}

const CLAIMED: &str = "carol@example.org";

#[test]
fn the_user_is_the_one_whom_the_server_names() {
    for requests in [&[GTC][..], &[MSCHAPV2], &[TLS, TLS], &[TTLS], &[PEAP], &[AKA], &[AKA_ASKS, AKA], &[]] {
        assert_eq!(proven(requests, Some("alice"), false).as_deref(), Some("alice"), "{requests:?}");
    }
}

#[test]
fn without_a_name_of_the_server_the_identity_counts_after_methods_that_authenticate_it() {
    let notified: &[&[u8]] = &[&[NOTIFICATION], GTC, &[NOTIFICATION]];
    let with_same = &[AKA_ASKS, AKA_ASKS_AGAIN, AKA];
    for requests in [&[GTC][..], &[MSCHAPV2], &[AKA], with_same, &[TTLS, GTC], notified] {
        for name in [None, Some(CLAIMED)] {
            assert_eq!(proven(requests, name, false).as_deref(), Some(CLAIMED), "{requests:?}");
        }
    }
    for requests in [
        &[TLS][..],
        &[TTLS],
        &[PEAP],
        &[&[254]],
        &[],
        &[AKA_ASKS, AKA],
        &[AKA_ASKS_AGAIN, AKA_ASKS, AKA],
        &[GTC, PEAP],
    ] {
        assert_eq!(proven(requests, None, false), None, "{requests:?}");
        assert_eq!(proven(requests, None, true), None, "{requests:?}: the server names no user");
    }
}

/// FreeRADIUS copies User-Name of the request, if nothing else is configured.
#[test]
fn a_copy_of_the_claimed_identity_counts_only_if_the_server_is_trusted_with_it() {
    let copies =
        [CLAIMED, "carol", "Carol@EXAMPLE.ORG", "EXAMPLE\\carol", "example/carol", "carol%other.example"];
    for requests in [&[TLS][..], &[TTLS], &[PEAP], &[AKA_ASKS, AKA]] {
        for copy in copies {
            assert_eq!(proven(requests, Some(copy), false), None, "{requests:?}: {copy}");
            assert_eq!(proven(requests, Some(copy), true).as_deref(), Some(copy), "{requests:?}");
        }
    }
    for copy in copies {
        assert_eq!(proven(&[MSCHAPV2], Some(copy), false).as_deref(), Some(copy));
    }
}

/// The server knows the session by this name, whatever it proves.
#[test]
fn accounting_has_the_name_of_the_server_or_that_of_the_request() {
    for (name, expected) in [(None, CLAIMED), (Some(CLAIMED), CLAIMED), (Some("alice"), "alice")] {
        let (_, user_name) = converse(&[TTLS], name.map(str::as_bytes), false);
        assert_eq!(user_name, expected.as_bytes());
    }
}
