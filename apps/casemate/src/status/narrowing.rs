//! Configured traffic selectors that were not negotiated entirely, because the peer allows less traffic (RFC
//! 7296 section 2.9).

use crate::log::wording;
use casemate_ike::{ChildState, ChildStatus, IkeStatus, TrafficSelector, TrafficSelectorTemplate};
use casemate_sa::{AddrRange, Mode};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Maximum number of negotiated selectors in a text.
const MAX_SHOWN: usize = 8;

/// A child whose Child SAs together carry less traffic than configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Narrowing {
    /// Connection and child.
    name: String,
    /// The sides that were narrowed.
    sides: Vec<NarrowedSide>,
}

/// Traffic selectors of one side.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NarrowedSide {
    /// Option of the configuration file on this host.
    option: &'static str,
    /// The same option on the peer.
    option_of_peer: &'static str,
    configured: Vec<TrafficSelectorTemplate>,
    negotiated: Vec<TrafficSelector>,
}

impl Narrowing {
    /// The children of these IKE SAs whose Child SAs are narrower than configured, in the order of their
    /// names.
    pub(crate) fn all(sas: impl IntoIterator<Item = IkeStatus>) -> Vec<Self> {
        let mut children: BTreeMap<String, Vec<ChildStatus>> = BTreeMap::new();
        for sa in sas {
            for child in sa.children.into_iter().filter(|child| child.state != ChildState::Closing) {
                let name = format!("{}/{}", sa.connection.name, child.child.name);
                children.entry(name).or_default().push(child);
            }
        }
        children.into_iter().filter_map(|(name, sas)| Self::of(name, &sas)).collect()
    }

    fn of(name: String, sas: &[ChildStatus]) -> Option<Self> {
        let sides = sides(sas);
        (!sides.is_empty()).then_some(Self { name, sides })
    }

    /// The fact: configured and negotiated selectors.
    pub(crate) fn cause(&self) -> String {
        let side = |NarrowedSide { option, configured, negotiated, .. }: &NarrowedSide| {
            let shown = wording::list(negotiated.iter().take(MAX_SHOWN));
            let more = match negotiated.len().saturating_sub(MAX_SHOWN) {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            format!("{option} = {}, negotiated {shown}{more}", wording::templates(configured))
        };
        let sides: Vec<String> = self.sides.iter().map(side).collect();
        format!("{}: the Child SA is narrower than configured: {}", self.name, sides.join("; "))
    }

    /// What to change so that all configured traffic passes.
    pub(crate) fn advice(&self) -> Vec<String> {
        let side = |NarrowedSide { configured, option_of_peer, .. }: &NarrowedSide| {
            format!(
                "packets outside the negotiated selectors do not use this Child SA: if they should, \
                 {option_of_peer} of the peer must contain {}",
                wording::templates(configured)
            )
        };
        self.sides.iter().map(side).collect()
    }

    /// Whether one of these ranges has addresses that are configured and not negotiated.
    pub(crate) fn leaves_out(&self, addrs: &[AddrRange]) -> bool {
        let is_outside = |side: &NarrowedSide, addrs: &AddrRange| {
            let asked = TrafficSelector::any(*addrs);
            let configured = side.configured.iter().filter_map(|template| template.addrs);
            let mut parts = configured.filter_map(|own| TrafficSelector::any(own).intersection(&asked));
            parts.any(|part| !covers(side.negotiated.iter().map(|part| part.addrs), part.addrs))
        };
        self.sides.iter().any(|side| addrs.iter().any(|addrs| is_outside(side, addrs)))
    }
}

/// Whether a Child SA carries less traffic than its child is configured for.
pub(super) fn is_narrowed(child: &ChildStatus) -> bool {
    !sides(std::slice::from_ref(child)).is_empty()
}

/// The sides of Child SAs of one child that were narrowed.
fn sides(sas: &[ChildStatus]) -> Vec<NarrowedSide> {
    // Rekeying may follow a reload: the latest configuration counts.
    let Some(ChildStatus { child, mode, .. }) = sas.last() else { return Vec::new() };
    let side = |option, option_of_peer, configured: &[TrafficSelectorTemplate], negotiated| NarrowedSide {
        option,
        option_of_peer,
        configured: configured.to_vec(),
        negotiated,
    };
    let local = sas.iter().flat_map(|sa| sa.local.iter().copied()).collect();
    let remote = sas.iter().flat_map(|sa| sa.remote.iter().copied()).collect();
    [
        side("local_ts", "remote_ts", &child.local_ts, distinct(local)),
        side("remote_ts", "local_ts", &child.remote_ts, distinct(remote)),
    ]
    .into_iter()
    .filter(|side| side.configured.iter().any(|template| !is_negotiated(template, *mode, &side.negotiated)))
    .collect()
}

fn distinct(selectors: Vec<TrafficSelector>) -> Vec<TrafficSelector> {
    let mut all: Vec<TrafficSelector> = Vec::new();
    for selector in selectors {
        if !all.contains(&selector) {
            all.push(selector);
        }
    }
    all
}

/// Whether the negotiated selectors contain all of a configured one. Selectors with only a part of its ports
/// count as narrower, even if they complement each other.
fn is_negotiated(template: &TrafficSelectorTemplate, mode: Mode, negotiated: &[TrafficSelector]) -> bool {
    let of_same_traffic = negotiated.iter().filter(|part| {
        let any = TrafficSelector { addrs: part.addrs, proto: template.proto, ports: template.ports };
        part.contains(&any)
    });
    match (template.addrs, mode) {
        (Some(addrs), Mode::Tunnel) => covers(of_same_traffic.map(|part| part.addrs), addrs),
        // The address is that of a host: transport mode carries no other traffic.
        (None, _) | (Some(_), Mode::Transport) => of_same_traffic.clone().any(TrafficSelector::is_single),
    }
}

/// Whether these ranges together contain all of `wanted`.
fn covers(ranges: impl Iterator<Item = AddrRange>, wanted: AddrRange) -> bool {
    let mut ranges: Vec<(u128, u128)> = ranges
        .filter(|range| range.is_ipv4() == wanted.is_ipv4())
        .map(|range| (bits(range.first()), bits(range.last())))
        .collect();
    ranges.sort_unstable();
    // The first address that no range has contained so far.
    let mut next = bits(wanted.first());
    for (first, last) in ranges {
        if first > next {
            return false;
        }
        if last >= bits(wanted.last()) {
            return true;
        }
        next = next.max(last.saturating_add(1));
    }
    false
}

fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_bits().into(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_sa::PortRange;

    fn range(text: &str) -> AddrRange {
        let (addr, len) = text.split_once('/').unwrap();
        AddrRange::prefix(addr.parse().unwrap(), len.parse().unwrap()).unwrap()
    }

    fn template(text: &str) -> TrafficSelectorTemplate {
        let addrs = (text != "dynamic").then(|| range(text));
        TrafficSelectorTemplate { addrs, ..TrafficSelectorTemplate::DYNAMIC }
    }

    fn is_complete(configured: &str, negotiated: &[&str]) -> bool {
        let negotiated: Vec<TrafficSelector> =
            negotiated.iter().map(|text| TrafficSelector::any(range(text))).collect();
        is_negotiated(&template(configured), Mode::Tunnel, &negotiated)
    }

    #[test]
    fn parts_may_complement_each_other() {
        for (configured, negotiated, complete) in [
            ("10.1.0.0/16", &["10.1.0.0/16"][..], true),
            ("10.1.0.0/16", &["10.0.0.0/8"], true),
            ("10.1.0.0/16", &["10.1.128.0/17", "10.1.0.0/17"], true),
            ("10.1.0.0/16", &["10.1.0.0/17"], false),
            ("10.1.0.0/16", &["10.1.0.0/17", "10.1.192.0/18"], false),
            ("10.1.0.0/16", &[], false),
            ("::/0", &["0.0.0.0/0"], false),
            ("::/0", &["::/0"], true),
            ("dynamic", &["192.0.2.1/32"], true),
            ("dynamic", &["10.1.0.0/16"], false),
        ] {
            assert_eq!(is_complete(configured, negotiated), complete, "{configured} {negotiated:?}");
        }
    }

    #[test]
    fn protocol_and_ports_count() {
        let tcp = |ports| TrafficSelector { addrs: range("10.1.0.0/16"), proto: Some(6), ports };
        let https = PortRange::single(443);
        let any = template("10.1.0.0/16");
        let only_tcp = TrafficSelectorTemplate { proto: Some(6), ..any };
        assert!(!is_negotiated(&any, Mode::Tunnel, &[tcp(PortRange::ANY)]));
        assert!(is_negotiated(&only_tcp, Mode::Tunnel, &[tcp(PortRange::ANY)]));
        assert!(!is_negotiated(&only_tcp, Mode::Tunnel, &[tcp(https)]));
    }

    #[test]
    fn transport_mode_carries_the_traffic_of_a_host() {
        let negotiated = [TrafficSelector::any(range("192.0.2.1/32"))];
        assert!(is_negotiated(&template("192.0.2.0/24"), Mode::Transport, &negotiated));
        assert!(!is_negotiated(&template("192.0.2.0/24"), Mode::Tunnel, &negotiated));
    }

    #[test]
    fn addresses_that_were_is_outside() {
        let negotiated = vec![TrafficSelector::any(range("10.2.0.1/32"))];
        let side = NarrowedSide {
            option: "remote_ts",
            option_of_peer: "local_ts",
            configured: vec![template("10.2.0.0/16")],
            negotiated,
        };
        let narrowing = Narrowing { name: "gw/net".into(), sides: vec![side] };
        for (asked, is_outside) in
            [("10.2.9.9/32", true), ("10.0.0.0/8", true), ("10.2.0.1/32", false), ("10.3.0.0/16", false)]
        {
            assert_eq!(narrowing.leaves_out(&[range(asked)]), is_outside, "{asked}");
        }
    }
}
