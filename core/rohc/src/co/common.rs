//! The format co_common: any dynamic field may change.

use super::{
    CoHeader, Format, marker, read_sdvl_bits, scaled_timestamp, set_ip_id, set_marker, set_scaled_timestamp,
    set_sequence, write_sdvl_bits,
};
use crate::chain::{read_csrc_list, read_sdvl, write_csrc_list, write_sdvl};
use crate::cursor::{Bits, HeaderBytes, Packed, Reader, Write};
use crate::headers::{Ip, Rtp, Transport};
use crate::lsb::{Lsb, quarter};
use crate::state::{IpIdBehavior, ReorderRatio, SequenceFields, State};
use crate::{Fault, Profile};

/// Optional fields of co_common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CommonFields {
    /// TOS and TTL of outer IP headers, in the irregular chain.
    pub(crate) outer: bool,
    /// DF and the behaviour of the Identification; with RTP also the reorder ratio.
    pub(crate) flags: bool,
    pub(crate) tos: bool,
    pub(crate) ttl: bool,
    /// All 16 bits of the Identification instead of 8 bits of its difference from the MSN.
    pub(crate) whole_ip_id: bool,
    /// Bits of the sequence number of RTP and ESP: 7, 14, 21, 28, or all.
    pub(crate) sequence_bits: u32,
    /// Padding and extension bits of RTP.
    pub(crate) rtp_flags: bool,
    pub(crate) payload_type: bool,
    pub(crate) csrc_list: bool,
    pub(crate) timestamp: TimestampField,
    pub(crate) ts_stride: bool,
    pub(crate) time_stride: bool,
}

impl CommonFields {
    /// The fields of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            outer: self.outer || other.outer,
            flags: self.flags || other.flags,
            tos: self.tos || other.tos,
            ttl: self.ttl || other.ttl,
            rtp_flags: self.rtp_flags || other.rtp_flags,
            payload_type: self.payload_type || other.payload_type,
            csrc_list: self.csrc_list || other.csrc_list,
            ts_stride: self.ts_stride || other.ts_stride,
            time_stride: self.time_stride || other.time_stride,
            ..self
        }
    }
}

/// RTP timestamp in co_common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimestampField {
    /// Bits of the scaled timestamp: 7, 14, 21, 28 or 32.
    Scaled(u32),
    /// Bits of the timestamp: 7, 14, 21, 28 or 32.
    Unscaled(u32),
}

impl Default for TimestampField {
    fn default() -> Self {
        Self::Unscaled(32)
    }
}

pub(super) fn read(
    reader: &mut Reader<'_>,
    reference: &SequenceFields,
    state: &mut State,
) -> Result<CoHeader, Fault> {
    if state.headers.profile() == Profile::Rtp {
        return read_with_rtp(reader, reference, state);
    }
    let mut fields = CommonFields::default();
    let mut bits = Bits::of_u16(reader.u16()?);
    fields.whole_ip_id = bits.flag();
    let crc = bits.take_u8(7);
    fields.flags = bits.flag();
    (fields.ttl, fields.tos) = (bits.flag(), bits.flag());
    state.control.reorder_ratio = ReorderRatio::from_bits(bits.take_u8(2));
    let control_crc = bits.take_u8(3);
    if fields.flags {
        let mut bits = Bits::of_u8(reader.u8()?);
        fields.outer = bits.flag();
        read_ip_flags(&mut bits, state)?;
        bits.reserved(4)?;
    }
    read_tos_and_ttl(fields, reader, state)?;
    let sequence = match state.headers.transport {
        Transport::Esp(_) => read_sdvl_bits(reader, 32)?,
        _ => Lsb { bits: 8, value: reader.u8()?.into() },
    };
    fields.sequence_bits = sequence.bits;
    set_sequence(sequence, reference, state);
    read_ip_id(fields, reader, reference, state)?;
    check_control(control_crc, state)?;
    Ok(CoHeader { format: Format::Common(fields), crc })
}

fn read_with_rtp(
    reader: &mut Reader<'_>,
    reference: &SequenceFields,
    state: &mut State,
) -> Result<CoHeader, Fault> {
    let mut fields = CommonFields::default();
    let mut bits = Bits::of_u16(reader.u16()?);
    set_marker(bits.flag(), state);
    let crc = bits.take_u8(7);
    fields.flags = bits.flag();
    let has_flags2 = bits.flag();
    let is_scaled = bits.flag();
    fields.ts_stride = bits.flag();
    fields.whole_ip_id = bits.flag();
    let control_crc = bits.take_u8(3);
    if fields.flags {
        let mut bits = Bits::of_u8(reader.u8()?);
        fields.outer = bits.flag();
        (fields.ttl, fields.tos) = (bits.flag(), bits.flag());
        read_ip_flags(&mut bits, state)?;
        state.control.reorder_ratio = ReorderRatio::from_bits(bits.take_u8(2));
    }
    if has_flags2 {
        let mut bits = Bits::of_u8(reader.u8()?);
        (fields.csrc_list, fields.payload_type) = (bits.flag(), bits.flag());
        fields.time_stride = bits.flag();
        fields.rtp_flags = true;
        let rtp = rtp_mut(state)?;
        (rtp.padding, rtp.extension) = (bits.flag(), bits.flag());
        bits.reserved(3)?;
    }
    read_tos_and_ttl(fields, reader, state)?;
    if fields.payload_type {
        let mut bits = Bits::of_u8(reader.u8()?);
        bits.reserved(1)?;
        rtp_mut(state)?.payload_type = bits.take_u8(7);
    }
    let sequence = read_sdvl_bits(reader, 16)?;
    fields.sequence_bits = sequence.bits;
    set_sequence(sequence, reference, state);
    read_ip_id(fields, reader, reference, state)?;
    fields.timestamp = read_timestamp(is_scaled, fields.ts_stride, reader, reference, state)?;
    if fields.ts_stride {
        state.control.ts_stride = read_sdvl(reader)?;
    }
    if fields.time_stride {
        state.control.time_stride = read_sdvl(reader)?;
    }
    if fields.csrc_list {
        let list = read_csrc_list(reader, &mut state.csrc_table, false)?;
        rtp_mut(state)?.csrc = list;
    }
    check_control(control_crc, state)?;
    Ok(CoHeader { format: Format::Common(fields), crc })
}

fn check_control(crc: u8, state: &State) -> Result<(), Fault> {
    // Timer-based timestamps need a CLOCK_RESOLUTION option, which this decompressor never sends.
    match state.control.time_stride {
        0 if state.has_control_crc(crc) => Ok(()),
        0 => Err(Fault::ControlCrc),
        _ => Err(Fault::Reserved),
    }
}

fn rtp_mut(state: &mut State) -> Result<&mut Rtp, Fault> {
    match &mut state.headers.transport {
        Transport::Rtp(_, rtp) => Ok(rtp),
        _ => Err(Fault::Chain),
    }
}

/// Reads DF and the behaviour of the Identification.
fn read_ip_flags(bits: &mut Bits, state: &mut State) -> Result<(), Fault> {
    let dont_fragment = bits.flag();
    let behavior = IpIdBehavior::from_bits(bits.take_u8(2));
    match state.headers.ips.last_mut() {
        Some(Ip::V4(ip)) => {
            ip.dont_fragment = dont_fragment;
            state.set_innermost_ip_id(behavior);
            Ok(())
        }
        // IPv6 has neither; the behaviour is always "random".
        Some(Ip::V6(_)) if !dont_fragment && behavior == IpIdBehavior::Random => Ok(()),
        _ => Err(Fault::Reserved),
    }
}

fn read_tos_and_ttl(fields: CommonFields, reader: &mut Reader<'_>, state: &mut State) -> Result<(), Fault> {
    let ip = state.headers.ips.last_mut().ok_or(Fault::Chain)?;
    if fields.tos {
        ip.set_tos(reader.u8()?);
    }
    if fields.ttl {
        ip.set_ttl(reader.u8()?);
    }
    Ok(())
}

fn read_ip_id(
    fields: CommonFields,
    reader: &mut Reader<'_>,
    reference: &SequenceFields,
    state: &mut State,
) -> Result<(), Fault> {
    let behavior = state.innermost_ip_id();
    if !behavior.is_sequential() {
        return Ok(());
    }
    if !fields.whole_ip_id {
        set_ip_id(Lsb { bits: 8, value: reader.u8()?.into() }, reference, state);
        return Ok(());
    }
    state.set_ident(reader.u16()?);
    Ok(())
}

fn read_timestamp(
    is_scaled: bool,
    has_stride: bool,
    reader: &mut Reader<'_>,
    reference: &SequenceFields,
    state: &mut State,
) -> Result<TimestampField, Fault> {
    let field = match (is_scaled, has_stride) {
        (true, true) => return Err(Fault::Reserved),
        _ => read_sdvl_bits(reader, 32)?,
    };
    if is_scaled {
        set_scaled_timestamp(field, reference, state)?;
        return Ok(TimestampField::Scaled(field.bits));
    }
    if let Transport::Rtp(_, rtp) = &mut state.headers.transport {
        rtp.timestamp = field.decode(reference.timestamp, quarter(field.bits));
    }
    Ok(TimestampField::Unscaled(field.bits))
}

pub(super) fn write(
    fields: CommonFields,
    crc: u8,
    state: &State,
    out: &mut HeaderBytes,
) -> Result<(), Fault> {
    out.put(&[super::CO_COMMON])?;
    match &state.headers.transport {
        Transport::Rtp(_, rtp) => write_with_rtp(fields, crc, rtp, state, out),
        transport => {
            let bits =
                Packed::default().with_flag(fields.whole_ip_id).with(crc.into(), 7).with_flag(fields.flags);
            let bits = bits.with_flag(fields.ttl).with_flag(fields.tos);
            let bits = bits
                .with(state.control.reorder_ratio.bits().into(), 2)
                .with(state.control_crc(true).into(), 3);
            bits.write(out)?;
            if fields.flags {
                ip_flags(Packed::default().with_flag(fields.outer), state).with(0, 4).write(out)?;
            }
            write_tos_and_ttl(fields, state, out)?;
            match transport {
                Transport::Esp(_) => write_sdvl_bits(Lsb::of(state.sequence(), fields.sequence_bits), out)?,
                _ => out.put_low(state.sequence(), 1)?,
            }
            write_ip_id(fields, state, out)
        }
    }
}

fn write_with_rtp(
    fields: CommonFields,
    crc: u8,
    rtp: &Rtp,
    state: &State,
    out: &mut HeaderBytes,
) -> Result<(), Fault> {
    let has_flags2 = fields.rtp_flags || fields.csrc_list || fields.payload_type || fields.time_stride;
    let is_scaled = matches!(fields.timestamp, TimestampField::Scaled(_));
    let bits = Packed::default().with_flag(marker(state)).with(crc.into(), 7);
    let bits = bits.with_flag(fields.flags).with_flag(has_flags2).with_flag(is_scaled);
    let bits = bits.with_flag(fields.ts_stride).with_flag(fields.whole_ip_id);
    bits.with(state.control_crc(true).into(), 3).write(out)?;
    if fields.flags {
        let bits = Packed::default().with_flag(fields.outer).with_flag(fields.ttl).with_flag(fields.tos);
        ip_flags(bits, state).with(state.control.reorder_ratio.bits().into(), 2).write(out)?;
    }
    if has_flags2 {
        let bits = Packed::default().with_flag(fields.csrc_list).with_flag(fields.payload_type);
        let bits = bits.with_flag(fields.time_stride).with_flag(rtp.padding).with_flag(rtp.extension);
        bits.with(0, 3).write(out)?;
    }
    write_tos_and_ttl(fields, state, out)?;
    if fields.payload_type {
        out.put(&[rtp.payload_type])?;
    }
    write_sdvl_bits(Lsb::of(state.sequence(), fields.sequence_bits), out)?;
    write_ip_id(fields, state, out)?;
    match fields.timestamp {
        TimestampField::Scaled(bits) => write_sdvl_bits(scaled_timestamp(state, bits), out)?,
        TimestampField::Unscaled(bits) => write_sdvl_bits(Lsb::of(rtp.timestamp, bits), out)?,
    }
    if fields.ts_stride {
        write_sdvl(state.control.ts_stride, out)?;
    }
    if fields.time_stride {
        write_sdvl(state.control.time_stride, out)?;
    }
    if fields.csrc_list { write_csrc_list(&rtp.csrc, out) } else { Ok(()) }
}

fn ip_flags(bits: Packed, state: &State) -> Packed {
    let dont_fragment = matches!(state.headers.innermost(), Some(Ip::V4(ip)) if ip.dont_fragment);
    bits.with_flag(dont_fragment).with(state.innermost_ip_id().bits().into(), 2)
}

fn write_tos_and_ttl(fields: CommonFields, state: &State, out: &mut HeaderBytes) -> Result<(), Fault> {
    let ip = state.headers.innermost().ok_or(Fault::Chain)?;
    if fields.tos {
        out.put(&[ip.tos()])?;
    }
    if fields.ttl {
        out.put(&[ip.ttl()])?;
    }
    Ok(())
}

fn write_ip_id(fields: CommonFields, state: &State, out: &mut HeaderBytes) -> Result<(), Fault> {
    match state.headers.innermost() {
        Some(Ip::V4(ip)) if state.innermost_ip_id().is_sequential() => match fields.whole_ip_id {
            true => out.put(&ip.ident.to_be_bytes()),
            false => out.put_low(state.ip_id_offset().into(), 1),
        },
        _ => Ok(()),
    }
}
