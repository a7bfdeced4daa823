//! Tunnel mode: outer headers of outgoing packets, and inner packets of received ones (RFC 4301 section
//! 5.1.2, RFC 6040).

use crate::DropReason;
use crate::ecn::{self, Ecn, Egress, Ingress};
use casemate_sa::{DfPolicy, DscpPolicy, OuterHeader};
use casemate_wire::flow::HeaderSummary;
use casemate_wire::ip::v4::{self, Ipv4, Ipv4Header};
use casemate_wire::ip::v6::{self, Ipv6, Ipv6Header};
use casemate_wire::ip::{IpVersion, proto, version};
use casemate_wire::packet::Packet;
use core::net::IpAddr;

/// Fields of a packet that its outer header depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InnerHeader {
    pub(crate) version: IpVersion,
    pub(crate) tos: u8,
    /// Whether the source forbids routers to fragment the packet. Always set for IPv6 (RFC 8200 section 5).
    pub(crate) df: bool,
    /// Whether the headers of the packet, this one among them, were compressed after it was read.
    pub(crate) is_compressed: bool,
}

impl From<&HeaderSummary> for InnerHeader {
    #[inline]
    fn from(summary: &HeaderSummary) -> Self {
        Self { version: summary.key.version(), tos: summary.tos(), df: summary.df(), is_compressed: false }
    }
}

impl InnerHeader {
    /// Placeholder until a packet is parsed.
    pub(crate) const NONE: Self = Self { version: IpVersion::V4, tos: 0, df: false, is_compressed: false };

    /// Reads the IP header at the start of `bytes`.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DropReason> {
        let malformed = |_| DropReason::MalformedHeader;
        match version(bytes).map_err(malformed)? {
            IpVersion::V4 => {
                let ip = Ipv4::parse(bytes).map_err(malformed)?;
                Ok(Self { version: IpVersion::V4, tos: ip.tos(), df: ip.df(), is_compressed: false })
            }
            IpVersion::V6 => {
                let ip = Ipv6::parse(bytes).map_err(malformed)?;
                Ok(Self { version: IpVersion::V6, tos: ip.traffic_class(), df: true, is_compressed: false })
            }
        }
    }

    pub(crate) const fn is_v4(&self) -> bool {
        matches!(self.version, IpVersion::V4)
    }

    /// The next header value for this packet (RFC 4303 section 2.6, RFC 5858 section 4.1).
    pub(crate) const fn protocol(&self) -> u8 {
        match self.version {
            _ if self.is_compressed => proto::ROHC,
            IpVersion::V4 => proto::IPIP,
            IpVersion::V6 => proto::IPV6,
        }
    }
}

/// Template of the outer header of one SA.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OuterTemplate {
    addrs: Addrs,
    choice: OuterHeader,
    /// The bits of the TOS byte or traffic class that are copied from the inner header.
    tos_copied: u8,
    /// The other bits.
    tos_set: u8,
    /// Protocol of the payload.
    protocol: u8,
}

#[derive(Debug, Clone, Copy)]
enum Addrs {
    V4(core::net::Ipv4Addr, core::net::Ipv4Addr),
    V6(core::net::Ipv6Addr, core::net::Ipv6Addr),
}

/// Header fields, except for length and identification, that may differ between packets of an SA.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderFields {
    pub(crate) tos: u8,
    /// IPv4 only.
    pub(crate) df: bool,
    /// TTL or hop limit.
    pub(crate) ttl: u8,
    /// IPv6 only.
    pub(crate) flow_label: u32,
}

/// The two addresses of an SA have different IP versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MixedVersions;

impl OuterTemplate {
    /// `protocol` is the protocol of the payload.
    pub(crate) fn new(
        src: IpAddr,
        dst: IpAddr,
        choice: OuterHeader,
        protocol: u8,
    ) -> Result<Self, MixedVersions> {
        let addrs = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Addrs::V4(src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Addrs::V6(src, dst),
            _ => return Err(MixedVersions),
        };
        let (dscp_copied, tos_set) = match choice.dscp {
            DscpPolicy::Copy => (0xfc, 0),
            DscpPolicy::Set(dscp) => (0, dscp << 2),
        };
        let ingress = if choice.ecn { Ingress::Normal } else { Ingress::Compatibility };
        // Each ingress copies both bits of a codepoint or none.
        let tos_copied = ecn::encapsulate(Ecn::Ce, ingress).apply_to_tos(dscp_copied);
        Ok(Self { addrs, choice, tos_copied, tos_set, protocol })
    }

    /// The same header with other addresses and another protocol of the payload.
    pub(crate) fn with_addrs(&self, src: IpAddr, dst: IpAddr, protocol: u8) -> Result<Self, MixedVersions> {
        Self::new(src, dst, self.choice, protocol)
    }

    /// Protocol of the payload.
    pub(crate) const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// The configured choices for the header fields.
    pub(crate) const fn choice(&self) -> OuterHeader {
        self.choice
    }

    pub(crate) const fn is_v4(&self) -> bool {
        matches!(self.addrs, Addrs::V4(..))
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        match self.addrs {
            Addrs::V4(..) => v4::HEADER_LEN,
            Addrs::V6(..) => v6::HEADER_LEN,
        }
    }

    /// Fields of the outer header of a packet that carries `inner`. `will_be_fragmented` clears DF.
    #[inline]
    pub(crate) fn fields(&self, inner: &InnerHeader, will_be_fragmented: bool) -> HeaderFields {
        let df = !will_be_fragmented && self.df(inner);
        HeaderFields { tos: self.tos(inner), df, ttl: self.choice.ttl, flow_label: 0 }
    }

    /// Writes a header with these fields to the start of `out`, in front of `payload_len` bytes. `ident` is
    /// the identification of IPv4 packets.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        out: &mut [u8],
        fields: HeaderFields,
        payload_len: usize,
        ident: u16,
    ) -> Result<(), DropReason> {
        let payload_len = u16::try_from(payload_len).map_err(|_| DropReason::TooLong)?;
        let (HeaderFields { tos, df, ttl, flow_label }, protocol) = (fields, self.protocol);
        match self.addrs {
            Addrs::V4(src, dst) => {
                // Never 0: raw sockets replace 0 by a number of their own (Linux, BSD), and AH covers the
                // field.
                let ident = ident.max(1);
                let header = Ipv4Header { tos, ident, df, ttl, protocol, src, dst, payload_len };
                let out = out.first_chunk_mut().ok_or(DropReason::NoRoom)?;
                header.emit(out).map_err(|_| DropReason::TooLong)
            }
            Addrs::V6(src, dst) => {
                let header = Ipv6Header {
                    traffic_class: tos,
                    flow_label,
                    hop_limit: ttl,
                    next_header: protocol,
                    src,
                    dst,
                    payload_len,
                };
                header.emit(out.first_chunk_mut().ok_or(DropReason::NoRoom)?);
                Ok(())
            }
        }
    }

    /// Whether the outer header forbids routers to fragment the packet.
    #[inline]
    pub(crate) fn df(&self, inner: &InnerHeader) -> bool {
        match self.choice.df {
            DfPolicy::Copy => inner.df,
            DfPolicy::Set => true,
            DfPolicy::Clear => false,
        }
    }

    /// The TOS byte or traffic class of the outer header.
    #[inline]
    pub(crate) fn tos(&self, inner: &InnerHeader) -> u8 {
        inner.tos & self.tos_copied | self.tos_set
    }
}

/// Transfers a congestion mark of the outer header to the packet that came out of a tunnel. Returns the
/// protocol field of the inner header.
///
/// Reads no more of the inner header than necessary: the next step parses the packet and cuts it to its own
/// length, because traffic-flow padding may follow (RFC 4303 section 2.7).
#[inline]
pub(crate) fn finish_decapsulation(
    packet: &mut Packet<'_>,
    next_header: u8,
    outer_tos: u8,
) -> Result<u8, DropReason> {
    let malformed = DropReason::InnerMalformed;
    let (expected, next_header_at) = match next_header {
        proto::IPIP => (IpVersion::V4, v4::PROTOCOL_AT),
        proto::IPV6 => (IpVersion::V6, v6::NEXT_HEADER_AT),
        _ => return Err(DropReason::BadNextHeader),
    };
    let Some(start) = packet.first_chunk::<{ v4::PROTOCOL_AT + 1 }>() else {
        return Err(too_short(packet.data(), expected));
    };
    if version(start).map_err(|_| malformed)? != expected {
        return Err(DropReason::BadNextHeader);
    }
    let payload = *start.get(next_header_at).ok_or(malformed)?;
    let outer = Ecn::from_tos(outer_tos);
    // In the common case there is no mark, and the inner header does not change.
    if outer != Ecn::NotEct {
        receive_ecn(packet, outer)?;
    }
    Ok(payload)
}

/// Drop reason for a packet that is shorter than any IP header.
#[cold]
fn too_short(packet: &[u8], expected: IpVersion) -> DropReason {
    match version(packet) {
        Ok(version) if version != expected => DropReason::BadNextHeader,
        _ => DropReason::InnerMalformed,
    }
}

/// RFC 6040 section 4.2.
#[inline(never)]
fn receive_ecn(packet: &mut Packet<'_>, outer: Ecn) -> Result<(), DropReason> {
    let inner = Ecn::from_packet(packet.data()).map_err(|_| DropReason::InnerMalformed)?;
    match ecn::decapsulate(inner, outer) {
        Egress::Forward(merged) | Egress::Suspect(merged, _) if merged == inner => Ok(()),
        Egress::Forward(merged) | Egress::Suspect(merged, _) => {
            merged.write_to(packet.data_mut()).map_err(|_| DropReason::InnerMalformed)
        }
        Egress::Drop => Err(DropReason::EcnInvalid),
    }
}
