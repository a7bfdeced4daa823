//! The visible headers of a packet, before any key is used.

use casemate_sa::AddrPair;
use casemate_wire::esp::EspHeader;
use casemate_wire::flow::{FlowKey, FlowPorts};
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto, version};
use casemate_wire::udp::{self, NATT_PORT, Natt, Udp};
use std::fmt;

/// The initial port of IKE (RFC 7296 section 2).
const IKE_PORT: u16 = 500;

/// Addresses, protocol, and the fields of ESP or AH if present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OuterHeaders {
    pub(super) addresses: Option<AddrPair>,
    /// That of `protection`, if there is any, also inside UDP.
    pub(super) protocol: Option<u8>,
    pub(super) protection: Option<Protection>,
}

/// The visible fields of ESP or AH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Protection {
    protocol: u8,
    pub(super) spi: u32,
    /// The sequence number, or the lower half of an extended one.
    pub(super) seq: u32,
}

impl OuterHeaders {
    /// Parses an IP packet. ESP is also recognised inside UDP to one of `encap_ports`.
    pub(super) fn parse(packet: &[u8], encap_ports: &[u16]) -> Self {
        let flow = FlowKey::parse_quoted(packet).ok();
        let addresses = flow.map(|flow| AddrPair { src: flow.src(), dst: flow.dst() });
        let upper = upper_layer(packet);
        let protection = upper.as_ref().and_then(|upper| upper.protection(encap_ports));
        let protocol = protection.map(|fields| fields.protocol).or(upper.map(|upper| upper.protocol));
        Self { addresses, protocol, protection }
    }
}

/// What is behind the IP headers.
struct UpperLayer<'p> {
    protocol: u8,
    /// Whether the header of the protocol is in an earlier fragment.
    is_later_fragment: bool,
    payload: &'p [u8],
}

fn upper_layer(packet: &[u8]) -> Option<UpperLayer<'_>> {
    match version(packet).ok()? {
        IpVersion::V4 => {
            let ip = Ipv4::parse_quoted(packet).ok()?;
            Some(UpperLayer {
                protocol: ip.protocol(),
                is_later_fragment: ip.frag_offset() != 0,
                payload: packet.get(ip.header_len()..)?,
            })
        }
        IpVersion::V6 => {
            let ip = Ipv6::parse_quoted(packet).ok()?;
            let chain = ip.chain().ok()?;
            Some(UpperLayer {
                protocol: chain.last.next_header,
                is_later_fragment: chain.is_later_fragment(),
                payload: packet.get(chain.last.at..)?,
            })
        }
    }
}

impl<'p> UpperLayer<'p> {
    fn protection(&self, encap_ports: &[u16]) -> Option<Protection> {
        if self.is_later_fragment {
            return None;
        }
        match self.protocol {
            proto::ESP => Protection::parse(proto::ESP, self.payload),
            // The length field is not checked: the SPI and sequence number suffice.
            proto::AH => Protection::parse(proto::AH, self.payload.get(4..)?),
            proto::UDP => {
                let udp = Udp::parse(self.payload).ok()?;
                let Natt::Esp(esp) = Natt::classify(udp.payload()) else { return None };
                encap_ports.contains(&udp.dst_port()).then(|| Protection::parse(proto::ESP, esp))?
            }
            _ => None,
        }
    }

    /// The UDP datagram, if its header is here.
    fn datagram(&self) -> Option<&'p [u8]> {
        (self.protocol == proto::UDP && !self.is_later_fragment).then_some(self.payload)
    }
}

impl Protection {
    /// Parses an SPI with a sequence number.
    fn parse(protocol: u8, fields: &[u8]) -> Option<Self> {
        let EspHeader { spi, seq, .. } = EspHeader::parse(fields).ok()?;
        Some(Self { protocol, spi, seq })
    }
}

/// The ports, if the packet has a UDP header.
pub(super) fn udp_ports(packet: &[u8]) -> Option<FlowPorts> {
    let udp = Udp::parse(upper_layer(packet)?.datagram()?).ok()?;
    Some(FlowPorts::new(udp.src_port(), udp.dst_port()))
}

/// Returns the IKE message in an IP packet if its UDP ports are those of IKE (RFC 7296 section 2.23).
pub(super) fn ike_message(packet: &[u8]) -> Option<&[u8]> {
    let datagram = upper_layer(packet)?.datagram()?;
    let udp = Udp::parse(datagram).ok()?;
    let payload = datagram.get(udp::HEADER_LEN..usize::from(udp.len()))?;
    let is_on = |port| udp.src_port() == port || udp.dst_port() == port;
    match Natt::classify(payload) {
        Natt::NonEsp(message) if is_on(NATT_PORT) => Some(message),
        _ if is_on(IKE_PORT) => Some(payload),
        _ => None,
    }
}

/// Displays a protocol by its usual name, or by its number.
pub(super) struct ProtocolName(pub(super) u8);

impl fmt::Display for ProtocolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            proto::ICMP => "icmp",
            proto::IPIP => "ipip",
            proto::TCP => "tcp",
            proto::UDP => "udp",
            proto::IPV6 => "ipv6",
            proto::ESP => "esp",
            proto::AH => "ah",
            proto::ICMPV6 => "icmpv6",
            proto::SCTP => "sctp",
            other => return write!(f, "{other}"),
        })
    }
}
