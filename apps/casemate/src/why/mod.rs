//! `casemate why`: explains the state of a connection.
//!
//! The instance reports what it knows (`report`) and concludes what is wrong (`findings`). The client adds
//! what every user may look up: the route to the peer (`routes`), and whether this host forwards packets
//! (`forwarding`). It prints everything (`render`).

mod eap_advice;
mod findings;
mod forwarding;
mod negotiation;
mod render;
mod report;
mod routes;
mod subject;
mod traffic;

pub(crate) use report::{Sources, report};
pub(crate) use routes::route;

use crate::control::{self, Request};
use crate::failure::Failure;
use crate::output::print;
use crate::printable;
use casemate_linux::netlink::{Link, Netlink};
use clap::Args;
use routes::{Misrouting, misrouted};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  casemate why gw          why the connection `gw` is in its state, and what to try
  casemate why gw --json   the same as a JSON object
  casemate why carol       the connection of the user `carol`, who is connected or was refused

The report contains no key.";

/// Arguments of `why`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WhyArgs {
    /// A connection, one of its children, or both as `connection/child`; or a peer by its EAP identity, or by
    /// its IKE SA such as `gw[3]`.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Print a JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Timeout of the request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the command.
pub fn why(args: &WhyArgs) -> Result<(), Failure> {
    let mut report = control::query(&Request::Why(args.name.clone()), TIMEOUT)?;
    if let Some(error) = report.get("error").and_then(Value::as_str) {
        return Err(Failure::failed(error));
    }
    add_facts_of_host(&mut report);
    print(&if args.json {
        format!("{}\n", printable::json(&report))
    } else {
        render::render(&printable::value(report))
    })
}

/// Adds the route to each address of the peer, and what is wrong with the addresses, routes and forwarding of
/// this host.
fn add_facts_of_host(report: &mut Value) {
    let mark = report.get("mark").and_then(Value::as_u64).and_then(|mark| u32::try_from(mark).ok());
    let [peer, local] = ["peer_addresses", "local_addresses"].map(|name| addresses(report, name));
    let tun = report.get("tun").and_then(Value::as_str).unwrap_or_default().to_owned();
    let (mut routes, mut own, mut assigned, mut links) = (Vec::new(), None, Vec::new(), Vec::new());
    match Netlink::open() {
        Ok(mut netlink) => {
            routes = peer.iter().map(|addr| route(&mut netlink, *addr, mark.unwrap_or(0))).collect();
            own = netlink.addresses().ok();
            let of_tun = netlink.link(&tun).and_then(|link| netlink.addresses_of(link.index));
            assigned = of_tun.unwrap_or_default();
            links = netlink.links().unwrap_or_default();
        }
        Err(error) => routes.push(json!({"error": error.to_string()})),
    }
    for addr in local.iter().filter(|addr| own.as_ref().is_some_and(|own| !own.contains(addr))) {
        add_finding(
            report,
            Rank::Last,
            &format!("local_addrs = {addr} is not an address of this host"),
            &format!("add {addr} to an interface, or correct local_addrs: `ip address` shows the addresses"),
        );
    }
    if let Some(Misrouting { cause, advice }) =
        misrouted(report, &routes, &assigned, own.as_deref().unwrap_or_default())
    {
        add_finding(report, Rank::First, &cause, &advice);
    }
    let unreachable = without_route(&routes);
    // The other addresses of a peer may be in use.
    let rank = if unreachable.len() < routes.len() { Rank::Last } else { Rank::First };
    for addr in unreachable {
        add_finding(
            report,
            rank,
            &format!("there is no route to the peer: {addr}"),
            "add a route to the peer or a default route: `ip route` and `ip -6 route` show those of this \
             host, and `ip address` whether an interface has an address of the same IP version",
        );
    }
    for interface in without_carrier(&routes, &links) {
        add_finding(
            report,
            Rank::First,
            &format!(
                "{interface}, on the route to the peer, has no carrier: a cable or the radio link is missing"
            ),
            &format!(
                "plug in the cable of {interface}, or connect to its radio network: `ip link show \
                 {interface}`"
            ),
        );
    }
    if let Some(own) = &own {
        for found in forwarding::findings(report, own) {
            add_finding(report, Rank::Last, &found.cause, &found.advice);
        }
    }
    if let Some(fields) = report.as_object_mut() {
        fields.insert("routes".into(), routes.into());
    }
}

/// The addresses of the peer to which there is no route.
fn without_route(routes: &[Value]) -> Vec<String> {
    let failed = routes.iter().filter(|route| route.get("error").is_some());
    failed.filter_map(|route| route.get("address")?.as_str()).map(str::to_owned).collect()
}

/// The interfaces of routes to the peer that cannot carry packets.
fn without_carrier(routes: &[Value], links: &[Link]) -> Vec<String> {
    let names = routes.iter().filter_map(|route| route.get("interface")?.as_str());
    let has_none = |name: &&str| links.iter().any(|link| link.name == *name && !link.has_carrier);
    names.filter(has_none).map(str::to_owned).collect()
}

/// The addresses in a field of the report.
fn addresses(report: &Value, name: &str) -> Vec<IpAddr> {
    let listed = report.get(name).and_then(Value::as_array).into_iter().flatten();
    listed.filter_map(|addr| addr.as_str()?.parse().ok()).collect()
}

/// Where a finding is added.
#[derive(Clone, Copy)]
enum Rank {
    /// Before the others, which it explains.
    First,
    Last,
}

/// Adds a finding to the report, and what to try, unless they are there.
fn add_finding(report: &mut Value, rank: Rank, cause: &str, advice: &str) {
    for (name, text) in [("findings", cause), ("try", advice)] {
        if let Some(list) = report.get_mut(name).and_then(Value::as_array_mut)
            && !list.iter().any(|known| known == text)
        {
            let at = if let Rank::First = rank { 0 } else { list.len() };
            list.insert(at, text.into());
        }
    }
}
