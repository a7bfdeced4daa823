//! Traffic selectors of one side, and their narrowing (RFC 7296 sections 2.9 and 3.13).

use alloc::vec::Vec;
use casemate_sa::{AddrRange, PortRange, Selector};
use casemate_wire::ike::{Addresses, Ports, RangeSelector};
use casemate_wire::invariant::OrBroken;
use core::fmt;
use core::net::IpAddr;

/// Maximum number of selectors of one side of a Child SA. Narrowing leaves out the rest.
pub const MAX_SELECTORS: usize = 32;

/// Traffic selector of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TrafficSelector {
    /// Addresses.
    pub addrs: AddrRange,
    /// IP protocol number; `None` is any.
    pub proto: Option<u8>,
    /// Ports. For ICMP, the type is in the upper byte and the code in the lower one.
    pub ports: PortRange,
}

/// Traffic selectors of the packet that triggered a request for a Child SA (RFC 7296 section 2.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketSelectors {
    /// Source address, protocol and source port.
    pub src: TrafficSelector,
    /// Destination address, protocol and destination port.
    pub dst: TrafficSelector,
}

/// Configured traffic selector of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TrafficSelectorTemplate {
    /// Addresses; `None` for `dynamic`: the address of the host, or its virtual address.
    pub addrs: Option<AddrRange>,
    /// IP protocol number; `None` is any.
    pub proto: Option<u8>,
    /// Ports. For ICMP, the type is in the upper byte and the code in the lower one.
    pub ports: PortRange,
}

impl TrafficSelectorTemplate {
    /// All traffic of the host itself.
    pub const DYNAMIC: Self = Self { addrs: None, proto: None, ports: PortRange::ANY };

    /// Fills in the addresses of the host. Several virtual addresses give several selectors. An unspecified
    /// address, which is not known yet, gives all addresses.
    pub fn fill<'a>(&self, ends: &'a [IpAddr]) -> impl Iterator<Item = TrafficSelector> + use<'a> {
        let Self { addrs, proto, ports } = *self;
        let ends = if addrs.is_some() { &[] } else { ends };
        let ranges = addrs.into_iter().chain(ends.iter().map(|end| match end {
            IpAddr::V4(end) if end.is_unspecified() => AddrRange::ANY_V4,
            IpAddr::V6(end) if end.is_unspecified() => AddrRange::ANY_V6,
            end => AddrRange::single(*end),
        }));
        ranges.map(move |addrs| TrafficSelector { addrs, proto, ports })
    }
}

impl TrafficSelector {
    /// Selects all traffic of these addresses.
    pub const fn any(addrs: AddrRange) -> Self {
        Self { addrs, proto: None, ports: PortRange::ANY }
    }

    /// Converts a selector of a peer; `None` for OPAQUE ports, which no packet can match.
    pub fn from_wire(selector: &RangeSelector) -> Option<Self> {
        let addrs = match selector.addresses {
            Addresses::V4 { start, end } => AddrRange::new(start.into(), end.into()),
            Addresses::V6 { start, end } => AddrRange::new(start.into(), end.into()),
        };
        let (start, end) = (selector.ports.start(), selector.ports.end());
        let proto = Some(selector.protocol).filter(|proto| *proto != 0);
        Some(Self { addrs: addrs.ok()?, proto, ports: PortRange::new(start, end)? })
    }

    /// Converts to the wire format.
    pub fn to_wire(&self) -> RangeSelector {
        let addresses = match (self.addrs.first(), self.addrs.last()) {
            (IpAddr::V4(start), IpAddr::V4(end)) => Addresses::V4 { start, end },
            (start, end) => Addresses::V6 { start: v6(start), end: v6(end) },
        };
        // OPAQUE matches no packet with ports.
        let ports = Ports::new(self.ports.first(), self.ports.last()).or_broken(PORTS_ORDERED, Ports::OPAQUE);
        RangeSelector { protocol: self.proto.unwrap_or(0), ports, addresses }
    }

    /// Traffic that both selectors match.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let first = self.addrs.first().max(other.addrs.first());
        let last = self.addrs.last().min(other.addrs.last());
        let proto = match (self.proto, other.proto) {
            (None, proto) | (proto, None) => proto,
            (Some(a), Some(b)) if a == b => Some(a),
            _ => return None,
        };
        let (low, high) =
            (self.ports.first().max(other.ports.first()), self.ports.last().min(other.ports.last()));
        Some(Self {
            addrs: AddrRange::new(first, last)
                .ok()
                .filter(|_| self.addrs.is_ipv4() == other.addrs.is_ipv4())?,
            proto,
            ports: PortRange::new(low, high)?,
        })
    }

    /// Whether the selector includes all of `other`.
    pub fn contains(&self, other: &Self) -> bool {
        self.intersection(other) == Some(*other)
    }

    /// Whether the selector has a single address, as transport mode requires.
    pub fn is_single(&self) -> bool {
        self.addrs.first() == self.addrs.last()
    }
}

/// Narrows the offered selectors to the allowed ones (RFC 7296 section 2.9), without selectors that others
/// include.
pub fn narrow(offered: &[TrafficSelector], allowed: &[TrafficSelector]) -> Vec<TrafficSelector> {
    let mut narrowed: Vec<TrafficSelector> = Vec::new();
    for part in offered.iter().flat_map(|offer| allowed.iter().filter_map(|own| own.intersection(offer))) {
        if narrowed.iter().any(|known| known.contains(&part)) {
            continue;
        }
        narrowed.retain(|known| !part.contains(known));
        if narrowed.len() < MAX_SELECTORS {
            narrowed.push(part);
        }
    }
    // The list lives as long as its Child SA.
    narrowed.shrink_to_fit();
    narrowed
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Packet selector for traffic from `src` to `dst`; `None` if no packet matches both.
pub fn packet_selector(src: &TrafficSelector, dst: &TrafficSelector) -> Option<Selector> {
    if src.addrs.is_ipv4() != dst.addrs.is_ipv4() {
        return None;
    }
    let proto = match (src.proto, dst.proto) {
        (None, proto) | (proto, None) => proto,
        (Some(a), Some(b)) if a == b => Some(a),
        _ => return None,
    };
    let (src_port, dst_port) = match proto {
        // RFC 7296 section 3.13.1: type and code are one number, in both selectors. The data path has two
        // fields.
        Some(ICMP | ICMPV6) => icmp(if src.ports.is_any() { dst.ports } else { src.ports }),
        _ => (src.ports, dst.ports),
    };
    Some(Selector { src: src.addrs, dst: dst.addrs, proto, src_port, dst_port })
}

const PORTS_ORDERED: &str = "the first port of a range is not above the last";

/// Types and codes of a range within one type, or of whole types.
fn icmp(range: PortRange) -> (PortRange, PortRange) {
    if range.is_any() {
        return (PortRange::ANY, PortRange::ANY);
    }
    let ([first, low], [last, high]) = (range.first().to_be_bytes(), range.last().to_be_bytes());
    let range = |first: u8, last: u8| {
        let single = PortRange::single(first.into());
        PortRange::new(first.into(), last.into()).or_broken(PORTS_ORDERED, single)
    };
    let types = range(first, last);
    let codes = match (first == last, low, high) {
        (_, 0, 255) => PortRange::ANY,
        (true, low, high) => range(low, high),
        (false, ..) => PortRange::ANY,
    };
    (types, codes)
}

fn v6(addr: IpAddr) -> core::net::Ipv6Addr {
    match addr {
        IpAddr::V6(addr) => addr,
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
    }
}

/// Protocol shown by name.
struct Proto(u8);

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            ICMP => "icmp",
            6 => "tcp",
            17 => "udp",
            ICMPV6 => "ipv6-icmp",
            132 => "sctp",
            other => return other.fmt(f),
        })
    }
}

/// Port of a protocol. Type and code of ICMP are written as in strongSwan: `8`, or `3(4)` with a code.
struct Port(u8, u16);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(proto, port) = *self;
        match (proto, port.to_be_bytes()) {
            (ICMP | ICMPV6, [kind, 0]) => kind.fmt(f),
            (ICMP | ICMPV6, [kind, code]) => write!(f, "{kind}({code})"),
            _ => port.fmt(f),
        }
    }
}

impl fmt::Display for TrafficSelector {
    /// Writes `10.1.0.0/16`, `10.1.0.0/16[tcp/80]` or `10.1.0.0/16[icmp/8]`. A protocol without a well-known
    /// name is written as a number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.addrs)?;
        let (first, last) = (self.ports.first(), self.ports.last());
        match (self.proto, self.ports.is_any()) {
            (None, true) => Ok(()),
            (Some(proto), true) => write!(f, "[{}]", Proto(proto)),
            (proto, false) => {
                let proto = proto.unwrap_or(0);
                write!(f, "[{}/{}", Proto(proto), Port(proto, first))?;
                if first == last { f.write_str("]") } else { write!(f, "-{}]", Port(proto, last)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;
    use alloc::vec;
    use core::ops::RangeInclusive;

    fn traffic(first: &str, last: &str, proto: u8, ports: RangeInclusive<u16>) -> TrafficSelector {
        let addrs = AddrRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap();
        let proto = Some(proto).filter(|proto| *proto != 0);
        TrafficSelector { addrs, proto, ports: PortRange::new(*ports.start(), *ports.end()).unwrap() }
    }

    fn v4(first: &str, last: &str) -> TrafficSelector {
        traffic(first, last, 0, 0..=65_535)
    }

    #[test]
    fn intersection_of_selectors() {
        let wide = v4("10.0.0.0", "10.0.255.255");
        let part = traffic("10.0.4.0", "10.1.0.255", 6, 80..=443);
        let both = traffic("10.0.4.0", "10.0.255.255", 6, 80..=443);
        assert_eq!((wide.intersection(&part), part.intersection(&wide)), (Some(both), Some(both)));
        assert!(wide.contains(&both) && part.contains(&both) && !both.contains(&part));
        for other in [
            v4("10.1.0.0", "10.1.255.255"),
            traffic("10.0.4.0", "10.0.4.0", 17, 80..=80),
            traffic("10.0.4.0", "10.0.4.0", 6, 444..=500),
            traffic("::", "ffff::", 6, 80..=80),
        ] {
            assert_eq!(both.intersection(&other), None, "{other}");
        }
    }

    #[test]
    fn narrowing_drops_included_selectors() {
        let offered = [v4("10.0.0.1", "10.0.0.1"), v4("10.0.0.0", "10.0.0.255"), v4("10.9.0.0", "10.9.0.9")];
        let allowed = [v4("10.0.0.0", "10.0.0.127"), v4("172.16.0.0", "172.16.0.9")];
        assert_eq!(narrow(&offered, &allowed), [v4("10.0.0.0", "10.0.0.127")]);
        assert_eq!(narrow(&offered, &[]), []);
        assert_eq!(narrow(&[], &allowed), []);
    }

    #[test]
    fn the_number_of_narrowed_selectors_is_limited() {
        let host = |n: u32| {
            let addr = IpAddr::V4(n.into());
            TrafficSelector::any(AddrRange::single(addr))
        };
        let offered: Vec<TrafficSelector> = (1..=255).map(host).collect();
        let all = [v4("0.0.0.0", "255.255.255.255")];
        assert_eq!(narrow(&offered, &all), offered[..MAX_SELECTORS]);
    }

    #[test]
    fn selectors_survive_the_wire_format() {
        for part in [v4("10.0.0.0", "10.0.0.9"), traffic("2001:db8::", "2001:db8::ff", 17, 53..=53)] {
            assert_eq!(TrafficSelector::from_wire(&part.to_wire()), Some(part));
        }
        let opaque = RangeSelector { ports: Ports::OPAQUE, ..v4("10.0.0.0", "10.0.0.9").to_wire() };
        assert_eq!(TrafficSelector::from_wire(&opaque), None);
    }

    #[test]
    fn dynamic_selectors_get_addresses() {
        let ends: Vec<IpAddr> = ["192.0.2.1", "0.0.0.0", "::"].map(|end| end.parse().unwrap()).into();
        let filled: Vec<AddrRange> =
            TrafficSelectorTemplate::DYNAMIC.fill(&ends).map(|part| part.addrs).collect();
        assert_eq!(filled, [AddrRange::single(ends[0]), AddrRange::ANY_V4, AddrRange::ANY_V6]);
        let fixed =
            TrafficSelectorTemplate { addrs: Some(AddrRange::ANY_V6), ..TrafficSelectorTemplate::DYNAMIC };
        assert_eq!(fixed.fill(&ends).map(|part| part.addrs).collect::<Vec<_>>(), vec![AddrRange::ANY_V6]);
    }

    #[test]
    fn icmp_types_and_codes() {
        let icmp = |ports| traffic("10.0.0.1", "10.0.0.1", 1, ports);
        let ports = |src, dst| packet_selector(&src, &dst).map(|found| (found.src_port, found.dst_port));
        let (eight, three) = (PortRange::new(8, 8).unwrap(), PortRange::new(3, 3).unwrap());
        assert_eq!(ports(icmp(0x0800..=0x08ff), icmp(0..=65_535)), Some((eight, PortRange::ANY)));
        assert_eq!(
            ports(icmp(0..=65_535), icmp(0x0304..=0x0304)),
            Some((three, PortRange::new(4, 4).unwrap()))
        );
        assert_eq!(ports(icmp(0..=65_535), traffic("10.0.0.2", "10.0.0.2", 6, 1..=1)), None);
        assert_eq!(
            ports(icmp(0..=65_535), v4("10.0.0.2", "10.0.0.2")),
            Some((PortRange::ANY, PortRange::ANY))
        );
        assert_eq!(packet_selector(&v4("10.0.0.1", "10.0.0.1"), &traffic("::1", "::1", 0, 0..=65_535)), None);
    }

    #[test]
    fn traffic_selectors_are_displayed_as_configured() {
        let shown = |proto, ports| traffic("10.1.0.0", "10.1.255.255", proto, ports).to_string();
        assert_eq!(shown(0, 0..=65_535), "10.1.0.0/16");
        assert_eq!(shown(6, 80..=80), "10.1.0.0/16[tcp/80]");
        assert_eq!(shown(47, 0..=65_535), "10.1.0.0/16[47]");
        assert_eq!(shown(17, 1..=9), "10.1.0.0/16[udp/1-9]");
        // As charon 5.9.8 writes them.
        assert_eq!(shown(1, 0x0800..=0x0800), "10.1.0.0/16[icmp/8]");
        assert_eq!(shown(58, 0x0104..=0x0104), "10.1.0.0/16[ipv6-icmp/1(4)]");
        assert_eq!(shown(1, 0x0800..=0x08ff), "10.1.0.0/16[icmp/8-8(255)]");
    }
}
