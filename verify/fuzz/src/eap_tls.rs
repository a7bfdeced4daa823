//! EAP methods with TLS, whose TLS session obeys the other side: fragments and states, without cryptography.

use crate::Target;
use crate::input::{Input, Script};
use casemate_crypto::{PasswordAlgorithms, Providers, SecretBytes};
use casemate_eap::{
    Authenticator as _, AuthenticatorStep, CertificateStatus, EapContext, EapCredentials, EapFault,
    LocalAuthenticator, Method, Peer, PeerStep, TlsEstablished, TlsRole, TlsSession, TlsVersion,
};
use casemate_legacy::LEGACY;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_test_support::TestRng;
use casemate_wire::ike::{Eap, EapCode};
use std::sync::{Arc, Mutex};
use zeroize::Zeroizing;

pub(crate) const TARGET: Target = Target {
    name: "eap-tls",
    about: "EAP-TLS, EAP-TTLS and PEAP in both roles: success only after the handshake, a certificate, \
            keys, and what follows",
    max_len: 4_000,
    run,
    seeds,
    dictionary: &["carol"],
};

const IDENTITY: &[u8] = b"carol";
/// No input must contain it.
const PASSWORD: &[u8] = b"jRr5Yt0vLqWm8ZsXc2Bn";
/// Maximum length of a message (RFC 5216 sets none; casemate-eap accepts no more).
const MAX_MESSAGE: usize = 1 << 16;

/// What the session has seen.
#[derive(Default)]
struct State {
    is_established: bool,
    /// Whether the status of the certificate was asked for.
    is_asked: bool,
    has_indication: bool,
    output: Vec<u8>,
    received: Vec<u8>,
}

/// The first byte of a message says what it does; the rest is application data.
#[derive(Clone)]
struct Session {
    setup: u8,
    state: Arc<Mutex<State>>,
}

const ESTABLISHES: u8 = 1;
const FAILS: u8 = 2;
const ANSWERS: u8 = 4;

impl Session {
    fn has(&self, bit: u8) -> bool {
        self.setup & bit != 0
    }

    fn is_peer_certified(&self) -> bool {
        !self.has(0x10)
    }

    fn has_keys(&self) -> bool {
        !self.has(0x20)
    }

    /// The status of the certificate takes time.
    fn is_slow(&self) -> bool {
        self.has(0x40)
    }

    fn is_revoked(&self) -> bool {
        self.has(0x80)
    }

    fn version(&self) -> TlsVersion {
        if self.has(4) { TlsVersion::V13 } else { TlsVersion::V12 }
    }
}

impl TlsSession for Session {
    fn receive(&mut self, records: &[u8]) -> Result<(), EapFault> {
        assert!((1..=MAX_MESSAGE).contains(&records.len()), "a message of {} bytes", records.len());
        let mut state = self.state.lock().unwrap();
        let (what, data) = (records[0], &records[1..]);
        state.is_established |= what & ESTABLISHES != 0;
        if what & ANSWERS != 0 {
            // Long enough for two fragments.
            state.output.extend_from_slice(&[7; 1200]);
        }
        if state.is_established {
            state.has_indication |= data == [0];
            state.received.extend_from_slice(data);
        }
        if what & FAILS != 0 { Err(EapFault::Tls) } else { Ok(()) }
    }

    fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.state.lock().unwrap().output)
    }

    fn established(&self) -> Option<TlsEstablished> {
        let established =
            TlsEstablished { version: self.version(), is_peer_certified: self.is_peer_certified() };
        self.state.lock().unwrap().is_established.then_some(established)
    }

    fn certificate_status(&mut self) -> CertificateStatus {
        let mut state = self.state.lock().unwrap();
        assert!(state.is_established, "the status of a certificate that proves nothing");
        match std::mem::replace(&mut state.is_asked, true) {
            false if self.is_slow() => CertificateStatus::Pending,
            _ if self.is_revoked() => CertificateStatus::Refused,
            _ => CertificateStatus::Accepted,
        }
    }

    fn export(&self, _: &str, _: Option<&[u8]>, _: &mut [u8]) -> Result<(), EapFault> {
        if self.has_keys() { Ok(()) } else { Err(EapFault::MissingKey) }
    }

    fn read(&mut self) -> Zeroizing<Vec<u8>> {
        std::mem::take(&mut self.state.lock().unwrap().received).into()
    }

    fn write(&mut self, data: &[u8]) -> Result<(), EapFault> {
        let mut state = self.state.lock().unwrap();
        assert!(state.is_established, "application data before the handshake has finished");
        state.output.extend_from_slice(data);
        Ok(())
    }
}

struct Credentials {
    session: Session,
    password: SecretBytes,
}

impl EapCredentials for Credentials {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        Some(&LEGACY)
    }

    fn password(&self, identity: &[u8]) -> Option<&SecretBytes> {
        (identity == IDENTITY).then_some(&self.password)
    }

    fn tls(&self, role: TlsRole<'_>) -> Result<Box<dyn TlsSession>, EapFault> {
        if matches!(role, TlsRole::Client { .. }) {
            self.session.state.lock().unwrap().output.extend_from_slice(b"hello");
        }
        Ok(Box::new(self.session.clone()))
    }
}

/// Input: the setup, then packets, each behind its length in two bytes.
fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let setup = input.u8();
    let session = Session { setup, state: Arc::default() };
    let method = match (session.has(1), session.has(8)) {
        (false, _) => Method::Tls,
        (true, false) => Method::Ttls,
        (true, true) => Method::Peap,
    };
    let credentials = Credentials { session: session.clone(), password: SecretBytes::new(PASSWORD) };
    let (mut rng, providers) = (TestRng::new(1), Providers(&[&RUSTCRYPTO]));
    let mut context = EapContext { rng: &mut rng, providers: &providers, credentials: &credentials };
    let has_succeeded = if session.has(2) {
        authenticate(&mut input, method, &mut context)
    } else {
        prove(&mut input, method, &mut context)
    };
    if !has_succeeded {
        return;
    }
    let state = session.state.lock().unwrap();
    assert!(state.is_established && session.has_keys(), "success without a session");
    assert!(!session.is_revoked(), "success with a revoked certificate");
    let asks_password = session.has(2) && method != Method::Tls;
    assert!(session.is_peer_certified() || asks_password, "success without a certificate");
    if method == Method::Tls && !session.has(2) && session.version() == TlsVersion::V13 {
        assert!(state.has_indication, "success without the indication of RFC 9190");
    }
    assert!(!asks_password, "authenticated without the password");
}

fn packet<'a>(input: &mut Input<'a>, method: Method) -> Vec<u8> {
    let len = usize::from(input.u16());
    [&[method.id()], input.take(len)].concat()
}

/// The peer. Returns whether it takes an EAP Success after the packets for the end.
fn prove(input: &mut Input<'_>, method: Method, context: &mut EapContext<'_>) -> bool {
    let mut peer = Peer::new(IDENTITY.into(), vec![method]);
    while !input.is_empty() {
        let data = packet(input, method);
        let request = Eap { code: EapCode::REQUEST, identifier: 1, data: &data };
        match peer.receive(&request, context) {
            PeerStep::Respond(response) => assert!(response.as_payload().data.len() <= 1_006),
            // Half of the callers do not wait, which must not succeed.
            PeerStep::Pending if input.u8() & 1 == 0 => {}
            PeerStep::Pending => {
                if !matches!(peer.poll(), PeerStep::Respond(_)) {
                    break;
                }
            }
            PeerStep::Failed(_) => break,
            PeerStep::Succeeded(_) => panic!("success without an EAP Success"),
        }
    }
    let success = Eap { code: EapCode::SUCCESS, identifier: 1, data: &[] };
    matches!(peer.receive(&success, context), PeerStep::Succeeded(_))
}

/// The authenticator. Returns whether it has accepted the peer.
fn authenticate(input: &mut Input<'_>, method: Method, context: &mut EapContext<'_>) -> bool {
    let mut authenticator = LocalAuthenticator::new(Some(IDENTITY.into()), vec![method]);
    let mut step = authenticator.start(context);
    while !input.is_empty() {
        if matches!(step, AuthenticatorStep::Pending) {
            step = authenticator.poll(context);
        }
        let AuthenticatorStep::Request(request) = &step else { break };
        let (identifier, data) = (request.as_payload().identifier, packet(input, method));
        step = authenticator.receive(&Eap { code: EapCode::RESPONSE, identifier, data: &data }, context);
    }
    matches!(step, AuthenticatorStep::Succeeded(..))
}

fn seeds() -> Vec<Vec<u8>> {
    let conversation = |setup: u8, packets: &[&[u8]]| {
        let script = Script::default().u8(setup);
        packets.iter().fold(script, |script, data| script.u16(data.len() as u16).bytes(data)).finish()
    };
    let fragments: [&[u8]; 2] = [&[0xC0, 0, 0, 0, 3, ANSWERS], &[0, 1, 2]];
    let identity_avp = b"\0\x01\0\0\0\x4F\x40\0\0\x12\x02\0\0\x0A\x01carol\0\0";
    let mut seeds = Vec::new();
    for setup in
        (0..16).chain([0x10, 0x20, 0x19, 0x29]).chain(0x40..0x50).chain([0x80, 0x81, 0x82, 0x89, 0xC0, 0xC2])
    {
        let (start, ack, done): (&[u8], &[u8], &[u8]) = (&[0x20], &[0], &[0, ESTABLISHES]);
        seeds.push(conversation(setup, &[start, done]));
        seeds.push(conversation(setup, &[start, &[0, ESTABLISHES | ANSWERS], ack, &[0, 0, 0]]));
        seeds.push(conversation(setup, &[&[0, ESTABLISHES | ANSWERS], ack, ack, identity_avp]));
        seeds.push(conversation(setup, &[&[0, FAILS | ANSWERS], ack, ack]));
        // PEAP: a method in the tunnel, and the result.
        let (asked, result): (&[u8], &[u8]) = (&[0, 0, 6], b"\0\0\x01\x01\0\x0B\x21\x80\x03\0\x02\0\x01");
        seeds.push(conversation(setup, &[start, done, asked, result]));
        seeds.push(conversation(setup, &[start, done, result]));
        seeds.push(conversation(setup, &[&[start][..], &fragments, &[ack, done]].concat()));
    }
    seeds
}
