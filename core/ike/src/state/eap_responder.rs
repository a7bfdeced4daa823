//! IKE_AUTH as the responder of a peer that authenticates itself by EAP (RFC 7296 section 2.16).

use super::auth_accepted::Authentic;
use super::config_payload::LeasedConfig;
use super::half_open::Progress;
use super::init_response::authorities;
use super::select_connection::by_identity;
use super::select_connection::check_childless;
use crate::auth::eap::{self, ConversationCredentials, Parties};
use crate::auth::{EapSession, LocalAuthenticator, OwnProof, PeerAuthenticated, SignedOctets, id_body};
use crate::config::{Connection, EapIdentity, Identity, LocalMethod, RemoteEap, RemoteMethod};
use crate::context::Step;
use crate::diagnosis::Explanation;
use crate::state::{HalfOpen, IncomingMessage, MessageMeta, SaCommon, State};
use crate::transport::{Build, Content, parse_payloads, required};
use crate::{DownReason, PeerFault, StateFault};
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
    /// Whether the response to the last request waits for a server.
    is_pending: bool,
    /// Whether the first request was answered, with our proof.
    has_proved: bool,
    /// Whether the fault that EAP will end with was reported.
    has_failed: bool,
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
        let credentials = ConversationCredentials::new(step.context.credentials, &common.connection, None);
        let next = eap.authenticator.receive(&packet, &mut credentials.context(step.context));
        self.on_authenticator_step(common, eap, next, step).map(Some)
    }

    fn begin_eap(
        &mut self,
        common: &mut SaCommon,
        request: &IncomingMessage<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Progress>, PeerFault> {
        let content = &request.content;
        if request.payloads.bytes.len() > step.shared.settings.max_unauthenticated_bytes {
            return Err(StateFault::FragmentLimit.into());
        }
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
        check_childless(connection, content)?;
        check_own_method(connection, remote, content)?;
        let own_id = self.local_authenticator(common, content, step)?.id;
        let Some(authenticator) = authenticator(remote, &peer_id, common, step) else {
            explain(EapFault::NoServer, None, &peer_id, step);
            return Err(StateFault::EapFailed.into());
        };
        let mut eap = Box::new(EapResponder {
            first_request: request.payloads.bytes.into(),
            first_payload: request.payloads.first,
            own_id,
            authenticator,
            peer_id,
            is_pending: false,
            has_proved: false,
            has_failed: false,
            done: None,
        });
        let credentials = ConversationCredentials::new(step.context.credentials, &common.connection, None);
        let next = eap.authenticator.start(&mut credentials.context(step.context));
        self.on_authenticator_step(common, eap, next, step).map(Some)
    }

    /// Our side of this IKE SA.
    fn local_authenticator<'c>(
        &self,
        common: &SaCommon,
        first: &Content<'_>,
        step: &Step<'_, 'c>,
    ) -> Result<LocalAuthenticator<'c>, StateFault> {
        let wanted = [&*self.init.peer.authorities, &*authorities(first)].concat();
        let addr = common.path.local.ip();
        LocalAuthenticator::new(&common.connection, &wanted, addr, step.context.credentials)
    }

    /// Creates our part of the first response. Without a proof, a method that authenticates both sides
    /// follows (RFC 5998 section 3).
    fn prove_before_eap<'c>(
        &self,
        common: &SaCommon,
        eap: &EapResponder,
        step: &mut Step<'_, 'c>,
    ) -> Result<FirstResponse<'c>, PeerFault> {
        let content = parse_payloads(eap.first_payload, &eap.first_request)?;
        let own = self.local_authenticator(common, &content, step)?;
        if let LocalMethod::Eap(_) = common.connection.local.method {
            return Ok(FirstResponse { own, proof: None });
        }
        let (init, suite) = (&self.init, self.channel.suite);
        let (message, nonce, own_body) = (&*init.response, &*init.nonce_i, own.id_body());
        let ours = SignedOctets { message, nonce, sk_p: &init.sk_pr, id: &own_body, suite };
        let proof = own.prove(&ours, &eap.peer_id, &common.connection, &init.peer.hashes, step)?;
        Ok(FirstResponse { own, proof: Some(proof) })
    }

    /// Whether a request waits for the answer of a server.
    pub(super) fn awaits_server(&self) -> bool {
        self.eap.as_ref().is_some_and(|eap| eap.is_pending)
    }

    /// Continues after a server has answered.
    pub(crate) fn continue_eap(mut self: Box<Self>, common: &mut SaCommon, step: &mut Step<'_, '_>) -> State {
        let Some(mut eap) = self.eap.take_if(|eap| eap.is_pending) else { return State::HalfOpen(self) };
        let credentials = ConversationCredentials::new(step.context.credentials, &common.connection, None);
        let next = eap.authenticator.poll(&mut credentials.context(step.context));
        let progress = self.on_authenticator_step(common, eap, next, step);
        let meta = MessageMeta { exchange: ExchangeType::IKE_AUTH, path: common.path };
        self.advance(common, progress, LeasedConfig::default(), meta, step)
    }

    /// Sends what the authenticator says.
    fn on_authenticator_step(
        &mut self,
        common: &SaCommon,
        mut eap: Box<EapResponder>,
        next: AuthenticatorStep,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        let (packet, fault) = match next {
            AuthenticatorStep::Request(packet) => (packet, None),
            AuthenticatorStep::Succeeded(packet, done) => {
                eap.done = Some(done);
                (packet, None)
            }
            AuthenticatorStep::Failed(packet, fault) => (packet, Some(fault)),
            AuthenticatorStep::Pending => {
                eap.is_pending = true;
                self.eap = Some(eap);
                return Ok(Progress::Continues);
            }
        };
        eap.is_pending = false;
        let first = if eap.has_proved { None } else { Some(self.prove_before_eap(common, &eap, step)?) };
        eap.has_proved = true;
        self.send_eap(common, &packet, first, fault.is_some(), step)?;
        // A peer that is told of its failure may go away without a word.
        let is_last = fault.is_some();
        if let Some(fault) = fault.or_else(|| eap.authenticator.fault()).filter(|_| !eap.has_failed) {
            explain(fault, eap.authenticator.identity(), &eap.peer_id, step);
            step.sa_fault(StateFault::EapFailed.into(), common.path, common);
            eap.has_failed = true;
        }
        if is_last {
            return Ok(Progress::Ended(DownReason::Fault(StateFault::EapFailed.into())));
        }
        self.eap = Some(eap);
        Ok(Progress::Continues)
    }

    /// The failure that the peer was told of, if it has not acknowledged it.
    pub(super) fn eap_failure(&self) -> Option<DownReason> {
        let has_failed = self.eap.as_ref().is_some_and(|eap| eap.has_failed);
        has_failed.then_some(DownReason::Fault(StateFault::EapFailed.into()))
    }

    /// Ends the IKE SA if the peer says in the middle of EAP that it gives up.
    pub(super) fn leave_eap(
        &mut self,
        common: &SaCommon,
        request: &IncomingMessage<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Progress>, PeerFault> {
        let gives_up = request.exchange == ExchangeType::INFORMATIONAL
            && request.content.has_notify(NotifyType::AUTHENTICATION_FAILED);
        if !gives_up || self.eap.is_none() {
            return Ok(None);
        }
        let sent = self.channel.send_response(common, ExchangeType::INFORMATIONAL, step, &|_| Ok(()));
        sent.map_err(|_| StateFault::Provider)?;
        let refused = DownReason::Refused(NotifyType::AUTHENTICATION_FAILED);
        Ok(Some(Progress::Ended(self.eap_failure().unwrap_or(refused))))
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

/// Checks that EAP may authenticate this host, if it is configured to: then a method that authenticates both
/// sides must follow, and the peer must have agreed to that (RFC 5998 sections 3 and 4). This host does not
/// know which method a server chooses.
fn check_own_method(
    connection: &Connection,
    remote: &RemoteEap,
    content: &Content<'_>,
) -> Result<(), StateFault> {
    let LocalMethod::Eap(_) = connection.local.method else { return Ok(()) };
    let is_mutual = !remote.is_relayed() && remote.methods.iter().all(|method| method.is_mutual());
    if is_mutual && content.has_notify(NotifyType::EAP_ONLY_AUTHENTICATION) {
        Ok(())
    } else {
        Err(StateFault::AuthMethod)
    }
}

/// An authenticator for a peer with this ID payload; `None` without a server that the connection needs.
fn authenticator(
    remote: &RemoteEap,
    peer: &Identity,
    common: &SaCommon,
    step: &Step<'_, '_>,
) -> Option<Box<dyn Authenticator>> {
    let identity = match &remote.identity {
        EapIdentity::Ike => Some(peer.to_eap()),
        EapIdentity::Fixed(identity) => Some(identity.clone()),
        EapIdentity::Asked => None,
    };
    if remote.is_relayed() {
        let (ike, connection, path) = (common.id, &*common.connection, common.path);
        let session = EapSession { ike, connection, peer, identity, path };
        return step.context.credentials.eap_authenticator(&session);
    }
    Some(Box::new(casemate_eap::LocalAuthenticator::new(identity, remote.methods.clone())))
}

/// Explains the failure of EAP. `identity` is the EAP identity, `peer_id` that of the ID payload.
fn explain(fault: EapFault, identity: Option<&[u8]>, peer_id: &Identity, step: &mut Step<'_, '_>) {
    step.explain(StateFault::EapFailed, false, |_, _| {
        let identity = identity.map(Vec::from);
        Some(Explanation::Eap { fault, identity, peer: peer_id.clone() }.into())
    });
}
