//! The store in which a node keeps its state, and the process of the node that uses it
//! (docs/decisions/0140-cells.md).

mod ends;

pub(crate) use ends::{EndMoment, EndStep};

use crate::guarded_store::{GuardedStore, SeenRevision};
use casemate::{Context, Endpoint, OwnedRecord};
use casemate_cell::{
    Keeper, KeeperRole, StartError, Started, StoreKeys, Tenure, WRAPPING_KEY_LEN, WrappingKey, WrappingKeys,
};
use casemate_crypto::SecretBytes;
use casemate_ike::Transmit;
use casemate_sa::Instant;
use casemate_store::{Link, MemoryHub, Request, RequestId, Store as _, StoreError};
use ends::{OrderlyEnd, PlannedEnd};
use std::time::Duration;

/// Interval in which the keeper compares reserves with their use, and repeats failed writes.
const CHECK: Duration = Duration::from_millis(250);
/// The same while a process waits for another one.
const SHORT_CHECK: Duration = Duration::from_millis(50);
/// Pause after a failed start.
const RETRY: Duration = Duration::from_millis(500);
/// Wall clock at the start of the simulation, in microseconds since 1970.
const UNIX_TIME: u64 = 1_800_000_000_000_000;
/// Time after which an owner makes a new data key.
const DATA_KEY_TIME: Duration = Duration::from_secs(10);
const PREFIX: &[u8] = b"sim/";

/// What the process of a node does.
enum Process {
    /// There is none until this time.
    Down(Duration),
    /// It claims the state of its predecessor.
    Starting(Box<Keeper<GuardedStore>>),
    /// It has restored that state, which another process may still use.
    Beginning(Box<Keeper<GuardedStore>>),
    Running(Box<Keeper<GuardedStore>>),
    /// It ends in an orderly way. The next one starts after a pause.
    Ending {
        keeper: Box<Keeper<GuardedStore>>,
        end: OrderlyEnd,
        down_for: Duration,
    },
    /// Another process has its state.
    Lost,
    /// It has refused the contents of the store, and waits for an administrator.
    Refused,
}

/// The machine on which the processes of a node run, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// Number of the machine within its cell.
    pub(crate) number: usize,
    tenure: Tenure,
    seen: SeenRevision,
    /// Difference between the wall clock of the machine and the time, in microseconds.
    pub(crate) clock_error: i64,
}

impl Machine {
    /// A machine of a cell.
    pub(crate) fn of_cell(number: usize, lease: Duration, clock_error: i64) -> Self {
        Self { number, tenure: Tenure::Cell { lease }, seen: SeenRevision::default(), clock_error }
    }

    /// Name of its node.
    fn name(&self) -> String {
        format!("gw{}", self.number)
    }

    /// The wall clock, in microseconds since 1970.
    const fn unix_time(&self, now: Duration) -> u64 {
        (UNIX_TIME + now.as_micros() as u64).saturating_add_signed(self.clock_error)
    }
}

/// Result of a step of a start.
pub(crate) enum StartStep {
    Waiting,
    Restored {
        records: Vec<OwnedRecord>,
        /// Records that cannot be read.
        unreadable: usize,
    },
    /// The store has other contents than a store that has lost nothing.
    Refused(&'static str),
    Failed(&'static str),
}

/// What a keeper does with the messages of its endpoint.
pub(crate) enum Sent {
    Messages(Vec<Transmit>),
    /// The process ends, and the next one starts after this time.
    Ends(Duration),
}

/// The store of a node, and its process.
pub(crate) struct StateStore {
    hub: MemoryHub,
    link: Link,
    pub(crate) machine: Machine,
    process: Process,
    next_check: Duration,
    planned: Option<PlannedEnd>,
    /// Pause before the next process, if this one ends now that its messages have left.
    ends_now: Option<Duration>,
}

impl StateStore {
    /// An empty store, and no process yet.
    pub(crate) fn new() -> Self {
        let tenure = Tenure::SingleMachine;
        let machine = Machine { tenure, ..Machine::of_cell(0, Duration::ZERO, 0) };
        Self::of(MemoryHub::new(), Link::default(), machine)
    }

    /// The store of a cell, for one of its machines.
    pub(crate) fn of_cell(hub: &MemoryHub, machine: Machine) -> Self {
        Self::of(hub.clone(), Link::default(), machine)
    }

    fn of(hub: MemoryHub, link: Link, machine: Machine) -> Self {
        let process = Process::Down(Duration::ZERO);
        Self { hub, link, machine, process, next_check: Duration::ZERO, planned: None, ends_now: None }
    }

    /// The same store for another process.
    pub(crate) fn successor(&self) -> Self {
        Self::of(self.hub.clone(), self.link, self.machine.clone())
    }

    /// Executes requests and delivers answers until this time.
    pub(crate) fn advance(&self, now: Duration) {
        self.hub.advance(now.saturating_sub(self.hub.now()));
    }

    pub(crate) const fn is_running(&self) -> bool {
        matches!(self.process, Process::Running(_))
    }

    /// Whether the process moves packets while it hands the state over. It does nothing else then.
    pub(crate) const fn hands_over(&self) -> bool {
        matches!(self.process, Process::Ending { end: OrderlyEnd::HandingOver(_), .. })
    }

    /// Whether other machines may own the state.
    pub(crate) fn is_of_cell(&self) -> bool {
        self.machine.tenure != Tenure::SingleMachine
    }

    /// What the process does, if it has begun and has not ended.
    pub(crate) fn role(&self, now: Instant) -> Option<KeeperRole> {
        match &self.process {
            Process::Starting(keeper) | Process::Beginning(keeper) | Process::Running(keeper) => {
                Some(keeper.status(now).role)
            }
            Process::Ending { .. } | Process::Down(_) | Process::Lost | Process::Refused => None,
        }
    }

    /// Whether the store has numbers of a former owner that do not change any more.
    pub(crate) fn has_last_numbers(&self) -> bool {
        let keys = StoreKeys::new(PREFIX);
        let (records, handover) = (keys.records(), keys.handover());
        let behind: Vec<_> = self.hub.entries().into_iter().map(|entry| entry.key).collect();
        let is_used = |key: &&Vec<u8>| key.starts_with(&records) && **key > handover;
        behind.iter().any(|key| is_used(&key)) && !behind.contains(&handover)
    }

    /// Whether the store names the machine as the owner.
    pub(crate) fn is_entered(&self) -> bool {
        let owner = StoreKeys::new(PREFIX).owner();
        let name = self.machine.name();
        self.hub.entries().iter().any(|entry| entry.key == owner && entry.value == name.as_bytes())
    }

    /// Continues with another store, which is empty. There is no process at first.
    pub(crate) fn replace(&mut self, hub: &MemoryHub, now: Duration, down_for: Duration) {
        self.hub = hub.clone();
        self.machine.seen.take();
        self.end(now, down_for);
    }

    /// Whether another process has taken over the state.
    pub(crate) const fn is_lost(&self) -> bool {
        matches!(self.process, Process::Lost)
    }

    /// Time of the next step.
    pub(crate) fn due(&self) -> Option<Duration> {
        let own = match &self.process {
            Process::Down(until) => Some(*until),
            Process::Starting(_) | Process::Beginning(_) => Some(self.next_check),
            Process::Lost | Process::Refused => None,
            Process::Running(_) => {
                Some(self.planned.map_or(self.next_check, |end| end.until.min(self.next_check)))
            }
            Process::Ending { end, .. } => Some(end.until().min(self.next_check)),
        };
        // The machines of a cell have one store, whose time the simulation looks at once.
        let of_store = self.hub.next_timeout().filter(|_| !self.is_of_cell());
        own.into_iter().chain(of_store).min()
    }

    /// Continues a start. `None` if the process is not to start now.
    pub(crate) fn start(&mut self, now: Duration, context: &mut Context<'_>) -> Option<StartStep> {
        if matches!(self.process, Process::Down(until) if until <= now) {
            if !self.is_of_cell() {
                self.end_lease();
            }
            let key = SecretBytes::new(&[7; WRAPPING_KEY_LEN]);
            let wrapping = WrappingKey::new(&key, context.providers).expect("a provider has AES-256-GCM");
            let mut store = GuardedStore::new(self.hub.store(), self.machine.seen.clone());
            store.set_link(self.link);
            let Machine { tenure, .. } = self.machine;
            let name = self.machine.name();
            let keys = StoreKeys::new(PREFIX);
            let mut keeper =
                Keeper::new(store, keys, WrappingKeys::new(wrapping, None), name.as_bytes(), tenure);
            keeper.replace_data_keys_after(DATA_KEY_TIME);
            self.process = Process::Starting(Box::new(keeper));
        }
        let Process::Starting(keeper) = &mut self.process else { return None };
        self.next_check = now + CHECK;
        let unix_time = self.machine.unix_time(now);
        let step = match keeper.start(unix_time, context.now, context.providers, context.rng) {
            Ok(Started::Waiting) => StartStep::Waiting,
            Ok(Started::Records { records, unreadable }) => {
                if let Process::Starting(keeper) = std::mem::replace(&mut self.process, Process::Lost) {
                    self.process = Process::Beginning(keeper);
                }
                StartStep::Restored { records, unreadable }
            }
            Err(StartError::Unexpected | StartError::WrappingKey) => {
                StartStep::Failed("the store has unexpected entries")
            }
            Err(StartError::LaterOwner) => self.refuse("a record is of a later owner"),
            Err(StartError::Store(StoreError::Damaged)) => self.refuse("the store has lost writes"),
            Err(StartError::Owned | StartError::Store(_)) => {
                self.process = Process::Down(now + RETRY);
                StartStep::Waiting
            }
        };
        Some(step)
    }

    /// Lets the restored SAs go on, unless a former owner still uses them. Returns whether they begin now.
    pub(crate) fn begin(
        &mut self,
        now: Duration,
        endpoint: &mut Endpoint,
        context: &mut Context<'_>,
    ) -> bool {
        let Process::Beginning(keeper) = &mut self.process else { return false };
        let has_begun = keeper.begin(endpoint, context);
        let is_lost = keeper.status(context.now).is_lost();
        self.next_check = now + SHORT_CHECK;
        if is_lost {
            self.process = Process::Lost;
        } else if has_begun
            && let Process::Beginning(keeper) = std::mem::replace(&mut self.process, Process::Lost)
        {
            self.process = Process::Running(keeper);
            self.next_check = now;
        }
        has_begun && !is_lost
    }

    /// Ends the process. No other one starts.
    pub(crate) fn give_up(&mut self) {
        self.process = Process::Refused;
    }

    fn refuse(&mut self, why: &'static str) -> StartStep {
        self.give_up();
        StartStep::Refused(why)
    }

    /// Ends the lease of the present owner, as a store does whose owner has ended.
    fn end_lease(&self) {
        let owner = StoreKeys::new(PREFIX).owner();
        let entries = self.hub.entries();
        let lease = entries.iter().find(|entry| entry.key == owner).and_then(|entry| entry.lease);
        if let Some(lease) = lease {
            let submitted = self.hub.store().submit(RequestId(1), Request::Revoke(lease));
            submitted.expect("the user has no other request");
        }
    }

    /// Gives messages of the endpoint to the keeper. Returns those that leave now.
    pub(crate) fn pass(
        &mut self,
        now: Duration,
        transmits: Vec<Transmit>,
        endpoint: &mut Endpoint,
        context: &mut Context<'_>,
    ) -> Sent {
        let unix_time = self.machine.unix_time(now);
        let Process::Running(keeper) = &mut self.process else { return Sent::Messages(vec![]) };
        let ends = |moment| self.planned.filter(|end| end.moment == moment).map(|end| end.down_for);
        if let Some(down_for) = ends(EndMoment::BeforeWrite).filter(|_| !transmits.is_empty()) {
            return Sent::Ends(down_for);
        }
        let mut released = keeper.poll(endpoint, false, unix_time, context);
        let mut sent = keeper.collect(endpoint, transmits, unix_time, context);
        if let Some(down_for) = ends(EndMoment::AfterSubmission).filter(|_| !keeper.is_idle()) {
            return Sent::Ends(down_for);
        }
        released.extend(keeper.poll(endpoint, false, unix_time, context));
        if !released.is_empty() {
            if let Some(down_for) = ends(EndMoment::BeforeSending) {
                return Sent::Ends(down_for);
            }
            self.ends_now = ends(EndMoment::AfterSending);
        }
        sent.extend(released);
        if now >= self.next_check {
            self.next_check = now + CHECK;
        }
        if keeper.status(context.now).is_lost() {
            self.process = Process::Lost;
        }
        Sent::Messages(sent)
    }

    /// Changes the link to the store.
    pub(crate) fn set_link(&mut self, change: impl FnOnce(&mut Link)) {
        change(&mut self.link);
        let keeper = match &mut self.process {
            Process::Starting(keeper)
            | Process::Beginning(keeper)
            | Process::Running(keeper)
            | Process::Ending { keeper, .. } => keeper,
            Process::Down(_) | Process::Lost | Process::Refused => return,
        };
        keeper.store().set_link(self.link);
    }

    /// Makes the store refuse writes, or accept them again.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.hub.set_full(is_full);
    }

    /// Number of records in the store.
    pub(crate) fn records(&self) -> usize {
        let prefix = StoreKeys::new(PREFIX).records();
        self.hub.entries().iter().filter(|entry| entry.key.starts_with(&prefix)).count()
    }

    /// Whether nothing waits for the store.
    pub(crate) fn is_idle(&self) -> bool {
        match &self.process {
            Process::Running(keeper) => keeper.is_idle() && keeper.status(Instant::ZERO).held == 0,
            _ => false,
        }
    }
}
