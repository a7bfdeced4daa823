//! MD5-Challenge (RFC 3748 section 5.4, RFC 1994 section 4.1).

use super::{Finished, MethodRequest, PeerMethod, ServerMethod, ServerStep};
use crate::packet::{TypeData, type_data};
use crate::{EapContext, EapFault, Method};
use alloc::vec::Vec;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

const CHALLENGE_LEN: usize = 16;
const VALUE_LEN: usize = 16;

type Value = Zeroizing<[u8; VALUE_LEN]>;

/// MD5 over the identifier, the password and the challenge.
fn value(
    identifier: u8,
    password: &[u8],
    challenge: &[u8],
    context: &EapContext<'_>,
) -> Result<Value, EapFault> {
    Ok(Zeroizing::new(context.algorithms()?.md5(&[&[identifier], password, challenge])))
}

/// Returns the value before the name (RFC 1994 section 4.1). The name is ignored: the identity of EAP counts.
fn parse_value(data: &[u8]) -> Result<&[u8], EapFault> {
    let (&len, rest) = data.split_first().ok_or(EapFault::Malformed)?;
    rest.get(..usize::from(len)).filter(|value| !value.is_empty()).ok_or(EapFault::Malformed)
}

fn with_length(value: &[u8; VALUE_LEN]) -> TypeData {
    const LEN: u8 = VALUE_LEN as u8;
    type_data(&[&[LEN], value])
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
    ) -> Result<TypeData, EapFault> {
        if self.has_responded {
            return Err(EapFault::OutOfState);
        }
        let challenge = parse_value(request.data)?;
        let password = context.password(&self.identity)?;
        let value = value(request.identifier, password.expose(), challenge, context)?;
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

    fn begin(&mut self, _identifier: u8, context: &mut EapContext<'_>) -> Result<TypeData, EapFault> {
        context.algorithms()?;
        context.rng.public(&mut self.challenge);
        Ok(with_length(&self.challenge))
    }

    fn receive(
        &mut self,
        response: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        let received = parse_value(response.data)?;
        // Without a password, the same computation takes about the same time, so that the peer does not learn
        // whether the identity exists.
        let password = context.password(&self.identity);
        let bytes = password.map_or(&[][..], |password| password.expose());
        let expected = value(response.identifier, bytes, &self.challenge, context)?;
        let is_equal = bool::from(expected.ct_eq(received));
        password?;
        if is_equal { Ok(ServerStep::Finished(Finished { msk: None })) } else { Err(EapFault::WrongPassword) }
    }
}
