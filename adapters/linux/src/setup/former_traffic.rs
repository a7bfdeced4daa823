//! Traffic that a former run protected and nothing protects yet. It stays blocked until an SA is up or the
//! configuration does not ask for it any more.

use crate::protected_traffic::ProtectedSelector;
use casemate_datapath::Direction;
use casemate_ike::TrafficSelectorTemplate;
use casemate_ike::config::{ChildConfig, Connection};
use casemate_sa::{AddrRange, Selector};
use std::net::IpAddr;
use std::sync::Arc;

/// A selector is kept whole rather than divided into more parts than this.
const MAX_PARTS: usize = 32;

/// The parts of a selector that Child SAs of these connections may protect. It does not matter whether and
/// when the Child SAs start: traffic that was protected should be protected.
pub(super) fn still_configured(
    selector: &ProtectedSelector,
    connections: &[Arc<Connection>],
) -> Vec<ProtectedSelector> {
    covered_by_children(
        selector,
        connections.iter().flat_map(|connection| &connection.children).map(|child| &**child),
    )
}

fn covered_by_children<'c>(
    selector: &ProtectedSelector,
    children: impl Iterator<Item = &'c ChildConfig>,
) -> Vec<ProtectedSelector> {
    let ProtectedSelector { direction, selector: whole } = selector;
    let mut parts = Vec::new();
    for child in children.filter(|child| child.policies) {
        let spd = match direction {
            Direction::Outbound => child.spds.outbound,
            Direction::Inbound => child.spds.inbound,
        };
        // Routes decide about the traffic of route-based tunnels.
        if !spd.is_main() {
            continue;
        }
        for part in covered_by_child(child, *direction, whole) {
            if part == *whole || parts.len() >= MAX_PARTS {
                return vec![*selector];
            }
            let part = ProtectedSelector { direction: *direction, selector: part };
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
    }
    parts
}

fn covered_by_child(
    child: &ChildConfig,
    direction: Direction,
    whole: &Selector,
) -> impl Iterator<Item = Selector> {
    let (src, dst) = match direction {
        Direction::Outbound => (&child.local_ts, &child.remote_ts),
        Direction::Inbound => (&child.remote_ts, &child.local_ts),
    };
    let pairs = src.iter().flat_map(move |src| dst.iter().map(move |dst| (src, dst)));
    pairs.filter_map(move |(src, dst)| {
        // A dynamic traffic selector may become any address.
        let range = |template: &TrafficSelectorTemplate, former: AddrRange| match template.addrs {
            None => Some(former),
            Some(range) => intersection(&range, &former),
        };
        let proto = match (src.proto.or(dst.proto), whole.proto) {
            (Some(current), Some(former)) if current != former => return None,
            (current, former) => former.or(current),
        };
        Some(Selector { src: range(src, whole.src)?, dst: range(dst, whole.dst)?, proto, ..*whole })
    })
}

/// The addresses that both ranges have.
fn intersection(a: &AddrRange, b: &AddrRange) -> Option<AddrRange> {
    let same = a.is_ipv4() == b.is_ipv4();
    let (first, last) = (a.first().max(b.first()), a.last().min(b.last()));
    AddrRange::new(first, last).ok().filter(|_| same)
}

/// Whether `outer` matches every packet that `inner` matches.
pub(super) fn covers(outer: &Selector, inner: &Selector) -> bool {
    let inside = |outer: &AddrRange, inner: &AddrRange| {
        let within = |addr: IpAddr| outer.contains(addr);
        outer.is_ipv4() == inner.is_ipv4() && within(inner.first()) && within(inner.last())
    };
    let ports = |outer: casemate_sa::PortRange, inner: casemate_sa::PortRange| {
        outer.is_any() || (outer.first() <= inner.first() && inner.last() <= outer.last())
    };
    inside(&outer.src, &inner.src)
        && inside(&outer.dst, &inner.dst)
        && (outer.proto.is_none() || outer.proto == inner.proto)
        && ports(outer.src_port, inner.src_port)
        && ports(outer.dst_port, inner.dst_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_sa::PortRange;

    fn range(text: &str) -> AddrRange {
        let (addr, len) = text.split_once('/').unwrap();
        AddrRange::prefix(addr.parse().unwrap(), len.parse().unwrap()).unwrap()
    }

    fn selector(direction: Direction, src: &str, dst: &str) -> ProtectedSelector {
        ProtectedSelector { direction, selector: Selector::between(range(src), range(dst)) }
    }

    fn child(local: Option<&str>, remote: &str) -> ChildConfig {
        let template = |net: Option<&str>| TrafficSelectorTemplate {
            addrs: net.map(range),
            ..TrafficSelectorTemplate::DYNAMIC
        };
        let mut child = ChildConfig::new("c");
        (child.local_ts, child.remote_ts) = (vec![template(local)], vec![template(Some(remote))]);
        child
    }

    #[test]
    fn traffic_that_the_configuration_may_protect_stays_blocked() {
        let former = selector(Direction::Outbound, "10.1.0.0/16", "10.2.0.0/16");
        let still_protected = |child: ChildConfig| covered_by_children(&former, [&child].into_iter());
        assert_eq!(still_protected(child(Some("10.0.0.0/8"), "10.2.0.0/16")), [former]);
        assert_eq!(still_protected(child(None, "0.0.0.0/0")), [former], "dynamic is any address");
        let narrower = selector(Direction::Outbound, "10.1.0.0/16", "10.2.3.0/24");
        assert_eq!(still_protected(child(None, "10.2.3.0/24")), [narrower]);
        assert_eq!(still_protected(child(None, "10.3.0.0/16")), [], "the child protects other traffic");
        assert_eq!(still_protected(child(None, "fd00::/8")), []);
        assert_eq!(still_protected(ChildConfig { policies: false, ..child(None, "0.0.0.0/0") }), []);
        let back = selector(Direction::Inbound, "10.2.0.0/16", "10.1.0.0/16");
        assert_eq!(
            covered_by_children(&back, [&child(Some("10.1.0.0/16"), "10.2.0.0/16")].into_iter()),
            [back]
        );
        assert_eq!(covered_by_children(&back, [&child(Some("10.2.0.0/16"), "10.1.0.0/16")].into_iter()), []);
    }

    #[test]
    fn a_policy_covers_the_selectors_inside_it() {
        let whole = Selector::between(range("10.1.0.0/16"), range("10.2.0.0/16"));
        let mut service = whole;
        (service.proto, service.dst_port) = (Some(6), PortRange::single(80));
        assert!(covers(&whole, &whole) && covers(&whole, &service) && !covers(&service, &whole));
        let wider = Selector::between(range("10.0.0.0/8"), range("10.2.0.0/16"));
        assert!(covers(&wider, &whole) && !covers(&whole, &wider));
    }
}
