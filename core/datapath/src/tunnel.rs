//! Tunnel mode: outer headers on the way out, inner packets on the way in (RFC 4301 section 5.1.2, RFC 6040).

use crate::DropReason;
use crate::ecn::{self, Ecn, Egress, Ingress};
use casemate_sa::{DfPolicy, DscpPolicy, OuterHeader};
use casemate_wire::flow::Overview;
use casemate_wire::ip::v4::{self, Ipv4, Ipv4Header};
use casemate_wire::ip::v6::{self, Ipv6, Ipv6Header};
use casemate_wire::ip::{IpVersion, proto, version};
use casemate_wire::packet::{NoRoom, Packet};
use core::net::IpAddr;

/// What a tunnel needs to know of the packet that goes into it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inner {
    pub(crate) version: IpVersion,
    pub(crate) tos: u8,
    /// Whether its source forbids routers to cut it. No IPv6 source lets them (RFC 8200 section 5).
    pub(crate) df: bool,
}

impl From<&Overview> for Inner {
    #[inline]
    fn from(overview: &Overview) -> Self {
        Self { version: overview.key.version(), tos: overview.tos(), df: overview.df() }
    }
}

impl Inner {
    /// Of no packet, until one is looked at.
    pub(crate) const NONE: Self = Self { version: IpVersion::V4, tos: 0, df: false };

    /// Reads the header of the packet at the start of `bytes`.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, DropReason> {
        let malformed = |_| DropReason::MalformedHeader;
        match version(bytes).map_err(malformed)? {
            IpVersion::V4 => {
                let ip = Ipv4::parse(bytes).map_err(malformed)?;
                Ok(Self { version: IpVersion::V4, tos: ip.tos(), df: ip.df() })
            }
            IpVersion::V6 => {
                let ip = Ipv6::parse(bytes).map_err(malformed)?;
                Ok(Self { version: IpVersion::V6, tos: ip.traffic_class(), df: true })
            }
        }
    }

    pub(crate) const fn is_v4(&self) -> bool {
        matches!(self.version, IpVersion::V4)
    }

    /// The value of the next header field in front of it (RFC 4303 section 2.6).
    pub(crate) const fn protocol(&self) -> u8 {
        match self.version {
            IpVersion::V4 => proto::IPIP,
            IpVersion::V6 => proto::IPV6,
        }
    }
}

/// The outer header of one SA.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outer {
    ends: Ends,
    choice: OuterHeader,
}

#[derive(Debug, Clone, Copy)]
enum Ends {
    V4(core::net::Ipv4Addr, core::net::Ipv4Addr),
    V6(core::net::Ipv6Addr, core::net::Ipv6Addr),
}

/// What differs in the headers of packets of an SA beside length and identification.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields {
    pub(crate) tos: u8,
    /// Of IPv4 alone.
    pub(crate) df: bool,
    /// TTL or hop limit.
    pub(crate) ttl: u8,
    /// Of IPv6 alone.
    pub(crate) flow_label: u32,
}

/// The two addresses of an SA are of different IP versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MixedVersions;

impl Outer {
    pub(crate) fn new(src: IpAddr, dst: IpAddr, choice: OuterHeader) -> Result<Self, MixedVersions> {
        let ends = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Ends::V4(src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Ends::V6(src, dst),
            _ => return Err(MixedVersions),
        };
        Ok(Self { ends, choice })
    }

    /// What was chosen for its fields.
    pub(crate) const fn choice(&self) -> OuterHeader {
        self.choice
    }

    pub(crate) const fn is_v4(&self) -> bool {
        matches!(self.ends, Ends::V4(..))
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        match self.ends {
            Ends::V4(..) => v4::HEADER_LEN,
            Ends::V6(..) => v6::HEADER_LEN,
        }
    }

    /// Puts the outer header in front of a payload of `protocol` that carries `inner`. `whole` clears DF, because the
    /// packet is going to be fragmented; `ident` numbers IPv4 packets.
    #[inline]
    pub(crate) fn push(
        &self,
        packet: &mut Packet<'_>,
        protocol: u8,
        inner: &Inner,
        whole: bool,
        ident: u16,
    ) -> Result<(), DropReason> {
        let (tos, df, ttl) = (self.tos(inner), !whole && self.df(inner), self.choice.ttl);
        self.push_fields(packet, protocol, Fields { tos, df, ttl, flow_label: 0 }, ident)
    }

    /// Puts a header with these fields in front of a payload of `protocol`.
    #[inline(always)]
    pub(crate) fn push_fields(
        &self,
        packet: &mut Packet<'_>,
        protocol: u8,
        fields: Fields,
        ident: u16,
    ) -> Result<(), DropReason> {
        let payload_len = u16::try_from(packet.len()).map_err(|_| DropReason::TooLong)?;
        let Fields { tos, df, ttl, flow_label } = fields;
        match self.ends {
            Ends::V4(src, dst) => {
                // Never 0: raw sockets take that for "choose one" (Linux, BSD), and AH covers it.
                let ident = ident.max(1);
                let header = Ipv4Header { tos, ident, df, ttl, protocol, src, dst, payload_len };
                header.emit(packet.prepend().map_err(no_room)?).map_err(|_| DropReason::TooLong)
            }
            Ends::V6(src, dst) => {
                let header = Ipv6Header {
                    traffic_class: tos,
                    flow_label,
                    hop_limit: ttl,
                    next_header: protocol,
                    src,
                    dst,
                    payload_len,
                };
                header.emit(packet.prepend().map_err(no_room)?);
                Ok(())
            }
        }
    }

    /// Whether the outer header forbids routers to cut the packet.
    #[inline]
    pub(crate) fn df(&self, inner: &Inner) -> bool {
        match self.choice.df {
            DfPolicy::Copy => inner.df,
            DfPolicy::Set => true,
            DfPolicy::Clear => false,
        }
    }

    /// The TOS field or traffic class of the outer header.
    #[inline]
    pub(crate) fn tos(&self, inner: &Inner) -> u8 {
        let dscp = match self.choice.dscp {
            DscpPolicy::Copy => inner.tos & 0xfc,
            DscpPolicy::Set(dscp) => dscp << 2,
        };
        let ingress = if self.choice.ecn { Ingress::Normal } else { Ingress::Compatibility };
        ecn::encapsulate(Ecn::from_tos(inner.tos), ingress).onto_tos(dscp)
    }
}

fn no_room(NoRoom: NoRoom) -> DropReason {
    DropReason::NoRoom
}

/// Lets the outer header's congestion mark take effect on the packet that came out of a tunnel. Answers the protocol that
/// the inner header names.
///
/// Looks at no more of that header than it must: whoever takes the packet next parses it, and cuts it down to its own
/// length, because traffic-flow padding may follow it (RFC 4303 section 2.7).
#[inline]
pub(crate) fn receive_inner(
    packet: &mut Packet<'_>,
    next_header: u8,
    outer_tos: u8,
) -> Result<u8, DropReason> {
    let malformed = DropReason::InnerMalformed;
    let (expected, named_at) = match version(packet.data()).map_err(|_| malformed)? {
        IpVersion::V4 => (proto::IPIP, v4::PROTOCOL_AT),
        IpVersion::V6 => (proto::IPV6, v6::NEXT_HEADER_AT),
    };
    if next_header != expected {
        return Err(DropReason::BadNextHeader);
    }
    let payload = *packet.data().get(named_at).ok_or(malformed)?;
    let outer = Ecn::from_tos(outer_tos);
    // The common case: nothing but a mark changes the inner header.
    if outer != Ecn::NotEct {
        receive_ecn(packet, outer)?;
    }
    Ok(payload)
}

/// RFC 6040 section 4.2.
fn receive_ecn(packet: &mut Packet<'_>, outer: Ecn) -> Result<(), DropReason> {
    let inner = Ecn::of(packet.data()).map_err(|_| DropReason::InnerMalformed)?;
    match ecn::decapsulate(inner, outer) {
        Egress::Forward(merged) | Egress::Suspect(merged, _) if merged == inner => Ok(()),
        Egress::Forward(merged) | Egress::Suspect(merged, _) => {
            merged.put(packet.data_mut()).map_err(|_| DropReason::InnerMalformed)
        }
        Egress::Drop => Err(DropReason::EcnInvalid),
    }
}
