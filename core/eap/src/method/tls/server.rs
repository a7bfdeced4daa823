//! The authenticator of EAP-TLS.

use super::framing::start_packet;
use super::{HandshakeStep, Received, TlsConnection};
use super::{LABEL, SUCCESS_INDICATION};
use crate::method::{Finished, MethodRequest, ServerMethod, ServerStep};
use crate::packet::TypeData;
use crate::tls::{TlsRole, TlsVersion};
use crate::{CertificateStatus, EapContext, EapFault, Method};
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use core::mem;

/// The authenticator.
pub(in crate::method) struct TlsServer {
    identity: Vec<u8>,
    max_message: usize,
    state: State,
}

enum State {
    Begin,
    Handshake(TlsConnection),
    /// The handshake has finished, and the peer has to acknowledge our last message.
    Established(TlsConnection, SecretBytes),
    Ended,
}

impl TlsServer {
    pub(in crate::method) fn new(identity: &[u8], max_message: usize) -> Self {
        Self { identity: identity.into(), max_message, state: State::Begin }
    }

    fn on_handshake(&mut self, mut connection: TlsConnection, data: &[u8]) -> Result<TypeData, EapFault> {
        let established = match connection.handshake(data)? {
            HandshakeStep::Established(established) => established,
            HandshakeStep::Reply(reply) => {
                self.state = State::Handshake(connection);
                return Ok(reply);
            }
        };
        // RFC 5216 section 2.1.1: no peer succeeds without a certificate.
        if !established.is_peer_certified || !connection.read().is_empty() {
            return Err(EapFault::Tls);
        }
        let msk = connection.msk(Method::Tls, LABEL)?;
        if established.version == TlsVersion::V13 {
            connection.write(&SUCCESS_INDICATION)?;
        }
        let reply = connection.send().ok_or(EapFault::OutOfState)?;
        self.state = State::Established(connection, msk);
        Ok(reply)
    }

    fn on_established(
        &mut self,
        mut connection: TlsConnection,
        msk: SecretBytes,
        data: &[u8],
    ) -> Result<ServerStep, EapFault> {
        match connection.receive(data)? {
            Received::Reply(reply) => {
                self.state = State::Established(connection, msk);
                Ok(ServerStep::Request(reply))
            }
            Received::Acknowledged => Ok(ServerStep::Finished(Finished { msk: Some(msk) })),
            Received::Message => Err(EapFault::OutOfState),
        }
    }
}

impl ServerMethod for TlsServer {
    fn method(&self) -> Method {
        Method::Tls
    }

    fn begin(&mut self, _identifier: u8, context: &mut EapContext<'_>) -> Result<TypeData, EapFault> {
        let role = TlsRole::Server { client: Some(&self.identity) };
        let session = context.credentials.tls(role)?;
        self.state = State::Handshake(TlsConnection::new(session, self.max_message));
        Ok(start_packet())
    }

    fn receive(
        &mut self,
        response: &MethodRequest<'_>,
        _context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        match mem::replace(&mut self.state, State::Ended) {
            State::Handshake(connection) => {
                self.on_handshake(connection, response.data).map(ServerStep::Request)
            }
            State::Established(connection, msk) => self.on_established(connection, msk, response.data),
            State::Begin | State::Ended => Err(EapFault::OutOfState),
        }
    }

    fn held_bytes(&self) -> usize {
        match &self.state {
            State::Handshake(connection) | State::Established(connection, _) => connection.held_bytes(),
            State::Begin | State::Ended => 0,
        }
    }

    fn certificate_status(&mut self) -> CertificateStatus {
        match &mut self.state {
            State::Handshake(connection) | State::Established(connection, _) => {
                connection.certificate_status()
            }
            // Success is not reported before the state `Established`.
            State::Begin | State::Ended => CertificateStatus::Accepted,
        }
    }
}
