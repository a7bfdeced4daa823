//! Metrics for Prometheus and compatible programs, in the format of OpenMetrics 1.0 or in the text format
//! 0.0.4 of Prometheus, over HTTP on a Unix socket or a loopback port.
//!
//! `collector` runs in the event loop: it counts events and reads the values for a scrape, in parts between
//! which packets are processed, into a `Snapshot`. `service` and `session` run in the control thread: they
//! read requests (`http`) and write the pages, which `exposition` makes piece by piece from a snapshot and
//! the table of all `families`. Labels are names of the configuration or of this program, never values of
//! peers, so their number is bounded ([0087](../../../../docs/decisions/0087-metrics.md)).

mod address;
mod collector;
mod event_counters;
mod exposition;
mod families;
mod http;
mod service;
mod session;

pub use address::MetricsAddress;
pub(crate) use address::MetricsListener;
pub(crate) use collector::{MetricsCollector, ScrapeContext};
pub use families::{FamilyDescription, families};
pub(crate) use service::{MetricsChannel, MetricsService};

use casemate::{ChildCounters, MessageCounters};
use casemate_cell::KeeperStatus;
use casemate_datapath::{DropReason, PaddingCounters, SaCounters};
use casemate_ike::IkeState;
use casemate_linux::setup::GuardState;
use casemate_linux::{ForwardStatus, SystemProblem};
use casemate_sched::{Counters, PerClass};
use event_counters::ConnectionCounters;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The values of one scrape.
#[derive(Debug, Default)]
struct Snapshot {
    connections: Vec<ConnectionRow>,
    children: Vec<ChildCounters>,
    totals: Totals,
    /// Time from the request until all values were read.
    collected_in: Duration,
    /// Longest time for which packets waited for the endpoint while values were read.
    longest_lock: Duration,
}

/// A connection.
#[derive(Debug)]
struct ConnectionRow {
    name: Arc<str>,
    counters: ConnectionCounters,
    ike_sas: IkeSaStates,
}

/// Numbers of IKE SAs by state.
#[derive(Debug, Clone, Copy, Default)]
struct IkeSaStates {
    connecting: u64,
    established: u64,
    /// Replaced by another IKE SA, or being closed.
    closing: u64,
}

impl IkeSaStates {
    const fn count(&mut self, state: IkeState) {
        let count = match state {
            IkeState::Connecting => &mut self.connecting,
            IkeState::Established => &mut self.established,
            IkeState::Rekeyed | IkeState::Closing | IkeState::Closed => &mut self.closing,
        };
        *count = count.saturating_add(1);
    }
}

/// Values of the whole instance.
#[derive(Debug, Default)]
struct Totals {
    /// Time since 1970 of the start.
    started: Duration,
    uptime: Duration,
    half_open: usize,
    drops: Vec<(DropReason, u64)>,
    /// Faults of IKE messages, those that occurred.
    faults: Vec<(&'static str, u64)>,
    messages: MessageCounters,
    classes: Option<PerClass<Counters>>,
    guard: Option<GuardState>,
    store: Option<KeeperStatus>,
    /// Whether the store is that of a cell.
    is_node: bool,
    /// Forwarding between the nodes of a cell.
    forward: Option<ForwardStatus>,
    /// Inbound and outbound SAs with manual keys; `None` with IKE.
    manual: Option<[SaCounters; 2]>,
    padding: PaddingCounters,
    rejected_writes: u64,
    lost_events: u64,
    broken_invariants: u32,
    lost_log_lines: u64,
    problems: BTreeMap<SystemProblem, u64>,
    scrapes: u64,
}
