//! The traffic of the Child SAs of a connection.

use casemate::{ChildSas, Endpoint};
use casemate_ike::ChildStatus;
use serde_json::{Value, json};

/// Traffic of an installed Child SA.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChildTraffic {
    /// Connection and child.
    pub(crate) name: String,
    pub(crate) packets_in: u64,
    pub(crate) packets_out: u64,
    /// Whether ESP is encapsulated in UDP.
    pub(crate) udp: bool,
    /// Received packets with a wrong ICV.
    pub(crate) icv_failures: u64,
    /// Received packets that were repeated or too late.
    pub(crate) replays: u64,
}

impl ChildTraffic {
    /// Whether packets have passed in one direction only.
    pub(crate) const fn is_one_way(&self) -> bool {
        (self.packets_in == 0) != (self.packets_out == 0)
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "packets_in": self.packets_in,
            "packets_out": self.packets_out,
            "udp_encapsulated": self.udp,
            "icv_failures": self.icv_failures,
            "replays": self.replays,
        })
    }
}

/// The traffic of each installed Child SA of a connection.
pub(crate) fn child_traffic(endpoint: &Endpoint, connection: &str) -> Vec<ChildTraffic> {
    let ike = endpoint.ike();
    let of_connection = ike.status().filter(|sa| sa.connection.name == connection);
    let children = of_connection.flat_map(|sa| sa.children);
    children
        .filter_map(|child| Some(traffic_of(endpoint, connection, &child, endpoint.sas_of(child.id)?)))
        .collect()
}

fn traffic_of(endpoint: &Endpoint, connection: &str, child: &ChildStatus, sas: ChildSas) -> ChildTraffic {
    let datapath = endpoint.datapath();
    let inbound = datapath.sas().find(|sa| sa.id == sas.inbound);
    let outbound = datapath.sas().find(|sa| Some(sa.id) == sas.outbound);
    let window = inbound.as_ref().and_then(|sa| sa.window);
    ChildTraffic {
        name: format!("{connection}/{}", child.child.name),
        packets_in: inbound.as_ref().map_or(0, |sa| sa.meter.packets),
        packets_out: outbound.as_ref().map_or(0, |sa| sa.meter.packets),
        udp: inbound.is_some_and(|sa| sa.udp_encapsulated),
        icv_failures: window.map_or(0, |window| window.icv_failures),
        replays: window.map_or(0, |window| window.replays),
    }
}
