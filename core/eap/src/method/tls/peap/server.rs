//! The authenticator of PEAP.

use super::binding::{Direction, Keys};
use super::tlv::{self, Extensions, Status};
use crate::method::tls::framing::start_packet;
use crate::method::tls::{HandshakeStep, LABEL, Received, TlsConnection};
use crate::method::{Finished, MethodRequest, ServerMethod, ServerStep};
use crate::packet::TypeData;
use crate::tls::TlsRole;
use crate::{
    Authenticated, Authenticator as _, AuthenticatorStep, EapContext, EapFault, LocalAuthenticator, Method,
};
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_wire::ike::{Eap, EapCode};
use core::mem;

/// The authenticator.
pub(in crate::method) struct PeapServer {
    max_message: usize,
    state: State,
    /// The conversation in the tunnel.
    inner: LocalAuthenticator,
    /// Identity that the peer has proved in the tunnel.
    proven: Option<Vec<u8>>,
}

enum State {
    Begin,
    Handshake(TlsConnection),
    /// The tunnel is established. `has_begun`: the peer was asked for its identity.
    Tunnel {
        tunnel: Tunnel,
        has_begun: bool,
    },
    /// The method inside has succeeded, and the peer has to confirm it.
    Accepted(Tunnel, Authenticated),
    /// The failure is sent, and the peer has to confirm it.
    Rejected(EapFault),
    Ended,
}

struct Tunnel {
    connection: TlsConnection,
    key: SecretBytes,
}

impl Tunnel {
    /// Sends a packet in the tunnel.
    fn send(&mut self, packet: &[u8]) -> Result<TypeData, EapFault> {
        self.connection.write(packet)?;
        self.connection.send().ok_or(EapFault::Tls)
    }
}

impl PeapServer {
    pub(in crate::method) fn new(max_message: usize) -> Self {
        let inner = LocalAuthenticator::new(None, Method::WITH_PASSWORD.into());
        Self { max_message, state: State::Begin, inner, proven: None }
    }

    fn on_handshake(
        &mut self,
        mut connection: TlsConnection,
        data: &[u8],
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        match connection.handshake(data)? {
            HandshakeStep::Reply(reply) => {
                self.state = State::Handshake(connection);
                Ok(reply)
            }
            HandshakeStep::Established(_) => {
                let key = connection.msk(Method::Peap, LABEL)?;
                let (data, last) = (connection.read(), connection.send());
                if !data.is_empty() {
                    return Err(EapFault::OutOfState);
                }
                let tunnel = Tunnel { connection, key };
                match last {
                    // With TLS 1.2, the server ends the handshake.
                    Some(last) => {
                        self.state = State::Tunnel { tunnel, has_begun: false };
                        Ok(last)
                    }
                    None => self.ask(tunnel, context),
                }
            }
        }
    }

    /// Asks for the identity.
    fn ask(&mut self, mut tunnel: Tunnel, context: &mut EapContext<'_>) -> Result<TypeData, EapFault> {
        let reply = match self.inner.start(context) {
            AuthenticatorStep::Request(request) => tunnel.send(request.as_payload().data)?,
            AuthenticatorStep::Failed(_, fault) => return Err(fault),
            // An authenticator that verifies proofs itself is never pending.
            AuthenticatorStep::Succeeded(..) | AuthenticatorStep::Pending => {
                return Err(EapFault::OutOfState);
            }
        };
        self.state = State::Tunnel { tunnel, has_begun: true };
        Ok(reply)
    }

    fn on_tunnel(
        &mut self,
        mut tunnel: Tunnel,
        has_begun: bool,
        response: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        match tunnel.connection.receive(response.data)? {
            Received::Reply(reply) => {
                self.state = State::Tunnel { tunnel, has_begun };
                Ok(reply)
            }
            Received::Acknowledged if !has_begun => self.ask(tunnel, context),
            Received::Message if has_begun => self.on_data(tunnel, response, context),
            Received::Acknowledged | Received::Message => Err(EapFault::OutOfState),
        }
    }

    fn on_data(
        &mut self,
        mut tunnel: Tunnel,
        response: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        let data = tunnel.connection.read();
        let packet = Eap { code: EapCode::RESPONSE, identifier: response.identifier, data: &data };
        // The packets inside have the identifiers of those outside.
        self.inner.continue_from(response.identifier);
        match self.inner.receive(&packet, context) {
            AuthenticatorStep::Request(request) => {
                let reply = tunnel.send(request.as_payload().data)?;
                self.state = State::Tunnel { tunnel, has_begun: true };
                Ok(reply)
            }
            AuthenticatorStep::Succeeded(_, done) => {
                let binding = Keys::new(&tunnel.key, &done, context)?.binding(Direction::Request, context)?;
                let result = tlv::request(response.next_identifier(), Status::Success, Some(&binding))?;
                let reply = tunnel.send(&result)?;
                self.state = State::Accepted(tunnel, done);
                Ok(reply)
            }
            AuthenticatorStep::Failed(_, fault) => {
                let result = tlv::request(response.next_identifier(), Status::Failure, None)?;
                let reply = tunnel.send(&result)?;
                self.state = State::Rejected(fault);
                Ok(reply)
            }
            AuthenticatorStep::Pending => Err(EapFault::OutOfState),
        }
    }

    fn on_confirmation(
        &mut self,
        mut tunnel: Tunnel,
        done: Authenticated,
        response: &MethodRequest<'_>,
        context: &EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        let Received::Message = tunnel.connection.receive(response.data)? else {
            return Err(EapFault::OutOfState);
        };
        let data = tunnel.connection.read();
        let result = Extensions::parse(EapCode::RESPONSE, &data)?.ok_or(EapFault::OutOfState)?;
        if result.status == Status::Failure {
            return Err(EapFault::Refused);
        }
        let msk = match result.binding {
            Some(binding) => {
                let keys = Keys::new(&tunnel.key, &done, context)?;
                keys.verify(binding, Direction::Response, context)?;
                keys.msk
            }
            // Nothing could be bound.
            None if done.msk.is_none() => tunnel.key,
            None => return Err(EapFault::NoBinding),
        };
        self.proven = Some(done.identity);
        Ok(ServerStep::Finished(Finished { msk: Some(msk) }))
    }
}

impl ServerMethod for PeapServer {
    fn method(&self) -> Method {
        Method::Peap
    }

    fn held_bytes(&self) -> usize {
        match &self.state {
            State::Handshake(connection) => connection.held_bytes(),
            State::Tunnel { tunnel, .. } | State::Accepted(tunnel, _) => tunnel.connection.held_bytes(),
            State::Begin | State::Rejected(_) | State::Ended => 0,
        }
    }

    fn fault(&self) -> Option<EapFault> {
        match &self.state {
            State::Rejected(fault) => Some(*fault),
            _ => self.inner.fault(),
        }
    }

    fn begin(&mut self, _identifier: u8, context: &mut EapContext<'_>) -> Result<TypeData, EapFault> {
        let session = context.credentials.tls(TlsRole::Server { client: None })?;
        self.state = State::Handshake(TlsConnection::new(session, self.max_message));
        Ok(start_packet())
    }

    fn receive(
        &mut self,
        response: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        match mem::replace(&mut self.state, State::Ended) {
            State::Handshake(connection) => {
                self.on_handshake(connection, response.data, context).map(ServerStep::Request)
            }
            State::Tunnel { tunnel, has_begun } => {
                self.on_tunnel(tunnel, has_begun, response, context).map(ServerStep::Request)
            }
            State::Accepted(tunnel, done) => self.on_confirmation(tunnel, done, response, context),
            State::Rejected(fault) => Err(fault),
            State::Begin | State::Ended => Err(EapFault::OutOfState),
        }
    }

    fn proven_identity(&self) -> Option<&[u8]> {
        self.proven.as_deref()
    }
}
