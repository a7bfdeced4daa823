//! EAP-TTLS version 0 (RFC 5281; with TLS 1.3, RFC 9427), with EAP in the tunnel.
//!
//! The server proves its identity with a certificate. The peer then proves its identity with a password by
//! another EAP method, which runs inside the TLS session.

mod avp;
mod server;

pub(in crate::method) use server::TtlsServer;

use super::framing::{Fragment, acknowledgement};
use super::{MAX_MESSAGE, Received, TlsConnection};
use crate::method::{Finished, IDENTITY, MethodRequest, PeerMethod};
use crate::packet::TypeData;
use crate::tls::TlsRole;
use crate::{CertificateStatus, EapContext, EapFault, EapPacket, Method, Peer, PeerStep};
use casemate_crypto::SecretBytes;

/// Label of the key material with TLS 1.2 (RFC 5281 section 8).
const LABEL: &str = "ttls keying material";

/// The peer.
pub(in crate::method) struct TtlsPeer {
    /// The session, once the authenticator has begun.
    connection: Option<TlsConnection>,
    /// The conversation in the tunnel.
    inner: Peer,
    /// Master session key, once the server is authenticated and the conversation in the tunnel has begun.
    msk: Option<SecretBytes>,
    /// Whether the authenticator has announced success in the tunnel.
    is_accepted: bool,
}

impl TtlsPeer {
    pub(in crate::method) fn new(identity: &[u8]) -> Self {
        let inner = Peer::new(identity.into(), Method::WITH_PASSWORD.into());
        Self { connection: None, inner, msk: None, is_accepted: false }
    }

    fn on_message(&mut self, context: &mut EapContext<'_>) -> Result<TypeData, EapFault> {
        let connection = self.connection.as_mut().ok_or(EapFault::OutOfState)?;
        let Some(established) = connection.established() else {
            return connection.send().ok_or(EapFault::OutOfState);
        };
        // Nothing about the user leaves this host before the server is authenticated.
        if !established.is_peer_certified {
            return Err(EapFault::Tls);
        }
        let data = connection.read();
        let is_first = self.msk.is_none();
        if is_first {
            self.msk = Some(connection.msk(Method::Ttls, LABEL)?);
        }
        if !data.is_empty() {
            match self.inner.receive(&avp::parse(&data)?, context) {
                PeerStep::Respond(response) => connection.write(&avp::write(&response)?)?,
                PeerStep::Succeeded(_) => self.is_accepted = true,
                PeerStep::Pending => return Err(EapFault::OutOfState),
                PeerStep::Failed(fault) => return Err(fault.in_tunnel()),
            }
        } else if is_first {
            // RFC 5281 section 11.2.1: the client begins, without a request.
            let identity = EapPacket::response(0, IDENTITY, self.inner.identity());
            connection.write(&avp::write(&identity)?)?;
        }
        Ok(connection.send().unwrap_or_else(acknowledgement))
    }
}

impl PeerMethod for TtlsPeer {
    fn method(&self) -> Method {
        Method::Ttls
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
            Received::Message => self.on_message(context),
        }
    }

    fn certificate_status(&mut self) -> CertificateStatus {
        self.connection.as_mut().map_or(CertificateStatus::Accepted, TlsConnection::certificate_status)
    }

    fn fault(&self) -> Option<EapFault> {
        self.msk.as_ref().map(|_| EapFault::RefusedInTunnel)
    }

    /// The authenticator announces success outside the tunnel (RFC 5281 section 7.6). The method in the
    /// tunnel decides whether that is early.
    fn finish(&mut self) -> Option<Finished> {
        let is_accepted = self.is_accepted || self.inner.end_with_success().is_ok();
        is_accepted.then(|| self.msk.take()).flatten().map(|msk| Finished { msk: Some(msk) })
    }
}
