//! A snapshot of the IKE SAs and Child SAs of an instance, and its JSON.

use super::narrowing::is_narrowed;
use super::seconds;
use super::snapshot::code_points;
use crate::log::wording;
use crate::providers;
use casemate::{ChildSas, Endpoint};
use casemate_datapath::{SaId, SaStatus};
use casemate_ike::{
    ChildId, ChildStatus, IkeStatus, PendingRetry, ProvenRound, TrafficSelector, UserIdentity,
};
use casemate_sa::{Instant, SpdId, SpdPair};
use casemate_strongswan::notation;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

/// Negotiated algorithms.
#[derive(Debug, Clone)]
pub(super) struct Algorithms {
    /// In the notation of the configuration file.
    pub(super) suite: String,
    /// Names of the crypto providers that process them.
    pub(super) provider: String,
}

/// A snapshot of the state of IKE.
#[derive(Debug)]
pub(super) struct IkeSnapshot {
    sas: Vec<IkeStatus>,
    waiting: Vec<PendingRetry>,
    /// The SAs of each Child SA in the data path.
    paths: HashMap<ChildId, ChildSas>,
    /// The SPDs of each Child SA.
    spds: HashMap<ChildId, SpdPair>,
    faults: Vec<(&'static str, u64)>,
    interfaces: Interfaces,
}

/// Names of the interfaces of route-based tunnels.
type Interfaces = BTreeMap<SpdId, String>;

/// The SAs of the data path by ID, those of each Child SA, and the interfaces.
struct TrafficCounters<'s> {
    interfaces: &'s Interfaces,
    spds: &'s HashMap<ChildId, SpdPair>,
    sas: HashMap<SaId, &'s SaStatus>,
    paths: &'s HashMap<ChildId, ChildSas>,
}

/// The traffic of an SA; 0 for an SA that is not installed.
#[derive(Default)]
struct Traffic {
    packets: u64,
    bytes: u64,
}

impl TrafficCounters<'_> {
    /// Traffic of a Child SA, inbound and outbound.
    fn traffic(&self, child: ChildId) -> [Traffic; 2] {
        let sas = self.paths.get(&child);
        let ids = [sas.map(|sas| sas.inbound), sas.and_then(|sas| sas.outbound)];
        let passed = |id: SaId| {
            self.sas.get(&id).map(|sa| Traffic { packets: sa.meter.packets, bytes: sa.meter.bytes })
        };
        ids.map(|id| id.and_then(passed).unwrap_or_default())
    }
}

impl IkeSnapshot {
    pub(super) fn take(endpoint: &Endpoint, interfaces: Interfaces) -> Self {
        let ike = endpoint.ike();
        let faults = ike.faults().iter().filter(|(_, count)| *count > 0).collect();
        let sas: Vec<IkeStatus> = ike.status().collect();
        let children = || sas.iter().flat_map(|sa| &sa.children).map(|child| child.id);
        let paths = children().filter_map(|child| Some((child, endpoint.sas_of(child)?))).collect();
        let spds = children().filter_map(|child| Some((child, endpoint.spds_of(child)?))).collect();
        let waiting = endpoint.pending_retries().collect();
        Self { waiting, paths, spds, faults, interfaces, sas }
    }

    /// The algorithms of each SA of a Child SA.
    pub(super) fn algorithms(&self) -> HashMap<SaId, Algorithms> {
        let available = providers::all();
        // Asking the providers takes longer than everything else, and most SAs have the same algorithms.
        let mut known: HashMap<String, String> = HashMap::new();
        let mut all = HashMap::new();
        for child in self.sas.iter().flat_map(|sa| &sa.children) {
            let Some(sas) = self.paths.get(&child.id) else { continue };
            let suite = notation::child_suite(&child.suite);
            let name = || providers::name_for(child.suite.transform, &available);
            let provider = known.entry(suite.clone()).or_insert_with(name).clone();
            let algorithms = Algorithms { suite, provider };
            all.extend(sas.outbound.map(|id| (id, algorithms.clone())));
            all.insert(sas.inbound, algorithms);
        }
        all
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
            interfaces: &self.interfaces,
            spds: &self.spds,
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
    IkeSnapshot::take(endpoint, Interfaces::new()).sas(now, &packets)
}

fn ike_sa(sa: &IkeStatus, now: Instant, counters: &TrafficCounters<'_>) -> Value {
    let texts = |items: &[std::net::IpAddr]| items.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "id": sa.id.to_string(),
        "name": sa.connection.name,
        "state": sa.state.to_string(),
        "initiator": sa.initiator,
        "spi_i": sa.spis.initiator.to_string(),
        "spi_r": sa.spis.responder.to_string(),
        "local": sa.path.local.to_string(),
        "remote": sa.path.remote.to_string(),
        "peer": sa.peer.as_ref().map(ToString::to_string),
        "eap_identity": proven_user(sa.eap_identity.as_ref()),
        "claimed_eap_identity": claimed_user(sa.eap_identity.as_ref()),
        "earlier_rounds": sa.earlier_rounds.iter().map(proven_round).collect::<Vec<_>>(),
        "resumed": sa.is_resumed,
        "ppk": sa.ppk_id.as_deref().map(wording::octets),
        "full_transcript_auth": sa.full_transcript_auth,
        "proposal": sa.suite.map(|suite| notation::ike_suite(&suite)),
        "nat": {
            "local": sa.nat.local && !sa.nat.forced,
            "remote": sa.nat.remote,
            "forced": sa.nat.forced,
        },
        "age_seconds": sa.established.map(|at| seconds(now.since(at))),
        "rekey_in_seconds": sa.rekey_at.map(|at| seconds(at.since(now))),
        "vips": texts(&sa.virtual_addrs),
        "dns": texts(&sa.dns),
        "dns_domains": sa.dns_domains.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "children": sa.children.iter().map(|child| child_sa(child, now, counters)).collect::<Vec<_>>(),
    })
}

fn proven_user(user: Option<&UserIdentity>) -> Option<String> {
    user?.proven().map(wording::eap_identity_text)
}

fn claimed_user(user: Option<&UserIdentity>) -> Option<String> {
    user?.claimed().map(wording::eap_identity_text)
}

fn proven_round(round: &ProvenRound) -> Value {
    json!({
        "peer": round.peer.to_string(),
        "eap_identity": proven_user(round.eap_identity.as_ref()),
        "claimed_eap_identity": claimed_user(round.eap_identity.as_ref()),
    })
}

fn child_sa(child: &ChildStatus, now: Instant, counters: &TrafficCounters<'_>) -> Value {
    let texts = |parts: &[TrafficSelector]| parts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let [inbound, outbound] = counters.traffic(child.id);
    let spds = counters.spds.get(&child.id).copied().unwrap_or_default();
    let spi = |spi: casemate_sa::Spi| format!("{:08x}", spi.get());
    json!({
        "id": child.id.to_string(),
        "name": child.child.name,
        "state": child.state.to_string(),
        "protocol": child.protocol.to_string(),
        "mode": child.mode.to_string(),
        "spi_in": spi(child.spi_in),
        "spi_out": spi(child.spi_out),
        "proposal": notation::child_suite(&child.suite),
        "esn": child.suite.esn,
        "local_ts": texts(&child.local),
        "remote_ts": texts(&child.remote),
        "narrowed": is_narrowed(child),
        "dscp_values": code_points(child.child.dscp),
        "interface_in": counters.interfaces.get(&spds.inbound),
        "interface_out": counters.interfaces.get(&spds.outbound),
        "packets_in": inbound.packets,
        "bytes_in": inbound.bytes,
        "packets_out": outbound.packets,
        "bytes_out": outbound.bytes,
        "rekey_in_seconds": child.rekey_at.map(|at| seconds(at.since(now))),
    })
}
