//! Requests of the server to end a session (RFC 5176).

use crate::RadiusFault;
use crate::attribute::{
    ACCT_SESSION_ID, CALLED_ID, CALLING_ID, ERROR_CAUSE, EVENT_TIMESTAMP, FRAMED_IP_ADDRESS,
    MESSAGE_AUTHENTICATOR, NAS_IDENTIFIER, NAS_IP_ADDRESS, NAS_IPV6_ADDRESS, NAS_PORT_TYPE, SERVICE_TYPE,
    USER_NAME,
};
use crate::packet::{Code, Packet};
use crate::proof::{verify_digest, verify_message};
use crate::writer::Writer;
use alloc::vec::Vec;
use casemate_crypto::{PasswordAlgorithms, SecretBytes};
use core::net::Ipv4Addr;

/// Why a request is refused (RFC 5176 section 3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCause {
    /// An attribute that this host does not know how to match.
    UnsupportedAttribute,
    /// No attribute names a session.
    MissingAttribute,
    /// The request is not implemented.
    UnsupportedExtension,
    /// There is no such session.
    SessionNotFound,
}

impl ErrorCause {
    const fn number(self) -> u32 {
        match self {
            Self::UnsupportedAttribute => 401,
            Self::MissingAttribute => 402,
            Self::UnsupportedExtension => 406,
            Self::SessionNotFound => 503,
        }
    }
}

/// Which sessions to end: those that match everything that is given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DisconnectRequest {
    /// User-Name.
    pub user_name: Option<Vec<u8>>,
    /// Acct-Session-Id.
    pub session_id: Option<Vec<u8>>,
    /// Framed-IP-Address.
    pub addr: Option<Ipv4Addr>,
    /// Calling-Station-Id.
    pub calling_id: Option<Vec<u8>>,
}

/// A request of the server, verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dynamic {
    code: Code,
    identifier: u8,
    authenticator: [u8; 16],
    /// What to do, or why the request is refused.
    pub request: Result<DisconnectRequest, ErrorCause>,
}

impl Dynamic {
    /// Parses and verifies a datagram of the server.
    pub fn parse(
        datagram: &[u8],
        md5: &dyn PasswordAlgorithms,
        secret: &SecretBytes,
    ) -> Result<Self, RadiusFault> {
        let packet = Packet::parse(datagram)?;
        if !matches!(packet.code, Code::DISCONNECT_REQUEST | Code::COA_REQUEST) {
            return Err(RadiusFault::Unexpected);
        }
        verify_digest(md5, &packet, &[0; 16], secret)?;
        // RFC 5176 section 3.4 leaves it optional.
        verify_message(md5, &packet, &[0; 16], secret)?;
        let Packet { code, identifier, authenticator, .. } = packet;
        let request = match code {
            Code::DISCONNECT_REQUEST => sessions(&packet),
            _ => Err(ErrorCause::UnsupportedExtension),
        };
        Ok(Self { code, identifier, authenticator, request })
    }

    /// The response: whether sessions were ended, or why not.
    pub fn respond(
        &self,
        result: Result<(), ErrorCause>,
        md5: &dyn PasswordAlgorithms,
        secret: &SecretBytes,
    ) -> Result<Vec<u8>, RadiusFault> {
        let code = match (result, self.code) {
            (Ok(()), _) => Code::DISCONNECT_ACK,
            (Err(_), Code::DISCONNECT_REQUEST) => Code::DISCONNECT_NAK,
            (Err(_), _) => Code::COA_NAK,
        };
        let mut out = Writer::new(code, self.identifier);
        if let Err(cause) = result {
            out.number(ERROR_CAUSE, cause.number());
        }
        out.finish_digest(&self.authenticator, md5, secret)
    }
}

/// Which sessions a request names. An attribute that is not compared must not be ignored, because it may
/// exclude sessions (RFC 5176 section 3.3).
fn sessions(packet: &Packet<'_>) -> Result<DisconnectRequest, ErrorCause> {
    let mut request = DisconnectRequest::default();
    for attribute in packet.attributes() {
        let value = attribute.value;
        match attribute.kind {
            USER_NAME => request.user_name = Some(value.into()),
            ACCT_SESSION_ID => request.session_id = Some(value.into()),
            CALLING_ID => request.calling_id = Some(value.into()),
            FRAMED_IP_ADDRESS => {
                let octets: [u8; 4] = value.try_into().map_err(|_| ErrorCause::UnsupportedAttribute)?;
                request.addr = Some(octets.into());
            }
            // They name this host, or say nothing about sessions.
            NAS_IP_ADDRESS
            | NAS_IPV6_ADDRESS
            | NAS_IDENTIFIER
            | NAS_PORT_TYPE
            | SERVICE_TYPE
            | CALLED_ID
            | EVENT_TIMESTAMP
            | MESSAGE_AUTHENTICATOR => {}
            _ => return Err(ErrorCause::UnsupportedAttribute),
        }
    }
    if request == DisconnectRequest::default() { Err(ErrorCause::MissingAttribute) } else { Ok(request) }
}
