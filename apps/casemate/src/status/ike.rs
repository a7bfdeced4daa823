//! IKE SAs with their Child SAs, as JSON.

use super::snapshot::seconds;
use casemate::Endpoint;
use casemate_datapath::SaStatus;
use casemate_ike::{ChildStatus, IkeStatus, Traffic};
use casemate_sa::Instant;
use serde_json::{Map, Value, json};

/// The state of IKE at one moment.
#[derive(Debug)]
pub(super) struct IkeSnapshot {
    sas: Vec<IkeStatus>,
    faults: Vec<(&'static str, u64)>,
}

impl IkeSnapshot {
    pub(super) fn take(endpoint: &Endpoint) -> Self {
        let ike = endpoint.ike();
        let faults = ike.faults().iter().filter(|(_, count)| *count > 0).collect();
        Self { sas: ike.status().collect(), faults }
    }

    /// Every IKE SA; `packets` are the SAs of the data path, for what has passed.
    pub(super) fn sas(&self, now: Instant, packets: &[SaStatus]) -> Value {
        self.sas.iter().map(|sa| ike_sa(sa, now, packets)).collect()
    }

    /// What peers did wrong, by name, as far as it happened.
    pub(super) fn faults(&self) -> Value {
        let faults: Map<String, Value> =
            self.faults.iter().map(|(name, count)| ((*name).into(), (*count).into())).collect();
        faults.into()
    }
}

fn ike_sa(sa: &IkeStatus, now: Instant, packets: &[SaStatus]) -> Value {
    let texts = |items: &[std::net::IpAddr]| items.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "id": sa.id.to_string(),
        "name": sa.connection.name,
        "state": sa.state,
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
        "children": sa.children.iter().map(|child| child_sa(child, now, packets)).collect::<Vec<_>>(),
    })
}

fn child_sa(child: &ChildStatus, now: Instant, packets: &[SaStatus]) -> Value {
    let texts = |parts: &[Traffic]| parts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let meter = |spi| packets.iter().find(|sa| sa.spi == spi).map(|sa| (sa.meter.packets, sa.meter.bytes));
    let (inbound, outbound) = (meter(child.spi_in), meter(child.spi_out));
    let spi = |spi: casemate_sa::Spi| format!("{:08x}", spi.get());
    json!({
        "id": child.id.to_string(),
        "name": child.child.name,
        "state": child.state,
        "protocol": child.protocol.to_string(),
        "mode": child.mode.to_string(),
        "spi_in": spi(child.spi_in),
        "spi_out": spi(child.spi_out),
        "proposal": child.suite.to_string(),
        "esn": child.suite.esn,
        "local_ts": texts(&child.local),
        "remote_ts": texts(&child.remote),
        "packets_in": inbound.map_or(0, |meter| meter.0),
        "bytes_in": inbound.map_or(0, |meter| meter.1),
        "packets_out": outbound.map_or(0, |meter| meter.0),
        "bytes_out": outbound.map_or(0, |meter| meter.1),
        "rekey_in_seconds": child.rekey_at.map(|at| seconds(at.since(now))),
    })
}
