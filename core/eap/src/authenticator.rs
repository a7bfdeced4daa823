//! The side that asks for a proof.

use crate::method::{IDENTITY, MAX_MESSAGE, MethodRequest, NAK, ServerMethod, ServerStep};
use crate::packet::TypeData;
use crate::{Authenticated, CertificateStatus, EapContext, EapFault, EapPacket, MAX_PACKETS, Method};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_wire::ike::{Eap, EapCode};

/// Next step of an authenticator.
#[derive(Debug)]
pub enum AuthenticatorStep {
    /// Send this request.
    Request(EapPacket),
    /// The peer is authenticated. Send this EAP Success.
    Succeeded(EapPacket, Authenticated),
    /// The conversation has failed. Send this EAP Failure.
    Failed(EapPacket, EapFault),
    /// The next step is not known yet, because a server has to decide, or because the status of the peer's
    /// certificates is being looked up. The caller sends nothing, passes no further response on, and asks
    /// again with [`Authenticator::poll`] when that is known.
    Pending,
}

/// One conversation as the authenticator. After [`AuthenticatorStep::Succeeded`] or
/// [`AuthenticatorStep::Failed`] it has ended.
pub trait Authenticator: Send {
    /// Begins the conversation.
    fn start(&mut self, context: &mut EapContext<'_>) -> AuthenticatorStep;

    /// Handles a response of the peer.
    fn receive(&mut self, response: &Eap<'_>, context: &mut EapContext<'_>) -> AuthenticatorStep;

    /// Asks for the step that follows [`AuthenticatorStep::Pending`]. The default is for authenticators that
    /// are never pending.
    fn poll(&mut self, _context: &mut EapContext<'_>) -> AuthenticatorStep {
        AuthenticatorStep::Pending
    }

    /// EAP identity of the peer, once it is known.
    fn identity(&self) -> Option<&[u8]>;

    /// Bytes that the conversation holds of messages of both sides, as far as known, besides a few hundred
    /// bytes. The default is for authenticators that hold no more.
    fn held_bytes(&self) -> usize {
        0
    }

    /// The fault that the conversation will end with, if it is known while the peer still has to acknowledge
    /// its failure. Not every peer does.
    fn fault(&self) -> Option<EapFault> {
        None
    }
}

/// Maximum length of an EAP identity in bytes: that of a network access identifier with which every RADIUS
/// server can deal (RFC 7542 section 2.3).
const MAX_IDENTITY: usize = 253;

/// An [`Authenticator`] that verifies the proof with the passwords of
/// [`EapCredentials`](crate::EapCredentials).
pub struct LocalAuthenticator {
    /// Identity of the peer, once it is known.
    identity: Option<Vec<u8>>,
    /// Whether the peer chooses its identity itself.
    is_identity_asked: bool,
    methods: Vec<Method>,
    /// Those of `methods` that the peer has refused.
    refused: Vec<Method>,
    stage: Stage,
    /// The step that waits for the status of the peer's certificates.
    held: Option<Next>,
    /// Identifier of the outstanding request.
    identifier: u8,
    packets: u32,
    /// Maximum length in bytes of a message of the peer in several packets.
    max_message: usize,
}

enum Stage {
    Begin,
    AskedIdentity,
    /// `is_first`: the peer may still refuse the method.
    Method {
        method: Box<dyn ServerMethod>,
        is_first: bool,
    },
    Ended,
}

/// What a step of the conversation leads to.
enum Next {
    Request { kind: u8, data: TypeData },
    Succeeded(Authenticated),
}

impl LocalAuthenticator {
    /// Creates an authenticator that accepts `methods`, in order of preference. It asks the peer for its
    /// identity if `identity` is `None`.
    pub const fn new(identity: Option<Vec<u8>>, methods: Vec<Method>) -> Self {
        let is_identity_asked = identity.is_none();
        Self {
            identity,
            is_identity_asked,
            methods,
            refused: Vec::new(),
            stage: Stage::Begin,
            held: None,
            identifier: 0,
            packets: 0,
            max_message: MAX_MESSAGE,
        }
    }

    /// Limits the length in bytes of what the peer may send in several packets, such as its certificates: it
    /// is held before the peer is authenticated. The default is 65,536.
    #[must_use]
    pub const fn with_max_message(mut self, max_message: usize) -> Self {
        self.max_message = max_message;
        self
    }

    /// Identifier of the outstanding request.
    pub(crate) const fn identifier(&self) -> u8 {
        self.identifier
    }

    /// Has the outstanding request this identifier, because that of the packet around it counts.
    pub(crate) const fn continue_from(&mut self, identifier: u8) {
        self.identifier = identifier;
    }

    /// The identity of the result. A peer may prove another identity in a tunnel than the one that it has
    /// sent outside, unless the configuration requires that one.
    fn proven_identity(&self, in_tunnel: Option<&[u8]>) -> Result<Vec<u8>, EapFault> {
        let identity = self.identity.as_deref().ok_or(EapFault::OutOfState)?;
        match in_tunnel {
            Some(inner) if self.is_identity_asked || inner == identity => Ok(inner.into()),
            Some(_) => Err(EapFault::OtherIdentity),
            None => Ok(identity.into()),
        }
    }

    fn begin(&mut self, context: &mut EapContext<'_>) -> Result<Next, EapFault> {
        if !matches!(self.stage, Stage::Begin) {
            return Err(EapFault::OutOfState);
        }
        // RFC 3748 section 4.1: the identifier should begin at a random value.
        let mut identifier = [0];
        context.rng.public(&mut identifier);
        [self.identifier] = identifier;
        if self.identity.is_none() {
            self.stage = Stage::AskedIdentity;
            return Ok(Next::Request { kind: IDENTITY, data: TypeData::default() });
        }
        self.begin_first_method(self.identifier, context)
    }

    fn begin_first_method(&mut self, identifier: u8, context: &mut EapContext<'_>) -> Result<Next, EapFault> {
        let first = self.methods.first().copied().ok_or(EapFault::NoMethod)?;
        self.begin_method(first, identifier, context)
    }

    fn begin_method(
        &mut self,
        method: Method,
        identifier: u8,
        context: &mut EapContext<'_>,
    ) -> Result<Next, EapFault> {
        let identity = self.identity.as_deref().ok_or(EapFault::OutOfState)?;
        let mut server = method.server(identity, &self.methods, self.max_message);
        let data = server.begin(identifier, context)?;
        self.stage = Stage::Method { method: server, is_first: true };
        Ok(Next::Request { kind: method.id(), data })
    }

    /// Handles a response. A request that follows has the identifier `next`.
    fn step(&mut self, response: &Eap<'_>, next: u8, context: &mut EapContext<'_>) -> Result<Next, EapFault> {
        self.packets = self.packets.saturating_add(1);
        if self.packets > MAX_PACKETS {
            return Err(EapFault::TooManyPackets);
        }
        if self.held.is_some() {
            return Err(EapFault::OutOfState);
        }
        if response.code != EapCode::RESPONSE || response.identifier != self.identifier {
            return Err(EapFault::OutOfState);
        }
        let (&kind, data) = response.data.split_first().ok_or(EapFault::Malformed)?;
        match &mut self.stage {
            Stage::AskedIdentity if kind == IDENTITY => {
                self.identity = Some(parse_identity(data)?.into());
                self.begin_first_method(next, context)
            }
            Stage::Method { method, is_first: true } if kind == NAK => {
                let refused = method.method();
                self.on_nak(refused, data, next, context)
            }
            Stage::Method { method, is_first } if kind == method.method().id() => {
                *is_first = false;
                let response = MethodRequest { identifier: self.identifier, data };
                match method.receive(&response, context)? {
                    ServerStep::Request(data) => Ok(Next::Request { kind, data }),
                    ServerStep::Finished(done) => {
                        let (kind, inner) = (method.method(), method.proven_identity().map(Vec::from));
                        let identity = self.proven_identity(inner.as_deref())?;
                        Authenticated::new(kind, identity, done.msk).map(Next::Succeeded)
                    }
                }
            }
            Stage::Begin | Stage::AskedIdentity | Stage::Method { .. } | Stage::Ended => {
                Err(EapFault::OutOfState)
            }
        }
    }

    /// Begins the first of our methods that the peer proposes (RFC 3748 section 5.3.1). A refused method is
    /// not chosen again, so the peer can refuse each method once.
    fn on_nak(
        &mut self,
        refused: Method,
        proposed: &[u8],
        next: u8,
        context: &mut EapContext<'_>,
    ) -> Result<Next, EapFault> {
        self.refused.push(refused);
        let is_proposed =
            |method: &&Method| !self.refused.contains(method) && proposed.contains(&method.id());
        let other = self.methods.iter().find(is_proposed).copied().ok_or(EapFault::NoMethod)?;
        self.begin_method(other, next, context)
    }

    /// Goes on with a step, unless the status of the peer's certificates forbids it.
    fn release(&mut self, step: Next, next: u8) -> AuthenticatorStep {
        let status = match &mut self.stage {
            Stage::Method { method, .. } => method.certificate_status(),
            Stage::Begin | Stage::AskedIdentity | Stage::Ended => CertificateStatus::Accepted,
        };
        match status {
            CertificateStatus::Accepted => self.finish(Ok(step), next),
            CertificateStatus::Pending => {
                self.held = Some(step);
                AuthenticatorStep::Pending
            }
            CertificateStatus::Refused => self.finish(Err(EapFault::PeerCertificate), next),
        }
    }

    /// Turns a step into a packet. A request has the identifier `next`; RFC 3748 section 4.2: success and
    /// failure have that of the last response.
    fn finish(&mut self, step: Result<Next, EapFault>, next: u8) -> AuthenticatorStep {
        match step {
            Ok(Next::Request { kind, data }) => {
                self.identifier = next;
                AuthenticatorStep::Request(EapPacket::request(next, kind, &data))
            }
            Ok(Next::Succeeded(authenticated)) => {
                self.stage = Stage::Ended;
                AuthenticatorStep::Succeeded(EapPacket::success(self.identifier), authenticated)
            }
            Err(fault) => {
                self.stage = Stage::Ended;
                AuthenticatorStep::Failed(EapPacket::failure(self.identifier), fault)
            }
        }
    }
}

/// Returns the identity in the response to an identity request. It ends at the first zero byte (RFC 3748
/// section 5.1).
fn parse_identity(data: &[u8]) -> Result<&[u8], EapFault> {
    let identity = data.split(|byte| *byte == 0).next().unwrap_or_default();
    if identity.len() > MAX_IDENTITY { Err(EapFault::Malformed) } else { Ok(identity) }
}

impl Authenticator for LocalAuthenticator {
    fn start(&mut self, context: &mut EapContext<'_>) -> AuthenticatorStep {
        let step = self.begin(context);
        self.finish(step, self.identifier)
    }

    fn receive(&mut self, response: &Eap<'_>, context: &mut EapContext<'_>) -> AuthenticatorStep {
        let next = self.identifier.wrapping_add(1);
        match self.step(response, next, context) {
            Ok(step) => self.release(step, next),
            Err(fault) => self.finish(Err(fault), next),
        }
    }

    fn poll(&mut self, _context: &mut EapContext<'_>) -> AuthenticatorStep {
        match self.held.take() {
            Some(step) => self.release(step, self.identifier.wrapping_add(1)),
            None => self.finish(Err(EapFault::OutOfState), self.identifier),
        }
    }

    fn identity(&self) -> Option<&[u8]> {
        self.identity.as_deref()
    }

    fn held_bytes(&self) -> usize {
        match &self.stage {
            Stage::Method { method, .. } => method.held_bytes(),
            Stage::Begin | Stage::AskedIdentity | Stage::Ended => 0,
        }
    }

    fn fault(&self) -> Option<EapFault> {
        match &self.stage {
            Stage::Method { method, .. } => method.fault(),
            Stage::Begin | Stage::AskedIdentity | Stage::Ended => None,
        }
    }
}
