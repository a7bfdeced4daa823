//! IKE_AUTH as the responder (RFC 7296 sections 1.2, 2.15 and 2.21.2).

use super::auth_accepted::{Accepted, Authentic};
#[cfg(feature = "revocation")]
use super::awaited_message::AwaitedMessage;
use super::config_payload::LeasedConfig;
use super::init_exchange::InitExchange;
#[cfg(feature = "eap")]
use super::responder_rounds::ResponderRounds;
#[cfg(feature = "eap")]
use super::responder_rounds::check_first_round;
use super::select_connection::{by_identity, check_childless};
#[cfg(feature = "ppk")]
use crate::auth::ppk::{UsedPpk, order_by_ppk};
use crate::auth::{
    AuthClaim, AuthError, LocalAuthenticator, OwnProof, PeerAuthenticated, ProofTerms, Wanted, verify,
};
use crate::config::{Connection, Identity};
use crate::context::Step;
use crate::diagnosis::RefusedInitiator;
use crate::state::{IncomingMessage, MessageMeta, SaCommon, State};
use crate::transport::{Build, Content, SecureChannel, required};
use crate::{DownReason, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::ExchangeType;

/// Keys are negotiated, the peer is not authenticated.
pub(crate) struct HalfOpen {
    pub(crate) channel: SecureChannel,
    pub(crate) init: InitExchange,
    pub(crate) started_at: Instant,
    pub(crate) expires_at: Instant,
    /// Number of completed additional key exchanges.
    #[cfg(feature = "multiple-kex")]
    pub(super) kexes_done: usize,
    /// The session that the peer resumes.
    #[cfg(feature = "resumption")]
    pub(super) resumes: Option<Box<crate::resumption::Session>>,
    /// When the ticket that the peer was given expires.
    #[cfg(feature = "resumption")]
    pub(super) ticket_until: Option<Instant>,
    /// Number of bytes that half-open IKE SAs of the source could hold in addition when the last message
    /// came.
    #[cfg(feature = "eap")]
    pub(crate) room: usize,
    /// Progress of authentication, if EAP or several rounds make it longer.
    #[cfg(feature = "eap")]
    pub(crate) rounds: Option<Box<ResponderRounds>>,
    /// The request that waits for the status of the peer's certificates, or for our signature.
    #[cfg(feature = "revocation")]
    pub(crate) awaited_message: Option<Box<AwaitedMessage>>,
    #[cfg(feature = "revocation")]
    pub(super) is_wait_over: bool,
}

/// Result of an IKE_AUTH request.
pub(super) enum Progress {
    Accepted(Box<Accepted>),
    /// More requests follow, or the response waits.
    #[cfg(any(feature = "eap", feature = "revocation", feature = "multiple-kex"))]
    Continues,
    /// The peer knows that the IKE SA has ended, and the fault was reported.
    #[cfg(feature = "eap")]
    Ended(DownReason),
}

/// The authenticated peer, and our own proof.
pub(super) struct Authenticated<'c> {
    pub(super) peer: PeerAuthenticated,
    pub(super) own: LocalAuthenticator<'c>,
    pub(super) proof: OwnProof,
    /// The peer's post-quantum pre-shared key, if it uses one.
    #[cfg(feature = "ppk")]
    pub(super) ppk: Option<UsedPpk>,
}

/// Why a request does not authenticate its sender.
enum NotAuthenticated {
    Fault(PeerFault),
    /// The status of the certificates is being looked up, or our signature is being made.
    #[cfg(feature = "revocation")]
    Pending,
}

impl From<PeerFault> for NotAuthenticated {
    fn from(fault: PeerFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<StateFault> for NotAuthenticated {
    fn from(fault: StateFault) -> Self {
        Self::Fault(fault.into())
    }
}

impl HalfOpen {
    pub(crate) fn next_timeout(&self) -> Instant {
        #[cfg(feature = "revocation")]
        if let Some(awaited) = &self.awaited_message {
            return awaited.until().min(self.expires_at);
        }
        self.expires_at
    }

    /// Bytes of the messages that this state holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let InitExchange { request, response, .. } = &self.init;
        let held = self.channel.window.held_bytes();
        #[cfg(feature = "revocation")]
        let held = held.saturating_add(self.awaited_message.as_ref().map_or(0, |awaited| awaited.len()));
        #[cfg(feature = "eap")]
        let held = held.saturating_add(self.rounds.as_ref().map_or(0, |rounds| rounds.held_bytes()));
        held.saturating_add(request.len()).saturating_add(response.len())
    }

    pub(crate) fn on_timeout(self: Box<Self>, common: &mut SaCommon, step: &mut Step<'_, '_>) -> State {
        #[cfg(feature = "revocation")]
        if self.awaited_message.as_ref().is_some_and(|awaited| awaited.until() <= step.context.now) {
            return self.continue_authentication(common, step);
        }
        #[cfg(not(feature = "revocation"))]
        let _ = common;
        if step.context.now < self.expires_at {
            State::HalfOpen(self)
        } else {
            #[cfg(feature = "eap")]
            if let Some(reason) = self.eap_failure() {
                return State::Closed(reason);
            }
            State::Closed(DownReason::DeadPeer)
        }
    }

    pub(crate) fn on_request(
        mut self: Box<Self>,
        common: &mut SaCommon,
        request: Result<IncomingMessage<'_>, PeerFault>,
        meta: MessageMeta,
        step: &mut Step<'_, '_>,
    ) -> State {
        #[cfg(feature = "eap")]
        if self.awaits_server() {
            // The request whose response the server delays, repeated.
            return State::HalfOpen(self);
        }
        #[cfg(feature = "revocation")]
        if self.awaited_message.is_some() {
            // The request whose response waits, repeated.
            return State::HalfOpen(self);
        }
        let mut leased = LeasedConfig::default();
        let progress = request.and_then(|request| self.process_request(common, &request, &mut leased, step));
        self.advance(common, progress, leased, meta, step)
    }

    /// Processes a request. A request that waits for an answer is processed again.
    pub(super) fn process_request(
        &mut self,
        common: &mut SaCommon,
        request: &IncomingMessage<'_>,
        leased: &mut LeasedConfig,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        #[cfg(feature = "eap")]
        if let Some(progress) = self.leave_rounds(common, request, step)? {
            return Ok(progress);
        }
        #[cfg(feature = "multiple-kex")]
        if let Some(method) = self.channel.suite.additional.after(self.kexes_done) {
            return self.respond_with_keys(common, method, request, step).map(|()| Progress::Continues);
        }
        if request.exchange != ExchangeType::IKE_AUTH {
            return Err(StateFault::WrongExchange.into());
        }
        #[cfg(feature = "resumption")]
        if let Some(session) = self.resumes.take() {
            return self.authenticate_resumption(common, &session, request, leased, step);
        }
        #[cfg(feature = "eap")]
        if let Some(progress) = self.run_rounds(common, request, leased, step)? {
            return Ok(progress);
        }
        self.authenticate(common, request, leased, step)
    }

    /// Goes to the next state after an IKE_AUTH request, and tells the peer of a fault.
    pub(super) fn advance(
        mut self: Box<Self>,
        common: &mut SaCommon,
        progress: Result<Progress, PeerFault>,
        leased: LeasedConfig,
        meta: MessageMeta,
        step: &mut Step<'_, '_>,
    ) -> State {
        match progress {
            Ok(Progress::Accepted(accepted)) => self.establish(common, *accepted, leased, step),
            #[cfg(any(feature = "eap", feature = "revocation", feature = "multiple-kex"))]
            Ok(Progress::Continues) => State::HalfOpen(self),
            #[cfg(feature = "eap")]
            Ok(Progress::Ended(reason)) => State::Closed(reason),
            Err(fault) => {
                leased.addrs.iter().for_each(|addr| step.shared.pools.release(*addr));
                step.sa_fault(fault, meta.path, common);
                self.refuse(common, meta.exchange, fault, step);
                State::Closed(DownReason::Fault(fault))
            }
        }
    }

    /// Tells the peer of a fault.
    fn refuse(
        &mut self,
        common: &SaCommon,
        exchange: ExchangeType,
        fault: PeerFault,
        step: &mut Step<'_, '_>,
    ) {
        #[cfg(feature = "multiple-kex")]
        if fault == StateFault::KeMethod.into()
            && let Some(agreed) = self.channel.suite.additional.after(self.kexes_done)
        {
            return self.channel.send_invalid_ke(common, exchange, agreed, step);
        }
        self.channel.send_error(common, exchange, fault, step);
    }

    /// Authenticates the peer by its AUTH payload.
    fn authenticate(
        &mut self,
        common: &mut SaCommon,
        request: &IncomingMessage<'_>,
        leased: &mut LeasedConfig,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        let content = &request.content;
        let authenticated = match self.authenticate_peer(common, content, step) {
            Ok(authenticated) => authenticated,
            Err(NotAuthenticated::Fault(fault)) => return Err(fault),
            #[cfg(feature = "revocation")]
            Err(NotAuthenticated::Pending) => return self.await_answer(request, step),
        };
        #[cfg(feature = "ppk")]
        let authenticated = self.accept_ppk(authenticated);
        #[cfg(feature = "eap")]
        if common.connection.has_further_rounds() {
            return self.begin_rounds(common, authenticated, request, step);
        }
        let Authenticated { peer, own, proof, .. } = authenticated;
        let write_proof: Build<'_> = &|out| {
            own.write(out, |out, id| out.id_r(id))?;
            proof.write(out)
        };
        let authentic = Authentic { content, path: request.path, peer, write_proof };
        self.accept(common, authentic, leased, step).map(Progress::Accepted)
    }

    /// Verifies the peer's proof and creates ours, on the first candidate connection that accepts the former
    /// and can create the latter.
    fn authenticate_peer<'c>(
        &self,
        common: &mut SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, 'c>,
    ) -> Result<Authenticated<'c>, NotAuthenticated> {
        let received = required(content.id_i)?;
        let id = Identity::from_payload(&received.id).ok_or(StateFault::IdentityType)?;
        let asked = match content.id_r {
            None => None,
            Some(asked) => Some(Identity::from_payload(&asked.id).ok_or(StateFault::IdentityType)?),
        };
        let Some(auth) = content.auth else {
            return Err(self.eap_refused(common.path, (&id, asked.as_ref()), content, step));
        };
        let claim = AuthClaim {
            id: &id,
            auth,
            certs: &content.certs,
            remote: common.path.remote.ip(),
            #[cfg(feature = "revocation")]
            status: self.auth_wait(common),
        };
        #[cfg_attr(not(feature = "ppk"), expect(unused_mut, reason = "only a PPK changes the order"))]
        let mut candidates = by_identity(common.path, self.channel.suite, &id, asked.as_ref(), step);
        #[cfg(feature = "ppk")]
        order_by_ppk(&mut candidates, content, step.context.credentials);
        // If no connection accepts the proof: the fault of the best candidate that accepts this kind of proof
        // at all.
        let mut refused = StateFault::NoPeer;
        let mut faults: Vec<StateFault> = Vec::new();
        for connection in &candidates {
            let proved = self.authenticate_on(connection, common.path, &claim, received.body, content, step);
            if proved.is_ok() || is_generic(refused) {
                common.connection = connection.clone();
            }
            match proved {
                Ok(authenticated) => return Ok(authenticated),
                #[cfg(feature = "revocation")]
                Err(AuthError::Pending) => return Err(NotAuthenticated::Pending),
                Err(AuthError::Fault(fault)) => {
                    faults.push(fault);
                    refused = if is_generic(refused) { fault } else { refused };
                }
            }
        }
        Err(self.refused_by_all(common.path, content, (&candidates, &faults), refused, step))
    }

    /// Without an AUTH payload the peer wants EAP (RFC 7296 section 2.16), which no connection allows.
    fn eap_refused(
        &self,
        path: Path,
        (id, asked): (&Identity, Option<&Identity>),
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> NotAuthenticated {
        let candidates = by_identity(path, self.channel.suite, id, asked, step);
        let faults: Vec<StateFault> = candidates.iter().map(|_| StateFault::AuthMethod).collect();
        let refused = faults.first().copied().unwrap_or(StateFault::NoPeer);
        self.refused_by_all(path, content, (&candidates, &faults), refused, step)
    }

    /// Explains why no connection accepts the peer. `tried` are those for its identity, and their faults.
    fn refused_by_all(
        &self,
        path: Path,
        content: &Content<'_>,
        (tried, faults): (&[Arc<Connection>], &[StateFault]),
        refused: StateFault,
        step: &mut Step<'_, '_>,
    ) -> NotAuthenticated {
        let suite = self.channel.suite;
        step.explain(refused, false, |explainer, step| {
            let refused = RefusedInitiator { path, suite, content, tried, faults };
            Some(explainer.initiator(refused, step.shared.connections.all(), step.context))
        });
        NotAuthenticated::Fault(refused.into())
    }

    /// Verifies the peer's proof and creates ours on one connection.
    fn authenticate_on<'c>(
        &self,
        connection: &Connection,
        path: Path,
        claim: &AuthClaim<'_>,
        id_body: &[u8],
        content: &Content<'_>,
        step: &mut Step<'_, 'c>,
    ) -> Result<Authenticated<'c>, AuthError> {
        check_childless(connection, content)?;
        #[cfg(feature = "eap")]
        check_first_round(connection, content)?;
        let (init, suite) = (&self.init, self.channel.suite);
        let requests = init.peer.requests.joined(content);
        let asked = content.id_r.and_then(|asked| Identity::from_payload(&asked.id));
        let wanted = Wanted { requests: &requests, id: asked.as_ref() };
        let own = LocalAuthenticator::new(connection, wanted, path.local.ip(), step.context.credentials)?;
        let (theirs, own_body) = (init.initiator_octets(id_body, suite), own.id_body());
        let ours = init.responder_octets(&own_body, suite);
        #[cfg(feature = "ppk")]
        let ppk = self.ppk_of_request(connection, content, step.context)?;
        #[cfg(feature = "ppk")]
        let claim = &AuthClaim { auth: ppk.proof(claim.auth), ..*claim };
        #[cfg(feature = "ppk")]
        let (theirs, ours) = (ppk.initiator_octets(theirs), ppk.responder_octets(ours));
        let peer = verify(claim, &theirs, connection, &own.id, step.context)?;
        let terms = ProofTerms {
            connection,
            peer: claim.id,
            hashes: &init.peer.hashes,
            #[cfg(feature = "external-keys")]
            wait: claim.status,
        };
        let proof = own.prove(&ours, &terms, step)?;
        Ok(Authenticated {
            peer,
            own,
            proof,
            #[cfg(feature = "ppk")]
            ppk: ppk.into_used(),
        })
    }
}

/// Whether another fault gives a more specific reason for the rejection.
const fn is_generic(than: StateFault) -> bool {
    matches!(
        than,
        StateFault::NoPeer | StateFault::AuthMethod | StateFault::ChildlessRefused | StateFault::AuthRounds
    )
}
