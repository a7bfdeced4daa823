//! Short formats of the profile for RTP: the sequence number, and small changes of Identification, timestamp
//! and marker.

use super::{
    CoHeader, Format, infer_ip_id, infer_timestamp, marker, scaled_timestamp, set_ip_id, set_marker,
    set_scaled_timestamp, set_sequence,
};
use crate::Fault;
use crate::cursor::{Bits, HeaderBytes, Packed, Reader};
use crate::lsb::Lsb;
use crate::state::{SequenceFields, State};

/// Fields of a short format; what is absent follows the sequence number, and the marker is 0.
struct Fields {
    format: Format,
    crc: u8,
    sequence: Lsb,
    ip_id: Option<Lsb>,
    timestamp: Option<Lsb>,
    marker: bool,
}

pub(super) fn read(
    first: u8,
    reader: &mut Reader<'_>,
    reference: &SequenceFields,
    state: &mut State,
) -> Result<CoHeader, Fault> {
    let fields = read_fields(first, reader, state.innermost_ip_id().is_sequential())?;
    set_sequence(fields.sequence, reference, state);
    match fields.ip_id {
        Some(field) => set_ip_id(field, reference, state),
        None => infer_ip_id(reference, state),
    }
    match fields.timestamp {
        Some(field) => set_scaled_timestamp(field, reference, state)?,
        None => infer_timestamp(reference, state),
    }
    set_marker(fields.marker, state);
    Ok(CoHeader { format: fields.format, crc: fields.crc })
}

fn read_fields(first: u8, reader: &mut Reader<'_>, is_sequential: bool) -> Result<Fields, Fault> {
    let lsb = |bits: &mut Bits, width| Lsb { bits: width, value: bits.take(width) };
    let fields =
        |format, crc, sequence| Fields { format, crc, sequence, ip_id: None, timestamp: None, marker: false };
    if first < 0b1000_0000 {
        let mut bits = Bits::of_u8(first);
        bits.take(1);
        let sequence = lsb(&mut bits, 4);
        return Ok(fields(Format::Pt0Crc3, bits.take_u8(3), sequence));
    }
    let second = reader.u8()?;
    let mut two = Bits::of_u16(u16::from_be_bytes([first, second]));
    let three = |reader: &mut Reader<'_>| -> Result<Bits, Fault> {
        Ok(Bits::of_u24(u32::from_be_bytes([0, first, second, reader.u8()?])))
    };
    Ok(match first {
        0b1000_0000..0b1001_0000 => {
            two.take(4);
            let sequence = lsb(&mut two, 5);
            fields(Format::Pt0Crc7, two.take_u8(7), sequence)
        }
        0b1001_0000..0b1010_0000 if is_sequential => {
            two.take(4);
            let (ip_id, sequence) = (lsb(&mut two, 4), lsb(&mut two, 5));
            Fields { ip_id: Some(ip_id), ..fields(Format::Pt1Id, two.take_u8(3), sequence) }
        }
        0b1010_0000..0b1100_0000 => {
            two.take(3);
            let (marker, sequence, timestamp) = (two.flag(), lsb(&mut two, 4), lsb(&mut two, 5));
            let crc = two.take_u8(3);
            Fields { marker, timestamp: Some(timestamp), ..fields(Format::Pt1Timestamp, crc, sequence) }
        }
        0b1100_0000..0b1110_0000 if !is_sequential => {
            let mut bits = three(reader)?;
            bits.take(3);
            let (sequence, timestamp, marker) = (lsb(&mut bits, 7), lsb(&mut bits, 6), bits.flag());
            let crc = bits.take_u8(7);
            Fields { marker, timestamp: Some(timestamp), ..fields(Format::Pt2Timestamp, crc, sequence) }
        }
        0b1100_0000..0b1100_1000 => {
            let mut bits = three(reader)?;
            bits.take(5);
            let (sequence, ip_id) = (lsb(&mut bits, 7), lsb(&mut bits, 5));
            Fields { ip_id: Some(ip_id), ..fields(Format::Pt2Id, bits.take_u8(7), sequence) }
        }
        0b1100_1000..0b1101_0000 => {
            let mut bits = three(reader)?;
            bits.take(5);
            let (sequence, ip_id, crc) = (lsb(&mut bits, 7), lsb(&mut bits, 5), bits.take_u8(7));
            let mut last = Bits::of_u8(reader.u8()?);
            let (timestamp, marker) = (lsb(&mut last, 7), last.flag());
            let both = fields(Format::Pt2Both, crc, sequence);
            Fields { marker, ip_id: Some(ip_id), timestamp: Some(timestamp), ..both }
        }
        0b1101_0000..0b1110_0000 => {
            let mut bits = three(reader)?;
            bits.take(4);
            let (sequence, timestamp, marker) = (lsb(&mut bits, 7), lsb(&mut bits, 5), bits.flag());
            let crc = bits.take_u8(7);
            Fields { marker, timestamp: Some(timestamp), ..fields(Format::Pt2Timestamp, crc, sequence) }
        }
        _ => return Err(Fault::PacketType),
    })
}

pub(super) fn write(format: Format, crc: u8, state: &State, out: &mut HeaderBytes) -> Result<(), Fault> {
    let (sequence, ip_id, crc) = (state.sequence(), state.ip_id_offset().into(), crc.into());
    let (marker, is_sequential) = (marker(state), state.innermost_ip_id().is_sequential());
    let timestamp = |bits| scaled_timestamp(state, bits).value;
    let bits = Packed::default();
    let bits = match format {
        Format::Pt0Crc3 => bits.with(0, 1).with(sequence, 4).with(crc, 3),
        Format::Pt0Crc7 => bits.with(0b1000, 4).with(sequence, 5).with(crc, 7),
        Format::Pt1Id => bits.with(0b1001, 4).with(ip_id, 4).with(sequence, 5).with(crc, 3),
        Format::Pt1Timestamp => {
            bits.with(0b101, 3).with_flag(marker).with(sequence, 4).with(timestamp(5), 5).with(crc, 3)
        }
        Format::Pt2Timestamp if is_sequential => {
            bits.with(0b1101, 4).with(sequence, 7).with(timestamp(5), 5).with_flag(marker).with(crc, 7)
        }
        Format::Pt2Timestamp => {
            bits.with(0b110, 3).with(sequence, 7).with(timestamp(6), 6).with_flag(marker).with(crc, 7)
        }
        Format::Pt2Id => bits.with(0b11000, 5).with(sequence, 7).with(ip_id, 5).with(crc, 7),
        Format::Pt2Both => {
            let bits = bits.with(0b11001, 5).with(sequence, 7).with(ip_id, 5).with(crc, 7);
            bits.with(timestamp(7), 7).with_flag(marker)
        }
        Format::Common(_) | Format::Repair => return Err(Fault::PacketType),
    };
    bits.write(out)
}
