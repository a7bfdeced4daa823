//! The side that asks for a proof.

use crate::{Authenticated, EapContext, EapFault, EapPacket};
use casemate_wire::ike::Eap;

/// Next step of an authenticator.
#[derive(Debug)]
pub enum AuthenticatorStep {
    /// Send this request.
    Request(EapPacket),
    /// The peer is authenticated. Send this EAP Success.
    Succeeded(EapPacket, Authenticated),
    /// The conversation has failed. Send this EAP Failure.
    Failed(EapPacket, EapFault),
    /// The result comes later: [`Authenticator::poll`] returns it.
    Pending,
}

/// One conversation as the authenticator. After [`AuthenticatorStep::Succeeded`] or
/// [`AuthenticatorStep::Failed`] it has ended.
pub trait Authenticator: Send {
    /// Begins the conversation.
    fn start(&mut self, context: &mut EapContext<'_>) -> AuthenticatorStep;

    /// Handles a response of the peer.
    fn receive(&mut self, response: &Eap<'_>, context: &mut EapContext<'_>) -> AuthenticatorStep;

    /// Returns the step for which [`AuthenticatorStep::Pending`] was returned, or `Pending` again.
    fn poll(&mut self, _context: &mut EapContext<'_>) -> AuthenticatorStep {
        AuthenticatorStep::Pending
    }
}
