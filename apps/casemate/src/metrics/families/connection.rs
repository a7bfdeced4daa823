//! Families about connections and their children.

use super::super::ConnectionRow;
use super::super::event_counters::{SaEvents, SaKind};
use super::super::exposition::Samples;
use super::{Family, Rows};
use casemate::ChildCounters;

pub(super) const IKE_SAS: Family = Family::gauge(
    "casemate_ike_sas",
    &["connection", "state"],
    "IKE SAs by state: connecting, established, or closing, which includes those that another one has \
     replaced.",
    Rows::Connections(|connection, samples| {
        let states = connection.ike_sas;
        for (state, count) in [
            ("connecting", states.connecting),
            ("established", states.established),
            ("closing", states.closing),
        ] {
            samples.write(&[&connection.name, state], count);
        }
    }),
);

pub(super) const KEY_EXCHANGES: Family = Family::gauge(
    "casemate_ike_key_exchanges",
    &["connection", "methods", "ppk"],
    "Established IKE SAs by the methods of their key exchanges, such as x25519-ke1_mlkem768, and by whether \
     their keys depend on a post-quantum pre-shared key (ppk): yes or no.",
    Rows::Connections(|connection, samples| {
        for (kex, count) in &connection.counters.key_exchanges {
            samples.write(&[&connection.name, &kex.methods, if kex.uses_ppk { "yes" } else { "no" }], *count);
        }
    }),
);

pub(super) const CHILD_SAS: Family = Family::gauge(
    "casemate_child_sas",
    &["connection", "child"],
    "Child SAs that are installed.",
    Rows::Children(|child, samples| samples.write(&[&child.connection, &child.child], child.child_sas)),
);

pub(super) const CHILD_PACKETS: Family = Family::counter(
    "casemate_child_packets",
    &["connection", "child", "direction"],
    "Packets that were protected (out) or opened (in), over all SAs that the child has had.",
    Rows::Children(|child, samples| {
        by_direction(child, samples, child.inbound.packets, child.outbound.packets)
    }),
);

pub(super) const CHILD_BYTES: Family = Family::counter(
    "casemate_child_bytes",
    &["connection", "child", "direction"],
    "Bytes of those packets, without the headers and trailers of ESP and AH.",
    Rows::Children(|child, samples| by_direction(child, samples, child.inbound.bytes, child.outbound.bytes)),
);

fn by_direction(child: &ChildCounters, samples: &mut Samples<'_>, inbound: u64, outbound: u64) {
    for (direction, count) in [("in", inbound), ("out", outbound)] {
        samples.write(&[&child.connection, &child.child, direction], count);
    }
}

pub(super) const CHILD_REJECTED: Family = Family::counter(
    "casemate_child_rejected_packets",
    &["connection", "child", "reason"],
    "Received packets that the SAs of the child rejected: a wrong ICV (icv-mismatch) means another key or a \
     changed packet; replay means that the packet was repeated, or later than the window allows.",
    Rows::Children(|child, samples| {
        for (reason, count) in
            [("icv-mismatch", child.inbound.icv_failures), ("replay", child.inbound.replays)]
        {
            samples.write(&[&child.connection, &child.child, reason], count);
        }
    }),
);

pub(super) const ESTABLISHED: Family = Family::counter(
    "casemate_sas_established",
    &["connection", "kind"],
    "SAs that were negotiated, by kind: ike or child. Those that replace another SA count as rekeyings.",
    Rows::Connections(|connection, samples| {
        by_kind(connection, |kind, events| {
            samples.write(&[&connection.name, kind], events.established);
        });
    }),
);

pub(super) const FAILURES: Family = Family::counter(
    "casemate_negotiation_failures",
    &["connection", "kind", "reason"],
    "Failed negotiations. The reason is a fault that this host found, in upper case a notification with \
     which the peer refused, or another cause such as no-response. `casemate why CONNECTION` explains the \
     last one.",
    Rows::Connections(|connection, samples| {
        by_kind(connection, |kind, events| {
            for (reason, count) in &events.failed {
                samples.write(&[&connection.name, kind, reason], count);
            }
        });
    }),
);

pub(super) const REKEYINGS: Family = Family::counter(
    "casemate_rekeyings",
    &["connection", "kind", "outcome"],
    "SAs that a new SA has replaced (completed), and SAs whose lifetime ended before that (expired).",
    Rows::Connections(|connection, samples| {
        by_kind(connection, |kind, events| {
            for (outcome, count) in [("completed", events.rekeyed), ("expired", events.expired)] {
                samples.write(&[&connection.name, kind, outcome], count);
            }
        });
    }),
);

fn by_kind(connection: &ConnectionRow, mut write: impl FnMut(&str, &SaEvents)) {
    for kind in SaKind::ALL {
        write(kind.name(), connection.counters.of(kind));
    }
}

pub(super) const IKE_SAS_ENDED: Family = Family::counter(
    "casemate_ike_sas_ended",
    &["connection", "reason"],
    "Established IKE SAs that have ended. With the reason no-response, the peer was not reachable any more.",
    Rows::Connections(|connection, samples| {
        for (reason, count) in &connection.counters.ended {
            samples.write(&[&connection.name, reason], count);
        }
    }),
);

pub(super) const RETRANSMISSIONS: Family = Family::counter(
    "casemate_ike_retransmissions",
    &["connection"],
    "Requests that were sent again because no response arrived in time.",
    Rows::Connections(|connection, samples| {
        samples.write(&[&connection.name], connection.counters.retransmissions);
    }),
);
