//! What routers say about the path below an SA: "fragmentation needed" and "packet too big" (RFC 4301 section 8.2.1).

use crate::pmtu;
use casemate_sa::Spi;
use casemate_wire::icmp::{Cause, IcmpError};
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6, proto};
use casemate_wire::natt::NON_ESP_MARKER;
use core::net::IpAddr;

/// A router's word that a protected packet is too long for its next hop. Not authenticated: whoever sees a packet can forge
/// one, so whether to believe it is the administrator's choice (RFC 4301 section 6.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PmtuUpdate {
    /// Source of the packet that was too long: the outer header's, so ours.
    pub src: IpAddr,
    /// Its destination.
    pub dst: IpAddr,
    /// Which SA it belonged to.
    pub quoted: Quoted,
    /// How long it may be, outer header included.
    pub mtu: usize,
}

/// As much of the SA as an ICMP error shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoted {
    /// ESP right behind IP.
    Esp(Spi),
    /// AH.
    Ah(Spi),
    /// Behind UDP; only if the ports are those of an SA, it was UDP-encapsulated ESP (RFC 3948).
    UdpEsp {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
        /// An error that does not quote it is ignored, although RFC 792 lets a router end before it: ports
        /// and addresses of an SA are no secret, so anybody could lower the path MTU of all SAs between them
        /// (RFC 4301 section 6.1.1).
        spi: Spi,
    },
}

/// Reads an ICMP error about the path MTU; `None` if the packet is anything else, damaged, not about ESP or AH, or makes no
/// claim that could be true.
pub fn parse_inbound(packet: &[u8]) -> Option<PmtuUpdate> {
    match ip::version(packet).ok()? {
        IpVersion::V4 => parse_v4(packet),
        IpVersion::V6 => parse_v6(packet),
    }
}

fn parse_v4(packet: &[u8]) -> Option<PmtuUpdate> {
    let ip = Ipv4::parse(packet).ok().filter(|ip| ip.protocol() == proto::ICMP && !ip.is_fragment())?;
    let (error, quote) = IcmpError::parse_v4(ip.payload()).ok()?;
    // Later fragments do not show the SPI.
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
            // RFC 4302 section 2: next header, length and a reserved field stand before the SPI.
            proto::AH => Spi::new(spi_at(4)?).map(Self::Ah),
            proto::UDP => {
                let &[s0, s1, d0, d1] = payload.first_chunk()?;
                // RFC 3948 section 2.2: behind the non-ESP marker is IKE. An SPI that is no SA's is none
                // either.
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
