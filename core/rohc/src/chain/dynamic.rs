//! Dynamic chain: the full values of fields that change. IR and co_repair headers have it.

use super::csrc_list::{read_csrc_list, write_csrc_list};
use crate::cursor::{Bits, HeaderBytes, Packed, Reader, Write};
use crate::headers::{Ip, MAX_IP_HEADERS, Transport};
use crate::state::{DEFAULT_TS_STRIDE, IpIdBehavior, ReorderRatio, State};
use crate::{Fault, Profile};

/// Reads the chain into a state whose static fields are known.
pub(crate) fn read_dynamic(reader: &mut Reader<'_>, state: &mut State) -> Result<(), Fault> {
    let profile = state.headers.profile();
    let innermost = state.headers.ips.len().saturating_sub(1);
    for n in 0..state.headers.ips.len().min(MAX_IP_HEADERS) {
        read_ip(reader, state, n, n == innermost)?;
    }
    let control = &mut state.control;
    match &mut state.headers.transport {
        Transport::None => {}
        Transport::Udp(udp) => {
            udp.checksum = reader.u16()?;
            control.has_checksum = udp.checksum != 0;
            control.msn = reader.u16()?;
            control.reorder_ratio = read_reorder_ratio(reader)?;
        }
        Transport::Esp(esp) => {
            esp.sequence = reader.u32()?;
            control.msn = (esp.sequence & 0xffff) as u16;
            control.reorder_ratio = read_reorder_ratio(reader)?;
        }
        Transport::Rtp(udp, _) => {
            udp.checksum = reader.u16()?;
            control.has_checksum = udp.checksum != 0;
            read_rtp(reader, state)?;
        }
    }
    debug_assert_eq!(profile, state.headers.profile(), "the chain does not change the profile");
    Ok(())
}

fn read_reorder_ratio(reader: &mut Reader<'_>) -> Result<ReorderRatio, Fault> {
    let mut bits = Bits::of_u8(reader.u8()?);
    bits.reserved(6)?;
    Ok(ReorderRatio::from_bits(bits.take_u8(2)))
}

fn read_ip(reader: &mut Reader<'_>, state: &mut State, n: usize, is_innermost: bool) -> Result<(), Fault> {
    let has_msn = is_innermost && state.headers.profile() == Profile::Ip;
    let control = &mut state.control;
    let (Some(ip), Some(behavior)) = (state.headers.ips.get_mut(n), control.ip_ids.get_mut(n)) else {
        return Err(Fault::Chain);
    };
    match ip {
        Ip::V4(ip) => {
            let mut bits = Bits::of_u8(reader.u8()?);
            bits.reserved(3)?;
            let ratio = bits.take_u8(2);
            match (has_msn, ratio) {
                (true, ratio) => control.reorder_ratio = ReorderRatio::from_bits(ratio),
                (false, 0) => {}
                (false, _) => return Err(Fault::Reserved),
            }
            ip.dont_fragment = bits.flag();
            *behavior = IpIdBehavior::from_bits(bits.take_u8(2));
            if behavior.is_sequential() && !is_innermost {
                return Err(Fault::Reserved);
            }
            [ip.tos, ip.ttl] = reader.array()?;
            ip.ident = if *behavior == IpIdBehavior::Zero { 0 } else { reader.u16()? };
            if has_msn {
                control.msn = reader.u16()?;
            }
        }
        Ip::V6(ip) => {
            [ip.traffic_class, ip.hop_limit] = reader.array()?;
            *behavior = IpIdBehavior::Random;
            if has_msn {
                control.reorder_ratio = read_reorder_ratio(reader)?;
                control.msn = reader.u16()?;
            }
        }
    }
    Ok(())
}

fn read_rtp(reader: &mut Reader<'_>, state: &mut State) -> Result<(), Fault> {
    let (control, table) = (&mut state.control, &mut state.csrc_table);
    let Transport::Rtp(_, rtp) = &mut state.headers.transport else { return Err(Fault::Chain) };
    let mut bits = Bits::of_u16(reader.u16()?);
    bits.reserved(1)?;
    control.reorder_ratio = ReorderRatio::from_bits(bits.take_u8(2));
    let (has_list, has_ts_stride, has_time_stride) = (bits.flag(), bits.flag(), bits.flag());
    (rtp.padding, rtp.extension, rtp.marker) = (bits.flag(), bits.flag(), bits.flag());
    rtp.payload_type = bits.take_u8(7);
    rtp.sequence = reader.u16()?;
    control.msn = rtp.sequence;
    rtp.timestamp = reader.u32()?;
    control.ts_stride = if has_ts_stride { read_sdvl(reader)? } else { DEFAULT_TS_STRIDE };
    control.time_stride = if has_time_stride { read_sdvl(reader)? } else { 0 };
    match has_list {
        // All items are in the list (section 6.6.13.5).
        true => rtp.csrc = read_csrc_list(reader, table, true)?,
        false => rtp.csrc.clear(),
    }
    Ok(())
}

/// Writes the chain.
pub(crate) fn write_dynamic(state: &State, out: &mut HeaderBytes) -> Result<(), Fault> {
    let control = &state.control;
    for (ip, behavior, is_innermost) in state.ips() {
        write_ip(
            ip,
            behavior,
            (is_innermost && state.headers.profile() == Profile::Ip).then_some(state),
            out,
        )?;
    }
    match &state.headers.transport {
        Transport::None => Ok(()),
        Transport::Udp(udp) => {
            out.put(&udp.checksum.to_be_bytes())?;
            out.put(&control.msn.to_be_bytes())?;
            out.put(&[control.reorder_ratio.bits()])
        }
        Transport::Esp(esp) => {
            out.put(&esp.sequence.to_be_bytes())?;
            out.put(&[control.reorder_ratio.bits()])
        }
        Transport::Rtp(udp, _) => {
            out.put(&udp.checksum.to_be_bytes())?;
            write_rtp(state, out)
        }
    }
}

/// Writes the item of an IP header. `endpoint` is given if the item has the MSN: in the innermost header of
/// profile 0x0104.
fn write_ip(
    ip: &Ip,
    behavior: IpIdBehavior,
    endpoint: Option<&State>,
    out: &mut HeaderBytes,
) -> Result<(), Fault> {
    let ratio = endpoint.map_or(0, |state| state.control.reorder_ratio.bits());
    match ip {
        Ip::V4(ip) => {
            let flags = Packed::default().with(0, 3).with(ratio.into(), 2).with_flag(ip.dont_fragment);
            flags.with(behavior.bits().into(), 2).write(out)?;
            out.put(&[ip.tos, ip.ttl])?;
            if behavior != IpIdBehavior::Zero {
                out.put(&ip.ident.to_be_bytes())?;
            }
        }
        Ip::V6(ip) => {
            out.put(&[ip.traffic_class, ip.hop_limit])?;
            if endpoint.is_some() {
                out.put(&[ratio])?;
            }
        }
    }
    endpoint.map_or(Ok(()), |state| out.put(&state.control.msn.to_be_bytes()))
}

fn write_rtp(state: &State, out: &mut HeaderBytes) -> Result<(), Fault> {
    let control = &state.control;
    let Transport::Rtp(_, rtp) = &state.headers.transport else { return Err(Fault::Chain) };
    let (has_ts_stride, has_time_stride) = (control.ts_stride != DEFAULT_TS_STRIDE, control.time_stride != 0);
    let flags = Packed::default().with(0, 1).with(control.reorder_ratio.bits().into(), 2);
    let flags = flags.with_flag(!rtp.csrc.is_empty()).with_flag(has_ts_stride).with_flag(has_time_stride);
    let flags = flags.with_flag(rtp.padding).with_flag(rtp.extension).with_flag(rtp.marker);
    flags.with(rtp.payload_type.into(), 7).write(out)?;
    out.put(&rtp.sequence.to_be_bytes())?;
    out.put(&rtp.timestamp.to_be_bytes())?;
    if has_ts_stride {
        write_sdvl(control.ts_stride, out)?;
    }
    if has_time_stride {
        write_sdvl(control.time_stride, out)?;
    }
    if rtp.csrc.is_empty() { Ok(()) } else { write_csrc_list(&rtp.csrc, out) }
}

/// Reads a number of one to five bytes (`sdvl_or_static`, `sdvl_or_default`).
pub(crate) fn read_sdvl(reader: &mut Reader<'_>) -> Result<u32, Fault> {
    Ok(crate::co::read_sdvl_bits(reader, 32)?.value)
}

/// Writes a number in as few bytes as possible.
pub(crate) fn write_sdvl(value: u32, out: &mut HeaderBytes) -> Result<(), Fault> {
    let bits = [7, 14, 21, 28].into_iter().find(|bits| value >> bits == 0).unwrap_or(32);
    crate::co::write_sdvl_bits(crate::lsb::Lsb { bits, value }, out)
}
