//! The endpoint with everything that its calls need, and access to it while the engine runs.

use super::forwarding::ForwardStatus;
use super::shared::Shared;
use super::tunnels::{PreparedTunnels, TunnelSpec};
use crate::Error;
use crate::dns::DnsState;
use crate::link_sender::LinkSending;
use crate::marked_routes::MarkedRoutes;
use crate::process::{Clock, SystemRng};
use crate::setup::{ConfiguredTraffic, GuardState};
use casemate::path::DatapathAccess;
use casemate::{Context, Endpoint};
use casemate_cell::{KeeperStatus, Member};
use casemate_crypto::{Provider, Providers, Rng};
use casemate_datapath::Datapath;
use casemate_datapath::trace::{TraceFilter, TraceIsRunning, TraceRecord, TraceSummary};
use casemate_ike::Credentials;
use casemate_sa::SpdId;
use casemate_sched::{Counters, PerClass};
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// Access of other threads to the endpoint of a running engine.
pub struct EndpointHandle<'e>(pub(super) &'e Shared);

impl EndpointHandle<'_> {
    /// Locks the endpoint. Packets wait until the lock is released, so the caller must not wait for a file, a
    /// socket or a process while holding it.
    pub fn lock(&self) -> MutexGuard<'_, EndpointContext> {
        self.0.lock_endpoint()
    }

    /// Makes the interfaces of route-based tunnels of a new configuration. Nothing changes until
    /// [`use_tunnels`](Self::use_tunnels). Must not be called while the endpoint is locked.
    pub fn prepare_tunnels(&self, specs: &[TunnelSpec]) -> Result<PreparedTunnels, Error> {
        self.0.tunnels.prepare(specs)
    }

    /// Uses exactly these interfaces, and those of SPDs that belong to one SA; removes all others. Must not
    /// be called while the endpoint is locked.
    pub fn use_tunnels(&self, prepared: PreparedTunnels) -> Result<(), Error> {
        self.0.tunnels.commit(prepared, &mut self.0.lock_rx().tunnels)?;
        self.lock().tunnel_names = self.0.tunnels.names();
        Ok(())
    }

    /// Starts a trace of packets. The engine adds how each packet is sent
    /// ([`Datapath::trace_sent`]).
    pub fn start_trace(&self, filter: TraceFilter, packets: u32) -> Result<(), TraceIsRunning> {
        let mut context = self.lock();
        context.endpoint.datapath_mut().start_trace(filter, packets)?;
        self.0.reports.set_tracing(true);
        Ok(())
    }

    /// Ends the trace; see [`Datapath::stop_trace`].
    pub fn stop_trace(&self) -> Option<TraceSummary> {
        let mut context = self.lock();
        self.0.reports.set_tracing(false);
        context.endpoint.datapath_mut().stop_trace()
    }

    /// Removes and returns the unread records of the trace.
    pub fn take_trace_records(&self) -> Vec<TraceRecord> {
        let mut context = self.lock();
        std::iter::from_fn(|| context.endpoint.datapath_mut().next_trace_record()).collect()
    }
}

/// The endpoint with everything that its calls need.
pub struct EndpointContext {
    pub(super) endpoint: Endpoint,
    pub(super) rng: SystemRng,
    pub(super) clock: Clock,
    pub(super) routes: MarkedRoutes,
    /// Copied before each call of `EngineHandler::on_wakeup`.
    pub(super) queue_counters: Option<PerClass<Counters>>,
    /// Copied at the same time.
    pub(super) rejected_gro_writes: u64,
    /// Copied at the same time.
    pub(super) guard_state: GuardState,
    /// Copied at the same time.
    pub(super) link_sending: LinkSending,
    /// Copied at the same time.
    pub(super) name_servers: DnsState,
    /// State of the keeper, if there is one.
    pub(super) keeper: KeeperStatus,
    /// The cell of this node, if there is one.
    pub(super) cell: Option<CellState>,
    /// Traffic that is to be blocked from now on.
    pub(super) blocked: Option<ConfiguredTraffic>,
    /// Interfaces of route-based tunnels.
    pub(super) tunnel_names: BTreeMap<SpdId, String>,
    providers: Vec<&'static dyn Provider>,
    credentials: Arc<dyn Credentials + Send + Sync>,
}

impl EndpointContext {
    pub(super) fn new(
        endpoint: Endpoint,
        rng: SystemRng,
        clock: Clock,
        routes: MarkedRoutes,
        providers: Vec<&'static dyn Provider>,
        credentials: Arc<dyn Credentials + Send + Sync>,
    ) -> Self {
        Self {
            endpoint,
            rng,
            clock,
            routes,
            queue_counters: None,
            rejected_gro_writes: 0,
            guard_state: GuardState { stands: true, restored: 0 },
            link_sending: LinkSending::Off("the engine does not run yet".into()),
            name_servers: DnsState::default(),
            keeper: KeeperStatus::default(),
            cell: None,
            blocked: None,
            tunnel_names: BTreeMap::new(),
            providers,
            credentials,
        }
    }

    /// The endpoint, for queries.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Scheduler counters of each class; `None` without a scheduler.
    pub const fn queue_counters(&self) -> Option<&PerClass<Counters>> {
        self.queue_counters.as_ref()
    }

    /// Writes of coalesced packets to the TUN interface that the kernel rejected. The packets of such a write
    /// were written again one by one.
    pub const fn rejected_gro_writes(&self) -> u64 {
        self.rejected_gro_writes
    }

    /// State of the guard.
    pub const fn guard_state(&self) -> GuardState {
        self.guard_state
    }

    /// How protected packets leave.
    pub const fn link_sending(&self) -> &LinkSending {
        &self.link_sending
    }

    /// What this host does with name servers of tunnels.
    pub const fn name_servers(&self) -> &DnsState {
        &self.name_servers
    }

    /// State of the keeper of SAs; that of a keeper before its start if there is none.
    pub const fn keeper(&self) -> KeeperStatus {
        self.keeper
    }

    /// The cell of this node, if there is one.
    pub const fn cell(&self) -> Option<&CellState> {
        self.cell.as_ref()
    }

    /// Drains this node of a cell, or lets it become the owner again. The handler gets the end of the request
    /// ([`EngineHandler::on_drained`](super::EngineHandler::on_drained)). An owner that was drained hands the
    /// SAs over, and its run ends. Returns whether there is a cell.
    pub fn drain_node(&mut self, is_drained: bool) -> bool {
        self.cell.as_mut().map(|cell| cell.drain = Some(is_drained)).is_some()
    }

    /// Blocks the traffic that another node of the cell may protect, until a policy covers it. Takes effect
    /// with the next pass of the event loop.
    pub fn block_traffic(&mut self, traffic: ConfiguredTraffic) {
        self.blocked = Some(traffic);
    }

    /// Names of the interfaces of route-based tunnels.
    pub const fn tunnel_names(&self) -> &BTreeMap<SpdId, String> {
        &self.tunnel_names
    }

    /// Current time of the engine's clock.
    pub fn now(&self) -> casemate_sa::Instant {
        self.clock.now()
    }

    /// Replaces the keys and certificates.
    pub fn set_credentials(&mut self, credentials: Arc<dyn Credentials + Send + Sync>) {
        self.credentials = credentials;
    }

    /// Routes of the host and addresses of names, as the endpoint sees them.
    pub fn routes(&self) -> &dyn casemate::Routes {
        &self.routes
    }

    /// Calls `act` with the endpoint and the context for its calls.
    pub fn with<T>(&mut self, act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> T) -> T {
        // A clock before 1970 is wrong; at time 0, no certificate is valid.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let providers = Providers(&self.providers);
        let mut context = Context {
            now: self.clock.now(),
            unix_time: since_1970.as_secs(),
            rng: &mut self.rng,
            providers: &providers,
            credentials: &*self.credentials,
            routes: &self.routes,
        };
        act(&mut self.endpoint, &mut context)
    }
}

/// The cell of a node, as far as the node knows.
#[derive(Debug, Clone, Default)]
pub struct CellState {
    /// The node that owns the SAs, if it is known.
    pub owner: Option<String>,
    /// The nodes, in the order of their names.
    pub members: Vec<Member>,
    /// Forwarding between the nodes, if it is configured.
    pub forward: Option<ForwardStatus>,
    /// Whether the node is to be drained or to join again, if a client has requested that.
    pub(super) drain: Option<bool>,
}

/// Access of the packet path to the data path: each call locks the endpoint.
pub(super) struct DatapathLock<'s>(pub(super) &'s Shared);

impl DatapathAccess for DatapathLock<'_> {
    fn with_datapath<T>(&mut self, act: impl FnOnce(&mut Datapath, &mut dyn Rng) -> T) -> T {
        let mut context = self.0.lock_endpoint();
        let EndpointContext { endpoint, rng, .. } = &mut *context;
        act(endpoint.datapath_mut(), rng)
    }
}
