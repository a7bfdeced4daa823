//! The visible headers of a packet, before any key is used.

use casemate_wire::esp::EspHeader;
use casemate_wire::flow::FlowKey;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto, version};
use casemate_wire::udp::{self, NATT_PORT, Natt, Udp};
use std::fmt;
use std::net::IpAddr;

/// The initial port of IKE (RFC 7296 section 2).
const IKE_PORT: u16 = 500;

/// Addresses, protocol, and the fields of ESP or AH if present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OuterHeaders {
    pub(super) addresses: Option<(IpAddr, IpAddr)>,
    pub(super) protocol: Option<u8>,
    /// SPI and sequence number (the lower half of an extended one).
    pub(super) protection: Option<(u32, u32)>,
}

impl OuterHeaders {
    /// Parses an IP packet. ESP is also recognised inside UDP to one of `encap_ports`.
    pub(super) fn parse(packet: &[u8], encap_ports: &[u16]) -> Self {
        let flow = FlowKey::parse_quoted(packet).ok();
        let nothing =
            Self { addresses: flow.map(|flow| (flow.src(), flow.dst())), protocol: None, protection: None };
        let Some((protocol, is_later_fragment, payload)) = upper(packet) else { return nothing };
        let protection = if is_later_fragment { None } else { protection(protocol, payload, encap_ports) };
        match protection {
            Some((protocol, fields)) => {
                Self { protocol: Some(protocol), protection: Some(fields), ..nothing }
            }
            None => Self { protocol: Some(protocol), ..nothing },
        }
    }
}

/// The upper-layer protocol, whether its header is in an earlier fragment, and the data after the IP
/// headers.
fn upper(packet: &[u8]) -> Option<(u8, bool, &[u8])> {
    match version(packet).ok()? {
        IpVersion::V4 => {
            let ip = Ipv4::parse_quoted(packet).ok()?;
            let payload = packet.get(ip.header_len()..)?;
            Some((ip.protocol(), ip.frag_offset() != 0, payload))
        }
        IpVersion::V6 => {
            let ip = Ipv6::parse_quoted(packet).ok()?;
            let chain = ip.chain().ok()?;
            Some((chain.last.next_header, chain.is_later_fragment(), packet.get(chain.last.at..)?))
        }
    }
}

fn protection(protocol: u8, payload: &[u8], encap_ports: &[u16]) -> Option<(u8, (u32, u32))> {
    match protocol {
        proto::ESP => EspHeader::parse(payload).ok().map(|esp| (proto::ESP, (esp.spi, esp.seq))),
        // The length field is not checked: the SPI and sequence number suffice.
        proto::AH => payload
            .get(4..)
            .and_then(|rest| EspHeader::parse(rest).ok())
            .map(|ah| (proto::AH, (ah.spi, ah.seq))),
        proto::UDP => {
            let datagram = Udp::parse(payload).ok().filter(|udp| encap_ports.contains(&udp.dst_port()))?;
            let Natt::Esp(esp) = Natt::classify(datagram.payload()) else { return None };
            EspHeader::parse(esp).ok().map(|esp| (proto::ESP, (esp.spi, esp.seq)))
        }
        _ => None,
    }
}

/// Source and destination port, if the packet has a UDP header.
pub(super) fn udp_ports(packet: &[u8]) -> Option<(u16, u16)> {
    let (proto::UDP, false, datagram) = upper(packet)? else { return None };
    let udp = Udp::parse(datagram).ok()?;
    Some((udp.src_port(), udp.dst_port()))
}

/// Returns the IKE message in an IP packet if its UDP ports are those of IKE (RFC 7296 section 2.23).
pub(super) fn ike_message(packet: &[u8]) -> Option<&[u8]> {
    let (proto::UDP, false, datagram) = upper(packet)? else { return None };
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
