//! What a former run protected and nothing protects yet: it stays out of the air until an SA is up or the
//! configuration says otherwise.

use crate::promises::Promise;
use casemate_datapath::Direction;
use casemate_ike::TrafficTemplate;
use casemate_ike::config::{Child, Connection};
use casemate_sa::{AddrRange, Selector};
use std::net::IpAddr;
use std::sync::Arc;

/// A promise is kept whole rather than in more parts than this.
const MAX_PARTS: usize = 32;

/// What of a promise Child SAs of these connections may carry one day. Whether and when they are begun does
/// not matter: what was protected was wanted.
pub(super) fn still_wanted(promise: &Promise, connections: &[Arc<Connection>]) -> Vec<Promise> {
    wanted_of(promise, connections.iter().flat_map(|connection| &connection.children).map(|child| &**child))
}

fn wanted_of<'c>(promise: &Promise, children: impl Iterator<Item = &'c Child>) -> Vec<Promise> {
    let (direction, whole) = promise;
    let mut parts = Vec::new();
    for child in children.filter(|child| child.policies) {
        for part in wanted_by(child, *direction, whole) {
            if part == *whole || parts.len() >= MAX_PARTS {
                return vec![*promise];
            }
            if !parts.contains(&(*direction, part)) {
                parts.push((*direction, part));
            }
        }
    }
    parts
}

fn wanted_by(child: &Child, direction: Direction, whole: &Selector) -> impl Iterator<Item = Selector> {
    let (src, dst) = match direction {
        Direction::Outbound => (&child.local_ts, &child.remote_ts),
        Direction::Inbound => (&child.remote_ts, &child.local_ts),
    };
    let pairs = src.iter().flat_map(move |src| dst.iter().map(move |dst| (src, dst)));
    pairs.filter_map(move |(src, dst)| {
        // What is dynamic may be any address.
        let range = |template: &TrafficTemplate, held: AddrRange| match template.addrs {
            None => Some(held),
            Some(range) => common(&range, &held),
        };
        let proto = match (src.proto.or(dst.proto), whole.proto) {
            (Some(wanted), Some(held)) if wanted != held => return None,
            (wanted, held) => held.or(wanted),
        };
        Some(Selector { src: range(src, whole.src)?, dst: range(dst, whole.dst)?, proto, ..*whole })
    })
}

/// The addresses in both.
fn common(a: &AddrRange, b: &AddrRange) -> Option<AddrRange> {
    let same = a.is_ipv4() == b.is_ipv4();
    let (first, last) = (a.first().max(b.first()), a.last().min(b.last()));
    AddrRange::new(first, last).ok().filter(|_| same)
}

/// Whether `outer` holds every packet of `inner`.
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

    fn promise(direction: Direction, src: &str, dst: &str) -> Promise {
        (direction, Selector::between(range(src), range(dst)))
    }

    fn child(local: Option<&str>, remote: &str) -> Child {
        let template =
            |net: Option<&str>| TrafficTemplate { addrs: net.map(range), ..TrafficTemplate::DYNAMIC };
        let mut child = Child::new("c");
        (child.local_ts, child.remote_ts) = (vec![template(local)], vec![template(Some(remote))]);
        child
    }

    #[test]
    fn what_the_configuration_may_still_protect_is_held() {
        let held = promise(Direction::Outbound, "10.1.0.0/16", "10.2.0.0/16");
        let wanted = |child: Child| wanted_of(&held, [&child].into_iter());
        assert_eq!(wanted(child(Some("10.0.0.0/8"), "10.2.0.0/16")), [held]);
        assert_eq!(wanted(child(None, "0.0.0.0/0")), [held], "dynamic is any address");
        let narrower = promise(Direction::Outbound, "10.1.0.0/16", "10.2.3.0/24");
        assert_eq!(wanted(child(None, "10.2.3.0/24")), [narrower]);
        assert_eq!(wanted(child(None, "10.3.0.0/16")), [], "it protects something else");
        assert_eq!(wanted(child(None, "fd00::/8")), []);
        assert_eq!(wanted(Child { policies: false, ..child(None, "0.0.0.0/0") }), []);
        let back = promise(Direction::Inbound, "10.2.0.0/16", "10.1.0.0/16");
        assert_eq!(wanted_of(&back, [&child(Some("10.1.0.0/16"), "10.2.0.0/16")].into_iter()), [back]);
        assert_eq!(wanted_of(&back, [&child(Some("10.2.0.0/16"), "10.1.0.0/16")].into_iter()), []);
    }

    #[test]
    fn a_policy_covers_what_lies_in_it() {
        let whole = Selector::between(range("10.1.0.0/16"), range("10.2.0.0/16"));
        let mut service = whole;
        (service.proto, service.dst_port) = (Some(6), PortRange::single(80));
        assert!(covers(&whole, &whole) && covers(&whole, &service) && !covers(&service, &whole));
        let wider = Selector::between(range("10.0.0.0/8"), range("10.2.0.0/16"));
        assert!(covers(&wider, &whole) && !covers(&whole, &wider));
    }
}
