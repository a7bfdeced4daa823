//! The engine: holds every IKE SA of a host and processes messages, commands and timeouts.

pub(crate) mod connection_table;
mod dispatch;
pub(crate) mod effects;
pub(crate) mod ike_sa_table;
mod initiate;
pub(crate) mod peer_index;
pub(crate) mod reauthentication;
#[cfg(feature = "records")]
pub(crate) mod records;
pub(crate) mod response_cache;
pub(crate) mod retries;
pub(crate) mod unprotected;

use crate::address_pool::AddressPools;
use crate::config::{Connection, Pool};
use crate::context::{Shared, Step};
use crate::cookie::CookieSecrets;
use crate::crash_token::TokenMaker;
use crate::diagnosis::{ExplainFaults, ExplanationSlot};
use crate::engine::connection_table::ConnectionTable;
use crate::engine::ike_sa_table::IkeSaTable;
use crate::engine::peer_index::PeerIndex;
use crate::engine::response_cache::ResponseCache;
use crate::engine::retries::RetryQueue;
use crate::engine::unprotected::UnprotectedLimits;
use crate::state::{AssignedAddrs, IkeSa, PathProber, Task, restore_later};
use crate::{
    ChildId, Context, DownReason, Event, FaultCounters, Host, IkeSaId, IkeSaState, IkeSettings, IkeStatus,
    Retransmission, Transmit, UnconfiguredSas,
};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_sa::table::OrderedMap;

#[cfg(feature = "records")]
pub use records::{Restoration, RestoredIke};
pub use retries::PendingRetry;

/// All IKE SAs of a host.
pub struct Ike {
    shared: Shared,
    sas: IkeSaTable,
}

/// Result of an operation on an IKE SA and of the effects that it requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SaUpdate {
    /// There is no IKE SA with this identifier.
    NotFound,
    /// The IKE SA still exists.
    Continues,
    /// The operation has ended the IKE SA.
    Ended,
}

impl SaUpdate {
    /// Whether the IKE SA existed before the operation.
    fn is_found(self) -> bool {
        self != Self::NotFound
    }
}

impl Ike {
    /// Returns an engine without connections.
    pub fn new(settings: IkeSettings) -> Self {
        let shared = Shared {
            settings,
            connections: ConnectionTable::new(Vec::new()),
            pools: AddressPools::default(),
            cookies: CookieSecrets::default(),
            tokens: TokenMaker::default(),
            unprotected: UnprotectedLimits::default(),
            transmits: VecDeque::new(),
            assigned_addrs: AssignedAddrs::default(),
            response_cache: ResponseCache::default(),
            retries: RetryQueue::default(),
            events: VecDeque::new(),
            faults: FaultCounters::new(),
            explainer: None,
            explanation: ExplanationSlot::default(),
            path_prober: None,
            peers: PeerIndex::default(),
            child_owners: OrderedMap::default(),
            scratch: vec![0; settings.max_message_bytes].into_boxed_slice(),
            report_keys: false,
            #[cfg(feature = "records")]
            changes: records::Changes::default(),
            last_child_id: 0,
            last_ike_id: 0,
            effects: Vec::new(),
            #[cfg(feature = "resumption")]
            resumption: crate::resumption::Resumption::default(),
        };
        Self { sas: IkeSaTable::new(), shared }
    }

    /// Sets whether the keys of IKE SAs are reported as events, for decrypting captures.
    pub fn report_keys(&mut self, report: bool) {
        self.shared.report_keys = report;
    }

    /// Changes how requests are retransmitted. An outstanding request follows from its next transmission on.
    pub fn set_retransmission(&mut self, retransmission: Retransmission) {
        self.shared.settings.retransmission = retransmission;
    }

    /// Requests an explanation with each fault of a negotiation. A device that does not call this function
    /// does not contain the code that builds explanations.
    pub fn explain_faults(&mut self) {
        self.shared.explainer = Some(&ExplainFaults);
    }

    /// Probes the path MTU to peers whose connections allow it, on IKE SAs that are established later. Needs
    /// [`Routes::link_mtu`](crate::Routes::link_mtu). A device that does not call this function does not
    /// contain the code that sends probes.
    pub fn probe_path_mtu(&mut self) {
        self.shared.path_prober = Some(&PathProber);
    }

    /// The path MTU in bytes that probes have found for a Child SA; `None` if the path takes what the link
    /// does, or nothing is known.
    pub fn probed_path_mtu(&self, child: ChildId) -> Option<u16> {
        self.sas.get(*self.shared.child_owners.get(child)?)?.probed_path_mtu()
    }

    /// Replaces connections and pools. An IKE SA whose connection differs in its children only continues
    /// under the new connection. Returns the SAs that are no longer configured; the caller closes them.
    pub fn configure(&mut self, connections: Vec<Arc<Connection>>, pools: &[Pool]) -> UnconfiguredSas {
        let mut unconfigured = UnconfiguredSas::default();
        let by_name: BTreeMap<&str, &Arc<Connection>> =
            connections.iter().map(|connection| (connection.name.as_str(), connection)).collect();
        for sa in self.sas.values_mut() {
            let same_name = by_name.get(sa.common.connection.name.as_str()).copied();
            let connection = same_name.filter(|new| new.differs_in_children_only(&sa.common.connection));
            match connection {
                Some(connection) => {
                    unconfigured.children.extend(sa.reconfigure(connection));
                    for child in sa.cancel(&|child| !connection.children.contains(child)) {
                        let (connection, reason) = (connection.clone(), DownReason::Unconfigured);
                        self.shared.events.push_back(Event::ChildFailed {
                            connection,
                            child,
                            replaces: None,
                            reason,
                        });
                    }
                }
                None => unconfigured.ikes.push(sa.common.id),
            }
        }
        self.sas.rebuild_connection_index();
        self.shared.retries.reconfigure(&connections);
        #[cfg(feature = "resumption")]
        self.shared.resumption.configure(&connections);
        self.shared.connections = ConnectionTable::new(connections);
        self.shared.pools.replace(pools);
        unconfigured
    }

    /// Configured connections.
    pub fn connections(&self) -> &[Arc<Connection>] {
        self.shared.connections.all()
    }

    /// Closes an IKE SA and its Child SAs. Returns whether the IKE SA exists.
    pub fn terminate(
        &mut self,
        ike: IkeSaId,
        reason: DownReason,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> bool {
        // Until the peer uses a successor that it has made, the predecessor has the Child SAs.
        if let Some(predecessor) = self.sas.get(ike).and_then(IkeSa::holder_of_children) {
            self.update_sa(predecessor, host, context, |sa, step| sa.close(reason, step));
        }
        self.update_sa(ike, host, context, |sa, step| sa.close(reason, step)).is_found()
    }

    /// Continues EAP with the peer of a half-open IKE SA, after the authenticator of
    /// [`Credentials::eap_authenticator`](crate::Credentials::eap_authenticator) was pending and its server
    /// has answered. Returns whether the IKE SA exists.
    #[cfg(feature = "eap")]
    pub fn continue_eap(&mut self, ike: IkeSaId, host: &mut dyn Host, context: &mut Context<'_>) -> bool {
        self.update_sa(ike, host, context, IkeSa::continue_eap).is_found()
    }

    /// Continues with a peer after an answer of [`Credentials`](crate::Credentials) was pending: the status
    /// of certificates has become known or cannot become known, or our signature was made or has failed.
    /// Returns whether the IKE SA exists.
    #[cfg(feature = "revocation")]
    pub fn continue_authentication(
        &mut self,
        ike: IkeSaId,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> bool {
        self.update_sa(ike, host, context, IkeSa::continue_authentication).is_found()
    }

    /// Closes one Child SA. Returns whether it exists.
    pub fn terminate_child(
        &mut self,
        child: ChildId,
        reason: DownReason,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> bool {
        self.queue_child_task(child, Task::DeleteChild(child, reason), host, context)
    }

    /// Rekeys a Child SA. Returns whether it exists.
    pub fn rekey_child(&mut self, child: ChildId, host: &mut dyn Host, context: &mut Context<'_>) -> bool {
        self.queue_child_task(child, Task::RekeyChild(child), host, context)
    }

    /// Rekeys an IKE SA. Returns whether it exists.
    pub fn rekey(&mut self, ike: IkeSaId, host: &mut dyn Host, context: &mut Context<'_>) -> bool {
        self.update_sa(ike, host, context, |sa, step| sa.queue_task(Task::RekeyIke, step)).is_found()
    }

    /// Redirects the peer of an IKE SA to another gateway (RFC 5685 section 5). The peer sets
    /// up another IKE SA there and closes this one, which otherwise ends after three minutes. Returns whether
    /// the IKE SA is established and its peer, as the initiator, follows redirects.
    #[cfg(feature = "redirect")]
    pub fn redirect(
        &mut self,
        ike: IkeSaId,
        gateway: crate::config::Gateway,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> bool {
        let can_be = self.sas.get(ike).is_some_and(IkeSa::can_be_redirected);
        let task = Task::Redirect(gateway);
        can_be && self.update_sa(ike, host, context, |sa, step| sa.queue_task(task, step)).is_found()
    }

    /// Sets whether new IKE SAs follow redirects.
    #[cfg(feature = "redirect")]
    pub fn follow_redirects(&mut self, follow: bool) {
        self.shared.settings.follow_redirects = follow;
    }

    /// Reports that addresses or routes of this host have changed. SAs with MOBIKE move if their path is no
    /// longer usable, or another source address is preferred now, and peers learn which addresses there are.
    /// Takes time in proportion to the number of IKE SAs.
    pub fn addresses_changed(&mut self, host: &mut dyn Host, context: &mut Context<'_>) {
        #[cfg(feature = "mobike")]
        {
            let ids: Vec<IkeSaId> =
                self.sas.values().filter(|sa| sa.uses_mobike()).map(|sa| sa.common.id).collect();
            for id in ids {
                self.update_sa(id, host, context, IkeSa::addresses_changed);
            }
        }
        #[cfg(not(feature = "mobike"))]
        let _ = (host, context);
    }

    /// Whether the SAs of a connection may move when the addresses of this host change.
    pub fn may_move(&self) -> bool {
        self.shared.connections.all().iter().any(|connection| connection.may_move())
    }

    fn queue_child_task(
        &mut self,
        child: ChildId,
        task: Task,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> bool {
        let Some(ike) = self.shared.child_owners.get(child).copied() else { return false };
        self.update_sa(ike, host, context, |sa, step| sa.queue_task(task, step)).is_found()
    }

    /// Time of the next call of [`handle_timeouts`](Self::handle_timeouts).
    pub fn next_timeout(&self) -> Option<Instant> {
        self.sas.next_timeout().into_iter().chain(self.shared.retries.next_timeout()).min()
    }

    /// Handles the timers that have expired.
    pub fn handle_timeouts(&mut self, host: &mut dyn Host, context: &mut Context<'_>) {
        let due: Vec<IkeSaId> = self.sas.expired(context.now).collect();
        for id in due {
            self.update_sa(id, host, context, IkeSa::on_timeout);
        }
        // A retry that fails again gets a later time.
        while let Some(retry) = self.shared.retries.pop_due(context.now) {
            self.shared.begin_step();
            self.retry(retry, host, context);
            self.run_effects(host, context);
        }
    }

    /// Takes the next datagram to send.
    pub fn next_transmit(&mut self) -> Option<Transmit> {
        self.shared.transmits.pop_front()
    }

    /// Takes the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// Counters of the faults of peers.
    pub fn faults(&self) -> &FaultCounters {
        &self.shared.faults
    }

    /// Status of every IKE SA, oldest first.
    pub fn status(&self) -> impl Iterator<Item = IkeStatus> + '_ {
        self.sas.values().map(IkeSa::status)
    }

    /// Status of an IKE SA; `None` if it does not exist.
    pub fn status_of(&self, id: IkeSaId) -> Option<IkeStatus> {
        self.sas.get(id).map(IkeSa::status)
    }

    /// When the last authentic message of the peer of an established IKE SA arrived.
    pub fn last_message_at(&self, id: IkeSaId) -> Option<Instant> {
        self.sas.get(id).and_then(IkeSa::last_message_at)
    }

    /// Connection and state of the IKE SAs that are younger than `after`, or of all, oldest first. Costs less
    /// than [`status`](Self::status).
    pub fn states(&self, after: Option<IkeSaId>) -> impl Iterator<Item = IkeSaState<'_>> {
        let from = after.map_or(0, |after| after.0.saturating_add(1));
        self.sas.values_from(IkeSaId(from)).map(|sa| IkeSaState {
            id: sa.common.id,
            connection: &sa.common.connection,
            state: sa.public_state(),
        })
    }

    /// Applies `act` to an IKE SA and runs the effects.
    fn update_sa(
        &mut self,
        id: IkeSaId,
        host: &mut dyn Host,
        context: &mut Context<'_>,
        act: impl FnOnce(IkeSa, &mut Step<'_, '_>) -> IkeSa,
    ) -> SaUpdate {
        self.shared.begin_step();
        let exists = self.apply_to_sa(id, host, context, act);
        self.run_effects(host, context);
        match (exists, self.sas.get(id)) {
            (false, _) => SaUpdate::NotFound,
            (true, Some(_)) => SaUpdate::Continues,
            (true, None) => SaUpdate::Ended,
        }
    }

    /// Applies `act` to an IKE SA. Returns whether the IKE SA exists.
    fn apply_to_sa(
        &mut self,
        id: IkeSaId,
        host: &mut dyn Host,
        context: &mut Context<'_>,
        act: impl FnOnce(IkeSa, &mut Step<'_, '_>) -> IkeSa,
    ) -> bool {
        let Some((sa, before)) = self.sas.take(id) else { return false };
        self.shared.note_change(id);
        let children = sa.children_to_restore();
        let sa = act(sa, &mut self.step(host, context));
        let half_open = before.is_half_open();
        if let Some((sa, reason)) = self.sas.put_back(sa, before) {
            restore_later(&sa.common, children, reason, &mut self.step(host, context));
            let (ike, path, connection) = (sa.common.id, sa.common.path, sa.common.connection.clone());
            self.shared.events.push_back(Event::IkeDown { ike, connection, reason, half_open, path });
        }
        true
    }

    fn step<'s, 'c>(&'s mut self, host: &'s mut dyn Host, context: &'s mut Context<'c>) -> Step<'s, 'c> {
        Step { context, host, shared: &mut self.shared }
    }

    /// Number of IKE SAs, including half-open ones.
    pub fn ike_sa_count(&self) -> usize {
        self.sas.len()
    }

    /// Bytes of messages that half-open IKE SAs hold, as [`IkeSettings::max_half_open_bytes`] limits them.
    pub const fn half_open_bytes(&self) -> usize {
        self.sas.half_open_bytes()
    }

    /// Number of half-open IKE SAs: initiated by peers that are not authenticated yet.
    pub fn half_open_count(&self) -> usize {
        self.sas.half_open_count()
    }
}
