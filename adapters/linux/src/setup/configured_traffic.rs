//! Traffic that the connections of a configuration may protect. On a node of a cell it must not leave in
//! clear, because another node may be protecting it.

use crate::protected_traffic::ProtectedSelector;
use casemate_datapath::Direction;
use casemate_ike::config::{AddrPattern, ChildConfig, Connection, Pool};
use casemate_ike::{TrafficSelector, TrafficSelectorTemplate, packet_selector};
use casemate_sa::{AddrRange, SpdRules};
use std::collections::HashSet;
use std::sync::Arc;

/// Connections, and the traffic in both directions that their Child SAs may protect.
#[derive(Debug, Clone)]
pub struct ConfiguredTraffic {
    connections: Vec<Arc<Connection>>,
    traffic: HashSet<ProtectedSelector>,
}

impl ConfiguredTraffic {
    /// The traffic of these connections, whatever the `start_action` of their children. Left out are children
    /// without policies, route-based tunnels, and `dynamic` selectors whose addresses are not in the
    /// configuration: virtual addresses of this host, and peers with any address and no pool.
    pub fn of(connections: &[Arc<Connection>], pools: &[Pool]) -> Self {
        let mut traffic = HashSet::new();
        for connection in connections {
            let (local, remote) = (local_addrs(connection), remote_addrs(connection, pools));
            for child in connection.children.iter().filter(|child| child.policies) {
                add_child(child, &local, &remote, &mut traffic);
            }
        }
        Self { connections: connections.to_vec(), traffic }
    }

    /// The traffic.
    pub fn selectors(&self) -> impl Iterator<Item = ProtectedSelector> {
        self.traffic.iter().copied()
    }

    pub(super) fn connections(&self) -> &[Arc<Connection>] {
        &self.connections
    }

    pub(super) fn contains(&self, selector: &ProtectedSelector) -> bool {
        self.traffic.contains(selector)
    }
}

/// Adds the traffic of a child. `local` and `remote` replace `dynamic`.
fn add_child(
    child: &ChildConfig,
    local: &[AddrRange],
    remote: &[AddrRange],
    traffic: &mut HashSet<ProtectedSelector>,
) {
    let SpdRules { outbound, inbound } = child.spds;
    let (local, remote) = (filled(&child.local_ts, local), filled(&child.remote_ts, remote));
    let pairs = local.iter().flat_map(|local| remote.iter().map(move |remote| (local, remote)));
    for (local, remote) in pairs {
        let both = [
            (Direction::Outbound, outbound, packet_selector(local, remote)),
            (Direction::Inbound, inbound, packet_selector(remote, local)),
        ];
        let protected = both.into_iter().filter(|(_, spd, _)| spd.is_main());
        traffic.extend(protected.filter_map(|(direction, _, selector)| {
            Some(ProtectedSelector { direction, selector: selector? })
        }));
    }
}

fn filled(templates: &[TrafficSelectorTemplate], dynamic: &[AddrRange]) -> Vec<TrafficSelector> {
    let with = |TrafficSelectorTemplate { addrs, proto, ports }: &TrafficSelectorTemplate| {
        let (proto, ports) = (*proto, *ports);
        let ranges = addrs.as_ref().map_or(dynamic, std::slice::from_ref).to_vec();
        ranges.into_iter().map(move |addrs| TrafficSelector { addrs, proto, ports })
    };
    templates.iter().flat_map(with).collect()
}

fn local_addrs(connection: &Connection) -> Vec<AddrRange> {
    if connection.vips.is_empty() { known(&connection.local_addrs) } else { Vec::new() }
}

fn remote_addrs(connection: &Connection, pools: &[Pool]) -> Vec<AddrRange> {
    if connection.pools.is_empty() {
        return known(&connection.remote_addrs);
    }
    let of_connection = pools.iter().filter(|pool| connection.pools.contains(&pool.name));
    of_connection.map(|pool| pool.addrs).collect()
}

/// The addresses of patterns that match some only.
fn known(patterns: &[AddrPattern]) -> Vec<AddrRange> {
    let range = |pattern: &AddrPattern| match pattern {
        AddrPattern::Range(range) => Some(*range),
        AddrPattern::Any | AddrPattern::Host(_) => None,
    };
    let is_any = |range: &AddrRange| [AddrRange::ANY_V4, AddrRange::ANY_V6].contains(range);
    patterns.iter().filter_map(range).filter(|range| !is_any(range)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_ike::config::Identity;
    use casemate_sa::{PortRange, SpdRule};

    fn range(text: &str) -> AddrRange {
        let (addr, len) = text.split_once('/').unwrap();
        AddrRange::prefix(addr.parse().unwrap(), len.parse().unwrap()).unwrap()
    }

    fn template(addrs: Option<&str>) -> TrafficSelectorTemplate {
        TrafficSelectorTemplate { addrs: addrs.map(range), ..TrafficSelectorTemplate::DYNAMIC }
    }

    fn child(local: Option<&str>, remote: Option<&str>) -> ChildConfig {
        let mut child = ChildConfig::new("net");
        (child.local_ts, child.remote_ts) = (vec![template(local)], vec![template(remote)]);
        child
    }

    /// The traffic of a connection between 192.0.2.1 and these peers, as texts.
    fn traffic(child: ChildConfig, remote: AddrPattern, pools: &[&str]) -> Vec<String> {
        let id = |name: &str| Identity::Fqdn(name.into());
        let mut connection = Connection::with_shared_key("peer", id("cell"), id("peer"));
        connection.local_addrs = vec![AddrPattern::Range(range("192.0.2.1/32"))];
        connection.remote_addrs = vec![remote];
        connection.pools = pools.iter().map(|name| (*name).into()).collect();
        connection.children = vec![Arc::new(child)];
        let pool = |name: &str, addrs| Pool {
            name: name.into(),
            addrs: range(addrs),
            dns: Vec::new(),
            dns_domains: Vec::new(),
            subnets: Vec::new(),
        };
        let pools = [pool("one", "10.9.0.0/24"), pool("two", "10.9.1.0/24")];
        let configured = ConfiguredTraffic::of(&[Arc::new(connection)], &pools);
        let text = |ProtectedSelector { direction, selector }| format!("{direction:?} {selector}");
        let mut all: Vec<_> = configured.selectors().map(text).collect();
        all.sort();
        all
    }

    fn both(local: &str, remote: &str) -> Vec<String> {
        let between = |src, dst| casemate_sa::Selector::between(range(src), range(dst));
        let (outbound, inbound) = (between(local, remote), between(remote, local));
        vec![format!("Inbound {inbound}"), format!("Outbound {outbound}")]
    }

    #[test]
    fn subnets_are_protected_in_both_directions_whatever_the_peer() {
        let nets = child(Some("10.1.0.0/16"), Some("10.2.0.0/16"));
        assert_eq!(traffic(nets.clone(), AddrPattern::Any, &[]), both("10.1.0.0/16", "10.2.0.0/16"));
        let without = ChildConfig { policies: false, ..nets.clone() };
        assert!(traffic(without, AddrPattern::Any, &[]).is_empty());
        let mut routed = nets;
        routed.spds.outbound = SpdRule::Fixed(casemate_sa::SpdId::new(7));
        assert_eq!(traffic(routed, AddrPattern::Any, &[]), both("10.1.0.0/16", "10.2.0.0/16")[..1]);
        assert!(traffic(child(Some("10.1.0.0/16"), Some("fd00::/8")), AddrPattern::Any, &[]).is_empty());
    }

    #[test]
    fn dynamic_selectors_have_the_addresses_of_pools_or_of_the_peer() {
        let net = || child(Some("10.1.0.0/16"), None);
        let peer = |text| AddrPattern::Range(range(text));
        assert_eq!(traffic(net(), AddrPattern::Any, &["two"]), both("10.1.0.0/16", "10.9.1.0/24"));
        assert_eq!(traffic(net(), peer("192.0.2.9/32"), &[]), both("10.1.0.0/16", "192.0.2.9/32"));
        assert!(traffic(net(), AddrPattern::Any, &[]).is_empty(), "any address");
        assert!(traffic(net(), peer("0.0.0.0/0"), &[]).is_empty(), "any address");
        assert_eq!(
            traffic(child(None, None), peer("192.0.2.9/32"), &[]),
            both("192.0.2.1/32", "192.0.2.9/32")
        );
        let mut web = net();
        web.remote_ts[0].proto = Some(6);
        web.remote_ts[0].ports = PortRange::single(80);
        let text = traffic(web, peer("192.0.2.9/32"), &[]);
        assert!(text.len() == 2 && text.iter().all(|text| text.contains("80")), "{text:?}");
    }
}
