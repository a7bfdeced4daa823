//! The peer of EAP-TLS.

use super::framing::{Fragment, acknowledgement};
use super::{LABEL, SUCCESS_INDICATION};
use super::{MAX_MESSAGE, Received, TlsConnection};
use crate::method::{Finished, MethodRequest, PeerMethod};
use crate::packet::TypeData;
use crate::tls::{TlsRole, TlsVersion};
use crate::{CertificateStatus, EapContext, EapFault, Method};
use casemate_crypto::SecretBytes;

/// The peer.
#[derive(Default)]
pub(in crate::method) struct TlsPeer {
    /// The session, once the authenticator has begun.
    connection: Option<TlsConnection>,
    /// Result, once the authenticator has done all that is required of it.
    msk: Option<SecretBytes>,
}

impl TlsPeer {
    fn on_message(&mut self) -> Result<TypeData, EapFault> {
        let connection = self.connection.as_mut().ok_or(EapFault::OutOfState)?;
        let (output, data) = (connection.send(), connection.read());
        let Some(established) = connection.established() else {
            return output.ok_or(EapFault::OutOfState);
        };
        if !established.is_peer_certified {
            return Err(EapFault::Tls);
        }
        if let Some(output) = output {
            // RFC 9190 section 2.5: success is indicated after the last message of the client, not before.
            return if data.is_empty() { Ok(output) } else { Err(EapFault::EarlySuccess) };
        }
        let is_complete = match established.version {
            TlsVersion::V12 if data.is_empty() => true,
            TlsVersion::V13 if data.is_empty() => false,
            TlsVersion::V13 if *data == SUCCESS_INDICATION => true,
            TlsVersion::V12 | TlsVersion::V13 => return Err(EapFault::Malformed),
        };
        if is_complete {
            self.msk = Some(connection.msk(Method::Tls, LABEL)?);
        }
        Ok(acknowledgement())
    }
}

impl PeerMethod for TlsPeer {
    fn method(&self) -> Method {
        Method::Tls
    }

    fn respond(
        &mut self,
        request: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        if self.msk.is_some() {
            return Err(EapFault::OutOfState);
        }
        let Some(connection) = &mut self.connection else {
            if !Fragment::parse(request.data)?.is_start() {
                return Err(EapFault::OutOfState);
            }
            let session = context.credentials.tls(TlsRole::Client { has_certificate: true })?;
            let connection = self.connection.insert(TlsConnection::new(session, MAX_MESSAGE));
            return connection.send().ok_or(EapFault::Tls);
        };
        match connection.receive(request.data)? {
            Received::Reply(reply) => Ok(reply),
            Received::Acknowledged => Err(EapFault::OutOfState),
            Received::Message => self.on_message(),
        }
    }

    fn certificate_status(&mut self) -> CertificateStatus {
        self.connection.as_mut().map_or(CertificateStatus::Accepted, TlsConnection::certificate_status)
    }

    fn finish(&mut self) -> Option<Finished> {
        self.msk.take().map(|msk| Finished { msk: Some(msk) })
    }
}
