//! Two sides of a conversation in memory.
// Helpers outside of #[test] functions; not every test file uses all of them.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use casemate_crypto::{PasswordAlgorithms, Providers, Rng, SecretBytes};
use casemate_eap::{
    Authenticated, Authenticator as _, AuthenticatorStep, EapContext, EapCredentials, EapFault, EapPacket,
    LocalAuthenticator, Method, NtHash, Peer, PeerStep, SequenceNumbers, Subscriber,
};
use casemate_legacy::LEGACY;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_test_support::TestRng;
use casemate_wire::ike::{Eap, EapCode};

pub(crate) const IDENTITY: &[u8] = b"carol";
pub(crate) const PASSWORD: &[u8] = b"tiger";

/// EAP types.
pub(crate) const TYPE_IDENTITY: u8 = 1;
pub(crate) const TYPE_NOTIFICATION: u8 = 2;
pub(crate) const TYPE_NAK: u8 = 3;

/// Passwords and hashes of one side.
#[derive(Default)]
pub(crate) struct Secrets {
    passwords: Vec<(Vec<u8>, SecretBytes)>,
    hashes: Vec<(Vec<u8>, NtHash)>,
    subscribers: Vec<(Vec<u8>, Subscriber)>,
    numbers: Option<Box<dyn SequenceNumbers>>,
    has_no_algorithms: bool,
}

impl Secrets {
    pub(crate) fn with_password(identity: &[u8], password: &[u8]) -> Self {
        Self { passwords: vec![(identity.into(), SecretBytes::new(password))], ..Self::default() }
    }

    pub(crate) fn with_hash(identity: &[u8], hash: &[u8]) -> Self {
        Self { hashes: vec![(identity.into(), NtHash::from_bytes(hash).unwrap())], ..Self::default() }
    }

    /// The keys of a USIM, and where its sequence numbers are.
    pub(crate) fn with_subscriber(
        identity: &[u8],
        subscriber: Subscriber,
        numbers: Box<dyn SequenceNumbers>,
    ) -> Self {
        let subscribers = vec![(identity.into(), subscriber)];
        Self { subscribers, numbers: Some(numbers), ..Self::default() }
    }

    pub(crate) fn numbers(&self) -> &dyn SequenceNumbers {
        self.numbers.as_deref().unwrap()
    }

    pub(crate) fn without_algorithms(self) -> Self {
        Self { has_no_algorithms: true, ..self }
    }
}

fn find<'s, T>(list: &'s [(Vec<u8>, T)], identity: &[u8]) -> Option<&'s T> {
    list.iter().find(|(name, _)| name == identity).map(|(_, secret)| secret)
}

impl EapCredentials for Secrets {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        if self.has_no_algorithms { None } else { Some(&LEGACY) }
    }

    fn password(&self, identity: &[u8]) -> Option<&SecretBytes> {
        find(&self.passwords, identity)
    }

    fn nt_hash(&self, identity: &[u8]) -> Option<&NtHash> {
        find(&self.hashes, identity)
    }

    fn subscriber(&self, identity: &[u8]) -> Option<&Subscriber> {
        find(&self.subscribers, identity)
    }

    fn sequence_numbers(&self) -> Option<&dyn SequenceNumbers> {
        self.numbers.as_deref()
    }
}

/// Random source that returns these bytes first.
pub(crate) struct Script(pub(crate) Vec<u8>);

impl Rng for Script {
    fn public(&mut self, out: &mut [u8]) {
        for byte in out {
            *byte = if self.0.is_empty() { 0 } else { self.0.remove(0) };
        }
    }

    fn secret(&mut self, _out: &mut [u8]) {
        panic!("EAP draws no secret");
    }
}

/// A received packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) code: EapCode,
    pub(crate) identifier: u8,
    pub(crate) data: Vec<u8>,
}

impl Packet {
    pub(crate) fn new(code: EapCode, identifier: u8, data: &[u8]) -> Self {
        Self { code, identifier, data: data.into() }
    }

    pub(crate) fn payload(&self) -> Eap<'_> {
        Eap { code: self.code, identifier: self.identifier, data: &self.data }
    }
}

impl From<&EapPacket> for Packet {
    fn from(packet: &EapPacket) -> Self {
        let Eap { code, identifier, data } = packet.as_payload();
        Self::new(code, identifier, data)
    }
}

/// Result of a step: a packet to send, the end, or a fault.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Send(Packet),
    Succeeded(Authenticated),
    Failed(EapFault),
}

impl Step {
    pub(crate) fn packet(self) -> Packet {
        match self {
            Self::Send(packet) => packet,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn fault(self) -> EapFault {
        match self {
            Self::Failed(fault) => fault,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) struct PeerSide {
    peer: Peer,
    secrets: Secrets,
    rng: Box<dyn Rng>,
}

impl PeerSide {
    pub(crate) fn new(identity: &[u8], methods: &[Method], secrets: Secrets) -> Self {
        Self { peer: Peer::new(identity.into(), methods.into()), secrets, rng: Box::new(TestRng::new(1)) }
    }

    /// The peer that the tests call carol, with her password.
    pub(crate) fn carol(method: Method) -> Self {
        Self::new(IDENTITY, &[method], Secrets::with_password(IDENTITY, PASSWORD))
    }

    pub(crate) fn with_rng(self, rng: impl Rng + 'static) -> Self {
        Self { rng: Box::new(rng), ..self }
    }

    /// Another conversation with the same secrets.
    pub(crate) fn again(self, identity: &[u8], methods: &[Method]) -> Self {
        Self { peer: Peer::new(identity.into(), methods.into()), ..self }
    }

    pub(crate) fn receive(&mut self, packet: &Packet) -> Step {
        let mut context = EapContext {
            rng: &mut *self.rng,
            providers: &Providers(&[&RUSTCRYPTO]),
            credentials: &self.secrets,
        };
        match self.peer.receive(&packet.payload(), &mut context) {
            PeerStep::Respond(packet) => Step::Send((&packet).into()),
            PeerStep::Succeeded(result) => Step::Succeeded(result),
            PeerStep::Failed(fault) => Step::Failed(fault),
            PeerStep::Pending => panic!("nothing is looked up"),
        }
    }

    /// Receives a request of an EAP type.
    pub(crate) fn request(&mut self, identifier: u8, data: &[u8]) -> Step {
        self.receive(&Packet::new(EapCode::REQUEST, identifier, data))
    }
}

pub(crate) struct AuthenticatorSide {
    authenticator: LocalAuthenticator,
    pub(crate) secrets: Secrets,
    rng: Box<dyn Rng>,
    /// The packet that came with the end.
    pub(crate) last: Option<Packet>,
}

impl AuthenticatorSide {
    pub(crate) fn new(identity: Option<&[u8]>, methods: &[Method], secrets: Secrets) -> Self {
        Self {
            authenticator: LocalAuthenticator::new(identity.map(Into::into), methods.into()),
            secrets,
            rng: Box::new(TestRng::new(2)),
            last: None,
        }
    }

    /// An authenticator that knows carol's password and does not ask for the identity.
    pub(crate) fn of_carol(method: Method) -> Self {
        Self::new(Some(IDENTITY), &[method], Secrets::with_password(IDENTITY, PASSWORD))
    }

    pub(crate) fn with_rng(self, rng: impl Rng + 'static) -> Self {
        Self { rng: Box::new(rng), ..self }
    }

    /// Another conversation with the same secrets.
    pub(crate) fn again(self, identity: Option<&[u8]>, methods: &[Method]) -> Self {
        let authenticator = LocalAuthenticator::new(identity.map(Into::into), methods.into());
        Self { authenticator, last: None, ..self }
    }

    fn step(
        &mut self,
        act: impl FnOnce(&mut LocalAuthenticator, &mut EapContext<'_>) -> AuthenticatorStep,
    ) -> Step {
        let mut context = EapContext {
            rng: &mut *self.rng,
            providers: &Providers(&[&RUSTCRYPTO]),
            credentials: &self.secrets,
        };
        let (packet, step) = match act(&mut self.authenticator, &mut context) {
            AuthenticatorStep::Request(packet) => return Step::Send((&packet).into()),
            AuthenticatorStep::Succeeded(packet, result) => (packet, Step::Succeeded(result)),
            AuthenticatorStep::Failed(packet, fault) => (packet, Step::Failed(fault)),
            AuthenticatorStep::Pending => panic!("nothing is looked up"),
        };
        let (expected, packet) = (matches!(step, Step::Succeeded(_)), Packet::from(&packet));
        assert_eq!(packet.code, if expected { EapCode::SUCCESS } else { EapCode::FAILURE });
        assert!(packet.data.is_empty());
        self.last = Some(packet);
        step
    }

    pub(crate) fn start(&mut self) -> Step {
        self.step(|authenticator, context| authenticator.start(context))
    }

    pub(crate) fn receive(&mut self, packet: &Packet) -> Step {
        self.step(|authenticator, context| authenticator.receive(&packet.payload(), context))
    }

    /// Receives a response of an EAP type.
    pub(crate) fn respond(&mut self, identifier: u8, data: &[u8]) -> Step {
        self.receive(&Packet::new(EapCode::RESPONSE, identifier, data))
    }
}

/// What became of a conversation.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) peer: Result<Authenticated, EapFault>,
    pub(crate) authenticator: Result<Authenticated, EapFault>,
    /// All packets in their order, those of the authenticator first.
    pub(crate) packets: Vec<Packet>,
}

/// Runs a conversation to its end. `change` may alter each packet on its way.
pub(crate) fn converse_with(
    peer: &mut PeerSide,
    authenticator: &mut AuthenticatorSide,
    mut change: impl FnMut(usize, &mut Packet),
) -> Outcome {
    let mut packets = Vec::new();
    let mut send = |packet: &mut Packet| {
        change(packets.len(), packet);
        packets.push(packet.clone());
    };
    let mut step = authenticator.start();
    let (peer, authenticator) = loop {
        let mut request = match step {
            Step::Send(request) => request,
            Step::Succeeded(_) | Step::Failed(_) => {
                let mut last = authenticator.last.clone().unwrap();
                send(&mut last);
                break (peer.receive(&last), step);
            }
        };
        send(&mut request);
        let mut response = match peer.receive(&request) {
            Step::Send(response) => response,
            ended => break (ended, Step::Failed(EapFault::OutOfState)),
        };
        send(&mut response);
        step = authenticator.receive(&response);
    };
    let result = |step| match step {
        Step::Succeeded(result) => Ok(result),
        Step::Failed(fault) => Err(fault),
        Step::Send(packet) => panic!("not the end: {packet:?}"),
    };
    Outcome { peer: result(peer), authenticator: result(authenticator), packets }
}

pub(crate) fn converse(peer: &mut PeerSide, authenticator: &mut AuthenticatorSide) -> Outcome {
    converse_with(peer, authenticator, |_, _| {})
}
