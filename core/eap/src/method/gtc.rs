//! Generic Token Card (RFC 3748 section 5.6): the peer sends its password.

use super::{Finished, MethodRequest, PeerMethod, ServerMethod, ServerStep};
use crate::packet::{TypeData, type_data};
use crate::{EapContext, EapFault, Method};
use alloc::vec::Vec;
use subtle::ConstantTimeEq as _;

/// The peer.
pub(super) struct GtcPeer {
    identity: Vec<u8>,
    has_responded: bool,
}

impl GtcPeer {
    pub(super) fn new(identity: &[u8]) -> Self {
        Self { identity: identity.into(), has_responded: false }
    }
}

impl PeerMethod for GtcPeer {
    fn method(&self) -> Method {
        Method::Gtc
    }

    fn respond(
        &mut self,
        _request: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        if self.has_responded {
            return Err(EapFault::OutOfState);
        }
        let password = context.password(&self.identity)?;
        self.has_responded = true;
        Ok(type_data(&[password.expose()]))
    }

    fn finish(&mut self) -> Option<Finished> {
        self.has_responded.then_some(Finished { msk: None })
    }
}

/// The authenticator.
pub(super) struct GtcServer {
    identity: Vec<u8>,
}

impl GtcServer {
    pub(super) fn new(identity: &[u8]) -> Self {
        Self { identity: identity.into() }
    }
}

impl ServerMethod for GtcServer {
    fn method(&self) -> Method {
        Method::Gtc
    }

    fn begin(&mut self, _identifier: u8, _context: &mut EapContext<'_>) -> Result<TypeData, EapFault> {
        Ok(type_data(&[b"Password: "]))
    }

    /// The comparison takes the same time for all passwords of one length; it tells the length.
    fn receive(
        &mut self,
        response: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        let password = context.password(&self.identity)?;
        if bool::from(password.expose().ct_eq(response.data)) {
            Ok(ServerStep::Finished(Finished { msk: None }))
        } else {
            Err(EapFault::WrongPassword)
        }
    }
}
