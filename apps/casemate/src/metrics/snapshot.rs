//! The values of one scrape.

use super::event_counters::ConnectionCounters;
use casemate::{ChildCounters, MessageCounters};
use casemate_datapath::{DropReason, PaddingCounters, SaCounters};
use casemate_ike::IkeState;
use casemate_linux::SystemProblem;
use casemate_linux::setup::GuardState;
use casemate_sched::{Counters, PerClass};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The values of one scrape.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) connections: Vec<ConnectionRow>,
    pub(super) children: Vec<ChildCounters>,
    pub(super) totals: Totals,
    /// Time from the request until all values were read.
    pub(super) collected_in: Duration,
    /// Longest time for which packets waited for the endpoint while values were read.
    pub(super) longest_lock: Duration,
}

/// A connection.
#[derive(Debug)]
pub(super) struct ConnectionRow {
    pub(super) name: Arc<str>,
    pub(super) counters: ConnectionCounters,
    pub(super) ike_sas: IkeSaStates,
}

/// Numbers of IKE SAs by state.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IkeSaStates {
    pub(super) connecting: u64,
    pub(super) established: u64,
    /// Replaced by another IKE SA, or being closed.
    pub(super) closing: u64,
}

impl IkeSaStates {
    pub(super) const fn count(&mut self, state: IkeState) {
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
pub(super) struct Totals {
    /// Time since 1970 of the start.
    pub(super) started: Duration,
    pub(super) uptime: Duration,
    pub(super) half_open: usize,
    pub(super) drops: Vec<(DropReason, u64)>,
    /// Faults of IKE messages, those that occurred.
    pub(super) faults: Vec<(&'static str, u64)>,
    pub(super) messages: MessageCounters,
    pub(super) classes: Option<PerClass<Counters>>,
    pub(super) guard: Option<GuardState>,
    /// Inbound and outbound SAs with manual keys; `None` with IKE.
    pub(super) manual: Option<[SaCounters; 2]>,
    pub(super) padding: PaddingCounters,
    pub(super) rejected_writes: u64,
    pub(super) lost_events: u64,
    pub(super) broken_invariants: u32,
    pub(super) lost_log_lines: u64,
    pub(super) problems: BTreeMap<SystemProblem, u64>,
    pub(super) scrapes: u64,
}
