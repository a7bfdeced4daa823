//! What `casemate run --dry-run` says about a configuration with IKE, as comments behind the changes of the
//! start: the cell, the traffic that is blocked, and the addresses, identities, algorithms and actions of
//! connections.

use super::plan::InitialPolicies;
use crate::log::wording;
use crate::swanctl::CellConfig;
use casemate_datapath::spd::{Action, Policy};
use casemate_eap::Method;
use casemate_ike::TrafficSelectorTemplate;
use casemate_ike::config::{
    ChildConfig, ChildMode, CloseAction, Connection, LocalMethod, RemoteAuth, RemoteMethod, Shunt,
    StartAction,
};
use casemate_linux::TunnelSpec;
use casemate_sa::{OwnSpd, SpdId, SpdOwner, SpdRule};
use std::fmt::{self, Write};
use std::sync::Arc;

/// What this gateway does as a node of a cell, as comment lines.
pub(super) fn cell(cell: &CellConfig) -> String {
    let CellConfig { name, node, lease, wrapping_key, second_wrapping_key, etcd, addresses, forward, .. } =
        cell;
    let servers: Vec<String> = etcd.servers.iter().map(ToString::to_string).collect();
    let security = if etcd.tls.is_some() { "TLS" } else { "clear text" };
    let user = etcd.login.as_ref().map_or(String::new(), |login| format!(", user {}", login.user));
    let key = match wrapping_key {
        Some(file) => file.display().to_string(),
        None => "the credential casemate-store-key of the service".into(),
    };
    let by_token = |section: &Option<String>| {
        section.as_ref().map_or(String::new(), |section| format!(", decrypted by the token of {section}"))
    };
    let key = key + &by_token(&cell.wrapping_key_token);
    let mut text = format!(
        "# cell {name}: node {node}, with a lease of {} s\n#   store: etcd at {} ({security}{user})\n#   \
         wrapping key: {key}\n",
        lease.as_secs(),
        servers.join(", ")
    );
    if let Some(file) = second_wrapping_key {
        // Writing to a string does not fail.
        let token = by_token(&cell.second_wrapping_key_token);
        let _ = writeln!(text, "#   second wrapping key: {}{token}", file.display());
    }
    for address in addresses {
        let _ = writeln!(text, "#   address {}: {address}, if no other node has it", address.name);
    }
    if let Some(address) = forward {
        let _ = writeln!(
            text,
            "#   forwards packets of peers to the owner, and receives those of other nodes at {address} (UDP)"
        );
    }
    text
}

/// The commands that make the interfaces of route-based tunnels.
pub(super) fn tunnels(tunnels: &[TunnelSpec]) -> String {
    let commands = |TunnelSpec { name, mtu, mark, set_mark, .. }: &TunnelSpec| {
        let up = format!("ip link set dev {name} mtu {mtu} up");
        let filter = format!("sysctl -w net/ipv4/conf/{name}/rp_filter=0");
        let mark =
            mark.map(|mark| format!("# traffic with mark {mark} that matches a policy enters {name}\n"));
        let set_mark = set_mark.map(|mark| format!("# decrypted packets from {name} get mark {mark}\n"));
        let [mark, set_mark] = [mark, set_mark].map(Option::unwrap_or_default);
        format!("ip tuntap add dev {name} mode tun\n{filter}\n{up}\n{mark}{set_mark}")
    };
    tunnels.iter().map(commands).collect()
}

/// The interface of this SPD.
fn interface(tunnels: &[TunnelSpec], spd: SpdId) -> Option<&str> {
    let has_spd = |tunnel: &&TunnelSpec| tunnel.spd == spd || tunnel.inbound == Some(spd);
    tunnels.iter().find(has_spd).map(|tunnel| &*tunnel.name)
}

/// The traffic that is blocked until an SA exists, one comment line for each selector.
pub(super) fn blocked_traffic(policies: &InitialPolicies, tunnels: &[TunnelSpec]) -> String {
    let blocked = policies.outbound.iter().filter(|(_, policy)| matches!(policy.action, Action::Protect(_)));
    let line = |policy: &Policy| {
        let of = interface(tunnels, policy.spd).map_or(String::new(), |name| format!(" (interface {name})"));
        format!("# blocked until an SA is up: {}{of}\n", policy.selector)
    };
    blocked.map(|(_, policy)| line(policy)).collect()
}

/// Several comment lines for each connection.
pub(super) fn connections(connections: &[Arc<Connection>], tunnels: &[TunnelSpec]) -> String {
    let mut text = String::new();
    for connection in connections {
        // Writing to a string does not fail.
        let _ = write_connection(&mut text, connection, tunnels);
    }
    text
}

fn write_connection(text: &mut String, connection: &Connection, tunnels: &[TunnelSpec]) -> fmt::Result {
    let (local, remote) = (wording::addrs(&connection.local_addrs), wording::addrs(&connection.remote_addrs));
    writeln!(text, "# connection {}: {local} -> {remote}", connection.name)?;
    for in_round in connection.in_local_rounds() {
        let id = in_round.local.id.as_ref().map_or("by certificate or address".into(), ToString::to_string);
        writeln!(text, "#   local: {id}, {}", local_method(&in_round.local.method))?;
    }
    for in_round in connection.in_remote_rounds() {
        let RemoteAuth { id, method } = &in_round.remote;
        writeln!(text, "#   remote: {}, {}", wording::id_pattern(id), remote_method(method))?;
    }
    writeln!(text, "#   proposals: {}", wording::proposals(&wording::ike_proposals(connection)))?;
    connection.children.iter().try_for_each(|child| write_child(text, child, tunnels))?;
    connection.shunts.iter().try_for_each(|shunt| write_shunt(text, shunt))
}

fn local_method(method: &LocalMethod) -> String {
    match method {
        LocalMethod::SharedKey => "pre-shared key".to_owned(),
        LocalMethod::Certificate(names) if names.is_empty() => "certificate".to_owned(),
        LocalMethod::Certificate(names) => format!("certificate or public key {}", names.join(", ")),
        LocalMethod::Eap(eap) => eap_methods(&eap.methods),
    }
}

fn remote_method(method: &RemoteMethod) -> String {
    match method {
        RemoteMethod::SharedKey => "pre-shared key".to_owned(),
        RemoteMethod::Certificate(_) => "certificate".to_owned(),
        RemoteMethod::Any(_) => "pre-shared key or certificate".to_owned(),
        RemoteMethod::Eap(eap) => eap_methods(&eap.methods),
    }
}

fn eap_methods(methods: &[Method]) -> String {
    methods.iter().map(Method::to_string).collect::<Vec<_>>().join(" or ")
}

fn write_child(text: &mut String, child: &ChildConfig, tunnels: &[TunnelSpec]) -> fmt::Result {
    let mode = match child.mode {
        ChildMode::Tunnel => "tunnel",
        ChildMode::Transport => "transport",
    };
    let traffic = traffic(&child.local_ts, &child.remote_ts);
    writeln!(text, "#   child {}: {traffic}, {mode} mode", child.name)?;
    let interface = |rule: SpdRule| match rule {
        SpdRule::Fixed(spd) => interface(tunnels, spd),
        SpdRule::Own(OwnSpd { owner: SpdOwner::ChildSa, .. }) => Some("one for each Child SA (%unique)"),
        SpdRule::Own(OwnSpd { owner: SpdOwner::IkeSa, .. }) => Some("one for each IKE SA (%unique)"),
    };
    match (interface(child.spds.outbound), interface(child.spds.inbound)) {
        (None, None) => {}
        (out, inn) if out == inn => writeln!(text, "#     interface: {}", out.unwrap_or_default())?,
        (out, inn) => {
            let [out, inn] = [out, inn].map(|name| name.unwrap_or("that of all other traffic"));
            writeln!(text, "#     interfaces: {out} outbound, {inn} inbound")?;
        }
    }
    writeln!(text, "#     proposals: {}", wording::proposals(&wording::child_proposals(child, true)))?;
    writeln!(
        text,
        "#     start_action = {}, dpd_action = {}, close_action = {}",
        start_action(child.start_action),
        dpd_action(child.dpd_action),
        close_action(child.close_action)
    )
}

fn write_shunt(text: &mut String, shunt: &Shunt) -> fmt::Result {
    let action = if shunt.passes { "passes in clear" } else { "is dropped" };
    writeln!(text, "#   child {}: {} {action}", shunt.name, traffic(&shunt.local_ts, &shunt.remote_ts))
}

fn traffic(local: &[TrafficSelectorTemplate], remote: &[TrafficSelectorTemplate]) -> String {
    format!("{} -> {}", wording::templates(local), wording::templates(remote))
}

const fn start_action(action: StartAction) -> &'static str {
    match (action.on_traffic, action.at_once) {
        (true, true) => "trap|start",
        (true, false) => "trap",
        (false, true) => "start",
        (false, false) => "none",
    }
}

/// The keyword of `close_action`, without the synonyms of strongSwan.
const fn close_action(action: CloseAction) -> &'static str {
    match action {
        CloseAction::Clear => "none",
        CloseAction::Trap => "trap",
        CloseAction::Restart => "start",
    }
}

/// The keyword of `dpd_action`, without the synonyms of strongSwan.
const fn dpd_action(action: CloseAction) -> &'static str {
    match action {
        CloseAction::Clear => "clear",
        CloseAction::Trap => "trap",
        CloseAction::Restart => "restart",
    }
}
