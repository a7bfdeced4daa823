//! Warnings about pools that do not fit the children of a connection.

use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::Keys;
use casemate_ike::TrafficSelector;
use casemate_ike::config::{ChildConfig, Connection, Pool};
use casemate_sa::AddrRange;
use std::net::IpAddr;
use std::sync::Arc;

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
    if !beside_drops(connection, &own, keys) {
        uncovered(connection, &own, keys);
    }
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
/// clear while their clients are not connected. Returns whether there are any.
fn beside_drops(connection: &Connection, pools: &[&Pool], keys: &Keys<'_>) -> bool {
    // The pools of clients of vici, and addresses of RADIUS servers, are not known here.
    if pools.is_empty() || pools.len() < connection.pools.len() {
        return false;
    }
    let mut any = false;
    for shunt in connection.shunts.iter().filter(|shunt| !shunt.passes) {
        for dropped in shunt.remote_ts.iter().filter_map(|template| template.addrs) {
            let of_version = |pool: &&&Pool| pool.addrs.is_ipv4() == dropped.is_ipv4();
            let mut comparable = pools.iter().filter(of_version).peekable();
            if comparable.peek().is_some() && !comparable.any(|pool| overlap(pool.addrs, dropped)) {
                any = true;
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
    any
}

/// Warns of a pool with addresses for which no policy exists while their clients are not connected, so that
/// packets to them leave in clear.
fn uncovered(connection: &Connection, pools: &[&Pool], keys: &Keys<'_>) {
    // What enters the interface of a route-based tunnel never leaves in clear.
    let is_routed = |child: &Arc<ChildConfig>| !child.spds.are_main();
    if !connection.children.is_empty() && connection.children.iter().all(is_routed) {
        return;
    }
    let drops = connection.shunts.iter().filter(|shunt| !shunt.passes).flat_map(|shunt| &shunt.remote_ts);
    let traps = connection.children.iter().filter(|child| child.start_action.on_traffic);
    let templates = drops.chain(traps.flat_map(|child| &child.remote_ts));
    let mut covered: Vec<AddrRange> = templates.filter_map(|template| template.addrs).collect();
    covered.sort_by_key(AddrRange::first);
    for pool in pools.iter().filter(|pool| !covers(&covered, pool.addrs)) {
        keys.warn(
            "pools",
            &format!(
                "packets to an address of {} leave in clear while its client is not connected, if a route \
                 leads there: a child with mode = drop, start_action = trap and remote_ts = {} was expected",
                pool.name, pool.addrs
            ),
        );
    }
}

/// Whether ranges, sorted by their first addresses, contain all addresses of a range.
fn covers(ranges: &[AddrRange], all: AddrRange) -> bool {
    let number = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    };
    // The first address that no range contains so far; `None` after the last address of all.
    let mut next = Some(number(all.first()));
    for range in ranges.iter().filter(|range| range.is_ipv4() == all.is_ipv4()) {
        if next.is_some_and(|next| (number(range.first())..=number(range.last())).contains(&next)) {
            next = number(range.last()).checked_add(1);
        }
    }
    next.is_none_or(|next| next > number(all.last()))
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
        let is_outside =
            |server: &&IpAddr| !networks.iter().any(|network| overlap(*network, AddrRange::single(**server)));
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
