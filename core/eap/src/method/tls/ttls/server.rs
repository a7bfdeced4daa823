//! The authenticator of EAP-TTLS.

use super::{LABEL, avp};
use crate::method::tls::framing::start_packet;
use crate::method::tls::{HandshakeStep, Received, TlsConnection};
use crate::method::{Finished, MethodRequest, ServerMethod, ServerStep};
use crate::packet::TypeData;
use crate::tls::TlsRole;
use crate::{
    Authenticator as _, AuthenticatorStep, EapContext, EapFault, EapPacket, LocalAuthenticator, Method,
};
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_wire::ike::Eap;
use core::mem;

/// The authenticator.
pub(in crate::method) struct TtlsServer {
    max_message: usize,
    state: State,
    /// The conversation in the tunnel.
    inner: LocalAuthenticator,
    has_begun: bool,
    /// Identity that the peer has proved in the tunnel.
    proven: Option<Vec<u8>>,
}

enum State {
    Begin,
    Handshake(TlsConnection),
    /// The tunnel is established.
    Tunnel(Tunnel),
    Ended,
}

struct Tunnel {
    connection: TlsConnection,
    msk: SecretBytes,
}

impl TtlsServer {
    pub(in crate::method) fn new(max_message: usize) -> Self {
        let inner = LocalAuthenticator::new(None, Method::WITH_PASSWORD.into());
        Self { max_message, state: State::Begin, inner, has_begun: false, proven: None }
    }

    fn on_handshake(
        &mut self,
        mut connection: TlsConnection,
        data: &[u8],
        context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        match connection.handshake(data)? {
            HandshakeStep::Reply(reply) => {
                self.state = State::Handshake(connection);
                Ok(ServerStep::Request(reply))
            }
            HandshakeStep::Established(_) => {
                let msk = connection.msk(Method::Ttls, LABEL)?;
                let (data, last) = (connection.read(), connection.send());
                let tunnel = Tunnel { connection, msk };
                match last {
                    // With TLS 1.2, the server ends the handshake.
                    Some(last) if data.is_empty() => {
                        self.state = State::Tunnel(tunnel);
                        Ok(ServerStep::Request(last))
                    }
                    Some(_) => Err(EapFault::OutOfState),
                    None if data.is_empty() => self.ask(tunnel, context),
                    None => self.on_data(tunnel, &data, context),
                }
            }
        }
    }

    fn on_tunnel(
        &mut self,
        mut tunnel: Tunnel,
        data: &[u8],
        context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        match tunnel.connection.receive(data)? {
            Received::Reply(reply) => {
                self.state = State::Tunnel(tunnel);
                Ok(ServerStep::Request(reply))
            }
            Received::Acknowledged if self.has_begun => Err(EapFault::OutOfState),
            Received::Acknowledged => self.ask(tunnel, context),
            Received::Message => {
                let data = tunnel.connection.read();
                self.on_data(tunnel, &data, context)
            }
        }
    }

    /// Asks a peer that does not begin itself for its identity.
    fn ask(&mut self, tunnel: Tunnel, context: &mut EapContext<'_>) -> Result<ServerStep, EapFault> {
        let request = self.begin_inner(context)?;
        self.send(tunnel, &request)
    }

    fn begin_inner(&mut self, context: &mut EapContext<'_>) -> Result<EapPacket, EapFault> {
        self.has_begun = true;
        match self.inner.start(context) {
            AuthenticatorStep::Request(request) => Ok(request),
            // An authenticator that verifies proofs itself is never pending.
            AuthenticatorStep::Succeeded(..) | AuthenticatorStep::Pending => Err(EapFault::OutOfState),
            AuthenticatorStep::Failed(_, fault) => Err(fault),
        }
    }

    fn on_data(
        &mut self,
        tunnel: Tunnel,
        data: &[u8],
        context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        let mut packet = avp::parse(data)?;
        if !self.has_begun {
            // RFC 5281 section 11.2.1: the client sends its identity without a request.
            self.begin_inner(context)?;
            packet = Eap { identifier: self.inner.identifier(), ..packet };
        }
        match self.inner.receive(&packet, context) {
            AuthenticatorStep::Request(request) => self.send(tunnel, &request),
            AuthenticatorStep::Succeeded(_, done) => {
                self.proven = Some(done.identity);
                Ok(ServerStep::Finished(Finished { msk: Some(tunnel.msk) }))
            }
            AuthenticatorStep::Failed(_, fault) => Err(fault),
            AuthenticatorStep::Pending => Err(EapFault::OutOfState),
        }
    }

    fn send(&mut self, mut tunnel: Tunnel, request: &EapPacket) -> Result<ServerStep, EapFault> {
        tunnel.connection.write(&avp::write(request)?)?;
        let reply = tunnel.connection.send().ok_or(EapFault::Tls)?;
        self.state = State::Tunnel(tunnel);
        Ok(ServerStep::Request(reply))
    }
}

impl ServerMethod for TtlsServer {
    fn method(&self) -> Method {
        Method::Ttls
    }

    fn held_bytes(&self) -> usize {
        match &self.state {
            State::Handshake(connection) => connection.held_bytes(),
            State::Tunnel(tunnel) => tunnel.connection.held_bytes(),
            State::Begin | State::Ended => 0,
        }
    }

    fn fault(&self) -> Option<EapFault> {
        self.inner.fault()
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
            State::Handshake(connection) => self.on_handshake(connection, response.data, context),
            State::Tunnel(tunnel) => self.on_tunnel(tunnel, response.data, context),
            State::Begin | State::Ended => Err(EapFault::OutOfState),
        }
    }

    fn proven_identity(&self) -> Option<&[u8]> {
        self.proven.as_deref()
    }
}
