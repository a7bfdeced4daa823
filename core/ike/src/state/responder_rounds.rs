//! Authentication as the responder that takes more than one request: of a peer that uses EAP (RFC 7296
//! section 2.16), or in several rounds (RFC 4739).
//!
//! The first round of the peer selects the connection. Each later request must begin the round that the
//! connection prescribes, and the IKE SA is accepted after the last round of both sides.

use super::auth_accepted::Authentic;
use super::config_payload::LeasedConfig;
use super::eap_responder::EapResponder;
use super::half_open::{Authenticated, Progress};

use crate::auth::credentials::id_matches;
use crate::auth::rounds::{check_another_round, check_support, write_another};
use crate::auth::{
    AuthClaim, AuthError, LocalAuthenticator, OwnProof, PeerAuthenticated, ProofTerms, Wanted, verify,
};
use crate::config::{Connection, IdPattern, Identity, LocalMethod, Round};
use crate::context::Step;
use crate::state::{HalfOpen, IncomingMessage, SaCommon};
use crate::transport::{Build, Content, parse_payloads, required};
use crate::{Path, PeerFault, StateFault};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType, WriteError, Writer};

/// Progress of both sides.
pub(crate) struct ResponderRounds {
    /// Payloads of the first IKE_AUTH request, which are needed again after the last round.
    first_request: Vec<u8>,
    /// Type of the first one.
    first_payload: PayloadType,
    /// Number of our rounds that were sent.
    own: usize,
    /// Our identity, that of the last ID payload.
    pub(super) own_id: Identity,
    /// Number of rounds that the peer has passed.
    pub(super) peer: usize,
    /// Identity in the peer's last ID payload.
    pub(super) peer_id: Identity,
    /// The peer after the rounds that it has passed.
    authenticated: Option<PeerAuthenticated>,
    /// EAP conversation of the peer's current round.
    pub(super) eap: Option<Box<EapResponder>>,
    /// The signature of our next round, which was made before the request was processed.
    prepared: Option<OwnProof>,
}

/// Our next round, in a response.
pub(super) struct OwnRound<'c> {
    own: LocalAuthenticator<'c>,
    /// `None` if EAP authenticates this host as well (RFC 5998).
    proof: Option<OwnProof>,
    /// Whether another round of ours follows.
    follows: bool,
}

impl OwnRound<'_> {
    pub(super) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        self.own.write(out, |out, id| out.id_r(id))?;
        self.proof.iter().try_for_each(|proof| proof.write(out))?;
        write_another(self.follows, out)
    }
}

impl ResponderRounds {
    /// Begins with the first request of a peer with this identity.
    pub(super) fn new(
        request: &IncomingMessage<'_>,
        own_id: Identity,
        peer_id: Identity,
        step: &Step<'_, '_>,
    ) -> Result<Box<Self>, StateFault> {
        let payloads = request.payloads;
        if payloads.bytes.len() > step.shared.settings.max_unauthenticated_bytes {
            return Err(StateFault::FragmentLimit);
        }
        Ok(Box::new(Self {
            first_request: payloads.bytes.into(),
            first_payload: payloads.first,
            own: 0,
            own_id,
            peer: 0,
            peer_id,
            authenticated: None,
            eap: None,
            prepared: None,
        }))
    }

    /// Bytes of the first request and of the EAP conversation.
    pub(super) fn held_bytes(&self) -> usize {
        let eap = self.eap.as_ref().map_or(0, |eap| eap.held_bytes());
        eap.saturating_add(self.first_request.len())
    }

    /// Parses the first request again.
    pub(super) fn first(&self) -> Result<Content<'_>, PeerFault> {
        parse_payloads(self.first_payload, &self.first_request)
    }

    /// Adds a round that the peer has passed.
    pub(super) fn add(&mut self, peer: PeerAuthenticated) {
        let former = self.authenticated.take();
        self.authenticated = Some(match former {
            None => peer,
            Some(former) => peer.after(former),
        });
        self.peer = self.peer.saturating_add(1);
    }

    /// The connection in the peer's current round and our last one, or the first one before.
    pub(super) fn connection<'c>(
        &self,
        configured: &'c Connection,
    ) -> Result<Cow<'c, Connection>, StateFault> {
        let round = Round { local: self.own.saturating_sub(1), remote: self.peer };
        configured.in_round(round).ok_or(StateFault::AuthRounds)
    }

    /// Whether this host has more rounds.
    pub(super) const fn has_own_round(&self, configured: &Connection) -> bool {
        self.own < configured.local_rounds()
    }
}

impl HalfOpen {
    /// Handles a request of an authentication that takes more than one. Returns `None` if the peer has sent
    /// an AUTH payload in its first request, or if no connection accepts EAP from it.
    pub(super) fn run_rounds(
        &mut self,
        common: &mut SaCommon,
        request: &IncomingMessage<'_>,
        leased: &mut LeasedConfig,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Progress>, PeerFault> {
        let Some(mut rounds) = self.rounds.take() else {
            return match request.content.auth {
                Some(_) => Ok(None),
                None => self.begin_eap(common, request, step),
            };
        };
        #[cfg(feature = "external-keys")]
        if let Some(progress) = self.prepare_round(common, &mut rounds, request, step)? {
            self.rounds = Some(rounds);
            return Ok(Some(progress));
        }
        if let Some(eap) = rounds.eap.take() {
            return self.continue_conversation(common, rounds, eap, request, leased, step).map(Some);
        }
        self.next_round(common, rounds, request, leased, step).map(Some)
    }

    /// Responds to the first round of a connection that has several.
    pub(super) fn begin_rounds(
        &mut self,
        common: &mut SaCommon,
        authenticated: Authenticated<'_>,
        request: &IncomingMessage<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        let Authenticated { peer, own, proof, .. } = authenticated;
        let peer_id = peer.id().clone();
        let mut rounds = ResponderRounds::new(request, own.id.clone(), peer_id, step)?;
        rounds.add(peer);
        rounds.own = 1;
        let follows = rounds.has_own_round(&common.connection);
        let round = OwnRound { own, proof: Some(proof), follows };
        self.send_rounds(common, rounds, &|out| round.write(out), step)
    }

    /// Handles a request after a complete round: it begins the peer's next one, or asks for ours.
    fn next_round(
        &mut self,
        common: &mut SaCommon,
        mut rounds: Box<ResponderRounds>,
        request: &IncomingMessage<'_>,
        leased: &mut LeasedConfig,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        let (content, configured) = (&request.content, common.connection.clone());
        if rounds.peer == configured.remote_rounds() {
            let is_surplus = content.id_i.is_some()
                || content.auth.is_some()
                || content.has_notify(NotifyType::ANOTHER_AUTH_FOLLOWS);
            if is_surplus {
                return Err(StateFault::AuthRounds.into());
            }
            return self.finish_round(common, rounds, None, request.path, leased, step);
        }
        let received = required(content.id_i)?;
        let id = Identity::from_payload(&received.id).ok_or(StateFault::IdentityType)?;
        let connection = rounds.connection(&configured)?;
        let pattern = &connection.remote.id;
        if *pattern != IdPattern::Any && !id_matches(step.context.credentials, pattern, &id) {
            return Err(StateFault::WrongIdentity.into());
        }
        rounds.peer_id = id;
        let Some(auth) = content.auth else {
            return self.begin_conversation(common, rounds, &connection, received.body, step);
        };
        let (init, suite) = (&self.init, self.channel.suite);
        let theirs = init.initiator_octets(received.body, suite);
        let remote = common.path.remote.ip();
        let claim = AuthClaim {
            id: &rounds.peer_id,
            auth,
            certs: &content.certs,
            remote,
            #[cfg(feature = "revocation")]
            status: self.auth_wait(common),
        };
        check_another_round(&configured, rounds.peer, content)?;
        let peer = match verify(&claim, &theirs, &connection, &rounds.own_id, step.context) {
            Ok(peer) => peer,
            Err(AuthError::Fault(fault)) => return Err(fault.into()),
            #[cfg(feature = "revocation")]
            Err(AuthError::Pending) => {
                self.rounds = Some(rounds);
                return self.await_answer(request, step);
            }
        };
        rounds.add(peer);
        self.finish_round(common, rounds, None, request.path, leased, step)
    }

    /// Our next round, if there is one.
    pub(super) fn own_round<'c>(
        &self,
        common: &SaCommon,
        rounds: &mut ResponderRounds,
        step: &mut Step<'_, 'c>,
    ) -> Result<Option<OwnRound<'c>>, PeerFault> {
        let configured = &common.connection;
        if !rounds.has_own_round(configured) {
            return Ok(None);
        }
        let remote = rounds.peer.min(configured.remote_rounds().saturating_sub(1));
        let round = Round { local: rounds.own, remote };
        let connection = configured.in_round(round).ok_or(StateFault::AuthRounds)?;
        let own = self.local_authenticator(common, &connection, &rounds.first()?, step)?;
        rounds.own_id = own.id.clone();
        rounds.own = rounds.own.saturating_add(1);
        let follows = rounds.has_own_round(configured);
        if let LocalMethod::Eap(_) = connection.local.method {
            return Ok(Some(OwnRound { own, proof: None, follows }));
        }
        let proof = match rounds.prepared.take() {
            Some(proof) => proof,
            None => {
                let proof = self.prove_round(common, &connection, &own, &rounds.peer_id, step);
                proof.map_err(|error| match error {
                    AuthError::Fault(fault) => fault,
                    // The signature of an external key was prepared.
                    #[cfg(feature = "revocation")]
                    AuthError::Pending => StateFault::OwnSignature,
                })?
            }
        };
        Ok(Some(OwnRound { own, proof: Some(proof), follows }))
    }

    fn prove_round(
        &self,
        common: &SaCommon,
        connection: &Connection,
        own: &LocalAuthenticator<'_>,
        peer: &Identity,
        step: &mut Step<'_, '_>,
    ) -> Result<OwnProof, AuthError> {
        let (init, suite) = (&self.init, self.channel.suite);
        let own_body = own.id_body();
        let ours = init.responder_octets(&own_body, suite);
        let terms = ProofTerms {
            connection,
            peer,
            hashes: &init.peer.hashes,
            #[cfg(feature = "external-keys")]
            wait: self.auth_wait(common),
        };
        #[cfg(not(feature = "external-keys"))]
        let _ = common;
        own.prove(&ours, &terms, step)
    }

    /// Has another device make the signature of our next round, before the request changes anything. Returns
    /// how the IKE SA goes on if the signature is awaited: the request is processed again then.
    #[cfg(feature = "external-keys")]
    pub(super) fn prepare_round(
        &mut self,
        common: &SaCommon,
        rounds: &mut ResponderRounds,
        request: &IncomingMessage<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Progress>, PeerFault> {
        let configured = &common.connection;
        if rounds.prepared.is_some() || !rounds.has_own_round(configured) {
            return Ok(None);
        }
        let remote = rounds.peer.min(configured.remote_rounds().saturating_sub(1));
        let round = Round { local: rounds.own, remote };
        let connection = configured.in_round(round).ok_or(StateFault::AuthRounds)?;
        let own = self.local_authenticator(common, &connection, &rounds.first()?, step)?;
        if !own.has_external_key(step.context.credentials) {
            return Ok(None);
        }
        match self.prove_round(common, &connection, &own, &rounds.peer_id, step) {
            Ok(proof) => rounds.prepared = Some(proof),
            Err(AuthError::Fault(fault)) => return Err(fault.into()),
            Err(AuthError::Pending) => return self.await_answer(request, step).map(Some),
        }
        Ok(None)
    }

    /// Our side of this IKE SA in a round. `first` is the peer's first request.
    pub(super) fn local_authenticator<'c>(
        &self,
        common: &SaCommon,
        connection: &Connection,
        first: &Content<'_>,
        step: &Step<'_, 'c>,
    ) -> Result<LocalAuthenticator<'c>, StateFault> {
        let requests = self.init.peer.requests.joined(first);
        let asked = first.id_r.and_then(|asked| Identity::from_payload(&asked.id));
        let wanted = Wanted { requests: &requests, id: asked.as_ref() };
        LocalAuthenticator::new(connection, wanted, common.path.local.ip(), step.context.credentials)
    }

    /// Responds after a round of the peer: with our proof of its EAP, or with our next round. Accepts the
    /// first request if that was the last round of both sides.
    pub(super) fn finish_round(
        &mut self,
        common: &mut SaCommon,
        mut rounds: Box<ResponderRounds>,
        eap_proof: Option<OwnProof>,
        path: Path,
        leased: &mut LeasedConfig,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        // A message has one AUTH payload.
        let own = match eap_proof {
            Some(_) => None,
            None => self.own_round(common, &mut rounds, step)?,
        };
        let write_proof: Build<'_> = &|out| {
            own.iter().try_for_each(|round| round.write(out))?;
            eap_proof.iter().try_for_each(|proof| proof.write(out))
        };
        let configured = common.connection.clone();
        if rounds.has_own_round(&configured) || rounds.peer < configured.remote_rounds() {
            return self.send_rounds(common, rounds, write_proof, step);
        }
        let peer = rounds.authenticated.take().ok_or(StateFault::AuthRounds)?;
        let content = rounds.first()?;
        let accepted = Authentic { content: &content, path, peer, write_proof };
        self.accept(common, accepted, leased, step).map(Progress::Accepted)
    }

    /// Sends a response, after which another request must follow.
    fn send_rounds(
        &mut self,
        common: &SaCommon,
        rounds: Box<ResponderRounds>,
        write: Build<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        let sent = self.channel.send_response(common, ExchangeType::IKE_AUTH, step, write);
        sent.map_err(|_| StateFault::Provider)?;
        self.rounds = Some(rounds);
        Ok(Progress::Continues)
    }
}

/// Checks that the peer of the first request can pass the rounds of a connection. With an AUTH payload the
/// request says whether another round follows.
pub(super) fn check_first_round(connection: &Connection, content: &Content<'_>) -> Result<(), StateFault> {
    check_support(connection, content.has_notify(NotifyType::MULTIPLE_AUTH_SUPPORTED))?;
    if content.auth.is_some() { check_another_round(connection, 0, content) } else { Ok(()) }
}
