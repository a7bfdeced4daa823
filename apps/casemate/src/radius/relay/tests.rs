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

/// Requests for the EAP identity. The peer responds with another one, and with the same.
const ASKS: &[u8] = &[IDENTITY];
const ASKS_AGAIN: &[u8] = &[IDENTITY, b'?'];
/// The same as an expanded type. The peer responds with another one.
const ASKS_EXPANDED: &[u8] = &[EXPANDED, 0, 0, 0, 0, 0, 0, IDENTITY];

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

/// A conversation of a peer with the EAP identity `carol@example.org`.
struct Conversation {
    relay: RelayAuthenticator,
    orders: Receiver<Order>,
    reported: Receiver<Report>,
    /// Keeps the waker open.
    _woken: UnixStream,
}

impl Conversation {
    fn start(trusts_user_name: bool) -> Self {
        let config = RadiusConfig {
            servers: Vec::new(),
            retransmission: Retransmission::DEFAULT,
            ids_have_port: false,
            groups: GroupSources::default(),
            trusts_user_name,
            accounting: None,
            dae: None,
        };
        let (waker, woken) = UnixStream::pair().unwrap();
        let ((to_thread, orders), (reports, reported)) = (channel(), channel());
        let id = Identity::Email(CLAIMED.into());
        let connection = Connection::with_shared_key("users", Identity::Fqdn("gateway".into()), id.clone());
        let path = Path { local: "192.0.2.1:500".parse().unwrap(), remote: "192.0.2.2:500".parse().unwrap() };
        let session = EapSession {
            ike: IkeSaId::for_tests(1),
            connection: &connection,
            peer: &id,
            identity: Some(id.to_eap()),
            path,
        };
        let link = RadiusLink::new(to_thread, waker, reports, &config);
        let relay = RelayAuthenticator::new(link, &session);
        let mut conversation = Self { relay, orders, reported, _woken: woken };
        let step = conversation.act(Authenticator::start);
        assert!(matches!(step, AuthenticatorStep::Pending));
        conversation
    }

    fn act<T>(&mut self, act: impl FnOnce(&mut RelayAuthenticator, &mut EapContext<'_>) -> T) -> T {
        let (mut rng, providers) = (SystemRng::new().unwrap(), Providers(&[]));
        let credentials = &NoCredentials;
        act(&mut self.relay, &mut EapContext { rng: &mut rng, providers: &providers, credentials })
    }

    /// The server answers. Returns the User-Name of the request.
    fn answer(&self, response: Box<AccessResponse>) -> Vec<u8> {
        let Order::Access { request, reply, .. } = self.orders.recv().unwrap() else { panic!("no request") };
        reply.send(AccessAnswer::Response(ServerId::for_tests(0), response)).ok().unwrap();
        request.user_name
    }

    /// A request of the server, and the response of the peer.
    fn exchange(&mut self, identifier: u8, request: &[u8], data: &[u8]) -> AuthenticatorStep {
        let packet = Eap { code: EapCode::REQUEST, identifier, data: request };
        self.answer(response(Verdict::Challenge, &packet, None));
        assert!(matches!(self.act(Authenticator::poll), AuthenticatorStep::Request(_)));
        let packet = Eap { code: EapCode::RESPONSE, identifier, data };
        self.act(|relay, context| relay.receive(&packet, context))
    }
}

/// The result after these requests of the server, and the User-Name for accounting.
fn converse(
    requests: &[&[u8]],
    user_name: Option<&[u8]>,
    trusts_user_name: bool,
) -> (Authenticated, Vec<u8>) {
    let mut conversation = Conversation::start(trusts_user_name);
    for (identifier, request) in (1..).zip(requests) {
        let data = match *request {
            AKA_ASKS => aka_response(OTHER.as_bytes()),
            AKA_ASKS_AGAIN => aka_response(CLAIMED.as_bytes()),
            ASKS => [ASKS, OTHER.as_bytes(), b"\0options"].concat(),
            ASKS_AGAIN => [ASKS, CLAIMED.as_bytes()].concat(),
            ASKS_EXPANDED => [ASKS_EXPANDED, OTHER.as_bytes()].concat(),
            other => other.into(),
        };
        let step = conversation.exchange(identifier, request, &data);
        assert!(matches!(step, AuthenticatorStep::Pending));
    }
    let success = Eap { code: EapCode::SUCCESS, identifier: 9, data: &[] };
    let asked = conversation.answer(response(Verdict::Accept, &success, user_name));
    let step = conversation.act(Authenticator::poll);
    let AuthenticatorStep::Succeeded(_, done) = step else { panic!("not accepted") };
    assert_eq!(done.identity, asked, "the last User-Name of the requests");
    let Ok(Report::Accepted { user_name, .. }) = conversation.reported.try_recv() else {
        panic!("no report")
    };
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
const OTHER: &str = "dave@example.org";

#[test]
fn the_user_is_the_one_whom_the_server_names() {
    let asked: &[&[u8]] = &[ASKS, MSCHAPV2];
    for requests in
        [&[GTC][..], &[MSCHAPV2], &[TLS, TLS], &[TTLS], &[PEAP], &[AKA], &[AKA_ASKS, AKA], asked, &[]]
    {
        assert_eq!(proven(requests, Some("alice"), false).as_deref(), Some("alice"), "{requests:?}");
    }
}

#[test]
fn without_a_name_of_the_server_the_identity_counts_after_methods_that_authenticate_it() {
    let notified: &[&[u8]] = &[&[NOTIFICATION], GTC, &[NOTIFICATION]];
    let with_same = &[AKA_ASKS, AKA_ASKS_AGAIN, AKA];
    let asked: &[&[u8]] = &[ASKS_AGAIN, MSCHAPV2];
    for requests in [&[GTC][..], &[MSCHAPV2], &[AKA], with_same, &[TTLS, GTC], notified, asked] {
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
        &[ASKS, MSCHAPV2],
        &[ASKS_EXPANDED, MSCHAPV2],
        &[ASKS, ASKS_AGAIN, GTC],
        &[ASKS, AKA_ASKS_AGAIN, AKA],
    ] {
        assert_eq!(proven(requests, None, false), None, "{requests:?}");
        assert_eq!(proven(requests, None, true), None, "{requests:?}: the server names no user");
    }
}

/// It would count in place of one that the server has asked for.
#[test]
fn an_identity_that_the_server_has_not_asked_for_is_refused() {
    let aka_prime_asks = &[&[50], &AKA_ASKS[1..]].concat();
    let (identity, aka) = ([ASKS, CLAIMED.as_bytes()].concat(), aka_response(CLAIMED.as_bytes()));
    for (request, data) in [
        (MSCHAPV2, &identity[..]),
        (&[NOTIFICATION], &identity),
        (AKA_ASKS, &identity),
        (AKA, &aka),
        (ASKS, &aka),
        (aka_prime_asks, &aka),
        (MSCHAPV2, &[]),
    ] {
        let mut conversation = Conversation::start(false);
        let other = aka_response(OTHER.as_bytes());
        assert!(matches!(conversation.exchange(1, AKA_ASKS, &other), AuthenticatorStep::Pending));
        let step = conversation.exchange(2, request, data);
        let is_refused = matches!(step, AuthenticatorStep::Failed(_, EapFault::OutOfState));
        assert!(is_refused, "{request:?} {data:?}: {step:?}");
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
    // The server may have run the method with either of two identities.
    for copy in [CLAIMED, "carol", OTHER, "dave"] {
        for requests in [&[ASKS, MSCHAPV2][..], &[ASKS, TTLS]] {
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
    let (_, user_name) = converse(&[ASKS, MSCHAPV2], None, false);
    assert_eq!(user_name, OTHER.as_bytes(), "the server has asked for it");
}
