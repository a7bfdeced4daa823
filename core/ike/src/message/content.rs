//! The payloads of one message, by what they are.

use crate::{PeerFault, StateFault};
use alloc::vec::Vec;
use casemate_wire::ike::{
    Auth, Body, Cert, CertReq, Cp, Delete, Fault, Id, Ke, Nonce, Notify, NotifyType, Payloads, Sa, Ts,
};

/// The payloads of one message. What is unknown and not critical is left out (RFC 7296 section 2.5).
#[derive(Debug, Default)]
pub(crate) struct Content<'a> {
    pub(crate) sa: Option<Sa<'a>>,
    pub(crate) ke: Option<Ke<'a>>,
    pub(crate) nonce: Option<Nonce<'a>>,
    /// With the body as it came, which AUTH covers (RFC 7296 section 2.15).
    pub(crate) id_i: Option<(Id<'a>, &'a [u8])>,
    pub(crate) id_r: Option<(Id<'a>, &'a [u8])>,
    pub(crate) certs: Vec<Cert<'a>>,
    pub(crate) certreqs: Vec<CertReq<'a>>,
    pub(crate) auth: Option<Auth<'a>>,
    pub(crate) ts_i: Option<Ts<'a>>,
    pub(crate) ts_r: Option<Ts<'a>>,
    pub(crate) cp: Option<Cp<'a>>,
    pub(crate) deletes: Vec<Delete<'a>>,
    pub(crate) notifies: Vec<Notify<'a>>,
}

impl<'a> Content<'a> {
    /// Reads all payloads. Whether something is missing is for the exchange to say.
    pub(crate) fn parse(payloads: Payloads<'a>) -> Result<Self, PeerFault> {
        let mut content = Self::default();
        for payload in payloads {
            let payload = payload?;
            content.take(Body::parse(&payload)?, payload.body)?;
        }
        Ok(content)
    }

    fn take(&mut self, body: Body<'a>, raw: &'a [u8]) -> Result<(), PeerFault> {
        match body {
            Body::Sa(sa) => once(&mut self.sa, sa),
            Body::Ke(ke) => once(&mut self.ke, ke),
            Body::Nonce(nonce) => once(&mut self.nonce, nonce),
            Body::IdI(id) => once(&mut self.id_i, (id, raw)),
            Body::IdR(id) => once(&mut self.id_r, (id, raw)),
            Body::Auth(auth) => once(&mut self.auth, auth),
            Body::TsI(ts) => once(&mut self.ts_i, ts),
            Body::TsR(ts) => once(&mut self.ts_r, ts),
            Body::Cp(cp) => once(&mut self.cp, cp),
            Body::Cert(cert) => push(&mut self.certs, cert),
            Body::CertReq(request) => push(&mut self.certreqs, request),
            Body::Delete(delete) => push(&mut self.deletes, delete),
            Body::Notify(notify) => push(&mut self.notifies, notify),
            // An encrypted payload is the last, and was opened before the others were looked at. EAP is not spoken here.
            Body::Vendor(_) | Body::Unknown(_) | Body::Encrypted(_) | Body::Eap(_) => Ok(()),
        }
    }

    /// The first notification of this type.
    pub(crate) fn notify(&self, kind: NotifyType) -> Option<&Notify<'a>> {
        self.notifies.iter().find(|notify| notify.kind == kind)
    }

    /// Whether there is a notification of this type.
    pub(crate) fn says(&self, kind: NotifyType) -> bool {
        self.notify(kind).is_some()
    }

    /// The first error that is reported.
    pub(crate) fn error(&self) -> Option<NotifyType> {
        self.notifies.iter().map(|notify| notify.kind).find(|kind| kind.is_error())
    }
}

/// Of these there may be as many as fit into a message.
fn push<T>(list: &mut Vec<T>, value: T) -> Result<(), PeerFault> {
    list.push(value);
    Ok(())
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), PeerFault> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(StateFault::PayloadTwice.into()),
    }
}

/// A payload that must be there.
pub(crate) fn need<T>(payload: Option<T>) -> Result<T, PeerFault> {
    payload.ok_or(PeerFault::State(StateFault::PayloadMissing))
}

/// The type of a critical payload that is unknown, for the notification (RFC 7296 section 2.5).
pub(crate) fn critical(fault: PeerFault) -> Option<u8> {
    match fault {
        PeerFault::Wire(Fault::UnsupportedCriticalPayload { payload }) => Some(payload.0),
        _ => None,
    }
}
