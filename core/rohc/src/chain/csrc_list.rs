//! Compressed lists of CSRC identifiers (RFC 5225 section 6.6.13).

use crate::Fault;
use crate::cursor::{Bits, HeaderBytes, Packed, Reader, Write};
use crate::headers::MAX_CSRC;
use crate::state::CsrcTable;
use arrayvec::ArrayVec;

/// Reads a list, and notes its items in the table. `is_complete`: every item must be included.
pub(crate) fn read_csrc_list(
    reader: &mut Reader<'_>,
    table: &mut CsrcTable,
    is_complete: bool,
) -> Result<ArrayVec<u32, MAX_CSRC>, Fault> {
    let mut bits = Bits::of_u8(reader.u8()?);
    bits.reserved(3)?;
    let (has_long_entries, count) = (bits.flag(), bits.take_u8(4));
    let mut entries = ArrayVec::<(bool, u8), 16>::new();
    while entries.len() < usize::from(count) {
        let mut bits = Bits::of_u8(reader.u8()?);
        if has_long_entries {
            let is_included = bits.flag();
            bits.reserved(3)?;
            entries.try_push((is_included, bits.take_u8(4))).map_err(|_| Fault::TooLong)?;
            continue;
        }
        entries.try_push((bits.flag(), bits.take_u8(3))).map_err(|_| Fault::TooLong)?;
        match entries.len() < usize::from(count) {
            true => entries.try_push((bits.flag(), bits.take_u8(3))).map_err(|_| Fault::TooLong)?,
            // Padding.
            false => bits.reserved(4)?,
        }
    }
    let mut list = ArrayVec::new();
    for (is_included, index) in entries {
        let item = match is_included {
            true => reader.u32()?,
            false if is_complete => return Err(Fault::Reserved),
            false => table.get(index).ok_or(Fault::NoContext)?,
        };
        table.set(index, item);
        list.try_push(item).map_err(|_| Fault::TooLong)?;
    }
    Ok(list)
}

/// Writes a list with all its items. An item has its place in the list as index.
pub(crate) fn write_csrc_list(list: &ArrayVec<u32, MAX_CSRC>, out: &mut HeaderBytes) -> Result<(), Fault> {
    let count = u32::try_from(list.len()).map_err(|_| Fault::TooLong)?;
    let has_long_entries = count > 8;
    Packed::default().with(0, 3).with_flag(has_long_entries).with(count, 4).write(out)?;
    let entry = |index: u32| if index < count { 0b1000 | index } else { 0 };
    match has_long_entries {
        true => {
            (0..count).try_for_each(|index| Packed::default().with(0b1000, 4).with(index, 4).write(out))?
        }
        false => (0..count).step_by(2).try_for_each(|index| {
            Packed::default().with(entry(index), 4).with(entry(index.saturating_add(1)), 4).write(out)
        })?,
    }
    list.iter().try_for_each(|item| out.put(&item.to_be_bytes()))
}
