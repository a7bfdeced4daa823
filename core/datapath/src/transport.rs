//! Transport mode: ESP or AH between the IP headers of a packet and its payload (RFC 4303 section 3.1.1).

use crate::DropReason;
use casemate_wire::ip::v4::Ipv4;
use casemate_wire::ip::v6::Ipv6;
use casemate_wire::ip::{IpVersion, v4, v6, version};
use casemate_wire::packet::{NoRoom, Packet};

/// Where ESP or AH goes in an outgoing packet: after the headers that routers read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InsertPoint {
    pub(crate) version: IpVersion,
    /// Length in bytes of the headers that stay in front.
    pub(crate) headers: usize,
    /// Offset of the protocol field in these headers.
    next_header_at: usize,
    /// Protocol of the payload.
    pub(crate) protocol: u8,
    /// Whether the packet is a fragment, which transport mode must not protect (RFC 4303 section 3.3.4).
    pub(crate) is_fragment: bool,
}

/// Finds the insert point of an outgoing packet.
#[inline]
pub(crate) fn insert_point(packet: &[u8]) -> Result<InsertPoint, DropReason> {
    let malformed = DropReason::MalformedHeader;
    match version(packet).map_err(|_| malformed)? {
        IpVersion::V4 => {
            let ip = Ipv4::parse(packet).map_err(|_| malformed)?;
            Ok(InsertPoint {
                version: IpVersion::V4,
                headers: ip.header_len(),
                next_header_at: v4::PROTOCOL_AT,
                protocol: ip.protocol(),
                is_fragment: ip.is_fragment(),
            })
        }
        IpVersion::V6 => {
            let chain = Ipv6::parse(packet).and_then(|ip| ip.chain()).map_err(|_| malformed)?;
            let point = chain.transport;
            Ok(InsertPoint {
                version: IpVersion::V6,
                headers: point.at,
                next_header_at: point.next_header_at,
                protocol: point.next_header,
                is_fragment: chain.fragment.is_some_and(|fragment| !fragment.is_atomic()),
            })
        }
    }
}

/// Makes room for `gap` bytes between headers and payload. The headers move into the head room, and the
/// packet then is the payload alone.
#[inline]
pub(crate) fn open_gap(packet: &mut Packet<'_>, headers: usize, gap: usize) -> Result<(), NoRoom> {
    let end = gap.checked_add(headers).ok_or(NoRoom)?;
    packet.grow_front(gap)?;
    if end > packet.len() {
        return Err(NoRoom);
    }
    packet.data_mut().copy_within(gap..end, 0);
    packet.shrink_front(end)
}

/// Adds the moved headers again in front of the payload, after its protection has filled the gap.
/// `will_be_fragmented` clears DF.
#[inline]
pub(crate) fn restore_headers(
    packet: &mut Packet<'_>,
    point: &InsertPoint,
    protocol: u8,
    will_be_fragmented: bool,
) -> Result<(), DropReason> {
    packet.grow_front(point.headers).map_err(|NoRoom| DropReason::NoRoom)?;
    if will_be_fragmented && point.version == IpVersion::V4 {
        let ip = Ipv4::parse_quoted(packet.data_mut());
        ip.map_err(|_| DropReason::MalformedHeader)?.set_df(false);
    }
    update_header(packet, point.version, point.next_header_at, protocol)
}

/// Closes the gap that removed protection leaves between the headers and the payload of a received packet.
#[inline]
pub(crate) fn close_gap(
    packet: &mut Packet<'_>,
    front: &FrontHeaders,
    gap: usize,
    protocol: u8,
) -> Result<(), DropReason> {
    let headers = usize::from(front.headers);
    let end = gap.checked_add(headers).ok_or(DropReason::Truncated)?;
    packet.grow_front(end).map_err(|NoRoom| DropReason::Truncated)?;
    packet.data_mut().copy_within(..headers, gap);
    packet.shrink_front(gap).map_err(|NoRoom| DropReason::Truncated)?;
    update_header(packet, front.version, front.next_header_at.into(), protocol)
}

/// The headers in front of a received ESP or AH header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrontHeaders {
    pub(crate) version: IpVersion,
    /// Length in bytes.
    pub(crate) headers: u16,
    /// Offset of the protocol field in these headers.
    pub(crate) next_header_at: u16,
}

/// Updates protocol and length fields of the headers.
#[inline]
fn update_header(
    packet: &mut Packet<'_>,
    version: IpVersion,
    next_header_at: usize,
    protocol: u8,
) -> Result<(), DropReason> {
    let len = u16::try_from(packet.len()).map_err(|_| DropReason::TooLong)?;
    *packet.data_mut().get_mut(next_header_at).ok_or(DropReason::MalformedHeader)? = protocol;
    match version {
        IpVersion::V4 => {
            let mut ip = Ipv4::parse_quoted(packet.data_mut()).map_err(|_| DropReason::MalformedHeader)?;
            ip.set_total_len(len);
            ip.fill_checksum();
        }
        IpVersion::V6 => {
            let mut ip = Ipv6::parse_quoted(packet.data_mut()).map_err(|_| DropReason::MalformedHeader)?;
            ip.set_payload_len(len.saturating_sub(v6::HEADER_LEN as u16));
        }
    }
    Ok(())
}
