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
    /// The next step is not known yet, because a server has to decide. The caller sends nothing, passes no
    /// further response on, and asks again with [`Authenticator::poll`] when the server has answered.
    Pending,
}

/// One conversation as the authenticator. After [`AuthenticatorStep::Succeeded`] or
/// [`AuthenticatorStep::Failed`] it has ended.
pub trait Authenticator: Send {
    /// Begins the conversation.
    fn start(&mut self, context: &mut EapContext<'_>) -> AuthenticatorStep;

    /// Handles a response of the peer.
    fn receive(&mut self, response: &Eap<'_>, context: &mut EapContext<'_>) -> AuthenticatorStep;

    /// Asks for the step that follows [`AuthenticatorStep::Pending`]. The default is for authenticators that
    /// need no server and are never pending.
    fn poll(&mut self, _context: &mut EapContext<'_>) -> AuthenticatorStep {
        AuthenticatorStep::Pending
    }

    /// EAP identity of the peer, once it is known.
    fn identity(&self) -> Option<&[u8]>;
}
