//! Traffic selectors (RFC 4301 section 4.4.1.1, RFC 7296 section 3.13), and the sets of DSCPs that choose
//! among several SAs for the same traffic (RFC 4301 section 4.4.2.1, "DSCP values").

use crate::AddrRange;
use casemate_wire::dscp::Dscp;
use casemate_wire::flow::{FlowKey, FlowPorts};
use core::fmt;

/// An inclusive range of ports. For ICMP: of types (source) or codes (destination).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Every port, including packets without visible ports (OPAQUE, RFC 4301 section 4.4.1.1).
    pub const ANY: Self = Self { first: 0, last: u16::MAX };

    /// The ports from `first` to `last`; `None` if `first` is larger.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// A range of one port.
    pub const fn single(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// The lowest port.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The highest port.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Whether the range contains every port.
    pub const fn is_any(self) -> bool {
        self.first == 0 && self.last == u16::MAX
    }

    /// Whether the range contains `port`.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

/// Selects packets by addresses, upper-layer protocol and ports. Source and destination are those of the
/// packet.
///
/// For ICMP and ICMPv6, `src_port` is the type and `dst_port` the code, as in `ip xfrm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Source addresses.
    pub src: AddrRange,
    /// Destination addresses.
    pub dst: AddrRange,
    /// IP protocol number of the upper layer; `None` is any.
    pub proto: Option<u8>,
    /// Source ports, or ICMP types.
    pub src_port: PortRange,
    /// Destination ports, or ICMP codes.
    pub dst_port: PortRange,
}

impl Selector {
    /// All packets between the two ranges.
    pub const fn between(src: AddrRange, dst: AddrRange) -> Self {
        Self { src, dst, proto: None, src_port: PortRange::ANY, dst_port: PortRange::ANY }
    }

    /// Whether the selector needs ports, which non-initial fragments do not have.
    pub const fn needs_ports(&self) -> bool {
        !(self.src_port.is_any() && self.dst_port.is_any())
    }

    /// Whether a packet's flow matches. Hidden ports (OPAQUE) match only a range of all ports.
    pub fn matches(&self, flow: &FlowKey) -> bool {
        self.matches_except_ports(flow)
            && match flow.ports() {
                Some(ports) => self.matches_ports(ports),
                None => !self.needs_ports(),
            }
    }

    /// Whether the selector matches, or may match, depending on fields that the flow hides (OPAQUE): ports,
    /// or the protocol.
    pub fn may_match(&self, flow: &FlowKey) -> bool {
        let proto_fits = |shown| self.proto.is_none_or(|wanted| wanted == shown);
        flow.proto().is_none_or(proto_fits)
            && flow.ports().is_none_or(|ports| self.matches_ports(ports))
            && self.src.contains(flow.src())
            && self.dst.contains(flow.dst())
    }

    const fn matches_ports(&self, ports: FlowPorts) -> bool {
        self.src_port.contains(ports.src) && self.dst_port.contains(ports.dst)
    }

    /// Whether addresses and protocol match, whatever the ports.
    pub fn matches_except_ports(&self, flow: &FlowKey) -> bool {
        self.proto.is_none_or(|proto| flow.proto() == Some(proto))
            && self.src.contains(flow.src())
            && self.dst.contains(flow.dst())
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.src, self.dst)?;
        if let Some(proto) = self.proto {
            write!(f, " proto {proto}")?;
        }
        if self.needs_ports() {
            write!(
                f,
                " ports {}-{} -> {}-{}",
                self.src_port.first, self.src_port.last, self.dst_port.first, self.dst_port.last
            )?;
        }
        Ok(())
    }
}

/// A set of DSCPs, one bit for each.
///
/// An SA with the empty set accepts all DSCPs: without values, RFC 4301 section 4.4.2.1 does no filtering.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DscpSet(u64);

impl DscpSet {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains `dscp`.
    #[inline]
    pub const fn contains(self, dscp: Dscp) -> bool {
        self.0 & bit(dscp) != 0
    }

    /// The elements in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Dscp> {
        (0..=u8::MAX).map_while(Dscp::new).filter(move |dscp| self.contains(*dscp))
    }
}

/// DSCPs are below 64.
#[inline]
const fn bit(dscp: Dscp) -> u64 {
    1 << dscp.value()
}

impl FromIterator<Dscp> for DscpSet {
    fn from_iter<I: IntoIterator<Item = Dscp>>(points: I) -> Self {
        Self(points.into_iter().fold(0, |set, dscp| set | bit(dscp)))
    }
}

impl fmt::Debug for DscpSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Dscp::value)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_contains_exactly_the_added_dscps() {
        let points = [46, 0, 63, 8, 46].map(|value| Dscp::new(value).unwrap());
        let set = DscpSet::from_iter(points);
        assert!(set.iter().map(Dscp::value).eq([0, 8, 46, 63]));
        for dscp in (0..64).filter_map(Dscp::new) {
            assert_eq!(set.contains(dscp), points.contains(&dscp), "{dscp}");
            assert!(!DscpSet::NONE.contains(dscp));
            assert!(DscpSet::from_iter([dscp]).iter().eq([dscp]));
        }
        assert!(DscpSet::NONE.is_empty() && !set.is_empty());
    }
}
