//! Which packets a trace records.

use super::step::OuterPacket;
use crate::Direction;
use casemate_sa::AddrRange;
use casemate_wire::dscp::Dscp;
use casemate_wire::flow::FlowKey;
use core::net::IpAddr;

/// Which packets a trace records: those that fit all fields that are set.
///
/// The fields from `src` to `dscp` describe the packet without protection, in one direction; packets of the
/// opposite direction match as well. They cannot match a packet that is dropped before it is decrypted;
/// [`spi`](Self::spi) and [`peer`](Self::peer) can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceFilter {
    /// Source addresses.
    pub src: Option<AddrRange>,
    /// Destination addresses.
    pub dst: Option<AddrRange>,
    /// Upper-layer protocol.
    pub proto: Option<u8>,
    /// Source port, or type of ICMP.
    pub src_port: Option<u16>,
    /// Destination port, or code of ICMP.
    pub dst_port: Option<u16>,
    /// DSCP.
    pub dscp: Option<Dscp>,
    /// SPI of the packet on the network.
    pub spi: Option<u32>,
    /// The other end of the packet on the network.
    pub peer: Option<IpAddr>,
    /// One direction only.
    pub direction: Option<Direction>,
}

impl TraceFilter {
    /// Whether the filter needs the packet without protection.
    pub(super) fn needs_flow(&self) -> bool {
        let Self { src, dst, proto, src_port, dst_port, dscp, .. } = self;
        src.is_some()
            || dst.is_some()
            || proto.is_some()
            || src_port.is_some()
            || dst_port.is_some()
            || dscp.is_some()
    }

    /// Whether the filter needs the packet on the network.
    pub(super) fn needs_outer(&self) -> bool {
        self.spi.is_some() || self.peer.is_some()
    }

    /// Whether packets of this direction may match.
    pub(super) fn takes(&self, direction: Direction) -> bool {
        self.direction.is_none_or(|wanted| wanted == direction)
    }

    /// Whether the packet without protection matches. A field that a fragment hides matches.
    pub(super) fn matches_flow(&self, flow: Option<&FlowKey>) -> bool {
        if !self.needs_flow() {
            return true;
        }
        flow.is_some_and(|flow| {
            self.dscp.is_none_or(|dscp| dscp == flow.dscp())
                && (self.matches_one_way(flow) || self.matches_one_way(&flow.reversed()))
        })
    }

    fn matches_one_way(&self, flow: &FlowKey) -> bool {
        let has_port = |wanted: Option<u16>, port| wanted.is_none_or(|wanted| wanted == port);
        self.src.is_none_or(|range| range.contains(flow.src()))
            && self.dst.is_none_or(|range| range.contains(flow.dst()))
            && self.proto.is_none_or(|wanted| flow.proto().is_none_or(|proto| proto == wanted))
            && flow
                .ports()
                .is_none_or(|ports| has_port(self.src_port, ports.src) && has_port(self.dst_port, ports.dst))
    }

    /// Whether the headers of an incoming packet match.
    pub(super) fn matches_incoming(&self, outer: &OuterPacket) -> bool {
        self.peer.is_none_or(|peer| peer == outer.src)
            && self.spi.is_none_or(|spi| outer.header.is_some_and(|header| header.spi == spi))
    }

    /// Whether an SA of an outgoing packet matches.
    pub(super) fn matches_sa(&self, spi: u32, dst: IpAddr) -> bool {
        self.peer.is_none_or(|peer| peer == dst) && self.spi.is_none_or(|wanted| wanted == spi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_wire::flow::FlowPorts;
    use casemate_wire::ip::proto;
    use core::net::Ipv4Addr;

    const LEFT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 5);
    const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 5);

    #[test]
    fn a_flow_matches_in_both_directions() {
        let flow = FlowKey::v4(LEFT, RIGHT, proto::TCP, FlowPorts::new(40_000, 443));
        let filter = TraceFilter {
            src: AddrRange::prefix(LEFT.into(), 16).ok(),
            dst: Some(AddrRange::single(RIGHT.into())),
            proto: Some(proto::TCP),
            dst_port: Some(443),
            ..TraceFilter::default()
        };
        assert!(filter.matches_flow(Some(&flow)) && filter.matches_flow(Some(&flow.reversed())));
        assert!(!filter.matches_flow(None));
        for wrong in [
            TraceFilter { dst_port: Some(80), ..filter },
            TraceFilter { proto: Some(proto::UDP), ..filter },
            TraceFilter { dst: Some(AddrRange::single(LEFT.into())), ..filter },
            TraceFilter { dscp: Dscp::new(46), ..filter },
        ] {
            assert!(!wrong.matches_flow(Some(&flow)), "{wrong:?}");
        }
        assert!(TraceFilter::default().matches_flow(None));
    }
}
