//! Transport mode: the packet's own header moves apart to make room, and closes again (RFC 4303 section 3.1.1).

use crate::DropReason;
use casemate_wire::ip::v4::Ipv4;
use casemate_wire::ip::v6::Ipv6;
use casemate_wire::ip::{IpVersion, v4, v6, version};
use casemate_wire::packet::{NoRoom, Packet};

/// Where the protection goes: behind the header part that routers read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) version: IpVersion,
    /// Length of the headers that stay in front.
    pub(crate) headers: usize,
    /// The field in them that names what follows.
    named_at: usize,
    /// What follows now.
    pub(crate) protocol: u8,
    /// Whether the packet is a fragment, which transport mode must not protect (RFC 4303 section 3.3.4).
    pub(crate) is_fragment: bool,
}

/// Finds the place in an outgoing packet.
#[inline]
pub(crate) fn place(packet: &[u8]) -> Result<Place, DropReason> {
    let malformed = DropReason::MalformedHeader;
    match version(packet).map_err(|_| malformed)? {
        IpVersion::V4 => {
            let ip = Ipv4::parse(packet).map_err(|_| malformed)?;
            Ok(Place {
                version: IpVersion::V4,
                headers: ip.header_len(),
                named_at: v4::PROTOCOL_AT,
                protocol: ip.protocol(),
                is_fragment: ip.is_fragment(),
            })
        }
        IpVersion::V6 => {
            let chain = Ipv6::parse(packet).and_then(|ip| ip.chain()).map_err(|_| malformed)?;
            let place = chain.transport;
            Ok(Place {
                version: IpVersion::V6,
                headers: place.at,
                named_at: place.named_at,
                protocol: place.next_header,
                is_fragment: chain.fragment.is_some_and(|fragment| !fragment.is_atomic()),
            })
        }
    }
}

/// Opens a gap of `gap` bytes between headers and payload: the headers move into the head room, and the packet then is
/// the payload alone.
#[inline]
pub(crate) fn lift(packet: &mut Packet<'_>, headers: usize, gap: usize) -> Result<(), NoRoom> {
    let end = gap.checked_add(headers).ok_or(NoRoom)?;
    packet.grow_front(gap)?;
    if end > packet.len() {
        return Err(NoRoom);
    }
    packet.data_mut().copy_within(gap..end, 0);
    packet.shrink_front(end)
}

/// Takes the lifted headers back in front of the payload, whose protection has filled the gap. `will_be_cut` clears DF,
/// because the packet is going to be fragmented.
#[inline]
pub(crate) fn lower(
    packet: &mut Packet<'_>,
    place: &Place,
    protocol: u8,
    will_be_cut: bool,
) -> Result<(), DropReason> {
    packet.grow_front(place.headers).map_err(|NoRoom| DropReason::NoRoom)?;
    if will_be_cut && place.version == IpVersion::V4 {
        let ip = Ipv4::parse_quoted(packet.data_mut());
        ip.map_err(|_| DropReason::MalformedHeader)?.set_df(false);
    }
    patch(packet, place.version, place.named_at, protocol)
}

/// Closes the gap that the protection of a received packet leaves between its headers and its payload.
#[inline]
pub(crate) fn close(
    packet: &mut Packet<'_>,
    front: &Front,
    gap: usize,
    protocol: u8,
) -> Result<(), DropReason> {
    let headers = usize::from(front.headers);
    let end = gap.checked_add(headers).ok_or(DropReason::Truncated)?;
    packet.grow_front(end).map_err(|NoRoom| DropReason::Truncated)?;
    packet.data_mut().copy_within(..headers, gap);
    packet.shrink_front(gap).map_err(|NoRoom| DropReason::Truncated)?;
    patch(packet, front.version, front.named_at.into(), protocol)
}

/// The headers in front of a received ESP or AH header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Front {
    pub(crate) version: IpVersion,
    /// Their length.
    pub(crate) headers: u16,
    /// The field in them that names what follows.
    pub(crate) named_at: u16,
}

/// Makes the headers tell what follows them now, and how long the packet is.
#[inline]
fn patch(
    packet: &mut Packet<'_>,
    version: IpVersion,
    named_at: usize,
    protocol: u8,
) -> Result<(), DropReason> {
    let len = u16::try_from(packet.len()).map_err(|_| DropReason::TooLong)?;
    *packet.data_mut().get_mut(named_at).ok_or(DropReason::MalformedHeader)? = protocol;
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
