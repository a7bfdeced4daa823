//! Questions that the engine asks an IKE SA, and changes after a reload or a command.

use super::Predecessor;
use super::established::Phase;
use super::tasks::Pending;
use crate::child_sa::{ChildRequest, ChildSa};
use crate::config::{ChildConfig, Connection};
use crate::nat::NatStatus;
use crate::state::timers::Timer;
use crate::state::{Established, IkeSa, SaContents, State, Task};
use crate::transport::Content;
use crate::{ChildId, DownReason, ForgottenSign, IkeSaId, IkeSpis, IkeState, IkeStatus, PendingRetry, Role};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::IkeSpi;

impl IkeSa {
    /// Whether the IKE SA is half-open and was started by the peer. A flood creates many of these.
    pub(crate) const fn is_half_open(&self) -> bool {
        matches!(self.state, State::HalfOpen(_))
    }

    /// Bytes of the messages that the IKE SA holds while it is half-open.
    pub(crate) fn half_open_bytes(&self) -> usize {
        match &self.state {
            State::HalfOpen(state) => state.held_bytes(),
            _ => 0,
        }
    }

    /// Time at which the peer was authenticated.
    pub(crate) fn authenticated_at(&self) -> Option<Instant> {
        match &self.state {
            State::Established(state) => Some(state.authenticated_at),
            _ => None,
        }
    }

    /// Origin of the IKE SA: the IKE SA whose IKE_AUTH exchange authenticated the peer. This is the IKE SA
    /// itself, or the first of those that it replaced by rekeying.
    pub(crate) fn origin(&self) -> IkeSaId {
        match &self.state {
            State::Established(state) => state.origin,
            _ => self.common.id,
        }
    }

    /// The IKE SA that has the Child SAs of this one, until it is known which of two successors stays.
    pub(crate) fn holder_of_children(&self) -> Option<IkeSaId> {
        match &self.state {
            State::Established(state) => state.provisional,
            _ => None,
        }
    }

    /// Whether the peer has initiated the origin.
    #[cfg(feature = "records")]
    pub(crate) fn is_initiated_by_peer(&self) -> bool {
        matches!(&self.state, State::Established(state) if state.origin_role == Role::Responder)
    }

    /// SPIs of the origin. Rekeying does not change them, and they are the same at the peer.
    pub(crate) fn origin_spis(&self) -> IkeSpis {
        match &self.state {
            State::Established(state) => state.origin_spis,
            _ => self.common.spis(),
        }
    }

    /// Whether the IKE SA is to replace the one with this origin, which is not closed yet.
    pub(crate) fn reauthenticates(&self, origin: IkeSaId) -> bool {
        let is_end = |task: &Task| matches!(task, Task::DeletePredecessor(of) if *of == origin);
        match &self.state {
            State::Established(state) => state.is_open() && state.tasks.iter().any(is_end),
            State::HalfOpen(_) | State::Closed(_) => false,
            _ => self.common.predecessor.as_ref().is_some_and(|old| old.origin == origin),
        }
    }

    /// Whether both IKE SAs are established with the same peer, authenticated equally.
    pub(crate) fn has_same_scope(&self, other: &Self) -> bool {
        match (&self.state, &other.state) {
            (State::Established(one), State::Established(other)) => one.scope() == other.scope(),
            _ => false,
        }
    }

    /// The path MTU that probes have found, if it is below that of the link.
    pub(crate) fn probed_path_mtu(&self) -> Option<u16> {
        match &self.state {
            State::Established(state) => state.contents.path_search.limit(),
            _ => None,
        }
    }

    /// Whether the IKE SA is established, not replaced, and not provisional.
    pub(crate) fn is_current(&self) -> bool {
        matches!(&self.state, State::Established(state) if state.is_open() && state.provisional.is_none())
    }

    /// Whether a message presents the peer's token for this IKE SA (RFC 6290).
    pub(crate) fn is_token_valid(&self, content: &Content<'_>) -> bool {
        let State::Established(state) = &self.state else { return false };
        state.channel.peer_token.as_ref().is_some_and(|token| token.is_presented_by(content))
    }

    /// Whether the peer has proved or reported that it has forgotten the IKE SA.
    pub(crate) fn is_reported_forgotten(&self) -> bool {
        matches!(&self.state, State::Established(state) if state.is_reported_forgotten())
    }

    /// What shows that the peer has forgotten the IKE SA, if it seems so.
    pub(crate) fn forgotten_by(&self) -> Option<ForgottenSign> {
        match &self.state {
            State::Established(state) => state.forgotten_by(),
            _ => None,
        }
    }

    /// Whether another IKE SA has replaced this one, and this one waits for the peer to close it.
    pub(crate) fn is_replaced(&self) -> bool {
        matches!(&self.state, State::Established(state) if state.is_replaced())
    }

    /// Whether the IKE SA accepts requests for Child SAs.
    pub(crate) fn accepts_child_requests(&self) -> bool {
        match &self.state {
            State::Established(state) => state.is_open() && state.closing_reason().is_none(),
            State::HalfOpen(_) | State::Closed(_) => false,
            _ => true,
        }
    }

    /// Whether our first request has not been answered yet.
    pub(crate) const fn is_first_request_outstanding(&self) -> bool {
        matches!(self.state, State::InitSent(_))
    }

    /// Whether the IKE SA is established or being set up.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_half_open() || self.accepts_child_requests()
    }

    /// Whether the IKE SA is being set up.
    pub(crate) const fn is_connecting(&self) -> bool {
        !matches!(self.state, State::Established(_) | State::Closed(_))
    }

    /// Whether this host is setting the IKE SA up.
    pub(crate) const fn is_attempt(&self) -> bool {
        self.is_connecting() && !self.is_half_open()
    }

    /// Whether the IKE SA that this one is being rekeyed to will have this SPI.
    pub(crate) fn reserves_spi(&self, spi: IkeSpi) -> bool {
        let State::Established(state) = &self.state else { return false };
        matches!(&state.pending, Some(Pending::Rekey(pending)) if pending.spi == spi)
    }

    /// Whether the IKE SA has this Child SA or requests it.
    pub(crate) fn has_or_requests(&self, child: &ChildConfig) -> bool {
        let is_it = |child_request: &ChildRequest| child_request.config.name == child.name;
        match &self.state {
            State::InitSent(state) => state.child_requests.iter().any(is_it),
            #[cfg(feature = "multiple-kex")]
            State::IntermediateSent(state) => state.begun.child_requests.iter().any(is_it),
            State::AuthSent(state) => state.child_requests().any(is_it),
            State::Established(state) => state.is_open() && state.has_or_requests(child),
            State::HalfOpen(_) | State::Closed(_) => false,
        }
    }

    /// Child SAs to set up in the new IKE SA when this one is reauthenticated.
    pub(crate) fn children_to_reauthenticate(&self) -> Vec<Arc<ChildConfig>> {
        match &self.state {
            State::Established(state) => state.children_to_restart(DownReason::Reauth),
            _ => Vec::new(),
        }
    }

    /// Child SAs that this IKE SA requests to restore those of one that was up. Empty for other IKE SAs.
    pub(crate) fn children_to_restore(&self) -> Vec<Arc<ChildConfig>> {
        let config = |child_request: &ChildRequest| child_request.config.clone();
        match &self.state {
            _ if !self.common.restores => Vec::new(),
            State::InitSent(state) => state.child_requests.iter().map(config).collect(),
            #[cfg(feature = "multiple-kex")]
            State::IntermediateSent(state) => state.begun.child_requests.iter().map(config).collect(),
            State::AuthSent(state) => state.child_requests().map(config).collect(),
            State::Established(_) | State::HalfOpen(_) | State::Closed(_) => Vec::new(),
        }
    }

    /// What the new IKE SA needs to know of this one when this one is reauthenticated.
    pub(crate) fn predecessor(&self) -> Predecessor {
        let addrs = match &self.state {
            State::Established(state) => state.assigned_addrs().into(),
            _ => Vec::new(),
        };
        Predecessor { origin: self.origin(), addrs, ends_if_refused: self.forgotten_by().is_none() }
    }

    /// The IKE SA that has to hand its Child SAs over to this one before the request is processed.
    pub(crate) fn predecessor_to_concede(&self, request: &Content<'_>) -> Option<IkeSaId> {
        match &self.state {
            State::Established(state) => state.predecessor_to_concede(request),
            _ => None,
        }
    }

    /// Time of the next timeout. Call [`update_timers`](Self::update_timers) first.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::InitSent(state) => Some(state.next_timeout()),
            #[cfg(feature = "multiple-kex")]
            State::IntermediateSent(state) => state.next_timeout(),
            State::HalfOpen(state) => Some(state.next_timeout()),
            State::AuthSent(state) => state.next_timeout(),
            State::Established(state) => state.next_timeout(),
            State::Closed(_) => None,
        }
    }

    /// Updates the timers after a change.
    pub(crate) fn update_timers(&mut self) {
        if let State::Established(state) = &mut self.state {
            state.update_timers();
        }
    }

    pub(crate) fn status(&self) -> IkeStatus {
        let common = &self.common;
        let mut status = IkeStatus {
            id: common.id,
            connection: common.connection.clone(),
            state: self.public_state(),
            initiator: common.role == Role::Initiator,
            spis: common.spis(),
            path: common.path,
            peer: None,
            #[cfg(feature = "eap")]
            own_id: None,
            #[cfg(feature = "eap")]
            eap_identity: None,
            #[cfg(feature = "eap")]
            earlier_rounds: Vec::new(),
            #[cfg(feature = "resumption")]
            is_resumed: common.resumes.is_some(),
            #[cfg(feature = "ppk")]
            ppk_id: None,
            full_transcript_auth: false,
            suite: None,
            nat: NatStatus::default(),
            established: None,
            rekey_at: None,
            virtual_addrs: Vec::new(),
            dns: Vec::new(),
            dns_domains: Vec::new(),
            children: Vec::new(),
        };
        match &self.state {
            State::HalfOpen(state) => status.suite = Some(state.channel.suite),
            #[cfg(feature = "multiple-kex")]
            State::IntermediateSent(state) => status.suite = Some(state.channel.suite),
            State::AuthSent(state) => status.suite = Some(state.channel.suite),
            State::Established(state) => state.fill_status(&mut status),
            State::InitSent(_) | State::Closed(_) => {}
        }
        status
    }

    /// When the last authentic message of the peer arrived, if it is established.
    pub(crate) fn last_message_at(&self) -> Option<Instant> {
        match &self.state {
            State::Established(state) => Some(state.traffic.message_at()),
            _ => None,
        }
    }

    /// The state that [`IkeStatus`] shows.
    pub(crate) fn public_state(&self) -> IkeState {
        match &self.state {
            State::Established(state) => state.public_state(),
            State::Closed(_) => IkeState::Closed,
            _ => IkeState::Connecting,
        }
    }
}

impl IkeSa {
    /// Continues under a connection that differs in its children only. Returns the Child SAs that are no
    /// longer configured.
    pub(crate) fn reconfigure(&mut self, connection: &Arc<Connection>) -> Vec<ChildId> {
        self.common.connection = connection.clone();
        let State::Established(state) = &self.state else { return Vec::new() };
        let is_gone = |child: &&ChildSa| !child.is_stopped && !connection.children.contains(&child.config);
        state.children().iter().filter(is_gone).map(|child| child.id).collect()
    }

    /// Child SAs that are to be set up again after they ended.
    pub(crate) fn pending_retries(&self) -> impl Iterator<Item = PendingRetry> {
        let tasks = match &self.state {
            State::Established(state) => Some(state.tasks.iter()),
            _ => None,
        };
        tasks.into_iter().flatten().filter_map(|task| match task {
            Task::Child(child_request) if child_request.is_restart => Some(PendingRetry {
                connection: self.common.connection.clone(),
                child: Some(child_request.config.clone()),
                at: child_request.postponed.until,
                attempts: child_request.attempts,
            }),
            _ => None,
        })
    }

    /// Cancels the queued requests for the matching Child SAs. Does not touch requests that were already
    /// sent.
    pub(crate) fn cancel(&mut self, is_meant: &dyn Fn(&Arc<ChildConfig>) -> bool) -> Vec<Arc<ChildConfig>> {
        let mut cancelled = Vec::new();
        let mut is_kept = |child_request: &ChildRequest| {
            let is_cancelled = child_request.replaces.is_none() && is_meant(&child_request.config);
            cancelled.extend(is_cancelled.then(|| child_request.config.clone()));
            !is_cancelled
        };
        match &mut self.state {
            State::InitSent(state) => state.child_requests.retain(is_kept),
            #[cfg(feature = "multiple-kex")]
            State::IntermediateSent(state) => state.begun.child_requests.retain(is_kept),
            State::AuthSent(state) => state.queued_children.retain(is_kept),
            State::Established(state) => state.tasks.retain(|task| match task {
                Task::Child(child_request) => is_kept(child_request),
                _ => true,
            }),
            State::HalfOpen(_) | State::Closed(_) => {}
        }
        cancelled
    }

    /// Whether a request before IKE_AUTH is outstanding and no Child SA is requested any more.
    pub(crate) fn is_needless(&self) -> bool {
        match &self.state {
            State::InitSent(state) => state.child_requests.is_empty(),
            #[cfg(feature = "multiple-kex")]
            State::IntermediateSent(state) => state.begun.child_requests.is_empty(),
            _ => false,
        }
    }
}

impl Established {
    /// The state that [`IkeStatus`] shows.
    pub(crate) fn public_state(&self) -> IkeState {
        match self.phase {
            // The Delete waits for the outstanding request.
            Phase::Open if self.closing_reason().is_some() => IkeState::Closing,
            Phase::Open => IkeState::Established,
            Phase::Replaced => IkeState::Rekeyed,
            Phase::Closing => IkeState::Closing,
        }
    }

    /// Fills in what is known of an established IKE SA.
    pub(crate) fn fill_status(&self, status: &mut IkeStatus) {
        let SaContents { peer, nat, leased, assigned, children, .. } = &self.contents;
        status.peer = Some(peer.id().clone());
        #[cfg(feature = "eap")]
        {
            status.own_id = Some(peer.own_id().clone());
            status.eap_identity = peer.eap_identity().cloned();
            status.earlier_rounds = peer.earlier_rounds().to_vec();
        }
        #[cfg(feature = "ppk")]
        {
            status.ppk_id = peer.ppk_id().map(Vec::from);
        }
        status.full_transcript_auth = peer.has_full_transcript();
        status.suite = Some(self.channel.suite);
        status.nat = *nat;
        status.established = Some(self.established_at);
        status.rekey_at = self.timers.get(Timer::Rekey);
        let own = assigned.as_ref().map_or(&[][..], |assigned| &assigned.addrs);
        status.virtual_addrs = if own.is_empty() { leased.clone() } else { own.to_vec() };
        if let Some(assigned) = assigned {
            status.dns = assigned.dns.clone();
            status.dns_domains = assigned.domains.clone();
        }
        status.children = children.iter().filter(|child| !child.is_stopped).map(ChildSa::status).collect();
    }
}
