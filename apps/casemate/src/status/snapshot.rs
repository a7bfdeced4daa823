//! A snapshot of the state of an instance, and its JSON.

use super::ike::IkeSnapshot;
use crate::run::RunArgs;
use casemate_datapath::{Direction, SaId, SaStatus};
use casemate_linux::EndpointContext;
use casemate_linux::setup::GuardState;
use casemate_sa::{Bounds, DscpSet, Instant};
use casemate_sched::{Class, Counters, PerClass};
use casemate_wire::invariant;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::Path;

/// The parameters of an instance that are not in its data path.
#[derive(Debug, Clone)]
pub struct Identity {
    tun: String,
    xfrm: Option<String>,
    config: Option<String>,
    counters: Option<String>,
    providers: HashMap<SaId, String>,
}

impl Identity {
    /// For manual keys: the command line, and the provider name of each SA.
    pub fn of_xfrm(args: &RunArgs, path: &Path, providers: HashMap<SaId, String>) -> Self {
        let counters = args.counters.as_ref().map(|path| path.display().to_string());
        let xfrm = Some(path.display().to_string());
        Self { tun: args.tun.clone(), xfrm, config: None, counters, providers }
    }

    /// For IKE.
    pub fn of_config(args: &RunArgs, path: &Path, providers: HashMap<SaId, String>) -> Self {
        let config = Some(path.display().to_string());
        Self { tun: args.tun.clone(), xfrm: None, config, counters: None, providers }
    }
}

/// A snapshot of the state. Taking it is quick; it is formatted without the lock.
#[derive(Debug)]
pub struct Snapshot {
    identity: Identity,
    at: Instant,
    sas: Vec<SaStatus>,
    policies: Vec<(Direction, String, String, u32)>,
    drops: Vec<(&'static str, u64)>,
    lost_events: u64,
    queues: Option<PerClass<Counters>>,
    rejected_writes: u64,
    broken_invariants: u32,
    guard: GuardState,
    ike: IkeSnapshot,
}

impl Snapshot {
    /// Copies the state.
    pub fn take(context: &EndpointContext, identity: &Identity) -> Self {
        let endpoint = context.endpoint();
        let datapath = endpoint.datapath();
        let policies = [Direction::Outbound, Direction::Inbound].into_iter().flat_map(|direction| {
            datapath.policies(direction).map(move |(_, policy)| {
                (direction, policy.selector.to_string(), policy.action.to_string(), policy.priority)
            })
        });
        Self {
            identity: identity.clone(),
            at: context.now(),
            sas: datapath.sas().collect(),
            policies: policies.collect(),
            drops: datapath.drops().iter().map(|(reason, count)| (reason.name(), count)).collect(),
            lost_events: datapath.lost_events(),
            queues: context.queue_counters().copied(),
            rejected_writes: context.rejected_gro_writes(),
            broken_invariants: invariant::broken(),
            guard: context.guard_state(),
            ike: IkeSnapshot::take(endpoint),
        }
    }

    /// Formats the state as `casemate status --json` shows it.
    pub fn to_json(&self) -> Value {
        let Identity { tun, xfrm, config, counters, .. } = &self.identity;
        let policy = |(direction, selector, action, priority): &(Direction, String, String, u32)| {
            json!({
                "direction": word(*direction),
                "selector": selector,
                "action": action,
                "priority": priority,
            })
        };
        let drops: Map<String, Value> =
            self.drops.iter().map(|(name, count)| ((*name).into(), (*count).into())).collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "tun": tun,
            "xfrm": xfrm,
            "config": config,
            "counters": counters,
            "uptime_seconds": seconds(self.at.since(Instant::ZERO)),
            "sas": self.sas.iter().map(|sa| self.sa(sa)).collect::<Vec<_>>(),
            "policies": self.policies.iter().map(policy).collect::<Vec<_>>(),
            "drops": drops,
            "lost_events": self.lost_events,
            "rejected_joined_writes": self.rejected_writes,
            "broken_invariants": self.broken_invariants,
            "guard": {"stands": self.guard.stands, "restored": self.guard.restored},
            "classes": self.queues.as_ref().map(classes),
            "ike_sas": self.ike.sas(self.at, &self.sas),
            "ike_waiting": self.ike.waiting(self.at),
            "ike_faults": self.ike.faults(),
        })
    }

    fn sa(&self, sa: &SaStatus) -> Value {
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
        json!({
            "direction": word(sa.id.direction()),
            "spi": sa.spi.to_string(),
            "src": sa.src.to_string(),
            "dst": sa.dst.to_string(),
            "protocol": sa.protocol.to_string(),
            "mode": sa.mode.to_string(),
            "suite": sa.suite,
            "provider": self.identity.providers.get(&sa.id),
            "esn": sa.esn,
            "udp_encapsulated": sa.udp_encapsulated,
            "reqid": sa.reqid,
            "dscp_values": code_points(sa.dscp),
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
        })
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

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Outbound => "out",
        Direction::Inbound => "in",
    }
}

/// The names of the DSCP values; an empty list means any.
pub(super) fn code_points(set: DscpSet) -> Vec<String> {
    set.iter().map(|dscp| dscp.to_string()).collect()
}

/// Seconds with a precision of milliseconds.
pub(super) fn seconds(duration: std::time::Duration) -> f64 {
    duration.as_millis() as f64 / 1_000.0
}
