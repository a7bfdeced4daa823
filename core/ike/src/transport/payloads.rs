//! Payloads of a message by type.

use crate::nat::PREFERS_UDP;
use crate::{PeerFault, StateFault};
use alloc::vec::Vec;
use casemate_wire::ike::{
    Auth, Body, Cert, CertReq, Cp, Delete, Fault, Id, Ke, Nonce, Notify, NotifyType, Payloads, Sa, Ts,
};

/// Payloads of a message by type. Unknown payloads that are not critical are left out (RFC 7296 section 2.5).
#[derive(Debug, Default)]
pub(crate) struct Content<'a> {
    pub(crate) sa: Option<Sa<'a>>,
    pub(crate) ke: Option<Ke<'a>>,
    pub(crate) nonce: Option<Nonce<'a>>,
    pub(crate) id_i: Option<ReceivedId<'a>>,
    pub(crate) id_r: Option<ReceivedId<'a>>,
    pub(crate) certs: Vec<Cert<'a>>,
    pub(crate) certreqs: Vec<CertReq<'a>>,
    pub(crate) auth: Option<Auth<'a>>,
    pub(crate) ts_i: Option<Ts<'a>>,
    pub(crate) ts_r: Option<Ts<'a>>,
    pub(crate) cp: Option<Cp<'a>>,
    #[cfg(feature = "eap")]
    pub(crate) eap: Option<casemate_wire::ike::Eap<'a>>,
    pub(crate) deletes: Vec<Delete<'a>>,
    pub(crate) notifies: Vec<Notify<'a>>,
    /// Whether the Vendor ID [`PREFERS_UDP`] is present.
    pub(crate) prefers_udp: bool,
}

/// An identification payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceivedId<'a> {
    pub(crate) id: Id<'a>,
    /// The body as received, which AUTH covers (RFC 7296 section 2.15).
    pub(crate) body: &'a [u8],
}

impl<'a> Content<'a> {
    /// Parses all payloads. The exchange checks whether a required one is missing.
    pub(crate) fn parse(payloads: Payloads<'a>) -> Result<Self, PeerFault> {
        let mut content = Self::default();
        for payload in payloads {
            let payload = payload?;
            content.add(Body::parse(&payload)?, payload.body)?;
        }
        Ok(content)
    }

    fn add(&mut self, payload: Body<'a>, body: &'a [u8]) -> Result<(), PeerFault> {
        match payload {
            Body::Sa(sa) => set_once(&mut self.sa, sa),
            Body::Ke(ke) => set_once(&mut self.ke, ke),
            Body::Nonce(nonce) => set_once(&mut self.nonce, nonce),
            Body::IdI(id) => set_once(&mut self.id_i, ReceivedId { id, body }),
            Body::IdR(id) => set_once(&mut self.id_r, ReceivedId { id, body }),
            Body::Auth(auth) => set_once(&mut self.auth, auth),
            Body::TsI(ts) => set_once(&mut self.ts_i, ts),
            Body::TsR(ts) => set_once(&mut self.ts_r, ts),
            Body::Cp(cp) => set_once(&mut self.cp, cp),
            Body::Cert(cert) => push(&mut self.certs, cert),
            Body::CertReq(request) => push(&mut self.certreqs, request),
            Body::Delete(delete) => push(&mut self.deletes, delete),
            Body::Notify(notify) => push(&mut self.notifies, notify),
            Body::Vendor(vendor) => {
                self.prefers_udp |= vendor == PREFERS_UDP;
                Ok(())
            }
            #[cfg(feature = "eap")]
            Body::Eap(eap) => set_once(&mut self.eap, eap),
            #[cfg(not(feature = "eap"))]
            Body::Eap(_) => Ok(()),
            // The encrypted payload is the last one and was decrypted before.
            Body::Unknown(_) | Body::Encrypted(_) => Ok(()),
        }
    }

    /// First notification of this type.
    pub(crate) fn notify(&self, kind: NotifyType) -> Option<&Notify<'a>> {
        self.notifies.iter().find(|notify| notify.kind == kind)
    }

    /// Whether there is a notification of this type.
    pub(crate) fn has_notify(&self, kind: NotifyType) -> bool {
        self.notify(kind).is_some()
    }

    /// First error notification.
    pub(crate) fn error(&self) -> Option<NotifyType> {
        self.notifies.iter().map(|notify| notify.kind).find(|kind| kind.is_error())
    }
}

/// Adds a payload that may occur any number of times.
fn push<T>(list: &mut Vec<T>, value: T) -> Result<(), PeerFault> {
    list.push(value);
    Ok(())
}

fn set_once<T>(slot: &mut Option<T>, value: T) -> Result<(), PeerFault> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(StateFault::PayloadTwice.into()),
    }
}

/// Returns a required payload, or a fault if it is missing.
pub(crate) fn required<T>(payload: Option<T>) -> Result<T, PeerFault> {
    payload.ok_or(PeerFault::State(StateFault::PayloadMissing))
}

/// Type of an unsupported critical payload, for the notification (RFC 7296 section 2.5).
pub(crate) fn unsupported_critical(fault: PeerFault) -> Option<u8> {
    match fault {
        PeerFault::Wire(Fault::UnsupportedCriticalPayload { payload }) => Some(payload.0),
        _ => None,
    }
}
