//! Warnings about pools that do not fit the children of a connection.

use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::Keys;
use casemate_ike::TrafficSelector;
use casemate_ike::config::{Connection, Pool};
use casemate_sa::AddrRange;

/// Warns of a pool that has addresses of an earlier one.
pub(super) fn overlaps(pool: &Pool, earlier: &[Pool], section: &Resolved<'_, '_>, problems: &Problems) {
    let other = earlier.iter().find(|other| overlap(other.addrs, pool.addrs));
    if let (Some(other), Some(location)) = (other, section.location()) {
        let text = format!(
            "{}: its addresses, {}, overlap with those of {}, {}: addresses of its own were expected",
            section.path(),
            pool.addrs,
            other.name,
            other.addrs
        );
        problems.warn(location, text);
    }
}

/// Warns of the pools of a connection.
pub(super) fn warn(connection: &Connection, pools: &[Pool], keys: &Keys<'_>) {
    in_networks(connection, pools, keys);
    let own: Vec<&Pool> = pools.iter().filter(|pool| connection.pools.contains(&pool.name)).collect();
    beside_drops(connection, &own, keys);
    unreachable_servers(connection, &own, keys);
}

/// Warns of a pool whose addresses belong to a network behind this host: its hosts look for the clients on
/// their own link. A network with all addresses is no such network.
fn in_networks(connection: &Connection, pools: &[Pool], keys: &Keys<'_>) {
    let templates = connection.children.iter().flat_map(|child| &child.local_ts);
    let networks: Vec<AddrRange> = templates
        .filter_map(|template| template.addrs)
        .filter(|addrs| ![AddrRange::ANY_V4, AddrRange::ANY_V6].contains(addrs))
        .collect();
    for pool in pools.iter().filter(|pool| connection.pools.contains(&pool.name)) {
        let has_pool = |network: &&AddrRange| {
            let [network, addrs] = [**network, pool.addrs].map(TrafficSelector::any);
            network.contains(&addrs)
        };
        if let Some(network) = networks.iter().find(has_pool) {
            keys.warn(
                "pools",
                &format!(
                    "the addresses of {}, {}, lie in local_ts = {network}: hosts there do not send packets \
                     for clients to this gateway unless it answers ARP or neighbor requests for them; a \
                     network of its own was expected in `addrs`",
                    pool.name, pool.addrs
                ),
            );
        }
    }
}

/// Warns of children with `mode = drop` for addresses that no pool has. Those of the pools then leave in
/// clear while their clients are not connected.
fn beside_drops(connection: &Connection, pools: &[&Pool], keys: &Keys<'_>) {
    // The pools of clients of vici, and addresses of RADIUS servers, are not known here.
    if pools.is_empty() || pools.len() < connection.pools.len() {
        return;
    }
    for shunt in connection.shunts.iter().filter(|shunt| !shunt.passes) {
        for dropped in shunt.remote_ts.iter().filter_map(|template| template.addrs) {
            let of_version = |pool: &&&Pool| pool.addrs.is_ipv4() == dropped.is_ipv4();
            let mut comparable = pools.iter().filter(of_version).peekable();
            if comparable.peek().is_some() && !comparable.any(|pool| overlap(pool.addrs, dropped)) {
                keys.warn(
                    "pools",
                    &format!(
                        "child {} drops packets to {dropped}, where no pool of this connection has \
                         addresses: the addresses of a pool were expected, such as {}",
                        shunt.name,
                        pools.first().map(|pool| pool.addrs.to_string()).unwrap_or_default()
                    ),
                );
            }
        }
    }
}

/// Warns of name servers to which no child leads: clients do not use them.
fn unreachable_servers(connection: &Connection, pools: &[&Pool], keys: &Keys<'_>) {
    let mut networks = Vec::new();
    for template in connection.children.iter().flat_map(|child| &child.local_ts) {
        // The addresses of this host are not known here.
        let Some(addrs) = template.addrs else { return };
        networks.push(addrs);
    }
    for pool in pools {
        let is_outside = |server: &&std::net::IpAddr| {
            !networks.iter().any(|network| overlap(*network, AddrRange::single(**server)))
        };
        for server in pool.dns.iter().filter(is_outside).filter(|_| !networks.is_empty()) {
            keys.warn(
                "pools",
                &format!(
                    "the name server {server} of {} is in no local_ts of this connection, so that clients do \
                     not reach it: a local_ts with it was expected",
                    pool.name
                ),
            );
        }
    }
}

/// Whether two ranges have an address in common.
fn overlap(a: AddrRange, b: AddrRange) -> bool {
    a.is_ipv4() == b.is_ipv4() && a.first() <= b.last() && b.first() <= a.last()
}
