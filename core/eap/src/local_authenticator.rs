//! An authenticator that verifies the proof itself.

use crate::method::{IDENTITY, MethodRequest, NAK, ServerMethod, ServerStep};
use crate::{
    Authenticated, Authenticator, AuthenticatorStep, EapContext, EapFault, EapPacket, MAX_PACKETS, Method,
};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use casemate_wire::ike::{Eap, EapCode};

/// Maximum length of an EAP identity in bytes: that of a network access identifier with which every RADIUS
/// server can deal (RFC 7542 section 2.3).
const MAX_IDENTITY: usize = 253;

/// An [`Authenticator`] that verifies the proof with the passwords of
/// [`EapCredentials`](crate::EapCredentials).
pub struct LocalAuthenticator {
    /// Identity of the peer, once it is known.
    identity: Option<Vec<u8>>,
    methods: Vec<Method>,
    stage: Stage,
    /// Identifier of the outstanding request.
    identifier: u8,
    packets: u32,
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
    Request(Vec<u8>),
    Succeeded(Authenticated),
}

impl LocalAuthenticator {
    /// Creates an authenticator that accepts `methods`, in order of preference. It asks the peer for its
    /// identity if `identity` is `None`.
    pub const fn new(identity: Option<Vec<u8>>, methods: Vec<Method>) -> Self {
        Self { identity, methods, stage: Stage::Begin, identifier: 0, packets: 0 }
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
            return Ok(Next::Request(vec![IDENTITY]));
        }
        let first = self.methods.first().copied().ok_or(EapFault::NoMethod)?;
        self.begin_method(first, context)
    }

    fn begin_method(&mut self, method: Method, context: &mut EapContext<'_>) -> Result<Next, EapFault> {
        let identity = self.identity.as_deref().ok_or(EapFault::OutOfState)?;
        let mut method = method.server(identity);
        let data = method.begin(self.identifier, context)?;
        let request = [&[method.method().id()], &*data].concat();
        self.stage = Stage::Method { method, is_first: true };
        Ok(Next::Request(request))
    }

    fn step(&mut self, response: &Eap<'_>, context: &mut EapContext<'_>) -> Result<Next, EapFault> {
        self.packets = self.packets.saturating_add(1);
        if self.packets > MAX_PACKETS {
            return Err(EapFault::TooManyPackets);
        }
        if response.code != EapCode::RESPONSE || response.identifier != self.identifier {
            return Err(EapFault::OutOfState);
        }
        let (&kind, data) = response.data.split_first().ok_or(EapFault::Malformed)?;
        let answered = self.identifier;
        self.identifier = answered.wrapping_add(1);
        match &mut self.stage {
            Stage::AskedIdentity if kind == IDENTITY => {
                // An identity ends at the first zero byte (RFC 3748 section 5.1).
                let identity = data.split(|byte| *byte == 0).next().unwrap_or_default();
                if identity.len() > MAX_IDENTITY {
                    return Err(EapFault::Malformed);
                }
                self.identity = Some(identity.into());
                let first = self.methods.first().copied().ok_or(EapFault::NoMethod)?;
                self.begin_method(first, context)
            }
            Stage::Method { method, is_first: true } if kind == NAK => {
                let refused = method.method();
                let proposed = |method: &&Method| **method != refused && data.contains(&method.id());
                let other = self.methods.iter().find(proposed).copied().ok_or(EapFault::NoMethod)?;
                // The refused method must not be chosen again.
                self.methods.retain(|method| *method != refused);
                self.begin_method(other, context)
            }
            Stage::Method { method, is_first } if kind == method.method().id() => {
                *is_first = false;
                let response = MethodRequest { identifier: answered, data };
                match method.receive(&response, self.identifier, context)? {
                    ServerStep::Request(data) => Ok(Next::Request([&[kind], &*data].concat())),
                    ServerStep::Finished(done) => {
                        let identity = self.identity.clone().ok_or(EapFault::OutOfState)?;
                        Authenticated::new(method.method(), identity, done.msk).map(Next::Succeeded)
                    }
                }
            }
            Stage::Begin | Stage::AskedIdentity | Stage::Method { .. } | Stage::Ended => {
                Err(EapFault::OutOfState)
            }
        }
    }

    fn conclude(&mut self, next: Result<Next, EapFault>) -> AuthenticatorStep {
        match next {
            Ok(Next::Request(data)) => AuthenticatorStep::Request(EapPacket::request(self.identifier, data)),
            // RFC 3748 section 4.2: Success and Failure have the identifier of the last response.
            Ok(Next::Succeeded(authenticated)) => {
                self.stage = Stage::Ended;
                let packet = EapPacket::success(self.identifier.wrapping_sub(1));
                AuthenticatorStep::Succeeded(packet, authenticated)
            }
            Err(fault) => {
                self.stage = Stage::Ended;
                AuthenticatorStep::Failed(EapPacket::failure(self.identifier.wrapping_sub(1)), fault)
            }
        }
    }
}

impl Authenticator for LocalAuthenticator {
    fn start(&mut self, context: &mut EapContext<'_>) -> AuthenticatorStep {
        let next = self.begin(context);
        self.conclude(next)
    }

    fn receive(&mut self, response: &Eap<'_>, context: &mut EapContext<'_>) -> AuthenticatorStep {
        let next = self.step(response, context);
        self.conclude(next)
    }

    fn identity(&self) -> Option<&[u8]> {
        self.identity.as_deref()
    }
}
