//! MD5-Challenge (RFC 3748 section 5.4, RFC 1994 section 4.1).

use super::{Finished, MethodRequest, PeerMethod, ServerMethod, ServerStep};
use crate::{EapContext, EapFault, Method};
use alloc::vec::Vec;
use subtle::ConstantTimeEq as _;

const CHALLENGE_LEN: usize = 16;
const VALUE_LEN: usize = 16;

/// MD5 over the identifier, the password and the challenge. Without a password for the identity the result
/// cannot be guessed, so that the other side does not learn whether the identity exists.
fn value(
    identifier: u8,
    identity: &[u8],
    challenge: &[u8],
    context: &EapContext<'_>,
) -> Result<[u8; VALUE_LEN], EapFault> {
    let algorithms = context.credentials.algorithms().ok_or(EapFault::Unsupported)?;
    let password = context.credentials.password(identity).ok_or(EapFault::NoPassword)?;
    Ok(algorithms.md5(&[&[identifier], password.expose(), challenge]))
}

/// Splits Value-Size, Value and Name.
fn parse_value(data: &[u8]) -> Result<&[u8], EapFault> {
    let (&len, rest) = data.split_first().ok_or(EapFault::Malformed)?;
    rest.get(..usize::from(len)).filter(|value| !value.is_empty()).ok_or(EapFault::Malformed)
}

fn with_length(value: &[u8; VALUE_LEN]) -> Vec<u8> {
    const LEN: u8 = VALUE_LEN as u8;
    [&[LEN], &value[..]].concat()
}

/// The peer.
pub(super) struct Md5Peer {
    identity: Vec<u8>,
    has_responded: bool,
}

impl Md5Peer {
    pub(super) fn new(identity: &[u8]) -> Self {
        Self { identity: identity.into(), has_responded: false }
    }
}

impl PeerMethod for Md5Peer {
    fn method(&self) -> Method {
        Method::Md5
    }

    fn respond(
        &mut self,
        request: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<Vec<u8>, EapFault> {
        if self.has_responded {
            return Err(EapFault::OutOfState);
        }
        let challenge = parse_value(request.data)?;
        let value = value(request.identifier, &self.identity, challenge, context)?;
        self.has_responded = true;
        Ok(with_length(&value))
    }

    fn finish(&mut self) -> Option<Finished> {
        self.has_responded.then_some(Finished { msk: None })
    }
}

/// The authenticator.
pub(super) struct Md5Server {
    identity: Vec<u8>,
    challenge: [u8; CHALLENGE_LEN],
}

impl Md5Server {
    pub(super) fn new(identity: &[u8]) -> Self {
        Self { identity: identity.into(), challenge: [0; CHALLENGE_LEN] }
    }
}

impl ServerMethod for Md5Server {
    fn method(&self) -> Method {
        Method::Md5
    }

    fn begin(&mut self, _identifier: u8, context: &mut EapContext<'_>) -> Result<Vec<u8>, EapFault> {
        context.rng.public(&mut self.challenge);
        Ok(with_length(&self.challenge))
    }

    fn receive(
        &mut self,
        response: &MethodRequest<'_>,
        _next: u8,
        context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        let received = parse_value(response.data)?;
        let expected = value(response.identifier, &self.identity, &self.challenge, context)?;
        if bool::from(expected.ct_eq(received)) {
            Ok(ServerStep::Finished(Finished { msk: None }))
        } else {
            Err(EapFault::WrongPassword)
        }
    }
}
