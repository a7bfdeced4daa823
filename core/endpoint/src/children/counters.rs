//! Counters of each child of the configuration, over all SAs that it has had.
//!
//! An SA takes its counters with it when it is removed, and rekeying replaces all SAs. This table adds what
//! removed SAs have counted, so that the sums of a child never decrease. Children are known by their names:
//! their number depends on the configuration, and no value of a peer is a name here.

use super::Children;
use crate::Notice;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_datapath::{Datapath, Direction, SaCounters, SaId};
use casemate_ike::IkeSaId;
use casemate_ike::config::{ChildConfig, Connection};
use casemate_sa::table::{ByteIndex, OrderedMap};

/// Sums of the counters of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildCounters {
    /// Number of the entry, in the order in which the names were first used.
    pub number: u64,
    /// Name of the connection.
    pub connection: Arc<str>,
    /// Name of the child.
    pub child: Arc<str>,
    /// Child SAs that are installed now.
    pub child_sas: usize,
    /// Inbound SAs, those that still exist and those that have ended.
    pub inbound: SaCounters,
    /// Outbound SAs, the same.
    pub outbound: SaCounters,
}

/// What is known about one child.
struct Entry {
    number: u64,
    connection: Arc<str>,
    child: Arc<str>,
    child_sas: usize,
    /// SAs in the data path.
    sas: OrderedMap<SaId, SaId>,
    ended_inbound: SaCounters,
    ended_outbound: SaCounters,
}

impl Children {
    /// Whether counters of SAs that end are to be reported.
    pub(crate) fn report_counters(&mut self, report: bool) {
        self.counters.report(report);
    }

    /// The counters of the children from the entry with this number on.
    pub(crate) fn counters_from(
        &self,
        number: u64,
        datapath: &Datapath,
    ) -> impl Iterator<Item = ChildCounters> {
        self.counters.starting_at(number, datapath)
    }
}

/// The counters of all children.
#[derive(Default)]
pub(crate) struct CounterTable {
    entries: OrderedMap<u64, Box<Entry>>,
    by_name: ByteIndex,
    /// Entries by the SAs of the data path, with the origin of the IKE SA.
    by_sa: OrderedMap<SaId, (u64, IkeSaId)>,
    last: u64,
    is_reporting: bool,
    /// Notices about SAs that end.
    reports: VecDeque<Notice>,
}

impl CounterTable {
    /// Adds entries for the configured children, and removes those of other children that have no SA.
    pub(crate) fn configure(&mut self, connections: &[Arc<Connection>]) {
        let mut configured = OrderedMap::<u64, ()>::default();
        for connection in connections {
            for child in &connection.children {
                configured.insert(self.number_of(connection, child), ());
            }
        }
        let is_left_over = |entry: &&Entry| !configured.contains(entry.number) && entry.is_unused();
        let left_over: Vec<u64> = self
            .entries
            .values()
            .map(|entry| &**entry)
            .filter(is_left_over)
            .map(|entry| entry.number)
            .collect();
        for number in left_over {
            if let Some(entry) = self.entries.remove(number) {
                self.by_name.remove(&name(&entry.connection, &entry.child), [number, 0]);
            }
        }
    }

    /// Counts an SA for a child from now on.
    pub(crate) fn add_sa(&mut self, connection: &Connection, child: &ChildConfig, origin: IkeSaId, sa: SaId) {
        let number = self.number_of(connection, child);
        if let Some(entry) = self.entries.get_mut(number) {
            entry.sas.insert(sa, sa);
            self.by_sa.insert(sa, (number, origin));
        }
    }

    /// Removes an SA from the data path and keeps its counters.
    pub(crate) fn remove_sa(&mut self, sa: SaId, datapath: &mut Datapath) {
        let counters = datapath.sa_counters(sa).unwrap_or_default();
        datapath.remove_sa(sa);
        let Some((number, origin)) = self.by_sa.remove(sa) else { return };
        self.add_report(origin, sa, counters, true);
        let Some(entry) = self.entries.get_mut(number) else { return };
        entry.sas.remove(sa);
        let ended = match sa.direction() {
            Direction::Inbound => &mut entry.ended_inbound,
            Direction::Outbound => &mut entry.ended_outbound,
        };
        *ended = ended.plus(counters);
    }

    /// An inbound SA receives for a while after the end of its Child SA.
    pub(crate) fn sa_lingers(&mut self, sa: SaId, datapath: &Datapath) {
        if let Some((_, origin)) = self.by_sa.get(sa).copied() {
            self.add_report(origin, sa, datapath.sa_counters(sa).unwrap_or_default(), false);
        }
    }

    fn add_report(&mut self, origin: IkeSaId, sa: SaId, counters: SaCounters, is_removed: bool) {
        if self.is_reporting {
            self.reports.push_back(Notice::SaCounters { origin, sa, counters, is_removed });
        }
    }

    /// Whether counters of SAs that end are to be reported.
    pub(crate) fn report(&mut self, report: bool) {
        self.is_reporting = report;
    }

    /// Moves the reports to the notices.
    pub(crate) fn take_reports(&mut self, notices: &mut VecDeque<Notice>) {
        notices.append(&mut self.reports);
    }

    /// A Child SA of the child was installed.
    pub(crate) fn child_up(&mut self, connection: &Connection, child: &ChildConfig) {
        let number = self.number_of(connection, child);
        if let Some(entry) = self.entries.get_mut(number) {
            entry.child_sas = entry.child_sas.saturating_add(1);
        }
    }

    /// A Child SA of the child has ended.
    pub(crate) fn child_down(&mut self, connection: &Connection, child: &ChildConfig) {
        let number = self.number_of(connection, child);
        if let Some(entry) = self.entries.get_mut(number) {
            entry.child_sas = entry.child_sas.saturating_sub(1);
        }
    }

    /// The counters of the children from the entry with this number on.
    pub(crate) fn starting_at(
        &self,
        number: u64,
        datapath: &Datapath,
    ) -> impl Iterator<Item = ChildCounters> {
        self.entries.values_from(number).map(|entry| entry.counters(datapath))
    }

    /// The number of the entry of a child, which is made if it does not exist.
    fn number_of(&mut self, connection: &Connection, child: &ChildConfig) -> u64 {
        let key = name(&connection.name, &child.name);
        if let Some([number, _]) = self.by_name.get_all(&key).next() {
            return number;
        }
        self.last = self.last.wrapping_add(1);
        let entry = Entry {
            number: self.last,
            connection: connection.name.as_str().into(),
            child: child.name.as_str().into(),
            child_sas: 0,
            sas: OrderedMap::default(),
            ended_inbound: SaCounters::default(),
            ended_outbound: SaCounters::default(),
        };
        self.entries.insert(self.last, entry.into());
        self.by_name.insert(&key, [self.last, 0]);
        self.last
    }
}

impl Entry {
    fn is_unused(&self) -> bool {
        self.sas.is_empty() && self.child_sas == 0
    }

    fn counters(&self, datapath: &Datapath) -> ChildCounters {
        let (mut inbound, mut outbound) = (self.ended_inbound, self.ended_outbound);
        for sa in self.sas.values() {
            let sum = match sa.direction() {
                Direction::Inbound => &mut inbound,
                Direction::Outbound => &mut outbound,
            };
            *sum = sum.plus(datapath.sa_counters(*sa).unwrap_or_default());
        }
        ChildCounters {
            number: self.number,
            connection: self.connection.clone(),
            child: self.child.clone(),
            child_sas: self.child_sas,
            inbound,
            outbound,
        }
    }
}

/// Key of the index: both names, with the length of the first, so that different names have different keys.
fn name(connection: &str, child: &str) -> Vec<u8> {
    let len = (connection.len() as u64).to_be_bytes();
    [&len[..], connection.as_bytes(), child.as_bytes()].concat()
}
