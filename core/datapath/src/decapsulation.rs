//! Removal of ESP or AH from an authenticated packet: what remains is an IP packet (RFC 4301 section 5.2).

use crate::demux::{self, EarlyVerdict, InboundPacket, Stage};
use crate::esp::{self, EspKey};
use crate::rohc::InboundRohc;
use crate::sa::SaKeys;
use crate::transport::{self, FrontHeaders};
use crate::{Consumed, DropReason, tunnel};
use casemate_sa::Mode;
use casemate_wire::ah::AhHeader;
use casemate_wire::ip::proto;
use casemate_wire::packet::{NoRoom, Packet};

/// Removes ESP and, in tunnel mode, the outer header. Restores a compressed header.
#[inline]
pub(crate) fn remove_esp(
    packet: &mut Packet<'_>,
    record: &InboundPacket,
    key: &EspKey,
    keys: &SaKeys,
    rohc: Option<&mut InboundRohc>,
) -> Result<Stage, DropReason> {
    let (at, front) = (record.header_at(), &record.front);
    let mut next_header = esp::unframe(packet, at, key.sizes)?;
    if let Some(rohc) = rohc {
        match rohc.receive(packet, next_header, record.seq())? {
            Some(original) => next_header = original,
            None => return Ok(Stage::Decided(EarlyVerdict::Consumed(Consumed::RohcFeedback))),
        }
    }
    let taken = at.saturating_add(key.sizes.front());
    decapsulate(packet, front, taken, next_header, keys, record.outer_tos)
}

/// Removes AH and, in tunnel mode, the outer header.
pub(crate) fn remove_ah(
    packet: &mut Packet<'_>,
    record: &InboundPacket,
    header: AhHeader,
    keys: &SaKeys,
) -> Result<Stage, DropReason> {
    let taken = record.header_at().saturating_add(header.len);
    packet.shrink_front(taken).map_err(|NoRoom| DropReason::Truncated)?;
    decapsulate(packet, &record.front, taken, header.next_header, keys, record.outer_tos)
}

/// Turns the payload of ESP or AH into an IP packet. `taken` is the length of what was in front of it.
#[cfg_attr(target_pointer_width = "64", inline(always))]
fn decapsulate(
    packet: &mut Packet<'_>,
    front: &FrontHeaders,
    taken: usize,
    next_header: u8,
    keys: &SaKeys,
    outer_tos: u8,
) -> Result<Stage, DropReason> {
    // RFC 4303 section 2.6: dummy packets are discarded silently.
    if next_header == proto::NO_NEXT {
        return Ok(Stage::Decided(EarlyVerdict::Consumed(Consumed::Dummy)));
    }
    let payload = match keys.mode {
        Mode::Tunnel => tunnel::finish_decapsulation(packet, next_header, outer_tos)?,
        Mode::Transport => {
            restore_packet(packet, front, taken, next_header, keys)?;
            next_header
        }
    };
    Ok(if demux::may_hide_protection(payload) { Stage::New } else { Stage::Plain })
}

/// Restores the packet that transport mode protected.
#[inline(never)]
fn restore_packet(
    packet: &mut Packet<'_>,
    front: &FrontHeaders,
    taken: usize,
    next_header: u8,
    keys: &SaKeys,
) -> Result<(), DropReason> {
    // Between the headers that stay and the payload: UDP, if present, and the ESP or AH header.
    let gap = taken.saturating_sub(front.headers.into());
    transport::close_gap(packet, front, gap, next_header)?;
    if let Some(original) = &keys.original_addrs {
        original.fix_checksum(packet.data_mut());
    }
    Ok(())
}
