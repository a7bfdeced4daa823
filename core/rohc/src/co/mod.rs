//! Compressed (CO) headers: their formats, and what the fields of each stand for (RFC 5225 section 6.8.2).
//!
//! Formats whose names contain `seq` are for flows whose innermost Identification follows the MSN, those with
//! `rnd` for the others. The two sets have different formats with the same first bits.

mod base;
mod common;
mod rtp;

pub(crate) use common::{CommonFields, TimestampField};

use crate::chain::read_irregular;
use crate::crc::{crc3, crc7};
use crate::cursor::{HeaderBytes, Packed, Reader, Write};
use crate::headers::Transport;
use crate::lsb::{Lsb, quarter};
use crate::state::{Control, SequenceFields, State};
use crate::{Fault, Profile};

/// First byte of a co_common header.
pub(crate) const CO_COMMON: u8 = 0b1111_1010;
/// First byte of a co_repair header.
pub(crate) const CO_REPAIR: u8 = 0b1111_1011;

/// Format of a compressed header, with the fields that are optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// `pt_0_crc3`: only the MSN.
    Pt0Crc3,
    /// `pt_0_crc7`: only the MSN.
    Pt0Crc7,
    /// `pt_1_seq_id`: MSN and Identification.
    Pt1Id,
    /// `pt_1_rnd` and `pt_1_seq_ts`: MSN, marker and scaled timestamp.
    Pt1Timestamp,
    /// `pt_2_seq_id`: MSN and Identification.
    Pt2Id,
    /// `pt_2_rnd` and `pt_2_seq_ts`: MSN, marker and scaled timestamp.
    Pt2Timestamp,
    /// `pt_2_seq_both`: MSN, marker, Identification and scaled timestamp.
    Pt2Both,
    /// `co_common`: any field that changes.
    Common(CommonFields),
    /// `co_repair`: all fields of the dynamic chain.
    Repair,
}

impl Format {
    /// CRC that the format contains, over the uncompressed headers.
    pub(crate) fn crc(self, headers: &[u8]) -> u8 {
        if self.has_crc3() { crc3(headers) } else { crc7(headers) }
    }

    /// Bits of the sequence number that the format contains.
    pub(crate) const fn sequence_bits(self, profile: Profile) -> u32 {
        let is_rtp = matches!(profile, Profile::Rtp);
        match self {
            Self::Pt0Crc3 | Self::Pt1Timestamp => 4,
            Self::Pt0Crc7 | Self::Pt1Id if is_rtp => 5,
            Self::Pt0Crc7 | Self::Pt1Id => 6,
            Self::Pt2Id if !is_rtp => 8,
            Self::Pt2Id | Self::Pt2Timestamp | Self::Pt2Both => 7,
            Self::Common(fields) => fields.sequence_bits,
            Self::Repair => 16,
        }
    }

    /// Whether the irregular chain has TOS and TTL of outer IP headers.
    pub(crate) const fn has_outer_fields(self) -> bool {
        matches!(self, Self::Common(CommonFields { outer: true, .. }))
    }

    const fn has_crc3(self) -> bool {
        match self {
            Self::Pt0Crc3 | Self::Pt1Id | Self::Pt1Timestamp => true,
            Self::Pt0Crc7 | Self::Pt2Id | Self::Pt2Timestamp | Self::Pt2Both => false,
            Self::Common(_) | Self::Repair => false,
        }
    }
}

/// A compressed header that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CoHeader {
    pub(crate) format: Format,
    /// CRC over the uncompressed headers.
    pub(crate) crc: u8,
}

/// Reads a compressed header other than co_repair, base header and irregular chain. `state` is a copy of
/// `reference`; it gets the new values. `first` is the first byte, which comes before a large CID.
pub(crate) fn read_co(
    first: u8,
    reader: &mut Reader<'_>,
    reference: &SequenceFields,
    state: &mut State,
) -> Result<CoHeader, Fault> {
    let header = match (first, state.headers.profile()) {
        (CO_COMMON, _) => common::read(reader, reference, state)?,
        (_, Profile::Rtp) => rtp::read(first, reader, reference, state)?,
        _ => base::read(first, reader, reference, state)?,
    };
    read_irregular(reader, header.format.has_outer_fields(), state)?;
    Ok(header)
}

/// Writes the base header of a compressed header for `state`. `large_cid` comes behind the first byte.
pub(crate) fn write_co(
    format: Format,
    crc: u8,
    large_cid: &[u8],
    state: &State,
    out: &mut HeaderBytes,
) -> Result<(), Fault> {
    let behind_first = out.len().saturating_add(1);
    match (format, state.headers.profile()) {
        (Format::Common(fields), _) => common::write(fields, crc, state, out)?,
        (_, Profile::Rtp) => rtp::write(format, crc, state, out)?,
        _ => base::write(format, crc, state, out)?,
    }
    // The last byte of the CID is inserted first.
    large_cid
        .iter()
        .rev()
        .try_for_each(|byte| out.try_insert(behind_first, *byte))
        .map_err(|_| Fault::TooLong)
}

/// Sets the sequence number from low bits.
fn set_sequence(field: Lsb, reference: &SequenceFields, state: &mut State) {
    let offset = state.control.reorder_ratio.offset(field.bits);
    let sequence = match state.headers.transport {
        Transport::Esp(_) => field.decode(reference.sequence, offset),
        _ if field.bits >= 16 => field.value & 0xffff,
        _ => field.decode16(reference.msn, offset).into(),
    };
    state.set_sequence(sequence);
}

/// Sets the Identification, which keeps its difference from the MSN.
fn infer_ip_id(reference: &SequenceFields, state: &mut State) {
    state.set_ip_id_offset(reference.ip_id_offset(state.innermost_ip_id()));
}

/// Sets the Identification from low bits of its difference from the MSN.
fn set_ip_id(field: Lsb, reference: &SequenceFields, state: &mut State) {
    let offset = reference.ip_id_offset(state.innermost_ip_id());
    state.set_ip_id_offset(field.decode16(offset, quarter(field.bits)));
}

/// Sets the timestamp, which grows with the sequence number.
fn infer_timestamp(reference: &SequenceFields, state: &mut State) {
    let Control { msn, ts_stride, .. } = state.control;
    if let Transport::Rtp(_, rtp) = &mut state.headers.transport {
        rtp.timestamp = reference.timestamp_at(msn, ts_stride);
    }
}

/// Sets the timestamp from low bits of the scaled timestamp.
fn set_scaled_timestamp(field: Lsb, reference: &SequenceFields, state: &mut State) -> Result<(), Fault> {
    let stride = state.control.ts_stride;
    let Transport::Rtp(_, rtp) = &mut state.headers.transport else { return Err(Fault::PacketType) };
    // RFC 5225 section 6.6.8: scaled bits without a stride count as a wrong CRC.
    let scaled = reference.timestamp.checked_div(stride).ok_or(Fault::Crc)?;
    let residue = reference.timestamp.wrapping_sub(scaled.wrapping_mul(stride));
    rtp.timestamp = field.decode(scaled, quarter(field.bits)).wrapping_mul(stride).wrapping_add(residue);
    Ok(())
}

/// Low bits of the scaled timestamp.
pub(crate) fn scaled_timestamp(state: &State, bits: u32) -> Lsb {
    let timestamp = match &state.headers.transport {
        Transport::Rtp(_, rtp) => rtp.timestamp,
        _ => 0,
    };
    Lsb::of(timestamp.checked_div(state.control.ts_stride).unwrap_or(0), bits)
}

fn set_marker(marker: bool, state: &mut State) {
    if let Transport::Rtp(_, rtp) = &mut state.headers.transport {
        rtp.marker = marker;
    }
}

fn marker(state: &State) -> bool {
    matches!(&state.headers.transport, Transport::Rtp(_, rtp) if rtp.marker)
}

/// Reads bits of self-describing length: 7, 14, 21, 28, or `full_bits`, which is 16 or 32.
pub(crate) fn read_sdvl_bits(reader: &mut Reader<'_>, full_bits: u32) -> Result<Lsb, Fault> {
    let first = reader.u8()?;
    let high = |mask: u8| u32::from(first & mask);
    let (bits, value) = match first {
        0..0b1000_0000 => (7, high(0x7f)),
        0b1000_0000..0b1100_0000 => (14, high(0x3f) << 8 | u32::from(reader.u8()?)),
        0b1100_0000..0b1110_0000 => (21, high(0x1f) << 16 | u32::from(reader.u16()?)),
        0b1110_0000..0b1111_0000 => (28, high(0x0f) << 24 | reader.u24()?),
        0b1111_1111 if full_bits == 16 => (16, reader.u16()?.into()),
        0b1111_1111 => (32, reader.u32()?),
        _ => return Err(Fault::Reserved),
    };
    Ok(Lsb { bits, value })
}

/// Writes bits of self-describing length. Any number but 7, 14, 21 and 28 is the full length: 16 or 32.
pub(crate) fn write_sdvl_bits(field: Lsb, out: &mut HeaderBytes) -> Result<(), Fault> {
    let packed = Packed::default();
    match field.bits {
        7 => packed.with(0, 1).with(field.value, 7).write(out),
        14 => packed.with(0b10, 2).with(field.value, 14).write(out),
        21 => packed.with(0b110, 3).with(field.value, 21).write(out),
        28 => packed.with(0b1110, 4).with(field.value, 28).write(out),
        full => {
            out.put(&[0xff])?;
            out.put_low(field.value, if full == 16 { 2 } else { 4 })
        }
    }
}
