//! The steps of a packet as JSON, with the names that the configuration gives to SAs and policies.

use casemate::Endpoint;
use casemate_datapath::spd::PolicyId;
use casemate_datapath::trace::{
    InnerPacket, OuterPacket, PolicyFinding, SizeFacts, TraceRecord, TraceStep, Transmission,
};
use casemate_datapath::{Consumed, Direction, SaId, SaStatus};
use casemate_linux::Scheduling;
use casemate_sa::Selector;
use casemate_strongswan::notation;
use casemate_wire::flow::FlowKey;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// What is known about the SAs and policies in some records. Taken under the endpoint lock, and used without.
#[derive(Default)]
pub(super) struct Names {
    sas: HashMap<SaId, NamedSa>,
    /// Connection and child of traps.
    traps: HashMap<PolicyId, String>,
}

struct NamedSa {
    status: SaStatus,
    /// Connection and child; `None` with manual keys.
    child: Option<String>,
    /// Algorithms in the notation of the configuration file.
    suite: Option<String>,
}

impl Names {
    /// Looks up the SAs and policies of these records.
    pub(super) fn look_up(records: &[TraceRecord], endpoint: &Endpoint) -> Self {
        let mut names = Self::default();
        let mut wanted = HashSet::new();
        for record in records {
            match record.step {
                TraceStep::Sa(id) => drop(wanted.insert(id)),
                TraceStep::Policy(Direction::Outbound, PolicyFinding::Protect(policy, _)) => {
                    let trap = endpoint.trap_of(policy);
                    let name = trap.map(|(connection, child)| format!("{}/{}", connection.name, child.name));
                    names.traps.extend(name.map(|name| (policy, name)));
                }
                _ => {}
            }
        }
        for id in &wanted {
            let status = endpoint.datapath().sa(*id);
            names.sas.extend(status.map(|status| (*id, NamedSa { status, child: None, suite: None })));
        }
        if !names.sas.is_empty() {
            names.look_up_children(endpoint);
        }
        names
    }

    fn look_up_children(&mut self, endpoint: &Endpoint) {
        for ike in endpoint.ike().status() {
            for child in ike.children {
                let Some(sas) = endpoint.sas_of(child.id) else { continue };
                for id in [Some(sas.inbound), sas.outbound].into_iter().flatten() {
                    if let Some(named) = self.sas.get_mut(&id) {
                        named.child = Some(format!("{}/{}", ike.connection.name, child.child.name));
                        named.suite = Some(notation::child_suite(&child.suite));
                    }
                }
            }
        }
    }

    /// A step as JSON; its field `step` says which step it is.
    pub(super) fn to_json(&self, step: &TraceStep, scheduling: Option<&Scheduling>) -> Value {
        match step {
            TraceStep::Outgoing(packet) => {
                let class = scheduling.zip(packet.flow).map(|(scheduling, flow)| class(scheduling, &flow));
                with("outgoing", inner(packet), [("class", json!(class))])
            }
            TraceStep::Incoming(packet) => with("incoming", outer(packet), []),
            TraceStep::Elsewhere(packet) => with("elsewhere", inner(packet), []),
            TraceStep::Reassembled(packet) => with("reassembled", inner(packet), []),
            TraceStep::Policy(direction, found) => self.policy(*direction, found),
            TraceStep::Sa(id) => self.sa(*id),
            TraceStep::Size(SizeFacts { len, protected, path_mtu, inner_mtu }) => json!({
                "step": "size", "length": len, "protected_length": protected,
                "path_mtu": path_mtu, "inner_mtu": inner_mtu,
            }),
            TraceStep::Number(number) => json!({"step": "number", "number": number}),
            TraceStep::Compressed => json!({"step": "compressed"}),
            TraceStep::Padded(bytes) => json!({"step": "padded", "bytes": bytes}),
            TraceStep::Encapsulated(packet) => with("encapsulated", outer(packet), []),
            TraceStep::Fragmented(mtu) => json!({"step": "fragmented", "mtu": mtu}),
            TraceStep::Sealed => json!({"step": "sealed"}),
            TraceStep::NotReplayed(number) => json!({"step": "not-replayed", "number": number}),
            TraceStep::Opened(_) => json!({"step": "opened"}),
            TraceStep::Decapsulated { packet, outer_ecn } => {
                with("decapsulated", inner(packet), [("outer_ecn", json!(outer_ecn))])
            }
            TraceStep::Sent(by) => json!({"step": "sent", "by": sender(*by)}),
            TraceStep::Delivered => json!({"step": "delivered"}),
            TraceStep::Held => json!({"step": "held"}),
            TraceStep::Reassembling => json!({"step": "reassembling"}),
            TraceStep::Consumed(what) => json!({"step": "consumed", "what": consumed(*what)}),
            TraceStep::Ike => json!({"step": "ike"}),
            TraceStep::Rejected(reason) => json!({"step": "rejected", "reason": reason.name()}),
            TraceStep::Dropped(reason) => json!({"step": "dropped", "reason": reason.name()}),
        }
    }

    fn policy(&self, direction: Direction, found: &PolicyFinding) -> Value {
        // The two directions number their policies independently, and only outbound ones are traps.
        let trap = |id: &PolicyId| self.traps.get(id).filter(|_| direction == Direction::Outbound);
        let of = |action: &str, id: &PolicyId, selector: &Selector| {
            json!({
                "step": "policy", "action": action, "selector": selector.to_string(),
                "trap": trap(id),
            })
        };
        match found {
            PolicyFinding::Protect(id, selector) => of("protect", id, selector),
            PolicyFinding::Bypass(id, selector) => of("bypass", id, selector),
            PolicyFinding::Discard(id, selector) => of("discard", id, selector),
            PolicyFinding::NeedsPorts => without_policy("needs-ports"),
            PolicyFinding::NoMatch => without_policy("no-match"),
        }
    }

    fn sa(&self, id: SaId) -> Value {
        // The SA may have ended since the packet passed.
        let Some(NamedSa { status, child, suite }) = self.sas.get(&id) else {
            return json!({
                "step": "sa", "name": null, "spi": null, "protocol": null, "mode": null, "src": null,
                "dst": null, "suite": null, "udp_encapsulated": null,
            });
        };
        json!({
            "step": "sa",
            "name": child,
            "spi": status.spi.to_string(),
            "protocol": status.protocol.to_string(),
            "mode": status.mode.to_string(),
            "src": status.src.to_string(),
            "dst": status.dst.to_string(),
            "suite": suite.as_ref().unwrap_or(&status.suite),
            "udp_encapsulated": status.udp_encapsulated,
        })
    }
}

/// No policy was found, for this reason.
fn without_policy(reason: &str) -> Value {
    json!({"step": "policy", "action": reason, "selector": null, "trap": null})
}

/// Adds the name of a step and other fields to an object.
fn with<const N: usize>(step: &str, mut fields: Map<String, Value>, others: [(&str, Value); N]) -> Value {
    fields.insert("step".into(), step.into());
    fields.extend(others.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Value::Object(fields)
}

fn inner(packet: &InnerPacket) -> Map<String, Value> {
    let flow = packet.flow.as_ref();
    Map::from_iter([
        ("length".to_owned(), json!(packet.len)),
        ("src".to_owned(), json!(flow.map(|flow| flow.src().to_string()))),
        ("dst".to_owned(), json!(flow.map(|flow| flow.dst().to_string()))),
        ("protocol".to_owned(), json!(flow.and_then(FlowKey::proto))),
        ("ports".to_owned(), json!(flow.and_then(FlowKey::ports).map(|ports| [ports.src, ports.dst]))),
        ("dscp".to_owned(), json!(flow.map(|flow| flow.dscp().value()))),
        ("ecn".to_owned(), json!(flow.map(|_| packet.ecn))),
    ])
}

fn outer(packet: &OuterPacket) -> Map<String, Value> {
    let header = packet.header.map(|header| {
        json!({
            "protocol": header.protocol.to_string(),
            "spi": format!("{:#010x}", header.spi),
            "number": header.seq,
        })
    });
    Map::from_iter([
        ("src".to_owned(), packet.src.to_string().into()),
        ("dst".to_owned(), packet.dst.to_string().into()),
        ("udp_ports".to_owned(), json!(packet.udp.map(|udp| [udp.src_port, udp.dst_port]))),
        ("header".to_owned(), json!(header)),
        ("dscp".to_owned(), (packet.tos >> 2).into()),
        ("ecn".to_owned(), (packet.tos & 3).into()),
        ("length".to_owned(), packet.len.into()),
    ])
}

/// The class in which the scheduler put the packet.
fn class(scheduling: &Scheduling, flow: &FlowKey) -> &'static str {
    let classifier = &scheduling.classifier;
    let rule = classifier.rules().iter().find(|rule| rule.selector.matches(flow));
    rule.map_or_else(|| classifier.table().class_of(flow.dscp()), |rule| rule.class).name()
}

const fn sender(by: Transmission) -> &'static str {
    match by {
        Transmission::NextHop => "next-hop",
        Transmission::RawSocket => "raw-socket",
        Transmission::UdpSocket => "udp-socket",
    }
}

const fn consumed(what: Consumed) -> &'static str {
    match what {
        Consumed::Keepalive => "keepalive",
        Consumed::Dummy => "dummy",
        Consumed::RohcFeedback => "rohc-feedback",
        Consumed::PathMtu => "path-mtu",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_datapath::spd::{Action, Policy, PolicyTable};
    use casemate_sa::{AddrRange, SpdId};

    /// The two directions number their policies independently.
    #[test]
    fn only_outbound_policies_are_traps() {
        let selector = Selector::between(AddrRange::ANY_V4, AddrRange::ANY_V4);
        let policy = Policy { spd: SpdId::MAIN, selector, action: Action::Discard, priority: 0 };
        let id = PolicyTable::new(1, 1).insert(policy).unwrap();
        let names = Names { traps: HashMap::from([(id, "gw/net".to_owned())]), ..Names::default() };
        let trap = |direction| names.policy(direction, &PolicyFinding::Protect(id, selector))["trap"].clone();
        assert_eq!([Direction::Outbound, Direction::Inbound].map(trap), [json!("gw/net"), Value::Null]);
    }
}
