//! ICMP errors, sent and received (RFC 4301 sections 6 and 8.2).
//!
//! [`too_big`] and [`prohibited`] turn a dropped packet into the ICMP error for its source, in the packet's
//! own buffer. RFC 1122 section 3.2.2 and RFC 4443 section 2.4 (e) say when that is allowed.
//! [`parse_inbound`] reads ICMP errors about protected packets. Errors inside an SA are ordinary packets and
//! do not come here.

mod inbound;

use casemate_wire::Malformed;
use casemate_wire::checksum::{Sum, pseudo_v6};
use casemate_wire::icmp::{self, IcmpError};
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv4Header, Ipv6, Ipv6Header, proto, v4, v6};
use casemate_wire::packet::Packet;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use inbound::{PmtuUpdate, Quoted, parse_inbound};
pub(crate) use inbound::{is_icmp_error, quoted_flow};

/// TTL and hop limit of a reply.
const REPLY_TTL: u8 = 64;
/// Precedence "internetwork control" (RFC 1812 section 4.3.2.5).
const INTERNETWORK_CONTROL: u8 = 0xc0;
/// ICMPv6 redirect. Its type is not in the range of errors, but it is treated like one (RFC 4443 section 2.4
/// (e.2)).
const REDIRECT_V6: u8 = 137;

/// Why there is no reply to a packet. The packet is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoReply {
    /// The packet is an ICMP error or redirect itself (RFC 1122 section 3.2.2, RFC 4443 section 2.4 (e.1) and
    /// (e.2)).
    IcmpError,
    /// The packet went to more than one host (RFC 1122 section 3.2.2, RFC 4443 section 2.4 (e.3)).
    Multicast,
    /// The source is not the address of a single host (RFC 1122 section 3.2.2, RFC 4443 section 2.4 (e.6)).
    NoSingleSource,
    /// The packet is not the first fragment (RFC 1122 section 3.2.2). An IPv6 fragment may belong to an ICMP
    /// error.
    LaterFragment,
    /// The reply would have no source address.
    NoAddress,
    /// The packet's buffer has no room for the headers of the reply.
    NoRoom,
    /// The packet does not parse.
    Malformed(Malformed),
}

impl From<Malformed> for NoReply {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for NoReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IcmpError => "the packet is an ICMP error",
            Self::Multicast => "the packet went to more than one host",
            Self::NoSingleSource => "the packet's source address is not a unicast address",
            Self::LaterFragment => "the packet is a later fragment",
            Self::NoAddress => "no address to reply from",
            Self::NoRoom => "no room for the reply",
            Self::Malformed(malformed) => return malformed.fmt(f),
        })
    }
}

impl core::error::Error for NoReply {}

/// Turns the packet into the error "longer than `mtu`": ICMP type 3 code 4 (RFC 1191 section 4), or ICMPv6
/// type 2 (RFC 4443 section 3.2).
///
/// The source of the reply is `local_addr` if it has the packet's IP version, else the destination of the
/// packet. The reply needs 28 bytes of room in IPv4 and 48 in IPv6, before or after the packet; bytes that
/// are not quoted count as room.
pub fn too_big(packet: &mut Packet<'_>, mtu: usize, local_addr: Option<IpAddr>) -> Result<(), NoReply> {
    let mtu = u32::try_from(mtu).unwrap_or(u32::MAX);
    reply(packet, local_addr, &|version| IcmpError::too_big(version, mtu))
}

/// Turns the packet into the error "forbidden by policy": ICMP type 3 code 13, or ICMPv6 type 1 code 1 (RFC
/// 4301 section 5.1.1). Source and room as for [`too_big`].
pub fn prohibited(packet: &mut Packet<'_>, local_addr: Option<IpAddr>) -> Result<(), NoReply> {
    reply(packet, local_addr, &IcmpError::prohibited)
}

fn reply(
    packet: &mut Packet<'_>,
    local_addr: Option<IpAddr>,
    error: &dyn Fn(IpVersion) -> IcmpError,
) -> Result<(), NoReply> {
    match ip::version(packet.data())? {
        IpVersion::V4 => reply_v4(packet, local_addr, error(IpVersion::V4)),
        IpVersion::V6 => reply_v6(packet, local_addr, error(IpVersion::V6)),
    }
}

fn reply_v4(packet: &mut Packet<'_>, local_addr: Option<IpAddr>, error: IcmpError) -> Result<(), NoReply> {
    let ip = Ipv4::parse(packet.data())?;
    may_reply_v4(&ip)?;
    let dst = ip.src();
    let src = match local_addr {
        Some(IpAddr::V4(ours)) => ours,
        _ => ip.dst(),
    };
    let quote_len = usize::from(ip.total_len()).min(icmp::MAX_QUOTE_V4);
    keep_quote(packet, quote_len, const { v4::HEADER_LEN.saturating_add(icmp::HEADER_LEN) })?;
    let (header, message) = packet.data_mut().split_first_chunk_mut().ok_or(NoReply::NoRoom)?;
    error.emit_in_place(message, Sum::ZERO).ok_or(NoReply::NoRoom)?;
    let payload_len = u16::try_from(message.len()).map_err(|_| NoReply::NoRoom)?;
    // RFC 6864 section 4: a packet with DF needs no identification.
    let ip = Ipv4Header {
        tos: INTERNETWORK_CONTROL,
        ident: 0,
        df: true,
        ttl: REPLY_TTL,
        protocol: proto::ICMP,
        src,
        dst,
        payload_len,
    };
    Ok(ip.emit(header)?)
}

fn reply_v6(packet: &mut Packet<'_>, local_addr: Option<IpAddr>, error: IcmpError) -> Result<(), NoReply> {
    let ip = Ipv6::parse(packet.data())?;
    may_reply_v6(&ip, &error)?;
    let dst = ip.src();
    let src = match local_addr {
        Some(IpAddr::V6(ours)) => ours,
        _ if ip.dst().is_multicast() => return Err(NoReply::NoAddress),
        _ => ip.dst(),
    };
    let quote_len = ip.total_len().min(icmp::MAX_QUOTE_V6);
    keep_quote(packet, quote_len, const { v6::HEADER_LEN.saturating_add(icmp::HEADER_LEN) })?;
    let (header, message) = packet.data_mut().split_first_chunk_mut().ok_or(NoReply::NoRoom)?;
    let payload_len = u16::try_from(message.len()).map_err(|_| NoReply::NoRoom)?;
    let pseudo = pseudo_v6(src, dst, proto::ICMPV6, payload_len.into());
    error.emit_in_place(message, pseudo).ok_or(NoReply::NoRoom)?;
    let ip = Ipv6Header {
        traffic_class: INTERNETWORK_CONTROL,
        flow_label: 0,
        payload_len,
        next_header: proto::ICMPV6,
        hop_limit: REPLY_TTL,
        src,
        dst,
    };
    ip.emit(header);
    Ok(())
}

/// Cuts the packet to `quote_len` bytes and adds `headers_len` bytes in front.
fn keep_quote(packet: &mut Packet<'_>, quote_len: usize, headers_len: usize) -> Result<(), NoReply> {
    let len = packet.len();
    packet.set_len(quote_len).map_err(|_| NoReply::NoRoom)?;
    if packet.grow_front(headers_len).is_ok() {
        return Ok(());
    }
    if packet.grow_back(headers_len).is_err() {
        packet.set_len(len).map_err(|_| NoReply::NoRoom)?;
        return Err(NoReply::NoRoom);
    }
    packet.data_mut().copy_within(..quote_len, headers_len);
    Ok(())
}

fn may_reply_v4(ip: &Ipv4<&[u8]>) -> Result<(), NoReply> {
    if ip.frag_offset() != 0 {
        return Err(NoReply::LaterFragment);
    }
    // A packet too short to have a type counts as an error.
    let is_error = |kind: Option<&u8>| kind.is_none_or(|&kind| icmp::is_error(IpVersion::V4, kind));
    if ip.protocol() == proto::ICMP && is_error(ip.payload().first()) {
        return Err(NoReply::IcmpError);
    }
    if ip.dst().is_multicast() || ip.dst().is_broadcast() {
        return Err(NoReply::Multicast);
    }
    if is_single_host_v4(ip.src()) { Ok(()) } else { Err(NoReply::NoSingleSource) }
}

fn may_reply_v6(ip: &Ipv6<&[u8]>, error: &IcmpError) -> Result<(), NoReply> {
    let chain = ip.chain()?;
    if chain.is_later_fragment() {
        return Err(NoReply::LaterFragment);
    }
    let is_error = |kind: Option<&u8>| {
        kind.is_none_or(|&kind| icmp::is_error(IpVersion::V6, kind) || kind == REDIRECT_V6)
    };
    if chain.last.next_header == proto::ICMPV6 && is_error(ip.packet().get(chain.last.at)) {
        return Err(NoReply::IcmpError);
    }
    // RFC 4443 section 2.4 (e.3), exception (1): path MTU discovery works for multicast too.
    let too_big = matches!(error.cause(), icmp::Cause::TooBig { .. });
    if ip.dst().is_multicast() && !too_big {
        return Err(NoReply::Multicast);
    }
    if is_single_host_v6(ip.src()) { Ok(()) } else { Err(NoReply::NoSingleSource) }
}

/// RFC 1812 section 5.3.7: not "this network", loopback, multicast, class E or broadcast.
fn is_single_host_v4(addr: Ipv4Addr) -> bool {
    let [first, ..] = addr.octets();
    first != 0 && first < 224 && !addr.is_loopback()
}

fn is_single_host_v6(addr: Ipv6Addr) -> bool {
    !addr.is_unspecified() && !addr.is_multicast() && !addr.is_loopback()
}

#[cfg(test)]
mod tests;
