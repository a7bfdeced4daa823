//! The node of a cell in JSON.

use crate::swanctl::CellConfig;
use casemate_cell::{KeeperRole, KeeperStatus, Member};
use casemate_linux::{CellState, ForwardStatus};
use serde_json::{Value, json};

/// Names of a cell and of this node.
#[derive(Debug, Clone)]
pub(super) struct CellIdentity {
    name: String,
    node: String,
    addresses: Vec<String>,
}

impl CellIdentity {
    pub(super) fn new(cell: &CellConfig) -> Self {
        let CellConfig { name, node, addresses, .. } = cell;
        let addresses = addresses.iter().map(ToString::to_string).collect();
        Self { name: name.clone(), node: node.clone(), addresses }
    }

    /// State of this node, as `casemate cell status --json` shows it.
    pub(super) fn to_json(&self, status: &KeeperStatus, state: Option<&CellState>) -> Value {
        let owner = state.and_then(|state| state.owner.as_deref());
        let members = state.map(|state| state.members.as_slice()).unwrap_or_default();
        let node = |member: &Member| {
            let name = String::from_utf8_lossy(&member.name);
            json!({
                "name": name,
                "state": state_of(member, owner == Some(&*name)),
                "forward": member.forward.map(|forward| forward.address.to_string()),
            })
        };
        json!({
            "name": self.name,
            "node": self.node,
            "role": role_name(status.role),
            "owner": owner,
            "takeovers": status.owner,
            "nodes": members.iter().map(node).collect::<Vec<_>>(),
            "addresses": self.addresses,
            "forward": state.and_then(|state| state.forward.as_ref()).map(of_forwarding),
            "ike_sas": status.records,
            "writes": status.writes,
            "pending": status.pending,
            "held_messages": status.held,
            "dropped_messages": status.dropped,
            "low_reserves": status.low_reserves,
            "data_keys": status.data_keys,
            "needs_second_key": status.needs_second_key,
            "problem": status.problem.map(|problem| problem.to_string()),
        })
    }
}

/// What this node has forwarded and received.
fn of_forwarding(status: &ForwardStatus) -> Value {
    json!({
        "address": status.address.to_string(),
        "sent": status.sent,
        "received": status.received,
        "rejected": status.rejected,
        "dropped": status.dropped,
    })
}

/// What a node of the cell does, as far as this one knows.
const fn state_of(member: &Member, is_owner: bool) -> &'static str {
    match (member.is_running, member.is_drained, is_owner) {
        (true, _, true) => "owner",
        (true, false, false) => "standby",
        (true, true, false) => "drained",
        (false, ..) => "drained, down",
    }
}

/// The name of a role in JSON output and metrics.
pub(crate) const fn role_name(role: KeeperRole) -> &'static str {
    match role {
        KeeperRole::Starting => "starting",
        KeeperRole::NameTaken => "name-taken",
        KeeperRole::Standby => "standby",
        KeeperRole::Drained => "drained",
        KeeperRole::Owner => "owner",
        KeeperRole::Fenced => "fenced",
        KeeperRole::Lost => "lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_cell::ForwardAddress;
    use std::collections::BTreeSet;

    /// The names of a JSON object, and those that the schema requires of it.
    fn check(object: &Value, schema: &Value) {
        let names: BTreeSet<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
        let required = schema["required"].as_array().unwrap().iter();
        assert_eq!(names, required.map(|name| name.as_str().unwrap()).collect());
        let properties = schema["properties"].as_object().unwrap();
        assert_eq!(names, properties.keys().map(String::as_str).collect());
    }

    #[test]
    fn the_schema_describes_a_node() {
        let identity = CellIdentity { name: "a".into(), node: "b".into(), addresses: Vec::new() };
        let address = "10.99.0.21:4510".parse().unwrap();
        let run = casemate_cell::RunId::random(&mut casemate_test_support::TestRng::new(1));
        let member = Member {
            name: b"gw1".to_vec(),
            is_running: true,
            is_drained: false,
            forward: Some(ForwardAddress { address, run }),
        };
        let forward = ForwardStatus { address, sent: 1, received: 2, rejected: 3, dropped: 4 };
        let mut state = CellState::default();
        (state.owner, state.members, state.forward) = (Some("gw1".into()), vec![member], Some(forward));
        let shown = identity.to_json(&KeeperStatus::default(), Some(&state));
        let schema = include_str!("../../../../docs/manual/schema/status.json");
        let schema: Value = serde_json::from_str(schema).unwrap();
        let schema = &schema["properties"]["cell"];
        check(&shown, schema);
        check(&shown["nodes"][0], &schema["properties"]["nodes"]["items"]);
        check(&shown["forward"], &schema["properties"]["forward"]);
        assert_eq!(shown["nodes"][0], json!({"name": "gw1", "state": "owner", "forward": "10.99.0.21:4510"}));
        let none = identity.to_json(&KeeperStatus::default(), None);
        assert_eq!((&none["forward"], &none["nodes"]), (&Value::Null, &json!([])));
    }
}
