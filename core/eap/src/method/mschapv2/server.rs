//! The authenticator of EAP-MSCHAPv2.

use super::crypto::{CHALLENGE_LEN, Derived, Exchange, NtHash, nt_hash};
use super::{Challenge, OpCode, Packet, Response, parse_acknowledgement, write_failure, write_success};
use crate::method::{Finished, MethodRequest, ServerMethod, ServerStep};
use crate::packet::TypeData;
use crate::{EapContext, EapFault, Method};
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use core::mem;
use subtle::ConstantTimeEq as _;

/// The authenticator.
pub(in crate::method) struct MsChapV2Server {
    identity: Vec<u8>,
    /// MS-CHAPv2-ID of all packets.
    id: u8,
    state: State,
}

/// Password that takes the place of an unknown one in the computation, whose result is then ignored.
const DECOY: &str = "no password";

enum State {
    Begin,
    /// The challenge is sent.
    Challenged {
        challenge: [u8; CHALLENGE_LEN],
    },
    /// The response was right, and the success request is sent.
    Accepted {
        msk: SecretBytes,
    },
    /// The response was wrong, and the failure request is sent.
    Rejected(EapFault),
    Ended,
}

impl MsChapV2Server {
    pub(in crate::method) fn new(identity: &[u8]) -> Self {
        Self { identity: identity.into(), id: 0, state: State::Begin }
    }

    fn on_response(
        &mut self,
        challenge: &[u8; CHALLENGE_LEN],
        packet: &Packet<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault> {
        if packet.op != OpCode::RESPONSE {
            return Err(EapFault::OutOfState);
        }
        let response = Response::parse(packet.body)?;
        if packet.id != self.id {
            return Err(EapFault::OutOfState);
        }
        match self.verify(challenge, &response, context) {
            Ok(Derived { authenticator_response, msk, .. }) => {
                let success = write_success(self.id, &authenticator_response)?;
                self.state = State::Accepted { msk };
                Ok(success)
            }
            // The peer does not learn which of them it was.
            Err(fault @ (EapFault::WrongPassword | EapFault::NoPassword | EapFault::PasswordEncoding)) => {
                let mut next_challenge = [0; CHALLENGE_LEN];
                context.rng.public(&mut next_challenge);
                let failure = write_failure(self.id, &next_challenge)?;
                self.state = State::Rejected(fault);
                Ok(failure)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Verifies the NT response. Without a password for the identity, the computation is the same, so that
    /// the peer does not learn from the time whether the identity exists.
    fn verify(
        &self,
        challenge: &[u8; CHALLENGE_LEN],
        response: &Response<'_>,
        context: &EapContext<'_>,
    ) -> Result<Derived, EapFault> {
        let (hash, fault) = match nt_hash(&self.identity, context) {
            Ok(hash) => (hash, None),
            Err(fault) => (NtHash::of(DECOY, context.algorithms()?), Some(fault)),
        };
        let exchange = Exchange {
            authenticator_challenge: challenge,
            peer_challenge: response.peer_challenge,
            name: response.name,
        };
        let derived = Derived::new(&hash, &exchange, context)?;
        let is_equal = bool::from(derived.nt_response.ct_eq(response.nt_response));
        match fault {
            Some(fault) => Err(fault),
            None if is_equal => Ok(derived),
            None => Err(EapFault::WrongPassword),
        }
    }
}

impl ServerMethod for MsChapV2Server {
    fn method(&self) -> Method {
        Method::MsChapV2
    }

    fn begin(&mut self, identifier: u8, context: &mut EapContext<'_>) -> Result<TypeData, EapFault> {
        context.algorithms()?;
        let mut challenge = [0; CHALLENGE_LEN];
        context.rng.public(&mut challenge);
        self.id = identifier;
        self.state = State::Challenged { challenge };
        Challenge { value: &challenge }.write(self.id)
    }

    fn fault(&self) -> Option<EapFault> {
        match self.state {
            State::Rejected(fault) => Some(fault),
            State::Begin | State::Challenged { .. } | State::Accepted { .. } | State::Ended => None,
        }
    }

    fn receive(
        &mut self,
        response: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault> {
        match mem::replace(&mut self.state, State::Ended) {
            State::Challenged { challenge } => {
                let packet = Packet::parse(response.data)?;
                self.on_response(&challenge, &packet, context).map(ServerStep::Request)
            }
            State::Accepted { msk } => match parse_acknowledgement(response.data)? {
                OpCode::SUCCESS => Ok(ServerStep::Finished(Finished { msk: Some(msk) })),
                OpCode::FAILURE => Err(EapFault::Refused),
                _ => Err(EapFault::OutOfState),
            },
            State::Rejected(fault) => match parse_acknowledgement(response.data)? {
                OpCode::FAILURE => Err(fault),
                _ => Err(EapFault::OutOfState),
            },
            State::Begin | State::Ended => Err(EapFault::OutOfState),
        }
    }
}
