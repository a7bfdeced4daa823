//! Short formats of the profiles for UDP, ESP and IP: all fields but the sequence number follow it, and the
//! Identification may differ a little.

use super::{CoHeader, Format, infer_ip_id, set_ip_id, set_sequence};
use crate::Fault;
use crate::cursor::{Bits, HeaderBytes, Packed, Reader};
use crate::lsb::Lsb;
use crate::state::{SequenceFields, State};

pub(super) fn read(
    first: u8,
    reader: &mut Reader<'_>,
    reference: &SequenceFields,
    state: &mut State,
) -> Result<CoHeader, Fault> {
    let is_sequential = state.innermost_ip_id().is_sequential();
    let lsb = |bits: &mut Bits, width| Lsb { bits: width, value: bits.take(width) };
    let (format, crc, sequence, ip_id) = match first {
        0..0b1000_0000 => {
            let mut bits = Bits::of_u8(first);
            bits.take(1);
            let sequence = lsb(&mut bits, 4);
            (Format::Pt0Crc3, bits.take_u8(3), sequence, None)
        }
        0b1000_0000..0b1010_0000 => {
            let mut bits = Bits::of_u16(u16::from_be_bytes([first, reader.u8()?]));
            bits.take(3);
            let sequence = lsb(&mut bits, 6);
            (Format::Pt0Crc7, bits.take_u8(7), sequence, None)
        }
        0b1010_0000..0b1100_0000 if is_sequential => {
            let mut bits = Bits::of_u16(u16::from_be_bytes([first, reader.u8()?]));
            bits.take(3);
            let (crc, sequence) = (bits.take_u8(3), lsb(&mut bits, 6));
            (Format::Pt1Id, crc, sequence, Some(lsb(&mut bits, 4)))
        }
        0b1100_0000..0b1110_0000 if is_sequential => {
            let [second, third] = reader.array()?;
            let mut bits = Bits::of_u24(u32::from_be_bytes([0, first, second, third]));
            bits.take(3);
            let ip_id = lsb(&mut bits, 6);
            let crc = bits.take_u8(7);
            (Format::Pt2Id, crc, lsb(&mut bits, 8), Some(ip_id))
        }
        _ => return Err(Fault::PacketType),
    };
    set_sequence(sequence, reference, state);
    match ip_id {
        Some(field) => set_ip_id(field, reference, state),
        None => infer_ip_id(reference, state),
    }
    Ok(CoHeader { format, crc })
}

pub(super) fn write(format: Format, crc: u8, state: &State, out: &mut HeaderBytes) -> Result<(), Fault> {
    let (sequence, ip_id, crc) = (state.sequence(), state.ip_id_offset().into(), crc.into());
    let bits = Packed::default();
    let bits = match format {
        Format::Pt0Crc3 => bits.with(0, 1).with(sequence, 4).with(crc, 3),
        Format::Pt0Crc7 => bits.with(0b100, 3).with(sequence, 6).with(crc, 7),
        Format::Pt1Id => bits.with(0b101, 3).with(crc, 3).with(sequence, 6).with(ip_id, 4),
        Format::Pt2Id => bits.with(0b110, 3).with(ip_id, 6).with(crc, 7).with(sequence, 8),
        Format::Pt1Timestamp | Format::Pt2Timestamp | Format::Pt2Both => return Err(Fault::PacketType),
        Format::Common(_) | Format::Repair => return Err(Fault::PacketType),
    };
    bits.write(out)
}
