//! IKE_AUTH as the initiator (RFC 7296 sections 1.2, 2.15 and 2.21.2).

use super::auth_finished::take_first_child;
#[cfg(feature = "revocation")]
use super::awaited_message::AwaitedMessage;
use super::config_payload;
use super::delete::send_final_notify;
use super::first_proof::{FirstProof, Opening};
use super::init_exchange::InitExchange;
#[cfg(feature = "eap")]
use super::initiator_rounds::{self, InitiatorRounds};
use super::responder_proof::Rejection;
use crate::auth::{CertRequests, PeerAuthenticated};
use crate::child_sa::{ChildNegotiation, ChildRequest};
use crate::config::{Identity, Unique};
use crate::context::Step;
use crate::engine::effects::{Effect, RefusedReauthentication};
use crate::engine::peer_index::PeerPair;
#[cfg(feature = "redirect")]
use crate::redirect::Redirect;
use crate::state::{IncomingMessage, InitSent, SaCommon, State};
use crate::transport::SecureChannel;
use crate::{DownReason, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate_sa::Instant;
#[cfg(feature = "redirect")]
use casemate_wire::ike::Delete;
use casemate_wire::ike::{ExchangeType, Id, Notify, NotifyType, WriteError, Writer};
use core::net::IpAddr;

/// The IKE_AUTH request is outstanding.
pub(crate) struct AuthSent {
    pub(crate) channel: SecureChannel,
    pub(super) init: InitExchange,
    /// The identity that we sent.
    pub(super) own_id: Identity,
    /// Both identities, if the peer's is configured.
    pub(super) pair: Option<PeerPair>,
    pub(super) first_child: Option<Box<ChildNegotiation>>,
    /// Requested Child SAs after the first.
    pub(crate) queued_children: VecDeque<ChildRequest>,
    /// Number of failed sequences of requests before this one.
    pub(super) sequences: u32,
    /// The session that the IKE SA resumes.
    #[cfg(feature = "resumption")]
    pub(super) resumes: Option<crate::resumption::LostSession>,
    /// Progress of authentication, which EAP or several rounds make longer.
    #[cfg(feature = "eap")]
    pub(super) rounds: InitiatorRounds,
    /// The response that waits for the status of the peer's certificates, or for our signature.
    #[cfg(feature = "revocation")]
    pub(crate) awaited_message: Option<Box<AwaitedMessage>>,
    #[cfg(feature = "revocation")]
    pub(super) is_wait_over: bool,
}

/// What the first request says besides what is requested.
pub(super) struct FirstRequest<'a> {
    pub(super) channel: SecureChannel,
    pub(super) init: InitExchange,
    pub(super) own_id: Identity,
    /// Both identities, if the peer's is known.
    pub(super) pair: Option<PeerPair>,
    /// Virtual addresses that this host had before.
    pub(super) known_addrs: &'a [IpAddr],
    pub(super) sequences: u32,
    #[cfg(feature = "eap")]
    pub(super) rounds: InitiatorRounds,
    /// Writes identities and proof, and INITIAL_CONTACT if the argument is true.
    pub(super) write_proof: &'a dyn Fn(bool, &mut Writer<'_>) -> Result<(), WriteError>,
}

impl AuthSent {
    /// Sends our proof and the request for the first Child SA.
    pub(crate) fn begin(
        common: &mut SaCommon,
        opening: Opening,
        first: FirstProof<'_>,
        step: &mut Step<'_, '_>,
    ) -> State {
        match Self::try_begin(common, opening, first, step) {
            Ok(state) => State::AuthSent(Box::new(state)),
            Err(fault) => {
                step.sa_fault(fault.into(), common.path, common);
                State::Closed(DownReason::Fault(fault.into()))
            }
        }
    }

    fn try_begin(
        common: &mut SaCommon,
        opening: Opening,
        first: FirstProof<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Self, StateFault> {
        let Opening { channel, init, child_requests, sequences } = opening;
        let FirstProof {
            own,
            proof,
            #[cfg(feature = "eap")]
            rounds,
        } = first;
        let connection = common.connection.clone();
        let expected = connection.remote.id.exact().cloned();
        let requests = CertRequests::ours(&connection, step);
        // RFC 7296 section 2.4: INITIAL_CONTACT requires that both identities are known.
        let pair = expected.as_ref().map(|peer| PeerPair::new(&own.id, peer, common.path.remote.ip()));
        #[cfg(feature = "eap")]
        let pair = {
            let credentials = step.context.credentials;
            initiator_rounds::last_pair(pair, common, &init.peer.requests, credentials)?
        };
        let write_proof = |is_first_contact: bool, out: &mut Writer<'_>| {
            own.write(out, |out, id| out.id_i(id))?;
            if is_first_contact {
                out.notify(&Notify::new(NotifyType::INITIAL_CONTACT, &[]))?;
            }
            requests.write(out)?;
            if let Some(peer) = &expected {
                let (kind, data) = peer.to_payload();
                out.id_r(&Id { kind, data: &data })?;
            }
            proof.iter().try_for_each(|proof| proof.write(out))?;
            #[cfg(feature = "eap")]
            crate::auth::rounds::write_first(&connection, proof.is_some(), out)?;
            #[cfg(feature = "eap")]
            if !connection.mutual_eap_methods().is_empty() {
                out.notify(&Notify::new(NotifyType::EAP_ONLY_AUTHENTICATION, &[]))?;
            }
            Ok(())
        };
        let own_id = own.id.clone();
        let known = common.predecessor.as_ref().map_or(Vec::new(), |old| old.addrs.clone());
        let first = FirstRequest {
            channel,
            init,
            own_id,
            pair,
            known_addrs: &known,
            sequences,
            #[cfg(feature = "eap")]
            rounds,
            write_proof: &write_proof,
        };
        Self::send_first(common, first, child_requests, step)
    }

    /// Sends the first request: the proof, and what is requested.
    pub(super) fn send_first(
        common: &SaCommon,
        first: FirstRequest<'_>,
        child_requests: Vec<ChildRequest>,
        step: &mut Step<'_, '_>,
    ) -> Result<Self, StateFault> {
        let FirstRequest { mut channel, init, own_id, pair, known_addrs, sequences, write_proof, .. } = first;
        let connection = common.connection.clone();
        let mut queued_children: VecDeque<ChildRequest> = child_requests.into();
        let first_child = take_first_child(common, &init.peer, &mut queued_children, step)?;
        let is_first_contact = connection.unique != Unique::Never
            && pair.as_ref().is_some_and(|pair| !step.shared.peers.has(pair));
        let vips = config_payload::addrs_to_request(&connection.vips, known_addrs);
        let token = step.crash_token(common.spis());
        #[cfg(feature = "mobike")]
        let (path, routes) = (common.path, step.context.routes);
        let sent = channel.send_request(common, ExchangeType::IKE_AUTH, step, &|out| {
            write_proof(is_first_contact, out)?;
            #[cfg(feature = "ppk")]
            init.ppk.write_offer(out)?;
            #[cfg(feature = "resumption")]
            super::resumption::write_request(&connection, out)?;
            token.iter().try_for_each(|token| out.notify(&token.notify()))?;
            #[cfg(feature = "records")]
            crate::counter_sync::SyncSupport::write_own(out)?;
            #[cfg(feature = "mobike")]
            crate::mobike::write_support(&connection, path, init.peer.nat_traversal, routes, out)?;
            config_payload::write_request(&vips, out)?;
            first_child.as_ref().map_or(Ok(()), |first_child| first_child.write(None, out))
        });
        match sent {
            Ok(()) => {
                pair.iter().for_each(|pair| step.shared.peers.add_pending(pair, common.id));
                Ok(Self {
                    channel,
                    init,
                    own_id,
                    pair,
                    first_child,
                    queued_children,
                    sequences,
                    #[cfg(feature = "resumption")]
                    resumes: None,
                    #[cfg(feature = "eap")]
                    rounds: first.rounds,
                    #[cfg(feature = "revocation")]
                    awaited_message: None,
                    #[cfg(feature = "revocation")]
                    is_wait_over: false,
                })
            }
            Err(_) => {
                first_child.iter().for_each(|first_child| step.host.release_spi(first_child.spi));
                Err(StateFault::Provider)
            }
        }
    }

    /// Requested Child SAs.
    pub(crate) fn child_requests(&self) -> impl Iterator<Item = &ChildRequest> {
        self.first_child.iter().map(|first_child| &first_child.request).chain(&self.queued_children)
    }

    /// Time of the next timeout. A request that was answered is not repeated.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        #[cfg(feature = "revocation")]
        if let Some(awaited) = &self.awaited_message {
            return Some(awaited.until());
        }
        self.channel.window.next_timeout()
    }

    pub(crate) fn on_timeout(mut self: Box<Self>, common: &mut SaCommon, step: &mut Step<'_, '_>) -> State {
        #[cfg(feature = "revocation")]
        if let Some(awaited) = &self.awaited_message {
            let is_over = awaited.until() <= step.context.now;
            return if is_over { self.continue_authentication(common, step) } else { State::AuthSent(self) };
        }
        if common.begins_again(self.channel.window.retransmissions(), step) {
            let sequences = self.sequences;
            return self.restart_sequence(common, sequences, step);
        }
        match self.channel.retransmit(common, step) {
            Ok(()) => State::AuthSent(self),
            Err(_) => {
                let sequences = self.sequences.saturating_add(1);
                self.restart_sequence(common, sequences, step)
            }
        }
    }

    /// Starts another sequence with IKE_SA_INIT, if the connection allows one after this number of failed
    /// ones. A peer that does not respond may have forgotten IKE_SA_INIT.
    #[cfg_attr(not(feature = "resumption"), expect(unused_mut, reason = "only a session is taken"))]
    fn restart_sequence(
        mut self: Box<Self>,
        common: &mut SaCommon,
        sequences: u32,
        step: &mut Step<'_, '_>,
    ) -> State {
        // The response to the ticket, which was in clear, may have been forged.
        #[cfg(feature = "resumption")]
        if let Some(lost) = self.resumes.take() {
            step.shared.resumption.client.add_after_failure(lost);
        }
        if !common.connection.allows_another_sequence(sequences) {
            return self.give_up(common, DownReason::DeadPeer, step);
        }
        let child_requests = self.into_child_requests(common, step);
        match InitSent::restart(common, child_requests, sequences, step) {
            Ok(state) => State::InitSent(Box::new(state)),
            Err(fault) => State::Closed(DownReason::Fault(fault.into())),
        }
    }

    /// Ends the exchange. Returns the requested Child SAs.
    pub(super) fn into_child_requests(
        self: Box<Self>,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Vec<ChildRequest> {
        self.exchange_finished(common, step);
        self.first_child.iter().for_each(|first_child| step.host.release_spi(first_child.spi));
        let first = self.first_child.into_iter().map(|first_child| first_child.request);
        first.chain(self.queued_children).collect()
    }

    /// Closes the IKE SA, which the authenticated gateway has redirected, and starts again with the other
    /// gateway (RFC 5685 section 6). The request is sent once: the gateway closes the IKE SA in any case.
    #[cfg(feature = "redirect")]
    fn follow_redirect(
        mut self: Box<Self>,
        common: &mut SaCommon,
        redirect: Redirect,
        step: &mut Step<'_, '_>,
    ) -> State {
        let exchange = ExchangeType::INFORMATIONAL;
        let _ = self.channel.send_request(common, exchange, step, &|out| out.delete(&Delete::IKE_SA));
        let child_requests = self.into_child_requests(common, step);
        InitSent::restart_redirected(common, redirect, child_requests, 0, step)
    }

    /// Notes that the exchange has ended, so that IKE_AUTH of another IKE SA need not consider this one.
    pub(super) fn exchange_finished(&self, common: &SaCommon, step: &mut Step<'_, '_>) {
        self.pair.iter().for_each(|pair| step.shared.peers.remove_pending(pair, common.id));
    }

    pub(crate) fn give_up(
        self: Box<Self>,
        common: &SaCommon,
        reason: DownReason,
        step: &mut Step<'_, '_>,
    ) -> State {
        self.exchange_finished(common, step);
        self.first_child.iter().for_each(|first_child| step.host.release_spi(first_child.spi));
        State::Closed(reason)
    }

    pub(crate) fn on_response(
        mut self: Box<Self>,
        common: &mut SaCommon,
        response: Result<IncomingMessage<'_>, PeerFault>,
        step: &mut Step<'_, '_>,
    ) -> State {
        #[cfg(feature = "revocation")]
        if self.awaited_message.is_some() {
            // The response that waits, repeated.
            return State::AuthSent(self);
        }
        let verified = response.map_err(Rejection::from).and_then(|response| {
            let verified = self.process_response(common, &response, step);
            #[cfg(feature = "revocation")]
            if let Err(Rejection::Pending) = verified {
                self.awaited_message = Some(AwaitedMessage::new(&response, step)?);
                return Ok(None);
            }
            Ok(verified?.map(|peer| (peer, response)))
        });
        match verified {
            Ok(Some((peer, response))) => {
                self.channel.window.response_received();
                #[cfg(feature = "redirect")]
                if let Some(redirect) = Redirect::in_protected(&response.content, common, step) {
                    return self.follow_redirect(common, redirect, step);
                }
                self.establish(common, peer, &response.content, step)
            }
            Ok(None) => State::AuthSent(self),
            #[cfg(feature = "resumption")]
            Err(Rejection::Refused(_)) if self.resumes.is_some() => self.authenticate_anew(common, step),
            Err(rejection) => {
                // The reauthentication has failed. The response may come from any host, so the old IKE SA
                // stays until it has to end.
                if let Some(old) = common.predecessor.take().filter(|old| old.ends_if_refused) {
                    let children = self.child_requests().map(|request| request.config.clone()).collect();
                    let connection = common.connection.clone();
                    let refused = RefusedReauthentication { origin: old.origin, connection, children };
                    step.effect(Effect::ReauthenticationRefused(Box::new(refused)));
                }
                match rejection {
                    Rejection::Refused(notify) => self.give_up(common, DownReason::Refused(notify), step),
                    Rejection::Fault(fault) => self.reject(common, fault, step),
                    #[cfg(feature = "revocation")]
                    Rejection::Pending => State::AuthSent(self),
                }
            }
        }
    }

    /// Returns the peer if the response authenticates it; `None` if another request was sent.
    fn process_response(
        &mut self,
        common: &mut SaCommon,
        response: &IncomingMessage<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<PeerAuthenticated>, Rejection> {
        if response.exchange != ExchangeType::IKE_AUTH {
            return Err(StateFault::WrongExchange.into());
        }
        #[cfg(feature = "resumption")]
        if let Some(lost) = &self.resumes {
            return self.verify_resumption(common, lost, &response.content, step).map(Some);
        }
        #[cfg(feature = "eap")]
        return self.on_round_response(common, &response.content, step);
        #[cfg(not(feature = "eap"))]
        self.verify_response(&common.connection, common, &response.content, step).map(Some)
    }

    /// Tells a peer that considers itself authenticated that it is not (RFC 7296 section 2.21.2).
    fn reject(
        mut self: Box<Self>,
        common: &mut SaCommon,
        fault: PeerFault,
        step: &mut Step<'_, '_>,
    ) -> State {
        step.sa_fault(fault, common.path, common);
        self.exchange_finished(common, step);
        self.first_child.iter().for_each(|first_child| step.host.release_spi(first_child.spi));
        self.channel.window.response_received();
        send_final_notify(common, &mut self.channel, NotifyType::AUTHENTICATION_FAILED, step);
        State::Closed(DownReason::Fault(fault))
    }
}
