//! The event loop's side: counts events, and reads the values for scrapes.
//!
//! The event loop also processes packets, so values are read in parts: each call of [`step`] reads one part
//! and returns, and the event loop processes packets before the next call. The counters of a child are read
//! in one part, so they never decrease from one scrape to the next.
//!
//! [`step`]: MetricsCollector::step

use super::event_counters::{ConnectionCounters, EventCounters};
use super::service::{MetricsChannel, ScrapeId};
use super::{ConnectionRow, IkeSaStates, Snapshot, Totals};
use casemate::{ChildCounters, Notice, NoticeSa};
use casemate_datapath::Direction;
use casemate_ike::IkeSaId;
use casemate_ike::config::Connection;
use casemate_linux::{EndpointContext, EndpointHandle, SystemProblem};
use casemate_wire::invariant;
use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Number of connections, IKE SAs or children that one step reads.
const PART: usize = 512;

/// The kinds of problems with their names in labels.
pub(super) const PROBLEMS: [(SystemProblem, &str); 9] = [
    (SystemProblem::Sending, "sending"),
    (SystemProblem::LinkFull, "link-full"),
    (SystemProblem::Counters, "counters"),
    (SystemProblem::Store, "store"),
    (SystemProblem::Addresses, "addresses"),
    (SystemProblem::Policies, "policies"),
    (SystemProblem::Guard, "guard"),
    (SystemProblem::Names, "names"),
    (SystemProblem::NameServers, "name-servers"),
];

/// What a step reads besides the endpoint.
pub(crate) struct ScrapeContext<'a, 'h> {
    /// The endpoint.
    pub(crate) handle: &'a EndpointHandle<'h>,
    /// Lines of the log that were lost.
    pub(crate) lost_log_lines: u64,
    /// Whether the instance has manual keys.
    pub(crate) has_manual_keys: bool,
}

/// Counts events and reads the values for scrapes.
pub(crate) struct MetricsCollector {
    channel: MetricsChannel,
    /// The Unix socket, which the end of the run removes.
    socket: Option<PathBuf>,
    started: Instant,
    started_at: Duration,
    events: EventCounters,
    problems: BTreeMap<SystemProblem, u64>,
    scrapes: u64,
    /// Scrapes that wait for the next reading.
    waiting: Vec<ScrapeId>,
    reading: Option<Reading>,
}

/// A reading in progress.
struct Reading {
    /// The scrapes that get the values.
    scrapes: Vec<ScrapeId>,
    begun: Instant,
    next: Part,
    snapshot: Snapshot,
    /// Connections by name.
    rows: HashMap<Arc<str>, usize>,
}

/// The next part of a reading.
enum Part {
    /// Connections after the one with this name.
    Connections(Option<Arc<str>>),
    /// IKE SAs after this one.
    IkeSas(Option<IkeSaId>),
    /// Children from this number on.
    Children(u64),
    /// Everything else.
    Totals,
}

impl MetricsCollector {
    /// Serves the scrapes of a channel. `socket` is the path of the Unix socket, if it is one.
    pub(crate) fn new(channel: MetricsChannel, socket: Option<PathBuf>) -> Self {
        Self {
            channel,
            socket,
            started: Instant::now(),
            started_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            events: EventCounters::default(),
            problems: BTreeMap::new(),
            scrapes: 0,
            waiting: Vec::new(),
            reading: None,
        }
    }

    /// The configuration has these connections.
    pub(crate) fn configure(&mut self, connections: &[Arc<Connection>]) {
        let negotiating: Vec<_> =
            connections.iter().filter(|connection| connection.negotiates()).cloned().collect();
        self.events.configure(&negotiating);
    }

    /// Counts a notice of the endpoint, which is about this SA.
    pub(crate) fn on_notice(&mut self, notice: &Notice, sa: Option<&NoticeSa>) {
        self.events.note(notice);
        if let Some(NoticeSa::Ike(status)) = sa {
            self.events.note_key_exchange(status);
        }
    }

    /// Counts a problem of the system.
    pub(crate) fn on_problem(&mut self, kind: SystemProblem) {
        let count = self.problems.entry(kind).or_default();
        *count = count.saturating_add(1);
    }

    /// Reads the next part of the values that clients wait for. Returns whether another part follows.
    pub(crate) fn step(&mut self, context: &ScrapeContext<'_, '_>) -> bool {
        self.waiting.extend(self.channel.take_scrapes());
        if self.reading.is_none() && !self.waiting.is_empty() {
            // Scrapes that arrive from now on wait for the next reading: this one would show them values from
            // before their request.
            self.reading = Some(Reading::new(mem::take(&mut self.waiting)));
        }
        let Some(mut reading) = self.reading.take() else { return false };
        match mem::replace(&mut reading.next, Part::Totals) {
            Part::Connections(after) => reading.read_connections(after.as_ref(), &self.events),
            Part::IkeSas(after) => reading.read_ike_sas(after, context),
            Part::Children(from) => reading.read_children(from, context),
            Part::Totals => {
                self.scrapes = self.scrapes.saturating_add(1);
                reading.snapshot.totals = self.totals(context);
                self.channel.send(reading.scrapes, reading.begun, reading.snapshot);
                return !self.waiting.is_empty();
            }
        }
        self.reading = Some(reading);
        true
    }

    fn totals(&self, context: &ScrapeContext<'_, '_>) -> Totals {
        let locked = context.handle.lock();
        let mut totals = Totals::of_endpoint(&locked, context.has_manual_keys);
        drop(locked);
        totals.started = self.started_at;
        totals.uptime = self.started.elapsed();
        totals.lost_log_lines = context.lost_log_lines;
        totals.problems = self.problems.clone();
        totals.scrapes = self.scrapes;
        totals
    }
}

impl Drop for MetricsCollector {
    fn drop(&mut self) {
        // The next start replaces a socket that could not be removed.
        let _ = self.socket.as_ref().map(std::fs::remove_file);
    }
}

impl Reading {
    fn new(scrapes: Vec<ScrapeId>) -> Self {
        Self {
            scrapes,
            begun: Instant::now(),
            next: Part::Connections(None),
            snapshot: Snapshot::default(),
            rows: HashMap::new(),
        }
    }

    fn read_connections(&mut self, after: Option<&Arc<str>>, events: &EventCounters) {
        let mut last = None;
        let mut count = 0_usize;
        for (name, counters) in events.after(after).take(PART) {
            let index = self.index(name);
            if let Some(row) = self.snapshot.connections.get_mut(index) {
                row.counters = counters.clone();
            }
            last = Some(name.clone());
            count = count.saturating_add(1);
        }
        self.next = if count < PART { Part::IkeSas(None) } else { Part::Connections(last) };
    }

    fn read_ike_sas(&mut self, after: Option<IkeSaId>, context: &ScrapeContext<'_, '_>) {
        let locked = context.handle.lock();
        let since = Instant::now();
        let states: Vec<_> = locked
            .endpoint()
            .ike()
            .states(after)
            .take(PART)
            .map(|sa| (sa.id, sa.connection.clone(), sa.state))
            .collect();
        drop(locked);
        self.note_lock(since);
        for (_, connection, state) in &states {
            let index = self.index(&connection.name);
            if let Some(row) = self.snapshot.connections.get_mut(index) {
                row.ike_sas.count(*state);
            }
        }
        self.next = match states.last() {
            Some((last, ..)) if states.len() == PART => Part::IkeSas(Some(*last)),
            _ => Part::Children(0),
        };
    }

    fn read_children(&mut self, from: u64, context: &ScrapeContext<'_, '_>) {
        let mut children: Vec<ChildCounters> = Vec::with_capacity(PART);
        let locked = context.handle.lock();
        let since = Instant::now();
        children.extend(locked.endpoint().child_counters(from).take(PART));
        drop(locked);
        self.note_lock(since);
        self.next = match children.last() {
            Some(last) if children.len() == PART => Part::Children(last.number.saturating_add(1)),
            _ => Part::Totals,
        };
        self.snapshot.children.append(&mut children);
    }

    /// Index of the row of a connection. A connection without counters gets a new row.
    fn index(&mut self, name: &str) -> usize {
        if let Some(index) = self.rows.get(name) {
            return *index;
        }
        let (name, index): (Arc<str>, usize) = (name.into(), self.snapshot.connections.len());
        let row = ConnectionRow {
            name: name.clone(),
            counters: ConnectionCounters::default(),
            ike_sas: IkeSaStates::default(),
        };
        self.snapshot.connections.push(row);
        self.rows.insert(name, index);
        index
    }

    fn note_lock(&mut self, since: Instant) {
        self.snapshot.longest_lock = self.snapshot.longest_lock.max(since.elapsed());
    }
}

impl Totals {
    /// The values that the endpoint and the engine have.
    fn of_endpoint(context: &EndpointContext, has_manual_keys: bool) -> Self {
        let endpoint = context.endpoint();
        let (ike, datapath) = (endpoint.ike(), endpoint.datapath());
        let sums =
            || [Direction::Inbound, Direction::Outbound].map(|direction| datapath.sum_counters(direction));
        Self {
            half_open: ike.half_open_count(),
            drops: datapath.drops().iter().collect(),
            faults: ike.faults().iter().filter(|(_, count)| *count > 0).collect(),
            messages: *endpoint.message_counters(),
            classes: context.queue_counters().copied(),
            guard: Some(context.guard_state()),
            store: Some(context.keeper()),
            is_node: context.cell().is_some(),
            forward: context.cell().and_then(|cell| cell.forward),
            manual: has_manual_keys.then(sums),
            padding: datapath.padding_counters(),
            rejected_writes: context.rejected_gro_writes(),
            lost_events: datapath.lost_events(),
            broken_invariants: invariant::broken(),
            ..Self::default()
        }
    }
}
