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
