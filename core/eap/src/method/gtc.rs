//! Generic Token Card (RFC 3748 section 5.6): the peer sends its password.

use super::{Finished, MethodRequest, PeerMethod, ServerMethod, ServerStep};
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
    ) -> Result<Vec<u8>, EapFault> {
        if self.has_responded {
            return Err(EapFault::OutOfState);
        }
        let password = context.credentials.password(&self.identity).ok_or(EapFault::NoPassword)?;
        self.has_responded = true;
        Ok(password.expose().into())
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

    fn begin(&mut self, _identifier: u8, _context: &mut EapContext<'_>) -> Result<Vec<u8>, EapFault> {
        Ok(b"Password: ".into())
    }

    fn receive(
        &mut self,
        response: &MethodRequest<'_>,
        _next: u8,
        context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        let password = context.credentials.password(&self.identity).ok_or(EapFault::NoPassword)?;
        if bool::from(password.expose().ct_eq(response.data)) {
            Ok(ServerStep::Finished(Finished { msk: None }))
        } else {
            Err(EapFault::WrongPassword)
        }
    }
}
