//! The peer of EAP-MSCHAPv2.

use super::crypto::{AUTHENTICATOR_RESPONSE_LEN, CHALLENGE_LEN, Derived, Exchange, nt_hash};
use super::{Challenge, OpCode, Packet, Response, acknowledgement, parse_success};
use crate::method::{Finished, MethodRequest, PeerMethod};
use crate::packet::TypeData;
use crate::{EapContext, EapFault, Method};
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use core::mem;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// The peer.
pub(in crate::method) struct MsChapV2Peer {
    identity: Vec<u8>,
    state: State,
}

enum State {
    Begin,
    /// The response is sent.
    Responded {
        expected: Zeroizing<[u8; AUTHENTICATOR_RESPONSE_LEN]>,
        msk: SecretBytes,
    },
    /// The authenticator has proved that it knows the password.
    Verified {
        msk: SecretBytes,
    },
    /// The authenticator has refused the response, or has not proved that it knows the password.
    Failed,
}

impl MsChapV2Peer {
    pub(in crate::method) fn new(identity: &[u8]) -> Self {
        Self { identity: identity.into(), state: State::Begin }
    }

    fn on_challenge(
        &mut self,
        packet: &Packet<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        let challenge = Challenge::parse(packet.body)?;
        let hash = nt_hash(&self.identity, context)?;
        let mut peer_challenge = [0; CHALLENGE_LEN];
        context.rng.public(&mut peer_challenge);
        let exchange = Exchange {
            authenticator_challenge: challenge.value,
            peer_challenge: &peer_challenge,
            name: &self.identity,
        };
        let Derived { nt_response, authenticator_response, msk } = Derived::new(&hash, &exchange, context)?;
        let response =
            Response { peer_challenge: &peer_challenge, nt_response: &nt_response, name: &self.identity };
        let response = response.write(packet.id)?;
        self.state = State::Responded { expected: authenticator_response, msk };
        Ok(response)
    }
}

impl PeerMethod for MsChapV2Peer {
    fn method(&self) -> Method {
        Method::MsChapV2
    }

    fn respond(
        &mut self,
        request: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        let packet = Packet::parse(request.data)?;
        match (mem::replace(&mut self.state, State::Failed), packet.op) {
            (State::Begin, OpCode::CHALLENGE) => self.on_challenge(&packet, context),
            (State::Responded { expected, msk }, OpCode::SUCCESS) => {
                let received = parse_success(packet.body)?;
                if !bool::from(expected.ct_eq(&received)) {
                    return Err(EapFault::WrongAuthenticator);
                }
                self.state = State::Verified { msk };
                Ok(acknowledgement(OpCode::SUCCESS))
            }
            // The reason, and the offer of a second attempt or of another password, are ignored.
            (State::Responded { .. }, OpCode::FAILURE) => Ok(acknowledgement(OpCode::FAILURE)),
            _ => Err(EapFault::OutOfState),
        }
    }

    fn finish(&mut self) -> Option<Finished> {
        match mem::replace(&mut self.state, State::Failed) {
            State::Verified { msk } => Some(Finished { msk: Some(msk) }),
            State::Begin | State::Responded { .. } | State::Failed => None,
        }
    }
}
