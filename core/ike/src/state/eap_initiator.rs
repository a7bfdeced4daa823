//! IKE_AUTH as the initiator that authenticates itself by EAP (RFC 7296 section 2.16).

use super::auth_sent::Rejection;
use crate::StateFault;
use crate::auth::eap::{self, ConversationCredentials, Parties};
use crate::auth::{PeerAuthenticated, SignedOctets, id_body};
use crate::config::{Connection, Identity, LocalMethod, RemoteMethod};
use crate::context::Step;
use crate::diagnosis::Explanation;
use crate::state::{AuthSent, SaCommon};
use crate::transport::Content;
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_eap::{Authenticated, EapFault, Peer, PeerStep};
use casemate_wire::ike::{Eap, ExchangeType, NotifyType};

/// An EAP conversation with the responder.
pub(crate) struct EapInitiator {
    peer: Peer,
    /// The responder, once its first response has arrived.
    responder: Option<Responder>,
    /// Result of EAP. The AUTH payload of the responder is then awaited.
    done: Option<Authenticated>,
}

/// The responder, as its first response shows it.
struct Responder {
    id: Identity,
    /// Body of its ID payload.
    id_body: Vec<u8>,
    /// Its proof; `None` if only EAP authenticates it (RFC 5998).
    authenticated: Option<PeerAuthenticated>,
}

impl EapInitiator {
    /// Creates the conversation of a connection that uses EAP. `own` is the identity of our ID payload.
    pub(super) fn new(connection: &Connection, own: &Identity) -> Option<Box<Self>> {
        let LocalMethod::Eap(local) = &connection.local.method else { return None };
        let identity = local.identity.clone().unwrap_or_else(|| own.to_eap());
        let peer = Peer::new(identity, local.methods.clone());
        Some(Box::new(Self { peer, responder: None, done: None }))
    }
}

/// Whether the responder of a connection may prove its identity by EAP alone. Every method must then
/// authenticate both sides (RFC 5998 section 4).
pub(super) fn allows_eap_only(connection: &Connection) -> bool {
    match (&connection.local.method, &connection.remote.method) {
        (LocalMethod::Eap(local), RemoteMethod::Eap(remote)) => {
            local.methods.iter().chain(&remote.methods).all(|method| method.is_mutual())
        }
        _ => false,
    }
}

impl AuthSent {
    /// Handles a response while EAP runs. Returns the responder once it is authenticated; `None` if another
    /// request was sent.
    pub(super) fn on_eap_response(
        &mut self,
        eap: &mut EapInitiator,
        common: &mut SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<PeerAuthenticated>, Rejection> {
        let Some(responder) = &mut eap.responder else {
            // Nothing of EAP leaves this host before the responder has proved its identity.
            let responder = self.verify_responder(common, content, step)?;
            eap.responder = Some(responder);
            return self.on_eap_packet(eap, common, content, step).map(|()| None);
        };
        let Some(done) = &eap.done else {
            return self.on_eap_packet(eap, common, content, step).map(|()| None);
        };
        let auth = content.auth.ok_or_else(|| refusal(content))?;
        let octets = SignedOctets {
            message: &self.init.response,
            nonce: &self.init.nonce_i,
            sk_p: &self.init.sk_pr,
            id: &responder.id_body,
            suite: self.channel.suite,
        };
        let (connection, providers) = (&common.connection, step.context.providers);
        if let Some(authenticated) = responder.authenticated.take() {
            eap::verify(done, auth, &octets, providers)?;
            return Ok(Some(authenticated));
        }
        let parties = Parties { own: &self.own_id, peer: &responder.id, remote: common.path.remote.ip() };
        Ok(Some(PeerAuthenticated::by_eap(&parties, done, auth, &octets, connection, providers)?))
    }

    /// Verifies the first response: identity, and AUTH payload unless EAP alone may prove the identity.
    fn verify_responder(
        &self,
        common: &SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Responder, Rejection> {
        let (id, body) = self.responder_id(common, content, step)?;
        let authenticated = match content.auth {
            None if allows_eap_only(&common.connection) => None,
            _ => Some(self.verify_response(common, content, step)?),
        };
        Ok(Responder { id, id_body: body.into(), authenticated })
    }

    /// Passes the EAP packet of a response on, and sends the next request.
    fn on_eap_packet(
        &mut self,
        eap: &mut EapInitiator,
        common: &mut SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Rejection> {
        let packet: Eap<'_> = content.eap.ok_or_else(|| refusal(content))?;
        let responder = eap.responder.as_ref().map(|responder| &responder.id);
        let credentials =
            ConversationCredentials::new(step.context.credentials, &common.connection, responder);
        let next = eap.peer.receive(&packet, &mut credentials.context(step.context));
        let done = match next {
            PeerStep::Respond(response) => {
                self.channel.window.response_received();
                let sent = self.channel.send_request(common, ExchangeType::IKE_AUTH, step, &|out| {
                    out.eap(&response.as_payload())
                });
                return sent.map_err(|_| StateFault::Provider.into());
            }
            PeerStep::Failed(EapFault::Refused) => {
                return Err(Rejection::Refused(NotifyType::AUTHENTICATION_FAILED));
            }
            PeerStep::Failed(fault) => {
                explain(fault, eap, self, step);
                return Err(StateFault::EapFailed.into());
            }
            PeerStep::Succeeded(done) => done,
        };
        let own_body = id_body(&self.own_id);
        let octets = SignedOctets {
            message: &self.init.request,
            nonce: &self.init.nonce_r,
            sk_p: &self.init.sk_pi,
            id: &own_body,
            suite: self.channel.suite,
        };
        let proof = eap::prove(&done, &octets, step.context.providers)?;
        self.channel.window.response_received();
        let sent = self.channel.send_request(common, ExchangeType::IKE_AUTH, step, &|out| proof.write(out));
        eap.done = Some(done);
        sent.map_err(|_| StateFault::Provider.into())
    }
}

/// Why a response lacks a payload: the peer refuses, or has made a mistake.
fn refusal(content: &Content<'_>) -> Rejection {
    content.error().map_or(StateFault::PayloadMissing.into(), Rejection::Refused)
}

fn explain(fault: EapFault, eap: &EapInitiator, state: &AuthSent, step: &mut Step<'_, '_>) {
    step.explain(StateFault::EapFailed, false, |_, _| {
        let identity = Some(eap.peer.identity().into());
        Some(Explanation::Eap { fault, identity, peer: state.own_id.clone() }.into())
    });
}
