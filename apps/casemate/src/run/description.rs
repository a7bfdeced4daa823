//! What `casemate run --dry-run` says about a configuration with IKE, as comments behind the changes of the
//! start: the traffic that is blocked, and the addresses, identities, algorithms and actions of connections.

use super::start::InitialPolicies;
use casemate_datapath::spd::Action;
use casemate_ike::TrafficSelectorTemplate;
use casemate_ike::config::{
    AddrPattern, ChildConfig, ChildMode, CloseAction, Connection, IdPattern, LocalMethod, RemoteMethod,
    Shunt, StartAction,
};
use casemate_strongswan::notation;
use std::fmt::{self, Display, Write};
use std::sync::Arc;

/// The traffic that is blocked until an SA exists, one comment line for each selector.
pub(super) fn blocked_traffic(policies: &InitialPolicies) -> String {
    let blocked = policies.outbound.iter().filter(|(_, policy)| matches!(policy.action, Action::Protect(_)));
    blocked.map(|(_, policy)| format!("# blocked until an SA is up: {}\n", policy.selector)).collect()
}

/// Several comment lines for each connection.
pub(super) fn connections(connections: &[Arc<Connection>]) -> String {
    let mut text = String::new();
    for connection in connections {
        // Writing to a string does not fail.
        let _ = write_connection(&mut text, connection);
    }
    text
}

fn write_connection(text: &mut String, connection: &Connection) -> fmt::Result {
    let addresses = |patterns: &[AddrPattern]| joined(patterns.iter().map(Address));
    let (local, remote) = (addresses(&connection.local_addrs), addresses(&connection.remote_addrs));
    writeln!(text, "# connection {}: {local} -> {remote}", connection.name)?;
    let id = connection.local.id.as_ref().map_or("by certificate or address".into(), ToString::to_string);
    let method = match &connection.local.method {
        LocalMethod::SharedKey => "pre-shared key".to_owned(),
        LocalMethod::Certificate(names) if names.is_empty() => "certificate".to_owned(),
        LocalMethod::Certificate(names) => format!("certificate {}", names.join(", ")),
    };
    writeln!(text, "#   local: {id}, {method}")?;
    let method = match &connection.remote.method {
        RemoteMethod::SharedKey => "pre-shared key",
        RemoteMethod::Certificate(_) => "certificate",
        RemoteMethod::Any(_) => "pre-shared key or certificate",
    };
    writeln!(text, "#   remote: {}, {method}", Id(&connection.remote.id))?;
    writeln!(text, "#   proposals: {}", joined(connection.proposals.iter().map(notation::ike_proposal)))?;
    connection.children.iter().try_for_each(|child| write_child(text, child))?;
    connection.shunts.iter().try_for_each(|shunt| write_shunt(text, shunt))
}

fn write_child(text: &mut String, child: &ChildConfig) -> fmt::Result {
    let mode = match child.mode {
        ChildMode::Tunnel => "tunnel",
        ChildMode::Transport => "transport",
    };
    let traffic = traffic(&child.local_ts, &child.remote_ts);
    writeln!(text, "#   child {}: {traffic}, {mode} mode", child.name)?;
    writeln!(text, "#     proposals: {}", joined(child.proposals.iter().map(notation::child_proposal)))?;
    writeln!(
        text,
        "#     start_action = {}, dpd_action = {}, close_action = {}",
        start_action(child.start_action),
        close_action(child.dpd_action),
        close_action(child.close_action)
    )
}

fn write_shunt(text: &mut String, shunt: &Shunt) -> fmt::Result {
    let action = if shunt.passes { "passes in clear" } else { "is dropped" };
    writeln!(text, "#   child {}: {} {action}", shunt.name, traffic(&shunt.local_ts, &shunt.remote_ts))
}

fn traffic(local: &[TrafficSelectorTemplate], remote: &[TrafficSelectorTemplate]) -> String {
    let side = |selectors: &[TrafficSelectorTemplate]| joined(selectors.iter().map(Selector));
    format!("{} -> {}", side(local), side(remote))
}

fn joined(items: impl Iterator<Item = impl Display>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

const fn start_action(action: StartAction) -> &'static str {
    match (action.on_traffic, action.at_once) {
        (true, true) => "trap|start",
        (true, false) => "trap",
        (false, true) => "start",
        (false, false) => "none",
    }
}

/// The keyword, without the synonyms of strongSwan.
const fn close_action(action: CloseAction) -> &'static str {
    match action {
        CloseAction::Clear => "none",
        CloseAction::Trap => "trap",
        CloseAction::Restart => "start",
    }
}

struct Address<'a>(&'a AddrPattern);

impl Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            AddrPattern::Any => f.write_str("%any"),
            AddrPattern::Range(range) if self.0.is_single() => range.first().fmt(f),
            AddrPattern::Range(range) => range.fmt(f),
            AddrPattern::Host(name) => name.fmt(f),
        }
    }
}

struct Id<'a>(&'a IdPattern);

impl Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IdPattern::Any => f.write_str("%any"),
            IdPattern::Exact(id) => id.fmt(f),
            IdPattern::Suffix(_, end) => write!(f, "*{}", end.escape_debug()),
            IdPattern::DnPattern(pattern) => write!(f, "{}", pattern.escape_debug()),
        }
    }
}

struct Selector<'a>(&'a TrafficSelectorTemplate);

impl Display for Selector<'_> {
    /// Writes `dynamic` where the address is known at run time only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut filled = self.0.fill(&[]);
        match filled.next() {
            Some(selector) => selector.fmt(f),
            None => f.write_str("dynamic"),
        }
    }
}
