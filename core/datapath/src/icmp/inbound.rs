//! Received ICMP errors about protected packets: "fragmentation needed" and "packet too big" (RFC 4301
//! section 8.2.1), and the packets that ICMP errors quote.

use crate::pmtu;
use casemate_sa::Spi;
use casemate_wire::flow::FlowKey;
use casemate_wire::icmp::{Cause, IcmpError, is_error};
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6, proto};
use casemate_wire::udp::NON_ESP_MARKER;
use core::net::IpAddr;

/// ICMP error of a router: a protected packet is too long for the next hop. Not authenticated: any host that
/// sees a packet can forge the error, so the administrator decides whether to use it (RFC 4301 section
/// 6.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PmtuUpdate {
    /// Source of the packet that was too long: a local address, from the outer header.
    pub src: IpAddr,
    /// Destination of that packet.
    pub dst: IpAddr,
    /// Fields of the SA that the error quotes.
    pub quoted: Quoted,
    /// Maximum length of a protected packet, outer header included.
    pub mtu: usize,
}

/// Fields of an SA in an ICMP error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoted {
    /// ESP directly after IP.
    Esp(Spi),
    /// AH.
    Ah(Spi),
    /// UDP. It was UDP-encapsulated ESP (RFC 3948) only if an SA has these ports.
    UdpEsp {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
        /// SPI. An error without it is ignored, although RFC 792 lets a router quote less: ports and
        /// addresses of an SA are no secret, so any host could lower the path MTU of all SAs with them (RFC
        /// 4301 section 6.1.1).
        spi: Spi,
    },
}

/// Parses an ICMP error about the path MTU; `None` if the packet is not such an error, is damaged, does not
/// quote ESP or AH, or has an impossible MTU.
pub fn parse_inbound(packet: &[u8]) -> Option<PmtuUpdate> {
    match ip::version(packet).ok()? {
        IpVersion::V4 => parse_v4(packet),
        IpVersion::V6 => parse_v6(packet),
    }
}

fn parse_v4(packet: &[u8]) -> Option<PmtuUpdate> {
    let ip = Ipv4::parse(packet).ok().filter(|ip| ip.protocol() == proto::ICMP && !ip.is_fragment())?;
    let (error, quote) = IcmpError::parse_v4(ip.payload()).ok()?;
    // Later fragments do not contain the SPI.
    let sent = Ipv4::parse_quoted(quote).ok().filter(|sent| sent.frag_offset() == 0)?;
    let len = usize::from(sent.total_len());
    let mtu = match error.cause() {
        Cause::TooBig { mtu: 0 } => pmtu::plateau_below(len),
        Cause::TooBig { mtu } => usize::try_from(mtu).ok()?,
        _ => return None,
    };
    let quoted = Quoted::parse(sent.protocol(), sent.payload())?;
    // A packet that fits was not too big.
    (mtu < len).then_some(PmtuUpdate { src: sent.src().into(), dst: sent.dst().into(), quoted, mtu })
}

fn parse_v6(packet: &[u8]) -> Option<PmtuUpdate> {
    let ip = Ipv6::parse(packet).ok()?;
    let chain = ip.chain().ok().filter(|c| c.upper() == Some(proto::ICMPV6) && c.fragment.is_none())?;
    let (error, quote) = IcmpError::parse_v6(ip.packet().get(chain.last.at..)?, ip.src(), ip.dst()).ok()?;
    let Cause::TooBig { mtu } = error.cause() else { return None };
    let mtu = usize::try_from(mtu).ok()?;
    let sent = Ipv6::parse_quoted(quote).ok()?;
    let chain = sent.chain().ok().filter(|chain| !chain.is_later_fragment())?;
    let quoted = Quoted::parse(chain.last.next_header, sent.packet().get(chain.last.at..)?)?;
    // RFC 8201 section 4: a value below the IPv6 minimum must be discarded.
    let possible = mtu >= pmtu::V6_MIN_MTU && mtu < sent.total_len();
    possible.then_some(PmtuUpdate { src: sent.src().into(), dst: sent.dst().into(), quoted, mtu })
}

impl Quoted {
    fn parse(protocol: u8, payload: &[u8]) -> Option<Self> {
        let spi_at = |at: usize| payload.get(at..)?.first_chunk().map(|spi| u32::from_be_bytes(*spi));
        match protocol {
            proto::ESP => Spi::new(spi_at(0)?).map(Self::Esp),
            // RFC 4302 section 2: next header, length and a reserved field come before the SPI.
            proto::AH => Spi::new(spi_at(4)?).map(Self::Ah),
            proto::UDP => {
                let &[s0, s1, d0, d1] = payload.first_chunk()?;
                // RFC 3948 section 2.2: the non-ESP marker means IKE. It is not a valid SPI.
                let spi = spi_at(8).filter(|&spi| spi != u32::from_be_bytes(NON_ESP_MARKER))?;
                Some(Self::UdpEsp {
                    src_port: u16::from_be_bytes([s0, s1]),
                    dst_port: u16::from_be_bytes([d0, d1]),
                    spi: Spi::new(spi)?,
                })
            }
            _ => None,
        }
    }
}

/// Whether packets of this flow are ICMP errors. Cheap enough for every packet.
#[inline]
pub(crate) fn is_icmp_error(flow: &FlowKey) -> bool {
    let version = flow.version();
    let icmp = if version == IpVersion::V4 { proto::ICMP } else { proto::ICMPV6 };
    flow.proto() == Some(icmp)
        && flow.ports().is_some_and(|ports| u8::try_from(ports.src).is_ok_and(|kind| is_error(version, kind)))
}

/// The flow of the packet that an ICMP error quotes; `None` if there is no quote or it is damaged, so that no
/// host uses it.
pub(crate) fn quoted_flow(packet: &[u8]) -> Option<FlowKey> {
    match ip::version(packet).ok()? {
        IpVersion::V4 => {
            let ip = Ipv4::parse(packet).ok().filter(|ip| ip.protocol() == proto::ICMP)?;
            FlowKey::parse_quoted(IcmpError::parse_v4(ip.payload()).ok()?.1).ok()
        }
        IpVersion::V6 => {
            let ip = Ipv6::parse(packet).ok()?;
            let chain = ip.chain().ok().filter(|chain| chain.upper() == Some(proto::ICMPV6))?;
            let message = ip.packet().get(chain.last.at..)?;
            FlowKey::parse_quoted(IcmpError::parse_v6(message, ip.src(), ip.dst()).ok()?.1).ok()
        }
    }
}
