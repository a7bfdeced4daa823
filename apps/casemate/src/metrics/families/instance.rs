//! Families about the whole instance.

use super::super::Snapshot;
use super::super::exposition::Samples;
use super::{Family, Kind, Rows};
use crate::status::role_name;
use casemate::{ExchangeCounters, MessageCount};
use casemate_cell::KeeperStatus;
use casemate_linux::ForwardStatus;
use casemate_sched::{Class, Counters};

pub(super) const BUILD: Family = Family {
    name: "casemate_build",
    kind: Kind::Info,
    labels: &["version"],
    help: "Version of the program.",
    rows: Rows::Once(|_, samples| samples.write(&[env!("CARGO_PKG_VERSION")], 1)),
};

pub(super) const START_TIME: Family = Family::gauge(
    "casemate_start_time_seconds",
    &[],
    "Time of the start, in seconds since 1970. All counters began at 0 then.",
    Rows::Once(|snapshot, samples| samples.write(&[], snapshot.totals.started.as_secs_f64())),
);

pub(super) const UPTIME: Family = Family::gauge(
    "casemate_uptime_seconds",
    &[],
    "Time since the start.",
    Rows::Once(|snapshot, samples| samples.write(&[], snapshot.totals.uptime.as_secs_f64())),
);

pub(super) const HALF_OPEN: Family = Family::gauge(
    "casemate_half_open_ike_sas",
    &[],
    "IKE SAs that peers have started and that are not authenticated yet. Many of them are a sign of a flood.",
    Rows::Once(|snapshot, samples| samples.write(&[], snapshot.totals.half_open)),
);

pub(super) const IKE_MESSAGES: Family = Family::counter(
    "casemate_ike_messages",
    &["direction", "exchange", "type"],
    "IKE messages by exchange and type: request or response. Repeated and invalid messages count, too.",
    Rows::Once(|snapshot, samples| {
        for (direction, counters) in
            [("in", &snapshot.totals.messages.received), ("out", &snapshot.totals.messages.sent)]
        {
            for (exchange, MessageCount { requests, responses }) in by_exchange(counters) {
                samples.write(&[direction, exchange, "request"], requests);
                samples.write(&[direction, exchange, "response"], responses);
            }
        }
    }),
);

/// The counters of each exchange, with its name in the registry of IANA.
const fn by_exchange(counters: &ExchangeCounters) -> [(&'static str, MessageCount); 4] {
    [
        ("IKE_SA_INIT", counters.init),
        ("IKE_AUTH", counters.auth),
        ("CREATE_CHILD_SA", counters.create_child),
        ("INFORMATIONAL", counters.informational),
    ]
}

pub(super) const IKE_FAULTS: Family = Family::counter(
    "casemate_ike_faults",
    &["fault"],
    "IKE messages with a fault, also of peers that match no connection. The table of faults in \
     troubleshooting.md explains each.",
    Rows::Once(|snapshot, samples| {
        for (fault, count) in &snapshot.totals.faults {
            samples.write(&[fault], count);
        }
    }),
);

pub(super) const MANUAL_PACKETS: Family = Family::counter(
    "casemate_manual_packets",
    &["direction"],
    "Packets of all SAs with manual keys that were protected (out) or opened (in).",
    Rows::Once(|snapshot, samples| {
        let [inbound, outbound] =
            snapshot.totals.manual.map(|sums| sums.map(|sum| sum.packets)).unwrap_or_default();
        manual(snapshot, samples, inbound, outbound);
    }),
);

pub(super) const MANUAL_BYTES: Family = Family::counter(
    "casemate_manual_bytes",
    &["direction"],
    "Bytes of those packets, without the headers and trailers of ESP and AH.",
    Rows::Once(|snapshot, samples| {
        let [inbound, outbound] =
            snapshot.totals.manual.map(|sums| sums.map(|sum| sum.bytes)).unwrap_or_default();
        manual(snapshot, samples, inbound, outbound);
    }),
);

/// Samples of both directions, if the instance has manual keys.
fn manual(snapshot: &Snapshot, samples: &mut Samples<'_>, inbound: u64, outbound: u64) {
    if snapshot.totals.manual.is_some() {
        samples.write(&["in"], inbound);
        samples.write(&["out"], outbound);
    }
}

pub(super) const DROPS: Family = Family::counter(
    "casemate_dropped_packets",
    &["reason"],
    "Packets that were dropped, by reason. The table of reasons in inspect.md explains each.",
    Rows::Once(|snapshot, samples| {
        for (reason, count) in &snapshot.totals.drops {
            samples.write(&[reason.name()], count);
        }
    }),
);

pub(super) const CLASS_PACKETS: Family = Family::counter(
    "casemate_class_packets",
    &["class"],
    "Outbound packets that the scheduler passed on to be protected, by class.",
    Rows::Once(|snapshot, samples| {
        by_class(snapshot, |class, counters| samples.write(&[class], counters.taken))
    }),
);

pub(super) const CLASS_BYTES: Family = Family::counter(
    "casemate_class_bytes",
    &["class"],
    "Bytes of those packets.",
    Rows::Once(|snapshot, samples| {
        by_class(snapshot, |class, counters| samples.write(&[class], counters.taken_bytes));
    }),
);

pub(super) const CLASS_OVER_CAP: Family = Family::counter(
    "casemate_class_over_cap_packets",
    &["class"],
    "Packets of a low-latency class that waited for their turn like others, because the class was over its \
     rate.",
    Rows::Once(|snapshot, samples| {
        by_class(snapshot, |class, counters| samples.write(&[class], counters.over_cap));
    }),
);

pub(super) const CLASS_DROPS: Family = Family::counter(
    "casemate_class_dropped_packets",
    &["class", "reason"],
    "Packets that the scheduler dropped, by the reasons of casemate_dropped_packets_total.",
    Rows::Once(|snapshot, samples| {
        by_class(snapshot, |class, counters| {
            for (reason, count) in [
                ("queue-full", counters.full),
                ("queue-late", counters.late),
                ("queue-too-long", counters.too_long),
            ] {
                samples.write(&[class, reason], count);
            }
        });
    }),
);

pub(super) const CLASS_QUEUE: Family = Family::gauge(
    "casemate_class_queued_packets",
    &["class"],
    "Packets that wait in the queue of the class.",
    Rows::Once(|snapshot, samples| {
        by_class(snapshot, |class, counters| {
            let left = counters.taken.saturating_add(counters.late);
            samples.write(&[class], counters.accepted.saturating_sub(left));
        });
    }),
);

/// Counters of each class, the most urgent class first, if there is a scheduler.
fn by_class(snapshot: &Snapshot, mut write: impl FnMut(&str, &Counters)) {
    if let Some(classes) = &snapshot.totals.classes {
        for class in Class::ALL {
            write(class.name(), classes.get(class));
        }
    }
}

pub(super) const PADDED_PACKETS: Family = Family::counter(
    "casemate_padded_packets",
    &[],
    "Packets that were padded to leave in one batch with others.",
    Rows::Once(|snapshot, samples| samples.write(&[], snapshot.totals.padding.packets)),
);

pub(super) const PADDING_BYTES: Family = Family::counter(
    "casemate_padding_bytes",
    &[],
    "Bytes of that padding.",
    Rows::Once(|snapshot, samples| samples.write(&[], snapshot.totals.padding.bytes)),
);

pub(super) const REJECTED_WRITES: Family = Family::counter(
    "casemate_rejected_combined_writes",
    &[],
    "Writes of several received packets at once that the kernel rejected. The packets were written one by \
     one.",
    Rows::Once(|snapshot, samples| samples.write(&[], snapshot.totals.rejected_writes)),
);

pub(super) const GUARD_INSTALLED: Family = Family::gauge(
    "casemate_guard_installed",
    &[],
    "1 if the packet filter that blocks protected traffic in clear is installed; 0 if another program has \
     changed it and it is not restored yet.",
    Rows::Once(|snapshot, samples| {
        if let Some(guard) = snapshot.totals.guard {
            samples.write(&[], u8::from(guard.stands));
        }
    }),
);

pub(super) const GUARD_RESTORATIONS: Family = Family::counter(
    "casemate_guard_restorations",
    &[],
    "How often another program changed or removed that packet filter and it was restored.",
    Rows::Once(|snapshot, samples| {
        samples.write(&[], snapshot.totals.guard.map_or(0, |guard| guard.restored));
    }),
);

pub(super) const PROBLEMS: Family = Family::counter(
    "casemate_system_problems",
    &["kind"],
    "Operations that the system refused, or names that were not found. The log has the details.",
    Rows::Once(|snapshot, samples| {
        for (kind, name) in super::super::collector::PROBLEMS {
            samples.write(&[name], snapshot.totals.problems.get(&kind).copied().unwrap_or_default());
        }
    }),
);

/// Samples of the store of SAs, if there is one.
fn stored(value: fn(&KeeperStatus) -> u64) -> impl Fn(&Snapshot, &mut Samples<'_>) {
    move |snapshot, samples| {
        if let Some(status) = snapshot.totals.store.filter(|status| status.owner > 0) {
            samples.write(&[], value(&status));
        }
    }
}

pub(super) const STORED_SAS: Family = Family::gauge(
    "casemate_stored_ike_sas",
    &[],
    "IKE SAs with a record in the store.",
    Rows::Once(|snapshot, samples| stored(|status| status.records as u64)(snapshot, samples)),
);

pub(super) const STORE_WRITES: Family = Family::counter(
    "casemate_store_writes",
    &[],
    "Transactions that were written to the store.",
    Rows::Once(|snapshot, samples| stored(|status| status.writes)(snapshot, samples)),
);

pub(super) const STORE_HELD: Family = Family::gauge(
    "casemate_store_held_messages",
    &[],
    "IKE messages that wait until the store has written what they depend on. Many of them are a sign that it \
     does not answer.",
    Rows::Once(|snapshot, samples| stored(|status| status.held as u64)(snapshot, samples)),
);

pub(super) const STORE_FAILING: Family = Family::gauge(
    "casemate_store_failing",
    &[],
    "1 if the store did not execute the last request: traffic goes on, nothing new is negotiated. A node of a \
     cell that stands by could not take over.",
    Rows::Once(|snapshot, samples| {
        let is_node = snapshot.totals.is_node;
        if let Some(status) = snapshot.totals.store.filter(|status| is_node || status.owner > 0) {
            samples.write(&[], u64::from(status.problem.is_some()));
        }
    }),
);

pub(super) const CELL_ROLE: Family = Family::gauge(
    "casemate_cell_role",
    &["role"],
    "1 for what this node of a cell does: starting, name-taken, standby, drained, owner, fenced or lost.",
    Rows::Once(|snapshot, samples| {
        if let Some(status) = snapshot.totals.store.filter(|_| snapshot.totals.is_node) {
            samples.write(&[role_name(status.role)], 1_u64);
        }
    }),
);

pub(super) const CELL_FORWARDED: Family = Family::counter(
    "casemate_cell_forwarded_packets",
    &["result"],
    "Packets that were sent to the owner of a cell, received from other nodes and handled, rejected because \
     no node has made them for this one, or dropped.",
    Rows::Once(|snapshot, samples| {
        if let Some(ForwardStatus { sent, received, rejected, dropped, .. }) = snapshot.totals.forward {
            samples.write(&["sent"], sent);
            samples.write(&["received"], received);
            samples.write(&["rejected"], rejected);
            samples.write(&["dropped"], dropped);
        }
    }),
);

pub(super) const STORE_LOW_RESERVES: Family = Family::gauge(
    "casemate_store_low_reserves",
    &[],
    "Child SAs that will soon have no reserved sequence numbers left, because the store does not write.",
    Rows::Once(|snapshot, samples| stored(|status| status.low_reserves as u64)(snapshot, samples)),
);

pub(super) const LOST_EVENTS: Family = Family::counter(
    "casemate_lost_events",
    &[],
    "Events about packets that were not logged, because too many occurred at once. Drops are counted in any \
     case.",
    Rows::Once(|snapshot, samples| samples.write(&[], snapshot.totals.lost_events)),
);

pub(super) const LOST_LOG_LINES: Family = Family::counter(
    "casemate_lost_log_lines",
    &[],
    "Lines of the log that were lost, because standard error or the journal did not take them in time.",
    Rows::Once(|snapshot, samples| samples.write(&[], snapshot.totals.lost_log_lines)),
);

pub(super) const BROKEN_INVARIANTS: Family = Family::counter(
    "casemate_broken_invariants",
    &[],
    "States that only a defect of the program explains. Please report a value other than 0.",
    Rows::Once(|snapshot, samples| samples.write(&[], snapshot.totals.broken_invariants)),
);

pub(super) const SCRAPES: Family = Family::counter(
    "casemate_scrapes",
    &[],
    "How often the values of these pages were read, with this time.",
    Rows::Once(|snapshot, samples| samples.write(&[], snapshot.totals.scrapes)),
);

pub(super) const SCRAPE_DURATION: Family = Family::gauge(
    "casemate_scrape_duration_seconds",
    &[],
    "Time in which the values of this page were read.",
    Rows::Once(|snapshot, samples| samples.write(&[], snapshot.collected_in.as_secs_f64())),
);

pub(super) const SCRAPE_LOCK: Family = Family::gauge(
    "casemate_scrape_longest_lock_seconds",
    &[],
    "Longest time for which packets had to wait while the values of this page were read.",
    Rows::Once(|snapshot, samples| samples.write(&[], snapshot.longest_lock.as_secs_f64())),
);
