//! Authentication as the initiator that takes more than one request: by EAP (RFC 7296 section 2.16), or in
//! several rounds (RFC 4739).
//!
//! Each side passes its own rounds in order. The responder's rounds come in the first responses, ours in the
//! requests; a round by EAP takes several requests. When both sides have passed all their rounds, the last
//! response contains the first Child SA.

use super::eap_initiator::EapInitiator;
use super::init_exchange::PeerFeatures;
use super::responder_proof::Rejection;
use crate::auth::rounds::{check_another_round, check_support, write_another};
use crate::auth::{
    AuthError, CertRequests, LocalAuthenticator, OwnProof, PeerAuthenticated, ProofTerms, Wanted,
};
use crate::config::{Connection, Identity, Round};
use crate::context::Step;
use crate::engine::peer_index::PeerPair;
use crate::state::{AuthSent, SaCommon};
use crate::transport::Content;
use crate::{Credentials, StateFault};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_wire::ike::{ExchangeType, NotifyType};

/// Progress of both sides.
pub(crate) struct InitiatorRounds {
    /// Our current round.
    own: usize,
    /// Number of rounds that the responder has passed.
    pub(super) peer: usize,
    /// The responder, once its first response has arrived.
    pub(super) responder: Option<Responder>,
    /// EAP conversation of our current round.
    pub(super) eap: Option<Box<EapInitiator>>,
    /// The signature of our next round, which was made before the response was processed.
    prepared: Option<OwnProof>,
}

/// The responder in its last round.
pub(super) struct Responder {
    pub(super) id: Identity,
    /// Body of its ID payload.
    pub(super) id_body: Vec<u8>,
    /// Its proof; `None` while only EAP can authenticate it (RFC 5998).
    pub(super) authenticated: Option<PeerAuthenticated>,
}

impl InitiatorRounds {
    /// Begins our first round, with the identity `own`.
    pub(super) fn begin(
        connection: &Connection,
        own: &Identity,
        peer: &PeerFeatures,
    ) -> Result<Self, StateFault> {
        check_support(connection, peer.multiple_auth)?;
        let eap = EapInitiator::new(connection, own);
        Ok(Self { own: 0, peer: 0, responder: None, eap, prepared: None })
    }

    /// No round: the keys of an earlier IKE SA authenticate both sides.
    #[cfg(feature = "resumption")]
    pub(super) const fn none() -> Self {
        Self { own: 0, peer: 0, responder: None, eap: None, prepared: None }
    }

    /// Whether EAP proves our identity in the current round.
    pub(super) const fn proves_by_eap(&self) -> bool {
        self.eap.is_some()
    }

    /// Whether we have another round after the current one.
    pub(super) const fn has_next(&self, connection: &Connection) -> bool {
        self.own.saturating_add(1) < connection.local_rounds()
    }

    /// The rounds in which both sides are; that of the responder is the last one that it has passed or
    /// begun.
    fn round(&self, connection: &Connection) -> Round {
        let last = connection.remote_rounds().saturating_sub(1);
        Round { local: self.own, remote: self.peer.min(last) }
    }

    /// The connection in the current rounds.
    pub(super) fn connection<'c>(
        &self,
        configured: &'c Connection,
    ) -> Result<Cow<'c, Connection>, StateFault> {
        configured.in_round(self.round(configured)).ok_or(StateFault::AuthRounds)
    }
}

/// The identities with which the IKE SA will be known: those of the last rounds. `first` are those of the
/// first ones. `None` if the peer's is not known before.
pub(super) fn last_pair(
    first: Option<PeerPair>,
    common: &SaCommon,
    wanted: &CertRequests,
    credentials: &dyn Credentials,
) -> Result<Option<PeerPair>, StateFault> {
    let (configured, path) = (&common.connection, common.path);
    if !configured.has_further_rounds() {
        return Ok(first);
    }
    let (local, remote) = (configured.local_rounds(), configured.remote_rounds());
    let last = Round { local: local.saturating_sub(1), remote: remote.saturating_sub(1) };
    let connection = configured.in_round(last).ok_or(StateFault::AuthRounds)?;
    let wanted = Wanted { requests: wanted, id: None };
    let own = LocalAuthenticator::new(&connection, wanted, path.local.ip(), credentials)?;
    let pair = connection.remote.id.exact().map(|peer| PeerPair::new(&own.id, peer, path.remote.ip()));
    Ok(pair)
}

impl AuthSent {
    /// Handles a response. Returns the responder once both sides have passed all rounds; `None` if another
    /// request was sent.
    pub(super) fn on_round_response(
        &mut self,
        common: &mut SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<PeerAuthenticated>, Rejection> {
        let connection = common.connection.clone();
        #[cfg(feature = "external-keys")]
        self.prepare_round(common, step)?;
        match self.rounds.eap.take_if(|eap| eap.done.is_some()) {
            // The AUTH payload belongs to EAP, and a further round of the responder comes later.
            Some(eap) => self.finish_eap(&eap, common, content, step)?,
            None => {
                self.on_responder_round(common, content, step)?;
                if let Some(mut eap) = self.rounds.eap.take() {
                    let continued = self.on_eap_packet(&mut eap, common, content, step);
                    self.rounds.eap = Some(eap);
                    return continued.map(|()| None);
                }
            }
        }
        let is_over = !self.rounds.has_next(&connection) && self.rounds.peer == connection.remote_rounds();
        refuse_error(content, is_over)?;
        if is_over {
            let responder = self.rounds.responder.take().and_then(|responder| responder.authenticated);
            return responder.map(Some).ok_or_else(|| StateFault::PayloadMissing.into());
        }
        self.send_round(common, &connection, step).map(|()| None).map_err(Rejection::from)
    }

    /// Verifies the responder's next round. After its last one, a response contains no proof.
    fn on_responder_round(
        &mut self,
        common: &SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Rejection> {
        let connection = &common.connection;
        if self.rounds.peer == connection.remote_rounds() {
            let is_surplus = content.id_r.is_some()
                || content.auth.is_some()
                || content.has_notify(NotifyType::ANOTHER_AUTH_FOLLOWS);
            return if is_surplus { Err(StateFault::AuthRounds.into()) } else { Ok(()) };
        }
        let in_round = self.rounds.connection(connection)?;
        let (id, body) = self.responder_id(&in_round, content, step)?;
        let authenticated = match content.auth {
            None if !connection.mutual_eap_methods().is_empty() => None,
            _ => Some(self.verify_response(&in_round, common, content, step)?),
        };
        check_another_round(connection, self.rounds.peer, content)?;
        let former = self.rounds.responder.take().and_then(|former| former.authenticated);
        let authenticated = match (authenticated, former) {
            (Some(now), Some(former)) => Some(now.after(former)),
            (now, _) => now,
        };
        self.rounds.responder = Some(Responder { id, id_body: body.into(), authenticated });
        self.rounds.peer = self.rounds.peer.saturating_add(1);
        Ok(())
    }

    /// Sends our next round, or after our last one an empty request for the responder's next one.
    fn send_round(
        &mut self,
        common: &mut SaCommon,
        configured: &Connection,
        step: &mut Step<'_, '_>,
    ) -> Result<(), StateFault> {
        if !self.rounds.has_next(configured) {
            self.channel.window.response_received();
            let sent = self.channel.send_request(common, ExchangeType::IKE_AUTH, step, &|_| Ok(()));
            return sent.map_err(|_| StateFault::Provider);
        }
        self.rounds.own = self.rounds.own.saturating_add(1);
        let connection = self.rounds.connection(configured)?;
        let init = &self.init;
        let (addr, credentials) = (common.path.local.ip(), step.context.credentials);
        let wanted = Wanted { requests: &init.peer.requests, id: None };
        let own = LocalAuthenticator::new(&connection, wanted, addr, credentials)?;
        self.rounds.eap = EapInitiator::new(&connection, &own.id);
        let prepared = self.rounds.prepared.take();
        let responder = self.rounds.responder.as_ref().ok_or(StateFault::AuthRounds)?;
        let proof = match (&self.rounds.eap, prepared) {
            (Some(_), _) => None,
            (None, Some(proof)) => Some(proof),
            (None, None) => Some(match self.prove_round(common, &connection, &own, &responder.id, step) {
                Ok(proof) => proof,
                Err(AuthError::Fault(fault)) => return Err(fault),
                // The signature of an external key was prepared.
                #[cfg(feature = "revocation")]
                Err(AuthError::Pending) => return Err(StateFault::OwnSignature),
            }),
        };
        let follows = proof.is_some() && self.rounds.has_next(configured);
        self.channel.window.response_received();
        let sent = self.channel.send_request(common, ExchangeType::IKE_AUTH, step, &|out| {
            own.write(out, |out, id| out.id_i(id))?;
            proof.iter().try_for_each(|proof| proof.write(out))?;
            write_another(follows, out)
        });
        self.own_id = own.id;
        sent.map_err(|_| StateFault::Provider)
    }
}

impl AuthSent {
    fn prove_round(
        &self,
        common: &SaCommon,
        connection: &Connection,
        own: &LocalAuthenticator<'_>,
        peer: &Identity,
        step: &mut Step<'_, '_>,
    ) -> Result<OwnProof, AuthError> {
        let (init, suite, own_body) = (&self.init, self.channel.suite, own.id_body());
        let octets = init.initiator_octets(&own_body, suite);
        let terms = ProofTerms {
            connection,
            peer,
            hashes: &init.peer.hashes,
            #[cfg(feature = "external-keys")]
            wait: self.auth_wait(common),
        };
        #[cfg(not(feature = "external-keys"))]
        let _ = common;
        own.prove(&octets, &terms, step)
    }

    /// Has another device make the signature of our next round, before the response changes anything. The
    /// response is processed again if the signature is awaited.
    #[cfg(feature = "external-keys")]
    fn prepare_round(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) -> Result<(), Rejection> {
        let configured = &common.connection;
        if self.rounds.prepared.is_some() || !self.rounds.has_next(configured) {
            return Ok(());
        }
        let round = Round { local: self.rounds.own.saturating_add(1), ..self.rounds.round(configured) };
        let connection = configured.in_round(round).ok_or(StateFault::AuthRounds)?;
        let (addr, credentials) = (common.path.local.ip(), step.context.credentials);
        let wanted = Wanted { requests: &self.init.peer.requests, id: None };
        let own = LocalAuthenticator::new(&connection, wanted, addr, credentials)?;
        if !own.has_external_key(credentials) {
            return Ok(());
        }
        // A signature does not depend on the identity of the peer.
        let proof = self.prove_round(common, &connection, &own, &own.id, step)?;
        self.rounds.prepared = Some(proof);
        Ok(())
    }
}

/// Refuses a response without a proof that contains an error. Errors of the first Child SA (RFC 7296 section
/// 1.2) are in the last response, and the IKE SA exists without it.
fn refuse_error(content: &Content<'_>, is_last: bool) -> Result<(), Rejection> {
    let Some(error) = content.error() else { return Ok(()) };
    let concerns_child = matches!(
        error,
        NotifyType::NO_PROPOSAL_CHOSEN
            | NotifyType::TS_UNACCEPTABLE
            | NotifyType::SINGLE_PAIR_REQUIRED
            | NotifyType::INTERNAL_ADDRESS_FAILURE
            | NotifyType::FAILED_CP_REQUIRED
    );
    let is_harmless = if is_last { concerns_child || content.auth.is_some() } else { false };
    if is_harmless { Ok(()) } else { Err(Rejection::Refused(error)) }
}
