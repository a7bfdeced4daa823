//! PEAP version 0 ([MS-PEAP]; draft-kamath-pppext-peapv0): EAP in a TLS session, whose result both sides
//! confirm inside.
//!
//! The server proves its identity with a certificate. The peer then proves its identity with a password by
//! another EAP method. Packets in the tunnel have no header: their code and identifier are those of the
//! packet outside. Only the packet with the result has one. It binds the keys of the method inside to the TLS
//! session (cryptobinding), so that an attacker who ends TLS cannot pass on a conversation that a peer has
//! without tunnel.
//!
//! The authenticator requires the cryptobinding after methods with keys. The peer verifies it if it is
//! present: not every server has it, and the certificate of the server is verified anyway.

mod binding;
mod server;
mod tlv;

pub(in crate::method) use server::PeapServer;

use super::framing::{Fragment, acknowledgement};
use super::{LABEL, MAX_MESSAGE, Received, TlsConnection};
use crate::method::{Finished, MethodRequest, PeerMethod};
use crate::packet::TypeData;
use crate::tls::TlsRole;
use crate::{CertificateStatus, EapContext, EapFault, Method, Peer, PeerStep};
use binding::{Direction, Keys};
use casemate_crypto::SecretBytes;
use casemate_wire::ike::{Eap, EapCode};
use tlv::{Extensions, Status};

/// The peer.
pub(in crate::method) struct PeapPeer {
    /// The session, once the authenticator has begun.
    connection: Option<TlsConnection>,
    /// The conversation in the tunnel.
    inner: Peer,
    /// Keys of the tunnel, once the server is authenticated.
    tunnel: Option<SecretBytes>,
    state: State,
}

enum State {
    /// The result is not known.
    Open,
    /// Both sides have confirmed success in the tunnel.
    Accepted(SecretBytes),
    /// Both sides have confirmed failure in the tunnel.
    Failed(EapFault),
}

impl PeapPeer {
    pub(in crate::method) fn new(identity: &[u8]) -> Self {
        let inner = Peer::new(identity.into(), Method::WITH_PASSWORD.into());
        Self { connection: None, inner, tunnel: None, state: State::Open }
    }

    fn on_message(&mut self, identifier: u8, context: &mut EapContext<'_>) -> Result<TypeData, EapFault> {
        let connection = self.connection.as_mut().ok_or(EapFault::OutOfState)?;
        let Some(established) = connection.established() else {
            return connection.send().ok_or(EapFault::OutOfState);
        };
        // Nothing about the user leaves this host before the server is authenticated.
        if !established.is_peer_certified {
            return Err(EapFault::Tls);
        }
        if self.tunnel.is_none() {
            self.tunnel = Some(connection.msk(Method::Peap, LABEL)?);
        }
        let data = connection.read();
        if !data.is_empty() {
            let response = self.on_data(&data, identifier, context)?;
            let connection = self.connection.as_mut().ok_or(EapFault::OutOfState)?;
            connection.write(&response)?;
        }
        let connection = self.connection.as_mut().ok_or(EapFault::OutOfState)?;
        Ok(connection.send().unwrap_or_else(acknowledgement))
    }

    /// Handles a packet in the tunnel. Returns the response.
    fn on_data(
        &mut self,
        data: &[u8],
        identifier: u8,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        if !matches!(self.state, State::Open) {
            return Err(EapFault::OutOfState);
        }
        if let Some(extensions) = Extensions::parse(EapCode::REQUEST, data)? {
            return self.on_result(&extensions, context);
        }
        let request = Eap { code: EapCode::REQUEST, identifier, data };
        match self.inner.receive(&request, context) {
            PeerStep::Respond(response) => Ok(crate::packet::type_data(&[response.as_payload().data])),
            PeerStep::Succeeded(_) | PeerStep::Pending => Err(EapFault::OutOfState),
            PeerStep::Failed(fault) => Err(fault.in_tunnel()),
        }
    }

    fn on_result(
        &mut self,
        extensions: &Extensions<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        if extensions.status == Status::Failure {
            self.state = State::Failed(EapFault::RefusedInTunnel);
            return tlv::response(extensions, Status::Failure, None);
        }
        // CVE-2023-52160: wpa_supplicant accepted the result without the conversation in the tunnel.
        let done = self.inner.end_with_success()?;
        let tunnel = self.tunnel.as_ref().ok_or(EapFault::MissingKey)?;
        let Some(request) = &extensions.binding else {
            self.state = State::Accepted(tunnel.clone());
            return tlv::response(extensions, Status::Success, None);
        };
        let keys = Keys::new(tunnel, &done, context)?;
        keys.verify(request, Direction::Request, context).map_err(|_| EapFault::WrongAuthenticator)?;
        let binding = keys.binding(Direction::Response, context)?;
        self.state = State::Accepted(keys.msk);
        tlv::response(extensions, Status::Success, Some(&binding))
    }
}

impl PeerMethod for PeapPeer {
    fn method(&self) -> Method {
        Method::Peap
    }

    fn respond(
        &mut self,
        request: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        let Some(connection) = &mut self.connection else {
            if !Fragment::parse(request.data)?.is_start() {
                return Err(EapFault::OutOfState);
            }
            let session = context.credentials.tls(TlsRole::Client { has_certificate: false })?;
            let connection = self.connection.insert(TlsConnection::new(session, MAX_MESSAGE));
            return connection.send().ok_or(EapFault::Tls);
        };
        match connection.receive(request.data)? {
            Received::Reply(reply) => Ok(reply),
            Received::Acknowledged => Err(EapFault::OutOfState),
            Received::Message => self.on_message(request.identifier, context),
        }
    }

    fn certificate_status(&mut self) -> CertificateStatus {
        self.connection.as_mut().map_or(CertificateStatus::Accepted, TlsConnection::certificate_status)
    }

    fn fault(&self) -> Option<EapFault> {
        match self.state {
            State::Failed(fault) => Some(fault),
            State::Open | State::Accepted(_) => self.tunnel.as_ref().map(|_| EapFault::RefusedInTunnel),
        }
    }

    fn finish(&mut self) -> Option<Finished> {
        match core::mem::replace(&mut self.state, State::Failed(EapFault::OutOfState)) {
            State::Accepted(msk) => Some(Finished { msk: Some(msk) }),
            State::Open | State::Failed(_) => None,
        }
    }
}
