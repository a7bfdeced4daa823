//! The table of all families: name, type, labels, help, and how the samples are written.
//!
//! Names follow the conventions of Prometheus: base units, `_total` for counters, one unit for all samples of
//! a family. docs/manual/metrics.md has this table, too; a test compares both.

mod connection;
mod instance;

use super::exposition::Samples;
use super::{ConnectionRow, Snapshot};
use casemate::ChildCounters;

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Never decreases, except to 0 when the program starts again.
    Counter,
    Gauge,
    /// Constant text in labels; the value is 1.
    Info,
}

/// How the samples of a family are written.
pub(super) enum Rows {
    /// Once for the whole instance.
    Once(fn(&Snapshot, &mut Samples<'_>)),
    /// For each connection.
    Connections(fn(&ConnectionRow, &mut Samples<'_>)),
    /// For each child.
    Children(fn(&ChildCounters, &mut Samples<'_>)),
}

/// A family of metrics.
pub(super) struct Family {
    /// The name without the suffix of counters.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Names of the labels, in the order in which samples are written.
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
    pub(super) rows: Rows,
}

impl Family {
    const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        rows: Rows,
    ) -> Self {
        Self { name, kind: Kind::Counter, labels, help, rows }
    }

    const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        rows: Rows,
    ) -> Self {
        Self { name, kind: Kind::Gauge, labels, help, rows }
    }

    /// The unit, which is the end of the name.
    pub(super) fn unit(&self) -> Option<&'static str> {
        ["seconds", "bytes"].into_iter().find(|unit| self.name.ends_with(unit))
    }
}

/// Every family, in the order of the page.
pub(super) const FAMILIES: &[Family] = &[
    instance::BUILD,
    instance::START_TIME,
    instance::UPTIME,
    connection::IKE_SAS,
    connection::KEY_EXCHANGES,
    connection::CHILD_SAS,
    connection::CHILD_PACKETS,
    connection::CHILD_BYTES,
    connection::CHILD_REJECTED,
    connection::ESTABLISHED,
    connection::FAILURES,
    connection::REKEYINGS,
    connection::IKE_SAS_ENDED,
    connection::RETRANSMISSIONS,
    instance::HALF_OPEN,
    instance::IKE_MESSAGES,
    instance::IKE_FAULTS,
    instance::MANUAL_PACKETS,
    instance::MANUAL_BYTES,
    instance::DROPS,
    instance::CLASS_PACKETS,
    instance::CLASS_BYTES,
    instance::CLASS_OVER_CAP,
    instance::CLASS_DROPS,
    instance::CLASS_QUEUE,
    instance::PADDED_PACKETS,
    instance::PADDING_BYTES,
    instance::REJECTED_WRITES,
    instance::GUARD_INSTALLED,
    instance::GUARD_RESTORATIONS,
    instance::PROBLEMS,
    instance::STORED_SAS,
    instance::STORE_WRITES,
    instance::STORE_HELD,
    instance::STORE_FAILING,
    instance::STORE_LOW_RESERVES,
    instance::CELL_ROLE,
    instance::CELL_FORWARDED,
    instance::LOST_EVENTS,
    instance::LOST_LOG_LINES,
    instance::BROKEN_INVARIANTS,
    instance::SCRAPES,
    instance::SCRAPE_DURATION,
    instance::SCRAPE_LOCK,
];

/// The description of a family, for the manual.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyDescription {
    /// Name of the samples.
    pub name: String,
    /// Type in OpenMetrics.
    pub kind: &'static str,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// What the samples mean.
    pub help: &'static str,
}

/// Descriptions of all families, in the order of the page.
pub fn families() -> impl Iterator<Item = FamilyDescription> {
    FAMILIES.iter().map(|family| FamilyDescription {
        name: format!("{}{}", family.name, family.kind.suffix()),
        kind: family.kind.name(),
        labels: family.labels,
        help: family.help,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_help_follow_the_conventions() {
        let mut names: Vec<String> = families().map(|family| family.name).collect();
        for (family, described) in FAMILIES.iter().zip(families()) {
            assert!(family.name.starts_with("casemate_") && !family.name.ends_with("_total"));
            assert!(family.help.ends_with('.') && !family.help.contains(['\\', '\n']), "{}", family.help);
            let is_name = |name: &&str| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase());
            assert!(family.labels.iter().all(is_name) && is_name(&family.name));
            assert_eq!(described.name.ends_with("_total"), family.kind == Kind::Counter);
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
