//! IKE_AUTH as the responder of a peer that authenticates itself by EAP (RFC 7296 section 2.16).

use super::config_payload::LeasedConfig;
use super::half_open::{Authentic, Progress};
use super::init_response::authorities;
use super::select_connection::by_identity;
use super::select_connection::check_childless;
use crate::auth::eap::{self, Parties, eap_context};
use crate::auth::{LocalAuthenticator, OwnProof, PeerAuthenticated, SignedOctets, id_body};
use crate::config::{Connection, EapIdentity, Identity, LocalMethod, RemoteEap, RemoteMethod};
use crate::context::Step;
use crate::diagnosis::Explanation;
use crate::state::{HalfOpen, IncomingMessage, SaCommon};
use crate::transport::{Build, Content, parse_payloads, required};
use crate::{PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_eap::{Authenticated, Authenticator, AuthenticatorStep, EapFault, EapPacket};
use casemate_wire::ike::{ExchangeType, Notify, NotifyType, PayloadType};

/// An EAP conversation with the peer of a half-open IKE SA.
pub(crate) struct EapResponder {
    /// Payloads of the first IKE_AUTH request, which are needed again after EAP.
    first_request: Vec<u8>,
    /// Type of the first one.
    first_payload: PayloadType,
    own_id: Identity,
    /// Identity in the peer's ID payload.
    peer_id: Identity,
    authenticator: Box<dyn Authenticator>,
    /// Result of EAP. The AUTH payload of the peer is then awaited.
    done: Option<Authenticated>,
}

/// Our part of the response to the first request.
struct FirstResponse<'c> {
    own: LocalAuthenticator<'c>,
    /// `None` if EAP authenticates this host as well (RFC 5998).
    proof: Option<OwnProof>,
}

impl HalfOpen {
    /// Begins or continues EAP. Returns `None` if the peer has sent an AUTH payload in its first request, or
    /// if no connection accepts EAP from it.
    pub(super) fn run_eap(
        &mut self,
        common: &mut SaCommon,
        request: &IncomingMessage<'_>,
        leased: &mut LeasedConfig,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Progress>, PeerFault> {
        let Some(mut eap) = self.eap.take() else {
            return if request.content.auth.is_none() {
                self.begin_eap(common, request, step)
            } else {
                Ok(None)
            };
        };
        if let Some(done) = eap.done.take() {
            return self.finish_eap(common, &eap, &done, request, leased, step).map(Some);
        }
        let packet = required(request.content.eap)?;
        let next = eap.authenticator.receive(&packet, &mut eap_context(step.context));
        self.on_authenticator_step(common, eap, next, None, step).map(Some)
    }

    fn begin_eap(
        &mut self,
        common: &mut SaCommon,
        request: &IncomingMessage<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Progress>, PeerFault> {
        let content = &request.content;
        let id = required(content.id_i)?.id;
        let peer_id = Identity::from_payload(&id).ok_or(StateFault::IdentityType)?;
        let asked = content.id_r.and_then(|asked| Identity::from_payload(&asked.id));
        let candidates = by_identity(common.path, self.channel.suite, &peer_id, asked.as_ref(), step);
        let mut with_eap = candidates.iter().filter_map(|connection| match &connection.remote.method {
            RemoteMethod::Eap(remote) => Some((connection, remote)),
            _ => None,
        });
        let Some((connection, remote)) = with_eap.next() else { return Ok(None) };
        common.connection = connection.clone();
        let own = self.prove_before_eap(common, connection, remote, &peer_id, content, step)?;
        let mut eap = Box::new(EapResponder {
            first_request: request.payloads.bytes.into(),
            first_payload: request.payloads.first,
            own_id: own.own.id.clone(),
            authenticator: authenticator(remote, &peer_id),
            peer_id,
            done: None,
        });
        let next = eap.authenticator.start(&mut eap_context(step.context));
        self.on_authenticator_step(common, eap, next, Some(own), step).map(Some)
    }

    /// Creates our proof for the first response. Without one, a method that authenticates both sides must
    /// follow, and the peer must have agreed to that (RFC 5998 sections 3 and 4).
    fn prove_before_eap<'c>(
        &self,
        common: &SaCommon,
        connection: &Connection,
        remote: &RemoteEap,
        peer_id: &Identity,
        content: &Content<'_>,
        step: &mut Step<'_, 'c>,
    ) -> Result<FirstResponse<'c>, StateFault> {
        check_childless(connection, content)?;
        let (init, suite) = (&self.init, self.channel.suite);
        let wanted = [&*init.peer.authorities, &*authorities(content)].concat();
        let addr = common.path.local.ip();
        let own = LocalAuthenticator::new(connection, &wanted, addr, step.context.credentials)?;
        if let LocalMethod::Eap(_) = connection.local.method {
            let is_mutual = remote.methods.iter().all(|method| method.is_mutual());
            return if is_mutual && content.has_notify(NotifyType::EAP_ONLY_AUTHENTICATION) {
                Ok(FirstResponse { own, proof: None })
            } else {
                Err(StateFault::AuthMethod)
            };
        }
        let (message, nonce, own_body) = (&*init.response, &*init.nonce_i, own.id_body());
        let ours = SignedOctets { message, nonce, sk_p: &init.sk_pr, id: &own_body, suite };
        let proof = own.prove(&ours, peer_id, connection, &init.peer.hashes, step)?;
        Ok(FirstResponse { own, proof: Some(proof) })
    }

    /// Sends what the authenticator says. `first` is our part of the response to the first request.
    fn on_authenticator_step(
        &mut self,
        common: &SaCommon,
        mut eap: Box<EapResponder>,
        next: AuthenticatorStep,
        first: Option<FirstResponse<'_>>,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        let (packet, fault) = match next {
            AuthenticatorStep::Request(packet) => (packet, None),
            AuthenticatorStep::Succeeded(packet, done) => {
                eap.done = Some(done);
                (packet, None)
            }
            AuthenticatorStep::Failed(packet, fault) => (packet, Some(fault)),
        };
        self.send_eap(common, &packet, first, fault.is_some(), step)?;
        let Some(fault) = fault else {
            self.eap = Some(eap);
            return Ok(Progress::Continues);
        };
        explain(fault, eap.authenticator.identity(), &eap.peer_id, step);
        Ok(Progress::Refused(StateFault::EapFailed))
    }

    fn send_eap(
        &mut self,
        common: &SaCommon,
        packet: &EapPacket,
        first: Option<FirstResponse<'_>>,
        has_failed: bool,
        step: &mut Step<'_, '_>,
    ) -> Result<(), PeerFault> {
        let sent = self.channel.send_response(common, ExchangeType::IKE_AUTH, step, &|out| {
            if let Some(FirstResponse { own, proof }) = &first {
                own.write(out, |out, id| out.id_r(id))?;
                proof.iter().try_for_each(|proof| proof.write(out))?;
            }
            out.eap(&packet.as_payload())?;
            if has_failed {
                out.notify(&Notify::new(NotifyType::AUTHENTICATION_FAILED, &[]))?;
            }
            Ok(())
        });
        sent.map_err(|_| StateFault::Provider.into())
    }

    /// Verifies the peer's AUTH payload after EAP, and accepts the first request.
    fn finish_eap(
        &mut self,
        common: &mut SaCommon,
        eap: &EapResponder,
        done: &Authenticated,
        request: &IncomingMessage<'_>,
        leased: &mut LeasedConfig,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        let (init, suite, providers) = (&self.init, self.channel.suite, step.context.providers);
        let content = parse_payloads(eap.first_payload, &eap.first_request)?;
        let auth = required(request.content.auth)?;
        let (message, nonce, body) = (&*init.request, &*init.nonce_r, required(content.id_i)?.body);
        let theirs = SignedOctets { message, nonce, sk_p: &init.sk_pi, id: body, suite };
        let parties = Parties { own: &eap.own_id, peer: &eap.peer_id, remote: common.path.remote.ip() };
        let peer = PeerAuthenticated::by_eap(&parties, done, auth, &theirs, &common.connection, providers)?;
        let (message, nonce, own_body) = (&*init.response, &*init.nonce_i, id_body(&eap.own_id));
        let ours = SignedOctets { message, nonce, sk_p: &init.sk_pr, id: &own_body, suite };
        let proof = eap::prove(done, &ours, providers)?;
        let write_proof: Build<'_> = &|out| proof.write(out);
        let accepted = Authentic { content: &content, path: request.path, peer, write_proof };
        self.accept(common, accepted, leased, step).map(Progress::Accepted)
    }
}

/// An authenticator for a peer with this ID payload.
fn authenticator(remote: &RemoteEap, peer_id: &Identity) -> Box<dyn Authenticator> {
    let identity = match &remote.identity {
        EapIdentity::Ike => Some(peer_id.to_eap()),
        EapIdentity::Fixed(identity) => Some(identity.clone()),
        EapIdentity::Asked => None,
    };
    Box::new(casemate_eap::LocalAuthenticator::new(identity, remote.methods.clone()))
}

/// Explains the failure of EAP. `identity` is the EAP identity, `peer_id` that of the ID payload.
fn explain(fault: EapFault, identity: Option<&[u8]>, peer_id: &Identity, step: &mut Step<'_, '_>) {
    step.explain(StateFault::EapFailed, false, |_, _| {
        let identity = identity.map(Vec::from);
        Some(Explanation::Eap { fault, identity, peer: peer_id.clone() }.into())
    });
}
