//! The keeper of the endpoint's state in the engine: when it writes, and what waits for its store
//! (docs/decisions/0140-cells.md).

use super::SystemProblem;
use super::endpoint_context::{CellState, EndpointContext};
use super::forwarding::Forwarder;
use super::handler::EngineHandler;
use super::shared::Shared;
use crate::Error;
use crate::process::SystemRng;
use crate::sys::{Epoll, EventFd, NumberedFd};
use casemate::{Context, Endpoint, OwnedRecord};
use casemate_cell::{
    ForwardAddress, Handover, Keeper, KeeperRole, KeeperStatus, SENT_BLOCK, StartError, Started, StoreKeys,
    Tenure, WrappingKeys,
};
use casemate_crypto::{Provider, Providers};
use casemate_ike::{IkeSaId, Transmit};
use casemate_sa::Instant;
use casemate_store::{Store, StoreError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Sealed packets between two checks of the reserves: no reserve can have been used up meanwhile.
const CHECK_PACKETS: u64 = SENT_BLOCK / 4;
/// Time between two checks.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Time for which a start and an end wait for the store.
const STORE_TIME: Duration = Duration::from_secs(10);
const WHAT: &str = "the store of SAs";
const LOST: &str = "another process has taken over, or the store is damaged";
/// First bytes of the entries of a single machine.
const PREFIX: &[u8] = b"casemate/";

/// Wakes the engine when a store has completions.
#[derive(Debug, Clone)]
pub struct StoreWaker(Arc<EventFd>);

impl StoreWaker {
    /// Makes a waker.
    pub fn new() -> io::Result<Self> {
        EventFd::new().map(|fd| Self(Arc::new(fd)))
    }

    /// Wakes the engine. Does not wait.
    pub fn wake(&self) {
        self.0.signal();
    }
}

/// The keeper of an endpoint's state, and its store.
pub struct StateKeeper {
    keeper: Keeper<Box<dyn Store + Send>>,
    waker: StoreWaker,
    sealed: u64,
    checked_at: Instant,
    problem: Option<StoreError>,
    /// What was last reported.
    role: KeeperRole,
    /// Whether other nodes may continue the SAs after any end of this process.
    is_node: bool,
    /// Whether a client has drained this node.
    is_drained: bool,
    /// The end of a request to drain this node that is not reported yet.
    drained: Option<Result<bool, StoreError>>,
}

/// What a call of [`StateKeeper::poll`] has led to.
pub(super) struct Polled {
    /// Messages that do not wait any more.
    pub(super) released: Vec<Transmit>,
    /// The SAs of the former owner, when this process becomes the owner during a run.
    pub(super) former: Option<FormerState>,
}

/// A node of a cell.
#[derive(Debug, Clone)]
pub struct CellNode {
    /// Name of this node, which no other one of the cell has.
    pub name: String,
    /// Time after which another node takes over, in whole seconds.
    pub lease: Duration,
}

/// The state of a former run.
pub struct FormerState {
    /// IKE SAs to continue.
    pub records: Vec<OwnedRecord>,
    /// Number of records that cannot be read.
    pub unreadable: usize,
    /// Whether the data keys of the store are encrypted again, with the first wrapping key.
    pub changes_key: bool,
}

impl StateKeeper {
    /// Claims the state in a store, whose completions are reported to `waker`, and reads that of the former
    /// run. Waits for the store. `name` is that of the instance.
    pub fn start(
        store: Box<dyn Store + Send>,
        waker: StoreWaker,
        wrapping: WrappingKeys,
        providers: &[&'static dyn Provider],
        name: &str,
        rng: &mut SystemRng,
    ) -> Result<(Self, FormerState), Error> {
        let keys = StoreKeys::new(PREFIX);
        let keeper = Keeper::new(store, keys, wrapping, name.as_bytes(), Tenure::SingleMachine);
        let mut keeper = Self::new(keeper, waker, false);
        let deadline = std::time::Instant::now() + STORE_TIME;
        loop {
            let providers = Providers(providers);
            let started = keeper.keeper.start(unix_micros(), Instant::ZERO, &providers, rng);
            match started.map_err(failed_start)? {
                Started::Records { records, unreadable } => {
                    let former = keeper.former(records, unreadable, Instant::ZERO);
                    return Ok((keeper, former));
                }
                Started::Waiting => keeper.wait(deadline)?,
            }
        }
    }

    /// A node of a cell, which owns nothing until the present owner has ended. The store contains the entries
    /// of this cell only, and reports to `waker`.
    pub fn join(
        store: Box<dyn Store + Send>,
        waker: StoreWaker,
        wrapping: WrappingKeys,
        node: &CellNode,
    ) -> Self {
        let CellNode { name, lease } = node;
        let tenure = Tenure::Cell { lease: *lease };
        Self::new(Keeper::new(store, StoreKeys::new(b""), wrapping, name.as_bytes(), tenure), waker, true)
    }

    fn new(keeper: Keeper<Box<dyn Store + Send>>, waker: StoreWaker, is_node: bool) -> Self {
        let (sealed, checked_at, problem) = (0, Instant::ZERO, None);
        Self {
            keeper,
            waker,
            sealed,
            checked_at,
            problem,
            role: KeeperRole::Starting,
            is_node,
            is_drained: false,
            drained: None,
        }
    }

    /// The state of a former run, right after it was claimed.
    fn former(&self, records: Vec<OwnedRecord>, unreadable: usize, now: Instant) -> FormerState {
        FormerState { records, unreadable, changes_key: self.keeper.status(now).needs_second_key }
    }

    /// Lets the other nodes know where this one receives forwarded packets.
    pub fn register_forward(&mut self, forward: &ForwardAddress) {
        self.keeper.register_forward(forward);
    }

    /// Directs the forwarding to the present owner.
    pub(super) fn direct(&mut self, forwarder: &Forwarder) {
        forwarder.set_target(self.keeper.is_owner(), self.keeper.forward_target());
    }

    /// Whether other nodes may continue the SAs after any end of this process.
    pub(super) const fn is_node(&self) -> bool {
        self.is_node
    }

    /// Whether this process owns the SAs.
    pub(super) fn is_owner(&self) -> bool {
        self.keeper.is_owner()
    }

    /// Waits for completions of the store, until the deadline at the latest.
    fn wait(&self, deadline: std::time::Instant) -> Result<(), Error> {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return Err(Error::other(WHAT, format!("no answer in {} seconds", STORE_TIME.as_secs())));
        }
        let mut ready = [false];
        let fd = NumberedFd { number: 0, fd: self.waker.0.as_fd() };
        let epoll = Epoll::new(std::iter::once(fd)).map_err(|error| Error::new("epoll", error))?;
        epoll.wait(&mut ready, left).map_err(|error| Error::new("epoll", error))?;
        self.waker.0.clear();
        Ok(())
    }

    /// Readable when the store has completions.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.waker.0.as_fd()
    }

    /// Whether [`poll`](Self::poll) has something to do besides completions.
    pub(super) fn needs_poll(&self, sealed: u64, is_missing: bool, now: Instant) -> bool {
        is_missing
            || self.sealed.saturating_add(sealed) >= CHECK_PACKETS
            || now.since(self.checked_at) >= CHECK_INTERVAL
    }

    /// Handles completions, waits for the end of another owner, and extends reserves.
    ///
    /// # Errors
    ///
    /// The store has contents that no node can use, or its wrapping key is another one.
    pub(super) fn poll(
        &mut self,
        context: &mut EndpointContext,
        sealed: u64,
        is_missing: bool,
        now: Instant,
    ) -> Result<Polled, Error> {
        self.waker.0.clear();
        if self.keeper.is_waiting() {
            let started = context
                .with(|_, context| {
                    let Context { now, rng, providers, .. } = context;
                    self.keeper.start(unix_micros(), *now, providers, *rng)
                })
                .map_err(failed_start)?;
            let former = match started {
                Started::Waiting => None,
                Started::Records { records, unreadable } => Some(self.former(records, unreadable, now)),
            };
            self.checked_at = now;
            return Ok(Polled { released: Vec::new(), former });
        }
        let is_urgent = self.needs_poll(sealed, is_missing, now);
        self.sealed = if is_urgent { 0 } else { self.sealed.saturating_add(sealed) };
        if is_urgent {
            self.checked_at = now;
        }
        let poll = |endpoint: &mut Endpoint, context: &mut casemate::Context<'_>| {
            self.keeper.poll(endpoint, is_urgent, unix_micros(), context)
        };
        Ok(Polled { released: context.with(poll), former: None })
    }

    /// Lets the restored SAs go on, when a former owner that hands over has stopped. Waits for that.
    pub(super) fn begin(&mut self, shared: &Shared) -> Result<(), Error> {
        let deadline = std::time::Instant::now() + STORE_TIME;
        while !shared.lock_endpoint().with(|endpoint, context| self.keeper.begin(endpoint, context)) {
            if self.keeper.status(shared.lock_endpoint().now()).is_lost() {
                return Err(Error::other(WHAT, LOST));
            }
            self.wait(deadline)?;
        }
        Ok(())
    }

    /// Whether an IKE SA has a record, or will have one.
    pub(super) fn has_record(&self, ike: IkeSaId) -> bool {
        self.keeper.has_record(ike)
    }

    /// Begins to hand over to another node. Returns messages to send.
    pub(super) fn begin_handover(&mut self, context: &mut EndpointContext) -> Vec<Transmit> {
        context.with(|endpoint, context| self.keeper.begin_handover(endpoint, unix_micros(), context))
    }

    /// Progress of the handover.
    pub(super) fn handover(&self) -> Handover {
        self.keeper.handover()
    }

    /// Writes what has changed. Returns the messages that do not depend on it.
    pub(super) fn collect(
        &mut self,
        context: &mut EndpointContext,
        transmits: Vec<Transmit>,
    ) -> Vec<Transmit> {
        context.with(|endpoint, context| self.keeper.collect(endpoint, transmits, unix_micros(), context))
    }

    /// Reports a new problem of the store, a new role, and whether this node was drained. An error if this
    /// process does not own the state any more, because another one may send with its numbers, or if it is an
    /// owner that was drained.
    pub(super) fn check(&mut self, now: Instant, handler: &mut dyn EngineHandler) -> Result<(), Error> {
        let KeeperStatus { problem, role, .. } = self.keeper.status(now);
        if role == KeeperRole::Lost {
            return Err(Error::other(WHAT, LOST));
        }
        if role != self.role {
            self.role = role;
            if self.is_node {
                handler.on_cell_role(role, self.owner_node().as_deref());
            }
        }
        if problem != self.problem {
            self.problem = problem;
            if let Some(error) = problem {
                handler.on_problem(SystemProblem::Store, format!("{error}: nothing new is negotiated"));
            }
        }
        let Some(drained) = self.drained.take() else { return Ok(()) };
        handler.on_drained(drained.map_err(|error| error.to_string()));
        self.is_drained = drained.unwrap_or(self.is_drained);
        match self.is_drained && self.is_owner() {
            true => Err(Error::other("this node", "it was drained: the next run stands by")),
            false => Ok(()),
        }
    }

    pub(super) fn status(&self, now: Instant) -> KeeperStatus {
        self.keeper.status(now)
    }

    /// The node of the cell that owns the SAs, as far as this one knows.
    fn owner_node(&self) -> Option<String> {
        self.keeper.owner_node().map(|name| String::from_utf8_lossy(name).into_owned())
    }

    /// Whether this node may become the owner, as far as its host is concerned.
    pub(super) fn allow_takeover(&mut self, is_able: bool, now: Instant) {
        self.keeper.allow_takeover(is_able, now);
    }

    /// Whether this process owns the SAs, and another node runs that may take over.
    pub(super) fn has_standby(&self) -> bool {
        self.keeper.is_owner() && self.keeper.has_standby()
    }

    /// Follows the request of a client to drain this node, and reports the state.
    pub(super) fn update_cell(&mut self, context: &mut EndpointContext, forwarder: Option<&Forwarder>) {
        if !self.is_node {
            return;
        }
        let requested = context.cell.take().and_then(|cell| cell.drain);
        // A former request may have no answer yet.
        let drain = requested.filter(|is_drained| !self.keeper.drain(*is_drained));
        let (owner, members) = (self.owner_node(), self.keeper.members());
        let forward = forwarder.map(Forwarder::status);
        context.cell = Some(CellState { owner, members, forward, drain });
        self.drained = self.keeper.take_drained(context.now()).or(self.drained.take());
    }

    /// Whether a client has drained this node.
    pub(super) fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Writes the state for the next run. No packet moves any more. Returns messages to send.
    pub(super) fn hand_over(mut self, context: &mut EndpointContext) -> Result<Vec<Transmit>, Error> {
        context.with(|endpoint, context| self.keeper.finish(endpoint, unix_micros(), context));
        self.complete(context)
    }

    /// Deletes the state: its peers were told that their SAs have ended.
    pub(super) fn clear(mut self, context: &mut EndpointContext) -> Result<(), Error> {
        context.with(|endpoint, context| self.keeper.clear(endpoint, unix_micros(), context));
        self.complete(context).map(drop)
    }

    /// Waits until everything is written.
    fn complete(&mut self, context: &mut EndpointContext) -> Result<Vec<Transmit>, Error> {
        let deadline = std::time::Instant::now() + STORE_TIME;
        let mut released = Vec::new();
        while !self.keeper.is_idle() {
            self.wait(deadline)?;
            let poll = |endpoint: &mut Endpoint, context: &mut casemate::Context<'_>| {
                self.keeper.poll(endpoint, false, unix_micros(), context)
            };
            released.extend(context.with(poll));
        }
        match self.keeper.status(context.now()).problem {
            Some(error) => Err(Error::other(WHAT, error.to_string())),
            None => Ok(released),
        }
    }
}

fn failed_start(error: StartError) -> Error {
    Error::other(WHAT, error.to_string())
}

fn unix_micros() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}
