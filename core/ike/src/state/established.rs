//! An established IKE SA: requests of both sides (RFC 7296 sections 1.3, 1.4, 2.4, 2.8).

use super::retry::{EndCause, reauth_at};
use super::tasks::Pending;
use super::timers::{Timer, Timers};
use super::traffic::{TrafficWatch, next_comparison};
use crate::auth::PeerAuthenticated;
use crate::child_sa::{ChildSa, DynamicAddrs};
#[cfg(feature = "records")]
use crate::config::ChildConfig;
use crate::context::{Deadlines, Step};
use crate::engine::peer_index::AuthScope;
use crate::nat::NatStatus;
use crate::path_mtu::PathSearch;
use crate::state::{IncomingMessage, MessageMeta, PathProbe, SaCommon, State, Task};
use crate::transport::SecureChannel;
use crate::{AssignedConfig, ChildId, DownReason, Event, IkeSaId, IkeSpis, PeerFault, Role, StateFault};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, FaultResponse, NotifyType};
use core::net::IpAddr;

/// What an IKE SA hands over to its successor.
pub(crate) struct SaContents {
    pub(crate) peer: Arc<PeerAuthenticated>,
    pub(crate) nat: NatStatus,
    pub(crate) dynamic_addrs: DynamicAddrs,
    /// Addresses that this host leased to the peer.
    pub(crate) leased: Vec<IpAddr>,
    /// Configuration that the peer assigned to this host. A gateway has thousands of IKE SAs without one.
    pub(crate) assigned: Option<Box<AssignedConfig>>,
    pub(crate) children: Vec<ChildSa>,
    /// MOBIKE, if both sides support it.
    #[cfg(feature = "mobike")]
    pub(crate) mobike: Option<Box<crate::mobike::Mobike>>,
    /// Search for the path MTU.
    pub(crate) path_search: PathSearch,
    /// Queued tasks.
    pub(crate) tasks: VecDeque<Task>,
}

/// Phase of an established IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Another IKE SA has replaced this one. The peer is to close it.
    Replaced,
    /// This host is closing it.
    Closing,
}

/// State of an IKE SA whose peer is authenticated.
pub(crate) struct Established {
    pub(crate) channel: SecureChannel,
    pub(super) contents: SaContents,
    pub(super) phase: Phase,
    pub(super) pending: Option<Pending>,
    /// The IKE SA that both sides are rekeying, if the peer's exchange made this one. Whether this one stays
    /// is not known yet. Until then no request is sent on it.
    pub(super) provisional: Option<IkeSaId>,
    pub(crate) tasks: VecDeque<Task>,
    pub(super) established_at: Instant,
    /// Time at which the peer was authenticated. A successor by rekeying inherits it.
    pub(super) authenticated_at: Instant,
    pub(super) timers: Timers,
    pub(super) traffic: TrafficWatch,
    pub(super) path_probe: PathProbe,
    /// Number of consecutive failed rekeyings.
    pub(super) rekey_failures: u8,
    /// IKE SA that this one replaced.
    pub(super) predecessor: Option<IkeSaId>,
    /// IKE SA whose IKE_AUTH exchange authenticated the peer.
    pub(super) origin: IkeSaId,
    /// Role of this host in that IKE SA.
    pub(super) origin_role: Role,
    /// SPIs of that IKE SA, which both sides know.
    pub(super) origin_spis: IkeSpis,
    /// Number of attempts to reauthenticate.
    pub(super) reauth_attempts: u8,
    /// Whether an attempt was refused.
    pub(super) is_reauth_refused: bool,
    /// Latest end after a redirect. A successor by rekeying inherits it.
    #[cfg(feature = "redirect")]
    pub(super) ends_by: Option<Instant>,
    /// Child SAs to set up again when the IKE SA, which a former process was closing, has ended; `None` if
    /// the IKE SA is not to be set up again.
    #[cfg(feature = "records")]
    pub(super) again: Option<Vec<Arc<ChildConfig>>>,
    #[cfg(feature = "resumption")]
    pub(super) ticket: super::resumption::TicketState,
    /// The peer's additional key exchanges that are not complete.
    #[cfg(feature = "multiple-kex")]
    pub(super) series: Option<Box<super::awaited_series::AwaitedSeries>>,
    /// Number of consecutive series of ours that the peer has forgotten.
    #[cfg(feature = "multiple-kex")]
    pub(super) forgotten_series: u8,
}

impl Established {
    /// Establishes an IKE SA whose peer has just been authenticated.
    pub(crate) fn new(
        common: &SaCommon,
        channel: SecureChannel,
        mut contents: SaContents,
        step: &mut Step<'_, '_>,
    ) -> Self {
        if let Some(prober) = step.shared.path_prober {
            contents.path_search = prober.new_search(common, step.context.now);
        }
        let (ike, connection, path) = (common.id, common.connection.clone(), common.path);
        let peer = contents.peer.id().clone();
        step.event(Event::IkeUp {
            ike,
            connection,
            peer,
            #[cfg(feature = "eap")]
            eap_identity: contents.peer.eap_identity().cloned(),
            #[cfg(feature = "eap")]
            earlier_rounds: contents.peer.earlier_rounds().to_vec(),
            #[cfg(feature = "resumption")]
            resumes: common.resumes.map(|resumes| resumes.ike),
            #[cfg(feature = "ppk")]
            ppk_id: contents.peer.ppk_id().map(Vec::from),
            path,
            is_restored: false,
        });
        let reauth_at = reauth_at(common, step);
        step.shared.retries.end_for(&common.connection, |_| false);
        Self::build(common, channel, contents, common.role, step.context.now, reauth_at, step)
    }

    /// Creates the state of a successor of `old` with the same peer.
    pub(super) fn successor(
        &self,
        old: &SaCommon,
        common: &SaCommon,
        channel: SecureChannel,
        contents: SaContents,
        step: &mut Step<'_, '_>,
    ) -> Self {
        step.event(Event::IkeRekeyed { old: old.id, new: common.id });
        let reauth_at = self.timers.get(Timer::Reauthenticate);
        let (role, since) = (self.origin_role, self.authenticated_at);
        let mut successor = Self::build(common, channel, contents, role, since, reauth_at, step);
        (successor.predecessor, successor.origin) = (Some(old.id), self.origin);
        successor.origin_spis = self.origin_spis;
        #[cfg(feature = "records")]
        successor.timers.set(Timer::Duplicate, self.timers.get(Timer::Duplicate));
        #[cfg(feature = "redirect")]
        self.ends_by.into_iter().for_each(|latest| successor.expire_by(latest));
        #[cfg(feature = "resumption")]
        successor.request_tickets_as(self, step);
        if self.reauth_attempts > 0 {
            // Rekeying does not extend the deadline of the reauthentication.
            successor.reauth_attempts = self.reauth_attempts;
            successor.is_reauth_refused = self.is_reauth_refused;
            successor.timers.set(Timer::Expire, self.timers.get(Timer::Expire));
            successor.timers.set(Timer::Rekey, None);
        }
        successor
    }

    fn build(
        common: &SaCommon,
        channel: SecureChannel,
        mut contents: SaContents,
        origin_role: Role,
        authenticated_at: Instant,
        reauth_at: Option<Instant>,
        step: &mut Step<'_, '_>,
    ) -> Self {
        step.shared.peers.insert(&contents.peer, authenticated_at, common.id, origin_role);
        step.shared.set_owner(&contents.children, common.id);
        let now = step.context.now;
        let Deadlines { rekey_at, expires_at } = step.deadlines(&common.connection.lifespan, now);
        let mut timers = Timers::default();
        timers.set(Timer::Rekey, rekey_at);
        timers.set(Timer::Expire, expires_at);
        timers.set(Timer::Reauthenticate, reauth_at);
        timers.set(Timer::Liveness, common.connection.dpd_delay.map(|delay| now.after(delay)));
        timers.set(Timer::Keepalive, Some(now.after(step.shared.settings.keepalive_interval)));
        timers.set(Timer::Traffic, Some(next_comparison(now)));
        let tasks = core::mem::take(&mut contents.tasks);
        Self {
            channel,
            contents,
            phase: Phase::Open,
            pending: None,
            provisional: None,
            tasks,
            established_at: now,
            authenticated_at,
            timers,
            traffic: TrafficWatch::new(now),
            path_probe: PathProbe::default(),
            rekey_failures: 0,
            predecessor: None,
            origin: common.id,
            origin_role,
            origin_spis: common.spis(),
            reauth_attempts: 0,
            is_reauth_refused: false,
            #[cfg(feature = "redirect")]
            ends_by: None,
            #[cfg(feature = "records")]
            again: None,
            #[cfg(feature = "resumption")]
            ticket: super::resumption::TicketState::with_deadline(reauth_at),
            #[cfg(feature = "multiple-kex")]
            series: None,
            #[cfg(feature = "multiple-kex")]
            forgotten_series: 0,
        }
    }

    /// Whether the IKE SA is in use: neither replaced nor being closed.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Scope of the peer's authentication. IKE SAs that were authenticated equally have the same one.
    pub(super) fn scope(&self) -> &AuthScope {
        self.contents.peer.scope()
    }

    /// Virtual addresses that the peer assigned to this host.
    pub(super) fn assigned_addrs(&self) -> &[IpAddr] {
        self.contents.assigned.as_ref().map_or(&[], |assigned| &assigned.addrs)
    }

    /// Whether another IKE SA has replaced this one.
    pub(crate) fn is_replaced(&self) -> bool {
        self.phase == Phase::Replaced
    }

    pub(crate) const fn children(&self) -> &Vec<ChildSa> {
        &self.contents.children
    }

    pub(super) fn child(&mut self, id: ChildId) -> Option<&mut ChildSa> {
        self.contents.children.iter_mut().find(|child| child.id == id)
    }

    pub(crate) fn on_request(
        mut self: Box<Self>,
        common: &mut SaCommon,
        request: Result<IncomingMessage<'_>, PeerFault>,
        meta: MessageMeta,
        step: &mut Step<'_, '_>,
    ) -> State {
        self.note_received(common, meta.path, step);
        let done = request.and_then(|request| match request.exchange {
            #[cfg(feature = "mobike")]
            ExchangeType::CREATE_CHILD_SA if self.must_wait_for_route_check(&request.content) => {
                Err(StateFault::Busy.into())
            }
            #[cfg(feature = "records")]
            ExchangeType::CREATE_CHILD_SA if self.is_synchronizing() => Err(StateFault::Busy.into()),
            ExchangeType::CREATE_CHILD_SA => {
                self.on_create_child(common, &request.content, step).map(|()| None)
            }
            #[cfg(feature = "multiple-kex")]
            ExchangeType::IKE_FOLLOWUP_KE => self.on_followup(common, &request.content, step).map(|()| None),
            ExchangeType::INFORMATIONAL => self.on_informational(common, &request, step),
            _ => Err(StateFault::WrongExchange.into()),
        });
        match done {
            Ok(None) => {}
            Ok(Some(reason)) => return self.close_with(common, EndCause::by_peer(reason), step),
            Err(fault) => {
                step.sa_fault(fault, meta.path, common);
                self.channel.send_error(common, meta.exchange, fault, step);
                // RFC 7296 section 2.21.3: a syntax error closes the IKE SA at both peers, without a Delete
                // payload.
                if fault.response() == FaultResponse::Notify(NotifyType::INVALID_SYNTAX) {
                    return self.close_or_hand_over(common, DownReason::Fault(fault), step);
                }
            }
        }
        self.start_next_task(common, step)
    }

    pub(crate) fn on_response(
        mut self: Box<Self>,
        common: &mut SaCommon,
        response: Result<IncomingMessage<'_>, PeerFault>,
        meta: MessageMeta,
        step: &mut Step<'_, '_>,
    ) -> State {
        self.note_received(common, meta.path, step);
        if self.pending.as_ref().is_some_and(|pending| pending.exchange() != meta.exchange) {
            // The response is of another exchange than the request (RFC 7296 section 1). It is ignored, and
            // the right response may still come.
            step.sa_fault(StateFault::WrongExchange.into(), meta.path, common);
            return State::Established(self);
        }
        let answered = self.channel.window.response_received();
        #[cfg(feature = "mobike")]
        self.move_to_answering_path(common, meta.path, step);
        let response = match response {
            Ok(response) if self.is_fatal(&response) => {
                return self.close_or_hand_over(
                    common,
                    DownReason::Refused(NotifyType::INVALID_SYNTAX),
                    step,
                );
            }
            Ok(response) => Ok(response.content),
            Err(fault) => {
                step.sa_fault(fault, meta.path, common);
                Err(fault)
            }
        };
        match self.pending.take() {
            Some(Pending::Child(pending)) => self.on_child_response(common, *pending, response, step),
            Some(Pending::Rekey(pending)) => self.on_rekey_response(common, *pending, response, step),
            Some(Pending::DeleteChild { id, reason }) => {
                self.remove_child(id, EndCause::local(reason), step);
            }
            Some(Pending::DeleteIke(reason)) => return self.close(common, reason, step),
            Some(Pending::PathProbe { sent_at }) => {
                if let (Some(prober), Some(request)) = (step.shared.path_prober, answered) {
                    prober.start(&mut self, request, sent_at, common, step);
                }
            }
            #[cfg(feature = "mobike")]
            Some(Pending::UpdateAddresses { path, cookie }) => {
                if let Ok(content) = &response {
                    self.on_update_response(common, path, cookie, content, step);
                }
            }
            #[cfg(feature = "mobike")]
            Some(Pending::AnnounceAddresses { path }) => {
                self.on_announcement_response(common, path, step);
            }
            #[cfg(feature = "mobike")]
            Some(Pending::CheckRoute { path, cookie }) => {
                if let Ok(content) = &response {
                    self.on_route_check_response(common, path, cookie, content, step);
                }
            }
            #[cfg(feature = "records")]
            Some(Pending::Lost(lost)) => self.on_lost_response(common, lost, &response, step),
            #[cfg(feature = "records")]
            Some(Pending::DeleteSpi(_)) => {}
            #[cfg(feature = "records")]
            Some(Pending::Synchronize) => self.on_synchronized(&response),
            #[cfg(feature = "resumption")]
            Some(Pending::Ticket) => self.on_ticket_response(&response, step),
            #[cfg(feature = "redirect")]
            Some(Pending::Redirect) => {}
            Some(Pending::Liveness | Pending::SendCrashToken) | None => {}
        }
        self.start_next_task(common, step)
    }

    /// Whether the response reports a syntax error in our request. The peer has then deleted the IKE SA (RFC
    /// 7296 section 2.21.3).
    fn is_fatal(&self, response: &IncomingMessage<'_>) -> bool {
        let is_ending = matches!(self.pending, Some(Pending::DeleteIke(_)));
        !is_ending && response.content.has_notify(NotifyType::INVALID_SYNTAX)
    }
}
