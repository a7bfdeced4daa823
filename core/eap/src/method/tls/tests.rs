//! Conversations with a TLS session that follows a script.

use crate::tls::{TlsEstablished, TlsRole, TlsSession, TlsVersion};
use crate::{
    Authenticator as _, AuthenticatorStep, EapContext, EapCredentials, EapFault, LocalAuthenticator, Method,
    Peer, PeerStep,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{PasswordAlgorithms, Providers, SecretBytes};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_test_support::CountingRng;
use casemate_wire::ike::{Eap, EapCode};
use zeroize::Zeroizing;

/// A session. Each message that it receives takes one entry of `messages`.
#[derive(Clone)]
struct Script {
    version: TlsVersion,
    is_peer_certified: bool,
    has_keys: bool,
    /// Output before any message.
    first: Vec<u8>,
    messages: VecDeque<Message>,
    output: Vec<u8>,
    received: Vec<u8>,
    is_established: bool,
}

/// What a message does.
#[derive(Clone, Default)]
struct Message {
    establishes: bool,
    fails: bool,
    output: &'static [u8],
    data: &'static [u8],
}

const HELLO: &[u8] = b"hello";

impl Script {
    fn new(version: TlsVersion, messages: &[Message]) -> Self {
        Self {
            version,
            is_peer_certified: true,
            has_keys: true,
            first: HELLO.into(),
            messages: messages.iter().cloned().collect(),
            output: Vec::new(),
            received: Vec::new(),
            is_established: false,
        }
    }
}

impl TlsSession for Script {
    fn receive(&mut self, _records: &[u8]) -> Result<(), EapFault> {
        let message = self.messages.pop_front().ok_or(EapFault::Tls)?;
        self.output.extend_from_slice(message.output);
        self.received.extend_from_slice(message.data);
        self.is_established |= message.establishes;
        if message.fails { Err(EapFault::PeerCertificate) } else { Ok(()) }
    }

    fn take_output(&mut self) -> Vec<u8> {
        [core::mem::take(&mut self.first), core::mem::take(&mut self.output)].concat()
    }

    fn established(&self) -> Option<TlsEstablished> {
        let Self { version, is_peer_certified, .. } = *self;
        self.is_established.then_some(TlsEstablished { version, is_peer_certified })
    }

    fn export(&self, label: &str, context: Option<&[u8]>, out: &mut [u8]) -> Result<(), EapFault> {
        // RFC 5216 section 2.3, RFC 9190 section 2.3, RFC 5281 section 8, RFC 9427 section 2.1.
        match (self.version, label, context) {
            (TlsVersion::V12, "client EAP encryption" | "ttls keying material", None) => {}
            (TlsVersion::V13, "EXPORTER_EAP_TLS_Key_Material", Some([13] | [21])) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(out.len(), 128);
        for (byte, value) in out.iter_mut().zip(0..) {
            *byte = value;
        }
        if self.has_keys { Ok(()) } else { Err(EapFault::MissingKey) }
    }

    fn read(&mut self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(core::mem::take(&mut self.received))
    }

    fn write(&mut self, data: &[u8]) -> Result<(), EapFault> {
        assert!(self.is_established, "application data before the handshake has finished");
        self.output.extend_from_slice(data);
        Ok(())
    }
}

struct Credentials {
    script: Script,
    password: SecretBytes,
}

impl Credentials {
    fn new(script: Script) -> Self {
        Self { script, password: SecretBytes::new(b"tiger") }
    }
}

impl EapCredentials for Credentials {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        None
    }

    fn password(&self, _identity: &[u8]) -> Option<&SecretBytes> {
        Some(&self.password)
    }

    fn tls(&self, _role: TlsRole<'_>) -> Result<Box<dyn TlsSession>, EapFault> {
        Ok(Box::new(self.script.clone()))
    }
}

/// The data of a response, behind its type.
type Response = Result<Vec<u8>, EapFault>;

/// Sends requests of a method to a peer. Returns its responses.
fn requests(
    method: Method,
    script: Script,
    requests: &[&[u8]],
) -> (Vec<Response>, Result<Vec<u8>, EapFault>) {
    let (mut rng, credentials) = (CountingRng(1), Credentials::new(script));
    let mut context =
        EapContext { rng: &mut rng, providers: &Providers(&[&RUSTCRYPTO]), credentials: &credentials };
    let mut peer = Peer::new(b"carol".into(), vec![method]);
    let mut responses = Vec::new();
    for (identifier, data) in (0..).zip(requests) {
        let data = [&[method.id()], *data].concat();
        let packet = Eap { code: EapCode::REQUEST, identifier, data: &data };
        responses.push(match peer.receive(&packet, &mut context) {
            PeerStep::Respond(response) => Ok(response.as_payload().data[1..].to_vec()),
            PeerStep::Failed(fault) => Err(fault),
            PeerStep::Succeeded(_) | PeerStep::Pending => panic!("success without an EAP Success"),
        });
    }
    let success = Eap { code: EapCode::SUCCESS, identifier: 9, data: &[] };
    let end = match peer.receive(&success, &mut context) {
        PeerStep::Succeeded(done) => Ok(done.msk.unwrap().expose().to_vec()),
        PeerStep::Failed(fault) => Err(fault),
        PeerStep::Respond(_) | PeerStep::Pending => panic!("a response to an EAP Success"),
    };
    (responses, end)
}

/// Sends responses of EAP-TLS to an authenticator. Returns its last step.
fn respond(script: Script, responses: &[&[u8]]) -> AuthenticatorStep {
    let (mut rng, credentials) = (CountingRng(1), Credentials::new(script));
    let mut context =
        EapContext { rng: &mut rng, providers: &Providers(&[&RUSTCRYPTO]), credentials: &credentials };
    let mut server = LocalAuthenticator::new(Some(b"carol".into()), vec![Method::Tls]);
    let mut step = server.start(&mut context);
    for data in responses {
        let AuthenticatorStep::Request(request) = &step else { panic!("{step:?} before {data:?}") };
        let (identifier, data) = (request.as_payload().identifier, [&[13], *data].concat());
        let packet = Eap { code: EapCode::RESPONSE, identifier, data: &data };
        step = server.receive(&packet, &mut context);
    }
    step
}

fn fault(step: AuthenticatorStep) -> EapFault {
    match step {
        AuthenticatorStep::Failed(_, fault) => fault,
        step => panic!("{step:?}"),
    }
}

const START: &[u8] = &[0x20];
const RECORD: &[u8] = &[0, 1];
const ACKNOWLEDGEMENT: &[u8] = &[0];

/// The last message of the server with TLS 1.2.
const FINISHED: Message = Message { establishes: true, fails: false, output: b"", data: b"" };

fn msk() -> Vec<u8> {
    (0..64).collect()
}

#[test]
fn a_peer_with_tls_1_2() {
    let (responses, end) = requests(Method::Tls, Script::new(TlsVersion::V12, &[FINISHED]), &[START, RECORD]);
    assert_eq!(responses, [Ok(b"\0hello".to_vec()), Ok(ACKNOWLEDGEMENT.into())]);
    assert_eq!(end, Ok(msk()));
}

#[test]
fn success_before_the_end_of_the_handshake_is_early() {
    let flight = Message { output: b"keys", ..Message::default() };
    for requests_before in [&[][..], &[START], &[START, RECORD]] {
        let script = Script::new(TlsVersion::V12, core::slice::from_ref(&flight));
        assert_eq!(requests(Method::Tls, script, requests_before).1, Err(EapFault::EarlySuccess));
    }
}

/// RFC 9190 section 2.5: with TLS 1.3, success needs the indication, after the last message of the client.
#[test]
fn a_peer_with_tls_1_3_requires_the_success_indication() {
    let own_last = Message { output: b"finished", ..FINISHED };
    let nothing = Message::default();
    let with = |data| Message { data, ..Message::default() };
    let run = |messages: &[Message]| {
        let records = vec![RECORD; messages.len()];
        let (mut responses, end) =
            requests(Method::Tls, Script::new(TlsVersion::V13, messages), &[&[START][..], &records].concat());
        (responses.pop().unwrap(), end)
    };
    let acknowledged = Ok(ACKNOWLEDGEMENT.to_vec());
    assert_eq!(run(&[own_last.clone(), with(&[0])]), (acknowledged.clone(), Ok(msk())));
    assert_eq!(run(&[own_last.clone(), nothing.clone(), with(&[0])]), (acknowledged.clone(), Ok(msk())));
    assert_eq!(run(core::slice::from_ref(&own_last)).1, Err(EapFault::EarlySuccess));
    assert_eq!(run(&[own_last.clone(), nothing]), (acknowledged, Err(EapFault::EarlySuccess)));
    for wrong in [&[1][..], &[0, 0]] {
        assert_eq!(run(&[own_last.clone(), with(wrong)]).0, Err(EapFault::Malformed));
    }
    let early = Message { data: &[0], ..own_last };
    assert_eq!(run(&[early]).0, Err(EapFault::EarlySuccess));
}

#[test]
fn no_application_data_with_tls_1_2() {
    let script = Script::new(TlsVersion::V12, &[Message { data: &[0], ..FINISHED }]);
    assert_eq!(requests(Method::Tls, script, &[START, RECORD]).0[1], Err(EapFault::Malformed));
}

/// CVE-2021-45079 (strongSwan) was success without a key.
#[test]
fn a_session_without_keys_or_certificate_fails() {
    let mut script = Script::new(TlsVersion::V12, &[FINISHED]);
    script.has_keys = false;
    assert_eq!(requests(Method::Tls, script.clone(), &[START, RECORD]).0[1], Err(EapFault::MissingKey));
    assert_eq!(fault(respond(script, &[RECORD])), EapFault::MissingKey);
    let mut script = Script::new(TlsVersion::V12, &[FINISHED]);
    script.is_peer_certified = false;
    assert_eq!(requests(Method::Tls, script.clone(), &[START, RECORD]).0[1], Err(EapFault::Tls));
    assert_eq!(fault(respond(script, &[RECORD])), EapFault::Tls);
}

#[test]
fn packets_out_of_their_order_end_the_peer() {
    for packets in [
        &[RECORD][..],
        &[ACKNOWLEDGEMENT],
        &[START, START],
        &[START, ACKNOWLEDGEMENT],
        &[START, RECORD, RECORD],
        &[START, RECORD, ACKNOWLEDGEMENT],
    ] {
        let (responses, end) = requests(Method::Tls, Script::new(TlsVersion::V12, &[FINISHED]), packets);
        assert_eq!(responses.last(), Some(&Err(EapFault::OutOfState)), "{packets:?}");
        assert_eq!(end, Err(EapFault::OutOfState));
    }
}

/// Each fragment needs its acknowledgement, which has no data.
#[test]
fn data_in_place_of_an_acknowledgement_ends_the_conversation() {
    let mut script = Script::new(TlsVersion::V12, &[FINISHED]);
    script.first = vec![5; 1500];
    let (responses, _) = requests(Method::Tls, script.clone(), &[START, ACKNOWLEDGEMENT]);
    assert_eq!(responses.iter().map(|r| r.as_ref().unwrap().len()).collect::<Vec<_>>(), [1005, 501]);
    for wrong in [RECORD, &[0x40], &[0x80, 0, 0, 0, 0]] {
        let (responses, _) = requests(Method::Tls, script.clone(), &[START, wrong]);
        assert_eq!(responses[1], Err(EapFault::OutOfState), "{wrong:?}");
    }
}

#[test]
fn an_authenticator_succeeds_after_the_acknowledgement() {
    let last = Message { output: b"finished", ..FINISHED };
    let script = |version| {
        let mut script = Script::new(version, core::slice::from_ref(&last));
        script.first.clear();
        script
    };
    for version in [TlsVersion::V12, TlsVersion::V13] {
        let AuthenticatorStep::Request(request) = respond(script(version), &[RECORD]) else { panic!() };
        let indication: &[u8] = if version == TlsVersion::V13 { &[0] } else { &[] };
        assert_eq!(request.as_payload().data, [b"\x0D\0finished", indication].concat());
        match respond(script(version), &[RECORD, ACKNOWLEDGEMENT]) {
            AuthenticatorStep::Succeeded(_, done) => assert_eq!(done.msk.unwrap().expose(), msk()),
            step => panic!("{step:?}"),
        }
    }
    // The peer ends the session with an alert, or sends anything else.
    assert_eq!(fault(respond(script(TlsVersion::V12), &[RECORD, RECORD])), EapFault::Tls);
}

#[test]
fn an_authenticator_that_refuses_a_certificate_fails_at_once() {
    let refusal = Message { fails: true, output: b"alert", ..Message::default() };
    let step = respond(Script::new(TlsVersion::V12, &[refusal]), &[RECORD]);
    assert_eq!(fault(step), EapFault::PeerCertificate);
}

#[test]
fn an_authenticator_refuses_a_start_and_early_acknowledgements() {
    let mut script = Script::new(TlsVersion::V12, &[]);
    script.first.clear();
    for wrong in [START, ACKNOWLEDGEMENT, &[]] {
        assert!(matches!(
            fault(respond(script.clone(), &[wrong])),
            EapFault::OutOfState | EapFault::Malformed
        ));
    }
}

/// wpa_supplicant took a conversation for successful whose server skipped the authentication in the tunnel.
#[test]
fn cve_2023_52160_success_without_the_conversation_in_the_tunnel_is_early() {
    for version in [TlsVersion::V12, TlsVersion::V13] {
        for packets in [&[START][..], &[START, RECORD]] {
            let (responses, end) = requests(Method::Ttls, Script::new(version, &[FINISHED]), packets);
            assert!(responses.iter().all(Result::is_ok));
            assert_eq!(end, Err(EapFault::EarlySuccess));
        }
    }
}

/// The result in the tunnel of PEAP.
const RESULT: Message =
    Message { establishes: false, fails: false, output: b"", data: &[1, 7, 0, 11, 33, 0x80, 3, 0, 2, 0, 1] };

/// CVE-2023-52160: wpa_supplicant took the result without the conversation in the tunnel.
#[test]
fn cve_2023_52160_a_result_without_the_conversation_in_the_tunnel_is_early() {
    let identity = Message { data: &[1], ..Message::default() };
    for before in [&[FINISHED][..], &[FINISHED, identity]] {
        let messages = [before, &[RESULT]].concat();
        let packets = [&[START][..], &vec![RECORD; messages.len()]].concat();
        let (responses, end) = requests(Method::Peap, Script::new(TlsVersion::V12, &messages), &packets);
        assert_eq!(responses.last(), Some(&Err(EapFault::EarlySuccess)));
        assert!(end.is_err());
    }
}

#[test]
fn success_of_peap_follows_the_result_in_the_tunnel() {
    let token = Message { data: &[6], ..Message::default() };
    let run = |messages: &[Message]| {
        let packets = [&[START][..], &vec![RECORD; messages.len()]].concat();
        requests(Method::Peap, Script::new(TlsVersion::V12, messages), &packets)
    };
    assert_eq!(run(&[FINISHED, token.clone()]).1, Err(EapFault::EarlySuccess));
    assert_eq!(run(&[FINISHED, token.clone(), RESULT]).1, Ok(msk()));
    // Nothing follows the result, and a failure is none.
    assert_eq!(run(&[FINISHED, token.clone(), RESULT, RESULT]).0.last(), Some(&Err(EapFault::OutOfState)));
    let failure = Message { data: &[1, 7, 0, 11, 33, 0x80, 3, 0, 2, 0, 2], ..RESULT };
    assert_eq!(run(&[FINISHED, token, failure]).1, Err(EapFault::EarlySuccess));
    let binding: &[u8] =
        &[&[1, 7, 0, 71, 33, 0x80, 3, 0, 2, 0, 1][..], &[0, 12, 0, 56, 0, 0, 0, 0], &[5; 52]].concat();
    let forged = Message { data: binding.to_vec().leak(), ..RESULT };
    let token = Message { data: &[6], ..Message::default() };
    assert_eq!(run(&[FINISHED, token, forged]).0.last(), Some(&Err(EapFault::WrongAuthenticator)));
}

#[test]
fn the_identity_in_the_tunnel_follows_the_handshake() {
    let flight = Message { output: b"keys", ..Message::default() };
    let script = Script::new(TlsVersion::V12, &[flight, FINISHED]);
    let (responses, _) = requests(Method::Ttls, script, &[START, RECORD, RECORD]);
    let has_identity =
        |response: &Response| response.as_ref().unwrap().windows(5).any(|bytes| bytes == b"carol");
    assert_eq!(responses.iter().map(has_identity).collect::<Vec<_>>(), [false, false, true]);
    // A server without a certificate learns nothing.
    let mut script = Script::new(TlsVersion::V12, &[FINISHED]);
    script.is_peer_certified = false;
    assert_eq!(requests(Method::Ttls, script, &[START, RECORD]).0[1], Err(EapFault::Tls));
}
