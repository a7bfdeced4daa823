//! A snapshot of the state of an instance, and its JSON.

use super::cell::CellIdentity;
use super::child_traffic::path_mtu;
use super::connections::ConnectionStatus;
use super::ike_snapshot::{Algorithms, IkeSnapshot};
use super::{seconds, word};
use crate::history::History;
use crate::run::RunArgs;
use crate::swanctl::CellConfig;
use casemate_cell::KeeperStatus;
use casemate_datapath::pmtu::PathMtuSource;
use casemate_datapath::{Direction, PaddingCounters, SaId, SaStatus};
use casemate_linux::dns::DnsState;
use casemate_linux::setup::GuardState;
use casemate_linux::{CellState, EndpointContext, LinkSending};
use casemate_sa::{Bounds, DscpSet, Instant};
use casemate_sched::{Class, Counters, PerClass};
use casemate_wire::invariant;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::Path;

/// The parameters of an instance that are not in its data path.
#[derive(Debug, Clone)]
pub struct InstanceIdentity {
    tun: String,
    xfrm: Option<String>,
    config: Option<String>,
    counters: Option<String>,
    store: Option<String>,
    cell: Option<CellIdentity>,
    /// Crypto providers of the SAs with manual keys.
    providers: HashMap<SaId, String>,
    /// Mark of packets that take the routes of the system.
    mark: u32,
}

impl InstanceIdentity {
    /// For manual keys: the command line, and the provider name of each SA.
    pub fn of_xfrm(args: &RunArgs, path: &Path, providers: HashMap<SaId, String>) -> Self {
        let counters = args.counters.as_ref().map(|path| path.display().to_string());
        let xfrm = Some(path.display().to_string());
        Self {
            tun: args.tun.clone(),
            xfrm,
            config: None,
            counters,
            store: None,
            cell: None,
            providers,
            mark: 0,
        }
    }

    /// For IKE: the file, or `None` if clients load the configuration.
    pub fn of_config(args: &RunArgs, path: Option<&Path>) -> Self {
        let config = path.map(|path| path.display().to_string());
        let store = args.store.as_ref().map(|path| path.display().to_string());
        let (tun, providers) = (args.tun.clone(), HashMap::new());
        Self { tun, xfrm: None, config, counters: None, store, cell: None, providers, mark: 0 }
    }

    /// Sets the cell of this node.
    #[must_use]
    pub fn with_cell(self, cell: Option<&CellConfig>) -> Self {
        Self { cell: cell.map(CellIdentity::new), ..self }
    }

    /// Sets the mark of packets that take the routes of the system.
    #[must_use]
    pub(crate) fn with_mark(self, mark: u32) -> Self {
        Self { mark, ..self }
    }

    /// State of the cell of this node, as `casemate cell status --json` shows it; null without a cell.
    pub(crate) fn cell_json(&self, status: &KeeperStatus, state: Option<&CellState>) -> Value {
        self.cell.as_ref().map_or(Value::Null, |cell| cell.to_json(status, state))
    }

    /// Name of the TUN interface.
    pub(crate) fn tun(&self) -> &str {
        &self.tun
    }

    /// The mark of packets that take the routes of the system.
    pub(crate) const fn mark(&self) -> u32 {
        self.mark
    }
}

/// A policy as text.
#[derive(Debug)]
struct PolicySnapshot {
    direction: Direction,
    selector: String,
    action: String,
    priority: u32,
    /// Interface of its route-based tunnel.
    interface: Option<String>,
}

/// A snapshot of the state. Taking it is quick; it is formatted without the lock.
#[derive(Debug)]
pub struct Snapshot {
    identity: InstanceIdentity,
    at: Instant,
    sas: Vec<SaStatus>,
    /// Path MTU of each outbound SA in bytes, and where it comes from.
    path_mtus: HashMap<SaId, (usize, PathMtuSource)>,
    policies: Vec<PolicySnapshot>,
    drops: Vec<(&'static str, u64)>,
    lost_events: u64,
    queues: Option<PerClass<Counters>>,
    rejected_writes: u64,
    padding: PaddingCounters,
    broken_invariants: u32,
    guard: GuardState,
    link_sending: LinkSending,
    name_servers: DnsState,
    store: KeeperStatus,
    cell: Option<CellState>,
    ike: IkeSnapshot,
    connections: Vec<ConnectionStatus>,
}

impl Snapshot {
    /// Copies the state.
    pub(crate) fn take(context: &EndpointContext, identity: &InstanceIdentity, history: &History) -> Self {
        let endpoint = context.endpoint();
        let datapath = endpoint.datapath();
        let policies = [Direction::Outbound, Direction::Inbound].into_iter().flat_map(|direction| {
            datapath.policies(direction).map(move |(_, policy)| PolicySnapshot {
                direction,
                selector: policy.selector.to_string(),
                action: policy.action.to_string(),
                priority: policy.priority,
                interface: context.tunnel_names().get(&policy.spd).cloned(),
            })
        });
        let sas: Vec<SaStatus> = datapath.sas().collect();
        let path_mtu = |sa: &SaStatus| Some((sa.id, datapath.sa_path_mtu(sa.id, context.now())?));
        Self {
            identity: identity.clone(),
            at: context.now(),
            path_mtus: sas.iter().filter_map(path_mtu).collect(),
            sas,
            policies: policies.collect(),
            drops: datapath.drops().iter().map(|(reason, count)| (reason.name(), count)).collect(),
            lost_events: datapath.lost_events(),
            queues: context.queue_counters().copied(),
            rejected_writes: context.rejected_gro_writes(),
            padding: datapath.padding_counters(),
            broken_invariants: invariant::broken(),
            guard: context.guard_state(),
            link_sending: context.link_sending().clone(),
            name_servers: context.name_servers().clone(),
            store: context.keeper(),
            cell: context.cell().cloned(),
            ike: IkeSnapshot::take(endpoint, context.tunnel_names().clone()),
            connections: ConnectionStatus::all(endpoint, context.now(), history),
        }
    }

    /// Formats the state as `casemate status --json` shows it.
    pub fn to_json(&self) -> Value {
        let InstanceIdentity { tun, xfrm, config, counters, store, .. } = &self.identity;
        let policy = |policy: &PolicySnapshot| {
            json!({
                "direction": word(policy.direction),
                "selector": policy.selector,
                "action": policy.action,
                "priority": policy.priority,
                "interface": policy.interface,
            })
        };
        let negotiated = self.ike.algorithms();
        let drops: Map<String, Value> =
            self.drops.iter().map(|(name, count)| ((*name).into(), (*count).into())).collect();
        json!({
            "schema_version": super::SCHEMA_VERSION,
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "tun": tun,
            "xfrm": xfrm,
            "config": config,
            "counters": counters,
            "store": store.as_ref().map(|path| stored(path, &self.store)),
            "cell": self.identity.cell_json(&self.store, self.cell.as_ref()),
            "uptime_seconds": seconds(self.at.since(Instant::ZERO)),
            "sas": self.sas.iter().map(|sa| self.sa(sa, negotiated.get(&sa.id))).collect::<Vec<_>>(),
            "policies": self.policies.iter().map(policy).collect::<Vec<_>>(),
            "drops": drops,
            "lost_events": self.lost_events,
            "rejected_joined_writes": self.rejected_writes,
            "batch_padding": {"packets": self.padding.packets, "bytes": self.padding.bytes},
            "broken_invariants": self.broken_invariants,
            "guard": {"stands": self.guard.stands, "restored": self.guard.restored},
            "link_sending": link_sending(&self.link_sending),
            "name_servers": name_servers(&self.name_servers),
            "classes": self.queues.as_ref().map(classes),
            "connections": self.connections.iter().map(ConnectionStatus::to_json).collect::<Vec<_>>(),
            "ike_sas": self.ike.sas(self.at, &self.sas),
            "ike_waiting": self.ike.waiting(self.at),
            "ike_faults": self.ike.faults(),
        })
    }

    /// `negotiated` are the algorithms of an SA of IKE.
    fn sa(&self, sa: &SaStatus, negotiated: Option<&Algorithms>) -> Value {
        let meter = &sa.meter;
        let idle = meter.last_used.map(|last| seconds(self.at.since(last)));
        let window = sa.window.map(|window| {
            json!({
                "size": window.size,
                "recent": format!("{:#018x}", window.recent),
                "replays": window.replays,
                "icv_failures": window.icv_failures,
            })
        });
        let rohc = sa.rohc.map(|rohc| {
            json!({
                "contexts": rohc.contexts,
                "packets": rohc.packets,
                "header_bytes": rohc.header_bytes,
                "compressed_bytes": rohc.compressed_bytes,
                "failures": rohc.failures,
            })
        });
        let path_mtu = self.path_mtus.get(&sa.id).copied().map(path_mtu);
        let manual_provider = self.identity.providers.get(&sa.id);
        json!({
            "direction": word(sa.id.direction()),
            "spi": sa.spi.to_string(),
            "src": sa.src.to_string(),
            "dst": sa.dst.to_string(),
            "protocol": sa.protocol.to_string(),
            "mode": sa.mode.to_string(),
            "suite": negotiated.map_or(&sa.suite, |algorithms| &algorithms.suite),
            "provider": negotiated.map(|algorithms| &algorithms.provider).or(manual_provider),
            "esn": sa.esn,
            "udp_encapsulated": sa.udp_encapsulated,
            "reqid": sa.reqid,
            "dscp_values": code_points(sa.dscp),
            "path_mtu": path_mtu,
            "seq": sa.seq,
            "packets": meter.packets,
            "bytes": meter.bytes,
            "age_seconds": seconds(self.at.since(meter.added)),
            "idle_seconds": idle,
            "lifetime": {
                "soft": bounds(&meter.lifetime().soft),
                "hard": bounds(&meter.lifetime().hard),
            },
            "window": window,
            "rohc": rohc,
        })
    }
}

/// The name servers of tunnels that are in use, and why others are not.
fn name_servers(state: &DnsState) -> Value {
    let (method, settings) = state.applied.clone().unzip();
    let settings = settings.unwrap_or_default();
    json!({
        "method": method.map(|method| method.to_string()),
        "servers": settings.servers.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "domains": settings.domains.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "all_names": settings.all_names,
        "unused": state.unused,
    })
}

/// State of the store of SAs.
fn stored(path: &str, status: &KeeperStatus) -> Value {
    json!({
        "file": path,
        "runs": status.owner,
        "ike_sas": status.records,
        "writes": status.writes,
        "pending": status.pending,
        "held_messages": status.held,
        "dropped_messages": status.dropped,
        "data_keys": status.data_keys,
        "needs_second_key": status.needs_second_key,
        "problem": status.problem.map(|problem| problem.to_string()),
    })
}

/// Whether protected packets leave through a packet socket, and why not.
fn link_sending(state: &LinkSending) -> Value {
    match state {
        LinkSending::InUse => json!({"in_use": true, "reason": null}),
        LinkSending::Off(reason) => json!({"in_use": false, "reason": reason}),
    }
}

/// The packet counters of each class, the most urgent class first.
fn classes(queues: &PerClass<Counters>) -> Value {
    let of = |class: Class| {
        let counters = queues.get(class);
        json!({
            "class": class.name(),
            "accepted": counters.accepted,
            "taken": counters.taken,
            "taken_bytes": counters.taken_bytes,
            "over_cap": counters.over_cap,
            "late": counters.late,
            "full": counters.full,
            "too_long": counters.too_long,
        })
    };
    Class::ALL.into_iter().map(of).collect()
}

/// The bounds that are set.
fn bounds(bounds: &Bounds) -> Value {
    let mut map = Map::new();
    let mut put = |name: &str, value: Option<u64>| {
        map.extend(value.map(|value| (name.to_owned(), Value::from(value))));
    };
    put("bytes", bounds.bytes);
    put("packets", bounds.packets);
    put("seconds_since_added", bounds.since_added.map(|time| time.as_secs()));
    put("seconds_since_used", bounds.since_used.map(|time| time.as_secs()));
    Value::Object(map)
}

/// The names of the DSCP values; an empty list means any.
pub(super) fn code_points(set: DscpSet) -> Vec<String> {
    set.iter().map(|dscp| dscp.to_string()).collect()
}
