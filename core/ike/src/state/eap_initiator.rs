//! IKE_AUTH as the initiator that authenticates itself by EAP (RFC 7296 section 2.16).

use super::responder_proof::Rejection;
use crate::StateFault;
use crate::auth::eap::{self, ConversationCredentials, Parties};
use crate::auth::rounds::write_another;
use crate::auth::{PeerAuthenticated, id_body};
use crate::config::{Connection, Identity, LocalMethod, RemoteMethod};
use crate::context::Step;
use crate::diagnosis::Explanation;
use crate::state::{AuthSent, SaCommon};
use crate::transport::Content;
use alloc::boxed::Box;
use casemate_eap::{Authenticated, EapFault, Peer, PeerStep};
use casemate_wire::ike::{Eap, ExchangeType, NotifyType};

/// An EAP conversation with the responder.
pub(crate) struct EapInitiator {
    peer: Peer,
    /// Result of EAP. The AUTH payload of the responder is then awaited.
    pub(super) done: Option<Authenticated>,
}

impl EapInitiator {
    /// Creates the conversation of a connection that uses EAP. `own` is the identity of our ID payload.
    pub(super) fn new(connection: &Connection, own: &Identity) -> Option<Box<Self>> {
        let LocalMethod::Eap(local) = &connection.local.method else { return None };
        let identity = local.identity.clone().unwrap_or_else(|| own.to_eap());
        let methods = match &connection.remote.method {
            RemoteMethod::Eap(_) => connection.mutual_eap_methods(),
            _ => local.methods.clone(),
        };
        let peer = Peer::new(identity, methods);
        Some(Box::new(Self { peer, done: None }))
    }
}

impl AuthSent {
    /// Verifies the responder's AUTH payload after EAP.
    pub(super) fn finish_eap(
        &mut self,
        eap: &EapInitiator,
        common: &SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Rejection> {
        let auth = content.auth.ok_or_else(|| refusal(content))?;
        let (Some(done), Some(responder)) = (&eap.done, &mut self.rounds.responder) else {
            return Err(StateFault::PayloadMissing.into());
        };
        let octets = self.init.responder_octets(&responder.id_body, self.channel.suite);
        let (connection, providers) = (&common.connection, step.context.providers);
        #[cfg(feature = "ppk")]
        let octets = self.init.ppk.responder_octets(octets, connection, content)?;
        if responder.authenticated.is_some() {
            return eap::verify(done, auth, &octets, providers).map_err(Rejection::from);
        }
        let (ike, remote) = (common.id, common.path.remote.ip());
        let parties = Parties { ike, own: &self.own_id, peer: &responder.id, remote };
        let proven = PeerAuthenticated::by_eap(&parties, done, auth, &octets, connection, providers)?;
        responder.authenticated = Some(proven);
        Ok(())
    }

    /// Passes the EAP packet of a response on, and sends the next request.
    pub(super) fn on_eap_packet(
        &mut self,
        eap: &mut EapInitiator,
        common: &mut SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Rejection> {
        let packet: Eap<'_> = content.eap.ok_or_else(|| refusal(content))?;
        let responder = self.rounds.responder.as_ref().map(|responder| &responder.id);
        let connection = common.connection.clone();
        let in_round = self.rounds.connection(&connection)?;
        let credentials =
            ConversationCredentials::new(step.context.credentials, common.id, &in_round, responder);
        let next = match eap.peer.is_pending() {
            // The same packet, after the wait.
            true => eap.peer.poll(),
            false => eap.peer.receive(&packet, &mut credentials.context(step.context)),
        };
        let done = match next {
            PeerStep::Respond(response) => {
                self.channel.window.response_received();
                let sent = self.channel.send_request(common, ExchangeType::IKE_AUTH, step, &|out| {
                    out.eap(&response.as_payload())
                });
                return sent.map_err(|_| StateFault::Provider.into());
            }
            #[cfg(feature = "revocation")]
            PeerStep::Pending if !self.is_wait_over => return Err(Rejection::Pending),
            PeerStep::Pending => {
                explain(EapFault::PeerCertificate, eap, self, step);
                return Err(StateFault::EapFailed.into());
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
        #[cfg(feature = "ppk")]
        self.init.offer_ppk(&connection, &self.channel, step)?;
        let (suite, providers) = (self.channel.suite, step.context.providers);
        let proof = self
            .init
            .prove(&own_body, &connection, suite, |_, octets| eap::prove(&done, octets, providers))?;
        self.channel.window.response_received();
        let follows = self.rounds.has_next(&connection);
        let sent = self.channel.send_request(common, ExchangeType::IKE_AUTH, step, &|out| {
            proof.write(out)?;
            #[cfg(feature = "ppk")]
            self.init.ppk.write_offer(out)?;
            write_another(follows, out)
        });
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
