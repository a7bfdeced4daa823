//! IKE SAs and their Child SAs as JSON.

use super::snapshot::{code_points, seconds};
use casemate::Endpoint;
use casemate_datapath::SaId;
use casemate_datapath::SaStatus;
use casemate_ike::{ChildId, ChildStatus, IkeStatus, PendingRetry, TrafficSelector};
use casemate_sa::Instant;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// A snapshot of the state of IKE.
#[derive(Debug)]
pub(super) struct IkeSnapshot {
    sas: Vec<IkeStatus>,
    waiting: Vec<PendingRetry>,
    /// The SAs of each Child SA in the data path: inbound, and outbound if it is in use.
    paths: HashMap<ChildId, (SaId, Option<SaId>)>,
    faults: Vec<(&'static str, u64)>,
}

/// The SAs of the data path by ID, and those of each Child SA.
struct TrafficCounters<'s> {
    sas: HashMap<SaId, &'s SaStatus>,
    paths: &'s HashMap<ChildId, (SaId, Option<SaId>)>,
}

impl TrafficCounters<'_> {
    /// Packets and bytes of a Child SA, inbound and outbound.
    fn packets_and_bytes(&self, child: ChildId) -> [(u64, u64); 2] {
        let path = self.paths.get(&child);
        let ids = [path.map(|(inbound, _)| *inbound), path.and_then(|(_, outbound)| *outbound)];
        let passed = |id: SaId| self.sas.get(&id).map(|sa| (sa.meter.packets, sa.meter.bytes));
        ids.map(|id| id.and_then(passed).unwrap_or_default())
    }
}

impl IkeSnapshot {
    pub(super) fn take(endpoint: &Endpoint) -> Self {
        let ike = endpoint.ike();
        let faults = ike.faults().iter().filter(|(_, count)| *count > 0).collect();
        let sas: Vec<IkeStatus> = ike.status().collect();
        let children = sas.iter().flat_map(|sa| &sa.children);
        let paths = children.filter_map(|child| Some((child.id, endpoint.sas_of(child.id)?))).collect();
        Self { sas, waiting: endpoint.pending_retries().collect(), paths, faults }
    }

    /// Pending retries, with the time until each.
    pub(super) fn waiting(&self, now: Instant) -> Value {
        let row = |waiting: &PendingRetry| {
            json!({
                "name": waiting.connection.name,
                "child": waiting.child.as_ref().map(|child| &child.name),
                "in_seconds": seconds(waiting.at.since(now)),
                "failed_attempts": waiting.attempts,
            })
        };
        self.waiting.iter().map(row).collect()
    }

    /// Every IKE SA; `packets` are the SAs of the data path, for the traffic counters.
    pub(super) fn sas(&self, now: Instant, packets: &[SaStatus]) -> Value {
        let counters = TrafficCounters {
            sas: packets.iter().map(|status| (status.id, status)).collect(),
            paths: &self.paths,
        };
        self.sas.iter().map(|sa| ike_sa(sa, now, &counters)).collect()
    }

    /// Protocol errors of peers that occurred, by name.
    pub(super) fn faults(&self) -> Value {
        let faults: Map<String, Value> =
            self.faults.iter().map(|(name, count)| ((*name).into(), (*count).into())).collect();
        faults.into()
    }
}

/// Every IKE SA of an endpoint with its Child SAs, as `casemate status --json` shows them.
pub fn ike_sas(endpoint: &Endpoint, now: Instant) -> Value {
    let packets: Vec<SaStatus> = endpoint.datapath().sas().collect();
    IkeSnapshot::take(endpoint).sas(now, &packets)
}

fn ike_sa(sa: &IkeStatus, now: Instant, counters: &TrafficCounters<'_>) -> Value {
    let texts = |items: &[std::net::IpAddr]| items.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "id": sa.id.to_string(),
        "name": sa.connection.name,
        "state": sa.state.to_string(),
        "initiator": sa.initiator,
        "spi_i": sa.spis.0.to_string(),
        "spi_r": sa.spis.1.to_string(),
        "local": sa.path.local.to_string(),
        "remote": sa.path.remote.to_string(),
        "peer": sa.peer.as_ref().map(ToString::to_string),
        "proposal": sa.suite.map(|suite| suite.to_string()),
        "nat": {"local": sa.nat.0, "remote": sa.nat.1},
        "age_seconds": sa.established.map(|at| seconds(now.since(at))),
        "rekey_in_seconds": sa.rekey_at.map(|at| seconds(at.since(now))),
        "vips": texts(&sa.virtual_addrs),
        "dns": texts(&sa.dns),
        "children": sa.children.iter().map(|child| child_sa(child, now, counters)).collect::<Vec<_>>(),
    })
}

fn child_sa(child: &ChildStatus, now: Instant, counters: &TrafficCounters<'_>) -> Value {
    let texts = |parts: &[TrafficSelector]| parts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let [inbound, outbound] = counters.packets_and_bytes(child.id);
    let spi = |spi: casemate_sa::Spi| format!("{:08x}", spi.get());
    json!({
        "id": child.id.to_string(),
        "name": child.child.name,
        "state": child.state.to_string(),
        "protocol": child.protocol.to_string(),
        "mode": child.mode.to_string(),
        "spi_in": spi(child.spi_in),
        "spi_out": spi(child.spi_out),
        "proposal": child.suite.to_string(),
        "esn": child.suite.esn,
        "local_ts": texts(&child.local),
        "remote_ts": texts(&child.remote),
        "dscp_values": code_points(child.child.dscp),
        "packets_in": inbound.0,
        "bytes_in": inbound.1,
        "packets_out": outbound.0,
        "bytes_out": outbound.1,
        "rekey_in_seconds": child.rekey_at.map(|at| seconds(at.since(now))),
    })
}
