//! IKE_AUTH after IKE_SESSION_RESUME, of both roles (RFC 5723 section 4.3.3). The identities are those of the
//! earlier IKE SA, which ends at both sides without a message (section 4.3.4).

use crate::auth::resumption::ResumptionProof;
use crate::auth::{OwnProof, PeerAuthenticated, SignedOctets, id_body};
use crate::child_sa::ChildRequest;
use crate::config::Identity;
use crate::context::Step;
use crate::engine::effects::Effect;
use crate::engine::peer_index::PeerPair;
use crate::resumption::{LostSession, Resumes, Session};
use crate::state::auth_accepted::Authentic;
use crate::state::auth_sent::FirstRequest;
use crate::state::config_payload::LeasedConfig;
use crate::state::half_open::Progress;
use crate::state::init_exchange::InitExchange;
use crate::state::responder_proof::Rejection;
use crate::state::select_connection::check_childless;
use crate::state::{AuthSent, HalfOpen, IncomingMessage, InitSent, SaCommon, State};
use crate::transport::{Build, Content, ReceivedId, SecureChannel, required};
use crate::{DownReason, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_wire::ike::{Id, Notify, NotifyType, Writer};

impl AuthSent {
    /// Sends the proof that this host has the keys of the earlier IKE SA, and the request for the first Child
    /// SA.
    pub(super) fn begin_resumption(
        common: &mut SaCommon,
        channel: SecureChannel,
        init: InitExchange,
        lost: LostSession,
        child_requests: Vec<ChildRequest>,
        sequences: u32,
        step: &mut Step<'_, '_>,
    ) -> State {
        let begun = Self::try_resume(common, channel, init, &lost, child_requests, sequences, step);
        match begun {
            Ok(state) => State::AuthSent(Box::new(Self { resumes: Some(lost), ..state })),
            Err(fault) => {
                step.sa_fault(fault.into(), common.path, common);
                State::Closed(DownReason::Fault(fault.into()))
            }
        }
    }

    fn try_resume(
        common: &SaCommon,
        channel: SecureChannel,
        init: InitExchange,
        lost: &LostSession,
        child_requests: Vec<ChildRequest>,
        sequences: u32,
        step: &mut Step<'_, '_>,
    ) -> Result<Self, StateFault> {
        let (own_id, peer_id) = (&lost.peer.own_id, &lost.peer.id);
        let own_body = id_body(own_id);
        let octets = init.initiator_octets(&own_body, channel.suite);
        let proof = OwnProof::of_resumption(&octets, step.context.providers)?;
        let write_proof = |is_first_contact: bool, out: &mut Writer<'_>| {
            let (kind, data) = own_id.to_payload();
            out.id_i(&Id { kind, data: &data })?;
            if is_first_contact {
                out.notify(&Notify::new(NotifyType::INITIAL_CONTACT, &[]))?;
            }
            let (kind, data) = peer_id.to_payload();
            out.id_r(&Id { kind, data: &data })?;
            proof.write(out)
        };
        let first = FirstRequest {
            channel,
            init,
            own_id: own_id.clone(),
            pair: Some(PeerPair::new(own_id, peer_id, common.path.remote.ip())),
            known_addrs: &lost.addrs,
            sequences,
            #[cfg(feature = "eap")]
            rounds: crate::state::initiator_rounds::InitiatorRounds::none(),
            write_proof: &write_proof,
        };
        Self::send_first(common, first, child_requests, step)
    }

    /// Verifies that the peer has the keys of the earlier IKE SA.
    pub(in crate::state) fn verify_resumption(
        &self,
        common: &mut SaCommon,
        lost: &LostSession,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<PeerAuthenticated, Rejection> {
        let Some(received) = content.id_r else {
            // A response without an identity is a refusal.
            if content.has_notify(NotifyType::TICKET_NACK) {
                return Err(Rejection::Refused(NotifyType::TICKET_NACK));
            }
            return Err(content.error().map_or(StateFault::PayloadMissing.into(), Rejection::Refused));
        };
        check_identity(&received, &lost.peer.id)?;
        let octets = self.init.responder_octets(received.body, self.channel.suite);
        let proof = resumption_proof(content, octets)?;
        let (remote, providers) = (common.path.remote.ip(), step.context.providers);
        let peer = lost.peer.authenticate(&proof, &common.connection, remote, providers)?;
        common.resumes = Some(Resumes { ike: lost.ike, reauth_at: lost.reauth_at });
        Ok(peer)
    }

    /// Begins with IKE_SA_INIT, because the peer has refused to resume the session.
    pub(in crate::state) fn authenticate_anew(
        self: Box<Self>,
        common: &mut SaCommon,
        step: &mut Step<'_, '_>,
    ) -> State {
        common.report_not_resumed(step);
        let sequences = self.sequences;
        let child_requests = self.into_child_requests(common, step);
        match InitSent::restart(common, child_requests, sequences, step) {
            Ok(state) => State::InitSent(Box::new(state)),
            Err(fault) => State::Closed(DownReason::Fault(fault.into())),
        }
    }
}

impl SaCommon {
    /// Ends the IKE SA whose session this one has resumed: the peer has done so without a message.
    pub(in crate::state) fn end_resumed(&mut self, step: &mut Step<'_, '_>) {
        if let Some(Resumes { ike, .. }) = self.resumes {
            self.predecessor = None;
            let reason = DownReason::Replaced;
            step.effect(Effect::Close { ike, reason, notify_peer: false });
        }
    }
}

impl HalfOpen {
    /// Authenticates a peer that resumes its session.
    pub(in crate::state) fn authenticate_resumption(
        &mut self,
        common: &mut SaCommon,
        session: &Session,
        request: &IncomingMessage<'_>,
        leased: &mut LeasedConfig,
        step: &mut Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        let content = &request.content;
        let received = required(content.id_i)?;
        check_identity(&received, &session.peer.id)?;
        if let Some(asked) = &content.id_r {
            check_identity(asked, &session.peer.own_id)?;
        }
        let (init, suite) = (&self.init, self.channel.suite);
        let proof = resumption_proof(content, init.initiator_octets(received.body, suite))?;
        let (remote, providers) = (common.path.remote.ip(), step.context.providers);
        let peer = session.peer.authenticate(&proof, &common.connection, remote, providers)?;
        // The session may have ended since the ticket was accepted, or the configuration have changed.
        let connection = step.resumable_connection(session)?;
        if connection.name != common.connection.name {
            return Err(StateFault::NotResumable.into());
        }
        check_childless(&connection, content)?;
        let own_id = &session.peer.own_id;
        let own_body = id_body(own_id);
        let own = OwnProof::of_resumption(&init.responder_octets(&own_body, suite), providers)?;
        let write_proof: Build<'_> = &|out| {
            let (kind, data) = own_id.to_payload();
            out.id_r(&Id { kind, data: &data })?;
            own.write(out)
        };
        common.resumes = Some(Resumes { ike: session.ike, reauth_at: session.reauth_at });
        let authentic = Authentic { content, path: request.path, peer, write_proof };
        let accepted = self.accept(common, authentic, leased, step)?;
        // Another ticket of the same IKE SA may expire later than this one.
        let (now, longest) = (step.context.now, step.shared.settings.ticket_lifetime);
        step.shared.resumption.gateway.end(&session.peer, session.ike, now.after(longest), now);
        common.end_resumed(step);
        Ok(Progress::Accepted(accepted))
    }
}

/// The AUTH payload of a message. A certificate must not be beside it.
fn resumption_proof<'a>(
    content: &Content<'a>,
    octets: SignedOctets<'a>,
) -> Result<ResumptionProof<'a>, PeerFault> {
    if !content.certs.is_empty() {
        return Err(StateFault::AuthMethod.into());
    }
    Ok(ResumptionProof { auth: required(content.auth)?, octets })
}

/// Checks that an identity is that of the earlier IKE SA, byte for byte.
fn check_identity(received: &ReceivedId<'_>, known: &Identity) -> Result<(), StateFault> {
    let (kind, data) = known.to_payload();
    let is_same = received.id.kind == kind && received.id.data == data;
    if is_same { Ok(()) } else { Err(StateFault::WrongIdentity) }
}
