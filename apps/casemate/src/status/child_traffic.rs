//! The traffic of the Child SAs of a connection.

use crate::log::wording;
use casemate::{ChildSas, Endpoint};
use casemate_datapath::pmtu::PathMtuSource;
use casemate_datapath::{SaId, SaStatus};
use casemate_ike::{ChildStatus, IkeStatus, UserIdentity};
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
    /// The peer, if the connection has several.
    pub(crate) peer: Option<String>,
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
    fn new(
        (name, peer): (String, Option<String>),
        inbound: Option<&SaStatus>,
        outbound: Option<&SaStatus>,
    ) -> Self {
        let window = inbound.and_then(|sa| sa.window);
        Self {
            name,
            peer,
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

    /// Whether no packet has passed.
    pub(crate) const fn is_unused(&self) -> bool {
        self.packets_in == 0 && self.packets_out == 0
    }

    /// Connection and child, and the peer if there are several.
    pub(crate) fn label(&self) -> String {
        match &self.peer {
            Some(peer) => format!("{} of {peer}", self.name),
            None => self.name.clone(),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "peer": self.peer,
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

/// An installed Child SA: its name, its peer if there are several, and its SAs.
type Installed = ((String, Option<String>), ChildSas);

/// The traffic of each installed Child SA of these IKE SAs.
pub(crate) fn child_traffic(endpoint: &Endpoint, ikes: Vec<IkeStatus>, now: Instant) -> Vec<ChildTraffic> {
    let mut peers = ikes.iter().map(peer_of);
    let first = peers.next();
    let has_several = peers.any(|peer| Some(&peer) != first.as_ref());
    let installed = |ike: IkeStatus| -> Vec<Installed> {
        let (connection, peer) = (&ike.connection.name, has_several.then(|| peer_of(&ike)));
        let of_child = |child: &ChildStatus| {
            let name = format!("{connection}/{}", child.child.name);
            Some(((name, peer.clone()), endpoint.sas_of(child.id)?))
        };
        ike.children.iter().filter_map(of_child).collect()
    };
    let children: Vec<Installed> = ikes.into_iter().flat_map(installed).collect();
    let ids: HashSet<SaId> =
        children.iter().flat_map(|(_, sas)| [Some(sas.inbound), sas.outbound]).flatten().collect();
    // One pass over all SAs of the data path.
    let statuses: HashMap<SaId, SaStatus> =
        endpoint.datapath().sas().filter(|sa| ids.contains(&sa.id)).map(|sa| (sa.id, sa)).collect();
    let traffic = |(name, sas): Installed| {
        let outbound = sas.outbound.and_then(|id| statuses.get(&id));
        let path_mtu = sas.outbound.and_then(|id| endpoint.datapath().sa_path_mtu(id, now));
        ChildTraffic { path_mtu, ..ChildTraffic::new(name, statuses.get(&sas.inbound), outbound) }
    };
    children.into_iter().map(traffic).collect()
}

/// The proven EAP identity of a peer, or else its identity.
fn peer_of(ike: &IkeStatus) -> String {
    let user = ike.eap_identity.as_ref().and_then(UserIdentity::proven);
    match (user, &ike.peer) {
        (Some(identity), _) => wording::eap_identity_text(identity),
        (None, Some(peer)) => peer.to_string(),
        (None, None) => ike.path.remote.to_string(),
    }
}
