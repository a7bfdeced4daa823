//! The engine: holds every IKE SA of a host and processes messages, commands and timeouts.

mod dispatch;
pub(crate) mod ike_sa_table;
pub(crate) mod peer_index;
mod reauthentication;
pub(crate) mod response_cache;
pub(crate) mod retries;

use crate::address_pool::AddressPools;
use crate::child_sa::ChildRequest;
use crate::config::{ChildConfig, Connection, Pool};
use crate::context::{Effect, Shared, Step};
use crate::cookie::CookieSecrets;
use crate::engine::ike_sa_table::IkeSaTable;
use crate::engine::peer_index::PeerIndex;
use crate::engine::response_cache::ResponseCache;
use crate::engine::retries::{Retry, RetryQueue};
use crate::state::{AssignedAddrs, IkeSa, InitSent, SaCommon, State, Task, retry_at};
use crate::{
    ChildId, Context, DownReason, Event, FaultCounters, Host, IkeSaId, IkeSettings, IkeStatus, InitiateError,
    Path, TrafficSelector, Transmit, UnconfiguredSas,
};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_sa::table::OrderedMap;

pub use retries::PendingRetry;

/// All IKE SAs of a host.
pub struct Ike {
    shared: Shared,
    sas: IkeSaTable,
}

impl Ike {
    /// Returns an engine without connections.
    pub fn new(settings: IkeSettings) -> Self {
        let shared = Shared {
            settings,
            connections: Vec::new(),
            pools: AddressPools::default(),
            cookies: CookieSecrets::default(),
            transmits: VecDeque::new(),
            assigned_addrs: AssignedAddrs::default(),
            response_cache: ResponseCache::default(),
            retries: RetryQueue::default(),
            events: VecDeque::new(),
            faults: FaultCounters::new(),
            peers: PeerIndex::default(),
            child_owners: OrderedMap::default(),
            scratch: vec![0; settings.max_message_bytes].into_boxed_slice(),
            report_keys: false,
            last_child_id: 0,
            last_ike_id: 0,
            effects: Vec::new(),
        };
        Self { sas: IkeSaTable::new(shared.settings.keepalive_interval), shared }
    }

    /// Sets whether the keys of IKE SAs are reported as events, for decrypting captures.
    pub fn report_keys(&mut self, report: bool) {
        self.shared.report_keys = report;
    }

    /// Replaces connections and pools. An IKE SA whose connection differs in its children only continues
    /// under the new connection. Returns the SAs that are no longer configured; the caller closes them.
    pub fn configure(&mut self, connections: Vec<Arc<Connection>>, pools: &[Pool]) -> UnconfiguredSas {
        let mut unconfigured = UnconfiguredSas::default();
        for sa in self.sas.values_mut() {
            let connection =
                connections.iter().find(|new| new.differs_in_children_only(&sa.common.connection));
            match connection {
                Some(connection) => {
                    unconfigured.children.extend(sa.reconfigure(connection));
                    for child in sa.cancel(&|child| !connection.children.contains(child)) {
                        let (connection, reason) = (connection.clone(), DownReason::Unconfigured);
                        self.shared.events.push_back(Event::ChildFailed { connection, child, reason });
                    }
                }
                None => unconfigured.ikes.push(sa.common.id),
            }
        }
        self.sas.rebuild_connection_index();
        self.shared.retries.reconfigure(&connections);
        self.shared.connections = connections;
        self.shared.pools.replace(pools);
        unconfigured
    }

    /// Configured connections.
    pub fn connections(&self) -> &[Arc<Connection>] {
        &self.shared.connections
    }

    /// Processes an IKE message, without the non-ESP marker. Decrypts the message in place.
    pub fn receive(
        &mut self,
        datagram: &mut [u8],
        path: Path,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        dispatch::receive(self, datagram, path, host, context);
    }

    /// Sets up a Child SA in an existing IKE SA of the connection, or in a new one. `packet` is the packet
    /// that triggered the request, if there is one. Without a child, only the IKE SA is set up.
    pub fn initiate(
        &mut self,
        connection: &Arc<Connection>,
        child: Option<&Arc<ChildConfig>>,
        packet: Option<(TrafficSelector, TrafficSelector)>,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> Result<(), InitiateError> {
        let child_request = child.map(|child| ChildRequest::new(child.clone(), packet));
        let existing =
            self.sas.of_connection(connection).find(|sa| sa.accepts_child_requests()).map(|sa| sa.common.id);
        match (existing, child_request) {
            (Some(id), Some(child_request)) => {
                self.update_sa(id, host, context, |sa, step| sa.request_child(child_request, step));
                Ok(())
            }
            (Some(_), None) => Ok(()),
            (None, child_request) => {
                let limit = self.shared.settings.max_ike_sas;
                self.begin_ike_sa(connection, child_request.into_iter().collect(), limit, host, context)
                    .map(|_| ())
            }
        }
    }

    /// Sets up a Child SA as [`initiate`](Self::initiate) does. If the attempt cannot start now, reports
    /// [`Event::InitiateFailed`] and tries again later if the connection's `keying_tries` allow that.
    pub fn initiate_or_retry(
        &mut self,
        connection: &Arc<Connection>,
        child: &Arc<ChildConfig>,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        if let Err(error) = self.initiate(connection, Some(child), None, host, context) {
            let (connection, children) = (connection.clone(), vec![child.clone()]);
            self.initiate_failed(
                Retry { connection, children, at: context.now, attempts: 0 },
                error,
                host,
                context,
            );
        }
    }

    /// Starts an IKE SA if there are fewer than `limit`.
    fn begin_ike_sa(
        &mut self,
        connection: &Arc<Connection>,
        child_requests: Vec<ChildRequest>,
        limit: usize,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> Result<IkeSaId, InitiateError> {
        if self.sas.current_count() >= limit {
            return Err(InitiateError::Full);
        }
        let path = connection.path(|remote| context.routes.source_for(remote))?;
        let mut step = Step { context, host, shared: &mut self.shared };
        let started = InitSent::begin((connection.clone(), path), child_requests, &mut step);
        let sa = started.map_err(|_| InitiateError::Provider)?;
        let id = sa.common.id;
        self.sas.insert(sa);
        self.close_excess_replaced(host, context);
        self.run_effects(host, context);
        Ok(id)
    }

    /// Closes an IKE SA and its Child SAs. Returns whether the IKE SA exists.
    pub fn terminate(
        &mut self,
        ike: IkeSaId,
        reason: DownReason,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> bool {
        self.update_sa(ike, host, context, |sa, step| sa.close(reason, step))
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
        self.update_sa(ike, host, context, |sa, step| sa.queue_task(Task::RekeyIke, step))
    }

    fn queue_child_task(
        &mut self,
        child: ChildId,
        task: Task,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> bool {
        let owner = self.shared.child_owners.get(child).copied();
        owner.is_some_and(|ike| self.update_sa(ike, host, context, |sa, step| sa.queue_task(task, step)))
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

    /// Applies `act` to an IKE SA and runs the effects. Returns `false` if the IKE SA does not exist.
    pub(crate) fn update_sa(
        &mut self,
        id: IkeSaId,
        host: &mut dyn Host,
        context: &mut Context<'_>,
        act: impl FnOnce(IkeSa, &mut Step<'_, '_>) -> IkeSa,
    ) -> bool {
        let done = self.apply_to_sa(id, host, context, act);
        self.run_effects(host, context);
        done
    }

    fn apply_to_sa(
        &mut self,
        id: IkeSaId,
        host: &mut dyn Host,
        context: &mut Context<'_>,
        act: impl FnOnce(IkeSa, &mut Step<'_, '_>) -> IkeSa,
    ) -> bool {
        let Some((sa, before)) = self.sas.take(id) else { return false };
        let sa = act(sa, &mut Step { context, host, shared: &mut self.shared });
        let half_open = before.is_half_open();
        if let Some((sa, reason)) = self.sas.put_back(sa, before) {
            let (ike, connection) = (sa.common.id, sa.common.connection.clone());
            self.shared.events.push_back(Event::IkeDown { ike, connection, reason, half_open });
        }
        true
    }

    /// Runs the effects that states have requested. An effect may request further effects; such chains are
    /// short.
    pub(crate) fn run_effects(&mut self, host: &mut dyn Host, context: &mut Context<'_>) {
        for _ in 0..MAX_EFFECTS {
            let effects = core::mem::take(&mut self.shared.effects);
            if effects.is_empty() {
                return;
            }
            effects.into_iter().for_each(|effect| self.run_effect(effect, host, context));
        }
    }

    fn run_effect(&mut self, effect: Effect, host: &mut dyn Host, context: &mut Context<'_>) {
        match effect {
            Effect::InsertSa(sa) => {
                let id = sa.common.id;
                self.sas.insert(*sa);
                self.apply_to_sa(id, host, context, IkeSa::start_next_task);
                self.close_excess_replaced(host, context);
            }
            Effect::AdoptContents(id, contents, path) => {
                self.shared.set_owner(&contents.children, id);
                match self.sas.get_mut(id) {
                    Some(IkeSa { common, state: State::Established(successor) }) => {
                        successor.adopt_contents(common, *contents, path);
                    }
                    _ => contents.release(
                        (id, id),
                        DownReason::DeadPeer,
                        &mut Step { context, host, shared: &mut self.shared },
                    ),
                }
                self.apply_to_sa(id, host, context, IkeSa::start_next_task);
            }
            Effect::AwaitDelete(id) => {
                self.apply_to_sa(id, host, context, IkeSa::await_delete);
            }
            Effect::DropReplaced(id) if self.sas.get(id).is_some_and(IkeSa::is_replaced) => {
                self.apply_to_sa(id, host, context, |sa, step| sa.drop_silently(DownReason::Replaced, step));
            }
            Effect::DropReplaced(_) => {}
            Effect::PeerSuccessorClosed(id, peer_successor) => {
                self.apply_to_sa(id, host, context, |sa, _| sa.peer_successor_closed(peer_successor));
            }
            Effect::Close { ike, reason, notify_peer } => {
                self.apply_to_sa(ike, host, context, |sa, step| {
                    if notify_peer { sa.close(reason, step) } else { sa.drop_silently(reason, step) }
                });
            }
            Effect::Evict(id) => {
                let reason = DownReason::NotUnique;
                self.apply_to_sa(id, host, context, |sa, step| {
                    sa.close(reason, step).drop_silently(reason, step)
                });
            }
            Effect::Retry(retry) if retry.at <= context.now => self.retry(retry, host, context),
            Effect::Retry(retry) => self.shared.retries.add(retry),
            Effect::Reauthenticate(id) => self.reauthenticate(id, host, context),
            Effect::Reauthenticated(origin) => self.close_origin(origin, host, context),
        }
    }

    /// Closes replaced IKE SAs, oldest first, until their number is within the limit.
    pub(crate) fn close_excess_replaced(&mut self, host: &mut dyn Host, context: &mut Context<'_>) {
        let limit = self.shared.settings.ike_sas_with_replaced();
        while self.sas.counts().0 > limit
            && let Some(oldest) = self.sas.oldest_replaced()
        {
            self.apply_to_sa(oldest, host, context, |sa, step| sa.drop_silently(DownReason::Replaced, step));
        }
    }

    /// Sets up the SAs of a retry, unless another IKE SA of the connection has them. If the peer starts again
    /// as well, two IKE SAs would soon become four, or each would replace the other for ever. Ignores a
    /// connection that is no longer configured.
    fn retry(&mut self, retry: Retry, host: &mut dyn Host, context: &mut Context<'_>) {
        let Retry { connection, children, attempts, .. } = retry;
        if !self.shared.connections.iter().any(|known| Arc::ptr_eq(known, &connection)) {
            return;
        }
        let others = || self.sas.values().filter(|sa| Arc::ptr_eq(&sa.common.connection, &connection));
        let missing = children.iter().filter(|child| !others().any(|sa| sa.has_or_requests(child)));
        let child_requests: Vec<ChildRequest> =
            missing.map(|child| ChildRequest::new(child.clone(), None)).collect();
        let other = others().find(|sa| sa.accepts_child_requests()).map(|sa| sa.common.id);
        if let Some(other) = other {
            for child_request in child_requests {
                self.apply_to_sa(other, host, context, |sa, step| sa.request_child(child_request, step));
            }
            return;
        }
        match self.begin_ike_sa(&connection, child_requests, self.shared.settings.max_ike_sas, host, context)
        {
            Ok(id) => self.update_common(id, |common| common.attempts = attempts),
            Err(error) => self.initiate_failed(Retry { connection, children, ..retry }, error, host, context),
        }
    }

    fn update_common(&mut self, id: IkeSaId, change: impl FnOnce(&mut SaCommon)) {
        if let Some(sa) = self.sas.get_mut(id) {
            change(&mut sa.common);
        }
    }

    /// Reports that a connection could not be started, and schedules another attempt if the connection allows
    /// one. There is no other attempt without a remote address.
    fn initiate_failed(
        &mut self,
        retry: Retry,
        error: InitiateError,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        let Retry { connection, attempts, .. } = &retry;
        let attempts = attempts.saturating_add(1);
        self.shared.events.push_back(Event::InitiateFailed { connection: connection.clone(), error });
        if error != InitiateError::NoRemoteAddress && connection.allows_another_sequence(attempts.into()) {
            let at = retry_at(attempts, &mut Step { context, host, shared: &mut self.shared });
            self.shared.retries.add(Retry { at, attempts, ..retry });
        }
    }

    pub(crate) fn parts(&mut self) -> (&mut Shared, &mut IkeSaTable) {
        (&mut self.shared, &mut self.sas)
    }

    /// Number of IKE SAs, and of half-open ones among them that peers started.
    pub fn counts(&self) -> (usize, usize) {
        self.sas.counts()
    }
}

/// Upper bound for the chain of effects of one message. No message reaches it.
const MAX_EFFECTS: usize = 16;
