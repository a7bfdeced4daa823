//! Payload bodies by payload type.

use super::{
    Auth, Cert, CertReq, Cp, Delete, Eap, Encrypted, Fault, Id, Ke, Nonce, Notify, Payload, PayloadType, Sa,
    Ts, Vendor,
};

/// Content of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// Security Association.
    Sa(Sa<'a>),
    /// Key Exchange.
    Ke(Ke<'a>),
    /// Identification of the initiator.
    IdI(Id<'a>),
    /// Identification of the responder.
    IdR(Id<'a>),
    /// Certificate.
    Cert(Cert<'a>),
    /// Certificate Request.
    CertReq(CertReq<'a>),
    /// Authentication.
    Auth(Auth<'a>),
    /// Nonce.
    Nonce(Nonce<'a>),
    /// Notify.
    Notify(Notify<'a>),
    /// Delete.
    Delete(Delete<'a>),
    /// Vendor ID.
    Vendor(Vendor<'a>),
    /// Traffic Selectors of the initiator.
    TsI(Ts<'a>),
    /// Traffic Selectors of the responder.
    TsR(Ts<'a>),
    /// Encrypted and Authenticated, a whole message or a fragment.
    Encrypted(Encrypted<'a>),
    /// Configuration.
    Cp(Cp<'a>),
    /// EAP.
    Eap(Eap<'a>),
    /// A payload of unknown type, which may be skipped.
    Unknown(&'a [u8]),
}

impl<'a> Body<'a> {
    /// Parses the body of `payload`.
    ///
    /// An unknown type is a fault if the payload is critical. The critical bit of known types is ignored (RFC
    /// 7296 section 3.2).
    pub fn parse(payload: &Payload<'a>) -> Result<Self, Fault> {
        let body = payload.body;
        match payload.kind {
            PayloadType::SA => Sa::parse(body).map(Self::Sa),
            PayloadType::KE => Ke::parse(body).map(Self::Ke),
            PayloadType::ID_I => Id::parse(payload.kind, body).map(Self::IdI),
            PayloadType::ID_R => Id::parse(payload.kind, body).map(Self::IdR),
            PayloadType::CERT => Cert::parse(body).map(Self::Cert),
            PayloadType::CERTREQ => CertReq::parse(body).map(Self::CertReq),
            PayloadType::AUTH => Auth::parse(body).map(Self::Auth),
            PayloadType::NONCE => Nonce::parse(body).map(Self::Nonce),
            PayloadType::NOTIFY => Notify::parse(body).map(Self::Notify),
            PayloadType::DELETE => Delete::parse(body).map(Self::Delete),
            PayloadType::VENDOR => Ok(Self::Vendor(Vendor(body))),
            PayloadType::TS_I => Ts::parse(payload.kind, body).map(Self::TsI),
            PayloadType::TS_R => Ts::parse(payload.kind, body).map(Self::TsR),
            PayloadType::SK => Ok(Self::Encrypted(Encrypted::whole(payload))),
            PayloadType::SKF => Encrypted::fragment(payload).map(Self::Encrypted),
            PayloadType::CP => Cp::parse(body).map(Self::Cp),
            PayloadType::EAP => Eap::parse(body).map(Self::Eap),
            unknown if payload.critical => Err(Fault::UnsupportedCriticalPayload { payload: unknown }),
            _ => Ok(Self::Unknown(body)),
        }
    }
}
