//! The traffic of the Child SAs of a connection.

use casemate::{ChildSas, Endpoint};
use casemate_datapath::pmtu::PathMtuSource;
use casemate_datapath::{SaId, SaStatus};
use casemate_ike::{ChildStatus, IkeStatus};
use casemate_sa::Instant;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Time without inbound packets, while packets leave, that `casemate why` reports.
const SILENCE: Duration = Duration::from_secs(10);

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
    /// How long before the last outbound packet the last inbound one arrived, if it is suspiciously long.
    pub(crate) silence: Option<Duration>,
    /// Path MTU of the outbound SA in bytes, and where it comes from.
    pub(crate) path_mtu: Option<(usize, PathMtuSource)>,
}

impl ChildTraffic {
    fn new(name: String, inbound: Option<&SaStatus>, outbound: Option<&SaStatus>) -> Self {
        let window = inbound.and_then(|sa| sa.window);
        Self {
            name,
            packets_in: inbound.map_or(0, |sa| sa.meter.packets),
            packets_out: outbound.map_or(0, |sa| sa.meter.packets),
            udp: inbound.is_some_and(|sa| sa.udp_encapsulated),
            icv_failures: window.map_or(0, |window| window.icv_failures),
            replays: window.map_or(0, |window| window.replays),
            silence: silence(inbound, outbound),
            path_mtu: None,
        }
    }

    /// Whether packets have passed in one direction only, or do so now.
    pub(crate) const fn is_one_way(&self) -> bool {
        (self.packets_in == 0) != (self.packets_out == 0) || self.silence.is_some()
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "packets_in": self.packets_in,
            "packets_out": self.packets_out,
            "udp_encapsulated": self.udp,
            "icv_failures": self.icv_failures,
            "replays": self.replays,
            "path_mtu": self.path_mtu.map(path_mtu),
        })
    }
}

/// How long before the last outbound packet the last inbound one arrived, if at least [`SILENCE`].
fn silence(inbound: Option<&SaStatus>, outbound: Option<&SaStatus>) -> Option<Duration> {
    let (received, sent) = (inbound?.meter.last_used?, outbound?.meter.last_used?);
    Some(sent.since(received)).filter(|silence| *silence >= SILENCE)
}

/// A path MTU in bytes and where it comes from.
pub(super) fn path_mtu((bytes, source): (usize, PathMtuSource)) -> Value {
    json!({"bytes": bytes, "source": source.to_string()})
}

/// The traffic of each installed Child SA of these IKE SAs.
pub(crate) fn child_traffic(endpoint: &Endpoint, ikes: Vec<IkeStatus>, now: Instant) -> Vec<ChildTraffic> {
    let installed = |ike: &str, child: ChildStatus| {
        Some((format!("{ike}/{}", child.child.name), endpoint.sas_of(child.id)?))
    };
    let children: Vec<(String, ChildSas)> = ikes
        .into_iter()
        .flat_map(|ike| {
            let name = ike.connection.name.clone();
            ike.children.into_iter().filter_map(move |child| installed(&name, child))
        })
        .collect();
    let ids: HashSet<SaId> =
        children.iter().flat_map(|(_, sas)| [Some(sas.inbound), sas.outbound]).flatten().collect();
    // One pass over all SAs of the data path.
    let statuses: HashMap<SaId, SaStatus> =
        endpoint.datapath().sas().filter(|sa| ids.contains(&sa.id)).map(|sa| (sa.id, sa)).collect();
    let traffic = |(name, sas): (String, ChildSas)| {
        let outbound = sas.outbound.and_then(|id| statuses.get(&id));
        let path_mtu = sas.outbound.and_then(|id| endpoint.datapath().sa_path_mtu(id, now));
        ChildTraffic { path_mtu, ..ChildTraffic::new(name, statuses.get(&sas.inbound), outbound) }
    };
    children.into_iter().map(traffic).collect()
}
