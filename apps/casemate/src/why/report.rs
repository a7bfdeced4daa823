//! The report about a connection, as the instance makes it: configuration, state, traffic, the last
//! negotiation, refused requests, dropped packets, and findings.

use super::findings::{Facts, findings};
use super::subject::Subject;
use crate::command::child_without_sa;
use crate::history::{ConnectionHistory, History, PastEvent, RefusedRequest};
use crate::keyring::Keyring;
use crate::log::wording;
use crate::status::{
    ChildTraffic, ConnectionStatus, Narrowing, SharedTraffic, child_traffic, last_heard, seconds,
};
use casemate::Endpoint;
use casemate_ike::config::{
    AddrPattern, ChildConfig, ChildMode, Connection, EapIdentity, HostAddrs, Lookup, RemoteMethod,
};
use casemate_linux::EndpointContext;
use casemate_linux::dns::DnsState;
use casemate_sa::{AddrRange, SpdId, SpdPair};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Version of the JSON output (docs/manual/schema/why.json).
const SCHEMA_VERSION: u32 = 1;

/// What an instance knows besides the state of its endpoint.
pub(crate) struct Sources<'s> {
    pub(crate) history: &'s History,
    pub(crate) keyring: &'s Keyring,
    /// Mark of the packets of this instance.
    pub(crate) mark: u32,
    /// Name of its TUN interface.
    pub(crate) tun: &'s str,
}

/// Reports about the connection with this name, about that of a child, or about a peer.
pub(crate) fn report(name: &str, context: &EndpointContext, sources: &Sources<'_>) -> Result<Value, String> {
    let Sources { history, keyring, mark, tun } = *sources;
    let endpoint = context.endpoint();
    let subject = Subject::find(name, endpoint, history).ok_or_else(|| not_found(name, endpoint, keyring))?;
    let connection = &subject.connection;
    let mut status = ConnectionStatus::all(endpoint, context.now(), history)
        .into_iter()
        .find(|status| status.name == connection.name)
        .ok_or_else(|| format!("{name}: the connection is no longer configured"))?;
    let ikes = subject.ikes(endpoint);
    let about = subject.facts(&ikes);
    let narrowings = Narrowing::all(ikes.clone());
    let traffic = child_traffic(endpoint, ikes.clone(), context.now());
    let shared = SharedTraffic::of(endpoint, &connection.name);
    let addrs = single_addrs(&connection.remote_addrs, context);
    let record = history.of(&connection.name).map(|record| record.only(|event| subject.concerns(event)));
    if !about.is_empty() {
        // That of the peer, not that of all peers of the connection.
        status.last_heard = last_heard(endpoint, &ikes, context.now())
            .or_else(|| Some(record.as_ref()?.events.iter().rfind(|event| event.is_from_peer)?.at.elapsed()));
    }
    let is_over = |record: &ConnectionHistory| record.last_error.as_ref().is_some_and(|error| error.is_over);
    let is_error_past = match about.is_empty() {
        true => status.is_error_past(),
        false => !ikes.is_empty() || record.as_ref().is_some_and(is_over),
    };
    let refused = history.refused(&connection.name).filter(|one| subject.concerns(&one.event));
    let refused: Vec<&RefusedRequest> = refused.collect();
    let last_refused = refused.iter().rfind(|one| !one.is_over).map(|one| &one.event);
    let past_refused = refused.last().map(|one| &one.event);
    let refused: Vec<&PastEvent> = refused.iter().map(|one| &one.event).collect();
    let drops: Vec<&PastEvent> = history.drops(&addrs).collect();
    let facts = Facts {
        connection,
        status: &status,
        peer: &about,
        is_error_past,
        ikes: &ikes,
        traffic: &traffic,
        narrowings: &narrowings,
        shared: &shared,
        record: record.as_ref(),
        last_refused,
        past_refused,
        has_drops: !drops.is_empty(),
    };
    let mut found = findings(&facts);
    found.causes.extend(keyring.invalid_certificate(connection, SystemTime::now()));
    if !connection.vips.is_empty() {
        found.causes.extend(name_servers(context.name_servers()));
    }
    let events = record.as_ref().map(|record| record.events.iter().collect::<Vec<_>>()).unwrap_or_default();
    Ok(json!({
        "schema_version": SCHEMA_VERSION,
        "ok": true,
        "connection": status.to_json(),
        "configuration": configuration(connection),
        "children": connection
            .children
            .iter()
            .map(|child| child_configuration(connection, child, context))
            .collect::<Vec<_>>(),
        "traffic": traffic.iter().map(ChildTraffic::to_json).collect::<Vec<_>>(),
        "peer_addresses": addrs.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "local_addresses": single_addrs(&connection.local_addrs, context)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        "local_networks": local_networks(connection),
        "mark": mark,
        "tun": tun,
        "events": past_events(&events),
        "refused_requests": past_events(last(&refused, 4)),
        "dropped_packets": past_events(last(&drops, 8)),
        "drop_counters": endpoint
            .datapath()
            .drops()
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.name().to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>(),
        "findings": found.causes,
        "try": found.tries,
    }))
}

/// Why there is nothing to report: a child has no SA, a user has not connected yet, or the name is unknown.
fn not_found(name: &str, endpoint: &Endpoint, keyring: &Keyring) -> String {
    if let Some(text) = child_without_sa(name, endpoint) {
        return text;
    }
    let accepts_users = |connection: &&Arc<Connection>| match &connection.remote.method {
        RemoteMethod::Eap(eap) => !eap.is_relayed() && eap.identity == EapIdentity::Asked,
        _ => false,
    };
    let connections: Vec<String> = endpoint
        .ike()
        .connections()
        .iter()
        .filter(accepts_users)
        .map(|connection| connection.name.clone())
        .collect();
    if keyring.names_user(name) && !connections.is_empty() {
        return format!(
            "{name}: a user of {}, by `secrets`; no IKE SA of this user since the start, and no recent \
             refusal",
            wording::list(&connections)
        );
    }
    format!("{name}: no connection, no child and no peer has this name")
}

fn last<'a, 'e>(events: &'a [&'e PastEvent], count: usize) -> &'a [&'e PastEvent] {
    events.get(events.len().saturating_sub(count)..).unwrap_or_default()
}

fn past_events(events: &[&PastEvent]) -> Value {
    let now = Instant::now();
    let event = |event: &&PastEvent| {
        json!({
            "seconds_ago": seconds(now.saturating_duration_since(event.at)),
            "level": event.level.name(),
            "lines": event.lines,
        })
    };
    events.iter().map(event).collect()
}

/// The name servers of tunnels that this host uses, and why it does not use others.
fn name_servers(state: &DnsState) -> impl Iterator<Item = String> {
    let in_use = state.applied.as_ref();
    let in_use =
        in_use.map(|(method, settings)| format!("name servers in use: {settings} (set by {method})"));
    let unlimited =
        state.applied.as_ref().filter(|(method, settings)| !settings.all_names && !method.limits_domains());
    let unlimited = unlimited.map(|(method, _)| {
        format!("they get all other names, too: {method} cannot limit servers to domains")
    });
    in_use.into_iter().chain(unlimited).chain(state.unused.clone())
}

/// The addresses in a list that are not patterns, and those that are known of its host names.
fn single_addrs(patterns: &[AddrPattern], context: &EndpointContext) -> Vec<IpAddr> {
    let known = |pattern: &AddrPattern| match pattern.single_addrs(Lookup::Cached, context.routes()) {
        HostAddrs::Known(addrs) => addrs,
        HostAddrs::Pending | HostAddrs::Unknown => Vec::new(),
    };
    patterns.iter().flat_map(known).collect()
}

/// The options that decide about a negotiation, in the words of the configuration file.
fn configuration(connection: &Connection) -> Value {
    let proposals = wording::proposals(&wording::ike_proposals(connection));
    let options = [
        ("local_addrs", wording::addrs(&connection.local_addrs)),
        ("remote_addrs", wording::addrs(&connection.remote_addrs)),
        ("local.auth", wording::local_auth(connection)),
        ("local.id", wording::local_id(connection)),
        ("remote.auth", wording::remote_auth(connection)),
        ("remote.id", wording::id_pattern(&connection.remote.id)),
        ("proposals", proposals),
        ("pools", wording::list(&connection.pools)),
        ("vips", wording::list(&connection.vips)),
        ("dns_domains", wording::list(&connection.dns_domains.accepted)),
    ];
    let is_set = |(_, value): &(&str, String)| !value.is_empty();
    options.into_iter().filter(is_set).map(|(name, value)| json!([name, value])).collect()
}

/// The addresses in `local_ts` of the children that may use tunnel mode, in which this host can be a gateway.
fn local_networks(connection: &Connection) -> Value {
    let children = connection.children.iter().filter(|child| child.mode == ChildMode::Tunnel);
    let mut networks: Vec<AddrRange> = Vec::new();
    for addrs in children.flat_map(|child| &child.local_ts).filter_map(|template| template.addrs) {
        if !networks.contains(&addrs) {
            networks.push(addrs);
        }
    }
    let network = |addrs: &AddrRange| {
        json!({
            "selector": addrs.to_string(),
            "first": addrs.first().to_string(),
            "last": addrs.last().to_string(),
        })
    };
    networks.iter().map(network).collect()
}

/// The interface of a direction of a child; with `%unique`, those of all Child SAs that are up.
fn interfaces(
    connection: &Connection,
    child: &ChildConfig,
    is_outbound: bool,
    context: &EndpointContext,
) -> Option<String> {
    let endpoint = context.endpoint();
    let rule = if is_outbound { child.spds.outbound } else { child.spds.inbound };
    let of = |pair: SpdPair| if is_outbound { pair.outbound } else { pair.inbound };
    let spds: Vec<SpdId> = match rule.fixed() {
        Some(spd) => vec![spd],
        None => {
            let sas = endpoint.ike().status().filter(|sa| sa.connection.name == connection.name);
            let children = sas.flat_map(|sa| sa.children).filter(|up| up.child.name == child.name);
            children.filter_map(|up| endpoint.spds_of(up.id)).map(of).collect()
        }
    };
    let names = spds.iter().filter_map(|spd| context.tunnel_names().get(spd));
    let names: Vec<&str> = names.map(String::as_str).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn child_configuration(
    connection: &Connection,
    child: &Arc<ChildConfig>,
    context: &EndpointContext,
) -> Value {
    let interface = |is_outbound| interfaces(connection, child, is_outbound, context);
    json!({
        "interface_in": interface(false),
        "interface_out": interface(true),
        "name": child.name,
        "local_ts": wording::templates(&child.local_ts),
        "remote_ts": wording::templates(&child.remote_ts),
        "proposals": wording::proposals(&wording::child_proposals(child, true)),
    })
}
