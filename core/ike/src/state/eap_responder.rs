//! IKE_AUTH as the responder of a peer that authenticates itself by EAP (RFC 7296 section 2.16).

mod groups;

use super::config_payload::LeasedConfig;
use super::half_open::Progress;
use super::responder_rounds::{OwnRound, ResponderRounds, check_first_round};
use super::select_connection::{by_identity, check_childless};
use crate::auth::eap::{self, ConversationCredentials, Parties};
use crate::auth::rounds::check_another_round;
use crate::auth::{EapSession, PeerAuthenticated, id_body};
use crate::config::{Connection, EapIdentity, Identity, LocalMethod, RemoteEap, RemoteMethod};
use crate::context::Step;
use crate::diagnosis::Explanation;
use crate::state::{HalfOpen, IncomingMessage, MessageMeta, SaCommon, State};
use crate::transport::{Content, required};
use crate::{DownReason, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_eap::{Authenticated, Authenticator, AuthenticatorStep, EapFault, EapPacket, Method};
use casemate_wire::ike::{ExchangeType, Notify, NotifyType};

/// Maximum length in bytes of a response with an EAP packet of TLS.
const MAX_RESPONSE: usize = 1_400;

/// An EAP conversation with the peer of a half-open IKE SA, in one round of authentication.
pub(crate) struct EapResponder {
    /// Body of the peer's ID payload.
    peer_body: Vec<u8>,
    authenticator: Box<dyn Authenticator>,
    /// Whether the response to the last request waits, for a server or for the status of certificates.
    is_pending: bool,
    /// Whether the fault that EAP will end with was reported.
    has_failed: bool,
    /// Bytes that the authenticator holds.
    held: usize,
    /// Result of EAP. The AUTH payload of the peer is then awaited.
    done: Option<Authenticated>,
}

impl EapResponder {
    /// Bytes of the conversation.
    pub(super) const fn held_bytes(&self) -> usize {
        self.held.saturating_add(self.peer_body.len())
    }

    /// Counts what the authenticator holds. Fails if it holds more than before, and `room` bytes do not
    /// suffice for that and for `others`, which are about to be held.
    fn count_bytes(&mut self, others: usize, room: usize) -> Result<(), StateFault> {
        let before = core::mem::replace(&mut self.held, self.authenticator.held_bytes());
        let more = self.held.saturating_sub(before);
        if more > 0 && more.saturating_add(others) > room { Err(StateFault::SourceLimit) } else { Ok(()) }
    }
}

impl HalfOpen {
    /// Begins EAP in the first request. Returns `None` if no connection accepts EAP from the peer.
    pub(super) fn begin_eap(
        &mut self,
        common: &mut SaCommon,
        request: &IncomingMessage<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Progress>, PeerFault> {
        let content = &request.content;
        let received = required(content.id_i)?;
        let peer_id = Identity::from_payload(&received.id).ok_or(StateFault::IdentityType)?;
        let asked = content.id_r.and_then(|asked| Identity::from_payload(&asked.id));
        let candidates = by_identity(common.path, self.channel.suite, &peer_id, asked.as_ref(), step);
        let with_eap = || {
            candidates.iter().filter_map(|connection| match &connection.remote.method {
                RemoteMethod::Eap(remote) => Some((connection, remote)),
                _ => None,
            })
        };
        let suits = |(connection, _): &(&Arc<Connection>, _)| {
            let suits = check_first_round(connection, content).is_ok();
            #[cfg(feature = "ppk")]
            let suits = suits && self.check_ppk_announced(connection).is_ok();
            suits
        };
        let Some((connection, remote)) = with_eap().find(suits).or_else(|| with_eap().next()) else {
            return Ok(None);
        };
        common.connection = connection.clone();
        check_childless(connection, content)?;
        check_first_round(connection, content)?;
        check_own_method(connection, remote, content)?;
        #[cfg(feature = "ppk")]
        self.check_ppk_announced(connection)?;
        let own_id = self.local_authenticator(common, connection, content, step)?.id;
        #[cfg_attr(
            not(feature = "external-keys"),
            expect(unused_mut, reason = "only a signature changes it")
        )]
        let mut rounds = ResponderRounds::new(request, own_id, peer_id, step)?;
        #[cfg(feature = "external-keys")]
        if let Some(progress) = self.prepare_round(common, &mut rounds, request, step)? {
            return Ok(Some(progress));
        }
        self.begin_conversation(common, rounds, connection, received.body, step).map(Some)
    }

    /// Begins EAP in the current round of the peer, in which `connection` is.
    pub(super) fn begin_conversation(
        &mut self,
        common: &SaCommon,
        rounds: Box<ResponderRounds>,
        connection: &Connection,
        peer_body: &[u8],
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        let RemoteMethod::Eap(remote) = &connection.remote.method else {
            return Err(StateFault::AuthMethod.into());
        };
        let Some(authenticator) = authenticator(remote, &rounds.peer_id, common, connection, step) else {
            explain(EapFault::NoServer, None, &rounds.peer_id, step);
            return Err(StateFault::EapFailed.into());
        };
        let (is_pending, has_failed, held, done) = (false, false, 0, None);
        let peer_body = peer_body.into();
        let mut eap = Box::new(EapResponder { peer_body, authenticator, is_pending, has_failed, held, done });
        let credentials = ConversationCredentials::new(step.context.credentials, common.id, connection, None);
        let next = eap.authenticator.start(&mut credentials.context(step.context));
        self.on_authenticator_step(common, rounds, eap, next, step)
    }

    /// Handles a request in the middle of EAP.
    pub(super) fn continue_conversation(
        &mut self,
        common: &mut SaCommon,
        rounds: Box<ResponderRounds>,
        mut eap: Box<EapResponder>,
        request: &IncomingMessage<'_>,
        leased: &mut LeasedConfig,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        let configured = common.connection.clone();
        let connection = rounds.connection(&configured)?;
        if let Some(done) = eap.done.take() {
            return self.finish_eap(common, rounds, Finished { eap: &eap, done, request }, leased, step);
        }
        let packet = required(request.content.eap)?;
        let credentials =
            ConversationCredentials::new(step.context.credentials, common.id, &connection, None);
        let next = eap.authenticator.receive(&packet, &mut credentials.context(step.context));
        self.on_authenticator_step(common, rounds, eap, next, step)
    }

    /// Whether a request waits for the answer of a server.
    pub(super) fn awaits_server(&self) -> bool {
        self.conversation().is_some_and(|eap| eap.is_pending)
    }

    fn conversation(&self) -> Option<&EapResponder> {
        self.rounds.as_ref()?.eap.as_deref()
    }

    /// Continues after a server has answered.
    pub(crate) fn continue_eap(mut self: Box<Self>, common: &mut SaCommon, step: &mut Step<'_, '_>) -> State {
        if !self.awaits_server() {
            return State::HalfOpen(self);
        }
        let progress = self.poll_server(common, step);
        let meta = MessageMeta { exchange: ExchangeType::IKE_AUTH, path: common.path };
        self.advance(common, progress, LeasedConfig::default(), meta, step)
    }

    fn poll_server(&mut self, common: &mut SaCommon, step: &mut Step<'_, '_>) -> Result<Progress, PeerFault> {
        let mut rounds = self.rounds.take().ok_or(StateFault::EapFailed)?;
        let mut eap = rounds.eap.take().ok_or(StateFault::EapFailed)?;
        let configured = common.connection.clone();
        let connection = rounds.connection(&configured)?;
        let credentials =
            ConversationCredentials::new(step.context.credentials, common.id, &connection, None);
        let next = eap.authenticator.poll(&mut credentials.context(step.context));
        self.on_authenticator_step(common, rounds, eap, next, step)
    }

    /// Sends what the authenticator says.
    fn on_authenticator_step(
        &mut self,
        common: &SaCommon,
        mut rounds: Box<ResponderRounds>,
        mut eap: Box<EapResponder>,
        next: AuthenticatorStep,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        eap.count_bytes(rounds.held_bytes().saturating_add(MAX_RESPONSE), self.room)?;
        let (packet, fault) = match next {
            AuthenticatorStep::Request(packet) => (packet, None),
            AuthenticatorStep::Succeeded(packet, done) => {
                eap.done = Some(done);
                (packet, None)
            }
            AuthenticatorStep::Failed(packet, fault) => (packet, Some(fault)),
            AuthenticatorStep::Pending => {
                eap.is_pending = true;
                rounds.eap = Some(eap);
                self.rounds = Some(rounds);
                return Ok(Progress::Continues);
            }
        };
        eap.is_pending = false;
        let own = self.own_round(common, &mut rounds, step)?;
        self.send_eap(common, &packet, own, fault.is_some(), step)?;
        // A peer that is told of its failure may go away without a word.
        let is_last = fault.is_some();
        if let Some(fault) = fault.or_else(|| eap.authenticator.fault()).filter(|_| !eap.has_failed) {
            explain(fault, eap.authenticator.identity(), &rounds.peer_id, step);
            step.sa_fault(StateFault::EapFailed.into(), common.path, common);
            eap.has_failed = true;
        }
        if is_last {
            return Ok(Progress::Ended(DownReason::Fault(StateFault::EapFailed.into())));
        }
        rounds.eap = Some(eap);
        self.rounds = Some(rounds);
        Ok(Progress::Continues)
    }

    /// The failure that the peer was told of, if it has not acknowledged it.
    pub(super) fn eap_failure(&self) -> Option<DownReason> {
        let has_failed = self.conversation().is_some_and(|eap| eap.has_failed);
        has_failed.then_some(DownReason::Fault(StateFault::EapFailed.into()))
    }

    /// Ends the IKE SA if the peer says in the middle of the authentication that it gives up.
    pub(super) fn leave_rounds(
        &mut self,
        common: &SaCommon,
        request: &IncomingMessage<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Progress>, PeerFault> {
        let gives_up = request.exchange == ExchangeType::INFORMATIONAL
            && request.content.has_notify(NotifyType::AUTHENTICATION_FAILED);
        if !gives_up || self.rounds.is_none() {
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
        own: Option<OwnRound<'_>>,
        has_failed: bool,
        step: &mut Step<'_, '_>,
    ) -> Result<(), PeerFault> {
        let sent = self.channel.send_response(common, ExchangeType::IKE_AUTH, step, &|out| {
            own.iter().try_for_each(|round| round.write(out))?;
            out.eap(&packet.as_payload())?;
            if has_failed {
                out.notify(&Notify::new(NotifyType::AUTHENTICATION_FAILED, &[]))?;
            }
            Ok(())
        });
        sent.map_err(|_| StateFault::Provider.into())
    }

    /// Verifies the peer's AUTH payload after EAP, which ends the round.
    fn finish_eap(
        &mut self,
        common: &mut SaCommon,
        mut rounds: Box<ResponderRounds>,
        finished: Finished<'_, '_>,
        leased: &mut LeasedConfig,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        let Finished { eap, done, request } = finished;
        let (init, suite, providers) = (&self.init, self.channel.suite, step.context.providers);
        let auth = required(request.content.auth)?;
        check_another_round(&common.connection, rounds.peer, &request.content)?;
        self.select_by_groups(common, &rounds, &done, step)?;
        check_required_identity(common, &rounds, &done, step)?;
        let theirs = init.initiator_octets(&eap.peer_body, suite);
        let own_body = id_body(&rounds.own_id);
        let ours = init.responder_octets(&own_body, suite);
        #[cfg(feature = "ppk")]
        let ppk = self.ppk_of_request(&common.connection, &request.content, step.context)?;
        #[cfg(feature = "ppk")]
        let (theirs, ours) = (ppk.initiator_octets(theirs), ppk.responder_octets(ours));
        #[cfg(feature = "ppk")]
        let auth = ppk.proof(auth);
        let remote = common.path.remote.ip();
        let parties = Parties { ike: common.id, own: &rounds.own_id, peer: &rounds.peer_id, remote };
        let peer = PeerAuthenticated::by_eap(&parties, &done, auth, &theirs, &common.connection, providers)?;
        let proof = eap::prove(&done, &ours, providers)?;
        #[cfg(feature = "ppk")]
        let peer = self.with_accepted_ppk(ppk.into_used(), peer);
        rounds.add(peer);
        self.finish_round(common, rounds, Some(proof), request.path, leased, step)
    }
}

/// A conversation that has succeeded, and the request that follows.
struct Finished<'a, 'm> {
    eap: &'a EapResponder,
    done: Authenticated,
    request: &'a IncomingMessage<'m>,
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
    if connection.has_further_rounds() {
        return Err(StateFault::AuthMethod);
    }
    if !mutual_methods(remote).is_empty() && content.has_notify(NotifyType::EAP_ONLY_AUTHENTICATION) {
        Ok(())
    } else {
        Err(StateFault::AuthMethod)
    }
}

/// Checks that the peer has proved the identity that the connection requires, if it requires a certain one.
/// An AAA server may have authenticated another user than the one that it was asked for.
fn check_required_identity(
    common: &SaCommon,
    rounds: &ResponderRounds,
    done: &Authenticated,
    step: &mut Step<'_, '_>,
) -> Result<(), PeerFault> {
    let connection = rounds.connection(&common.connection)?;
    let required = match &connection.remote.method {
        RemoteMethod::Eap(RemoteEap { identity: EapIdentity::Fixed(identity), .. }) => Some(identity.clone()),
        RemoteMethod::Eap(RemoteEap { identity: EapIdentity::Ike, .. }) => {
            connection.remote.id.exact().map(|_| rounds.peer_id.to_eap())
        }
        _ => None,
    };
    let Some(required) = required.filter(|required| !done.has_proved(required)) else { return Ok(()) };
    let has_other = done.proven_name().is_some();
    let fault = if has_other { EapFault::OtherIdentity } else { EapFault::UnprovenIdentity };
    explain(fault, Some(&required), &rounds.peer_id, step);
    Err(StateFault::EapFailed.into())
}

/// The methods that authenticate both sides; none if a server chooses the method.
fn mutual_methods(remote: &RemoteEap) -> Vec<Method> {
    remote.methods.iter().copied().filter(|method| method.is_mutual()).collect()
}

/// An authenticator for a peer with this ID payload; `None` without a server that the connection needs.
fn authenticator(
    remote: &RemoteEap,
    peer: &Identity,
    common: &SaCommon,
    connection: &Connection,
    step: &Step<'_, '_>,
) -> Option<Box<dyn Authenticator>> {
    let identity = match &remote.identity {
        EapIdentity::Ike => Some(peer.to_eap()),
        EapIdentity::Fixed(identity) => Some(identity.clone()),
        EapIdentity::Asked => None,
    };
    if remote.is_relayed() {
        let (ike, path) = (common.id, common.path);
        let session = EapSession { ike, connection, peer, identity, path };
        return step.context.credentials.eap_authenticator(&session);
    }
    let methods = match connection.local.method {
        LocalMethod::Eap(_) => mutual_methods(remote),
        _ => remote.methods.clone(),
    };
    let most = step.shared.settings.max_unauthenticated_bytes;
    Some(Box::new(casemate_eap::LocalAuthenticator::new(identity, methods).with_max_message(most)))
}

/// Explains the failure of EAP. `identity` is the EAP identity, `peer_id` that of the ID payload.
fn explain(fault: EapFault, identity: Option<&[u8]>, peer_id: &Identity, step: &mut Step<'_, '_>) {
    step.explain(StateFault::EapFailed, false, |_, _| {
        let identity = identity.map(Vec::from);
        Some(Explanation::Eap { fault, identity, peer: peer_id.clone() }.into())
    });
}
