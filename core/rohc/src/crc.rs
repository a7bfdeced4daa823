//! CRCs of ROHC headers (RFC 5795 section 5.3.1), one byte at a time from tables.

/// Bytes that one step takes. On small devices one, because the tables take 256 bytes for each.
const STEP: usize = if cfg!(target_pointer_width = "64") { 8 } else { 1 };

/// For each byte of a step, from the last one on, its contribution to the CRC.
type CrcTable = [[u8; 256]; STEP];

/// Polynomial x^3 + x + 1, bits reversed.
static CRC3: CrcTable = table(0x06);
/// Polynomial x^7 + x^6 + x^3 + x^2 + x + 1, bits reversed.
static CRC7: CrcTable = table(0x79);
/// Polynomial x^8 + x^2 + x + 1, bits reversed.
static CRC8: CrcTable = table(0xe0);

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "runs in the compiler, where a fault is an error"
)]
const fn table(polynomial: u8) -> CrcTable {
    let mut table = [[0; 256]; STEP];
    let mut n = 0;
    while n < STEP {
        let mut byte = 0;
        while byte < 256 {
            // A zero byte behind the byte is one more step of eight bits.
            let mut crc = if n == 0 { byte as u8 } else { table[n - 1][byte] };
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
                bit += 1;
            }
            table[n][byte] = crc;
            byte += 1;
        }
        n += 1;
    }
    table
}

/// CRC of a compressed header over the header that it stands for, or over control fields.
#[inline]
pub(crate) fn crc3(bytes: &[u8]) -> u8 {
    update(&CRC3, 0x07, bytes)
}

/// CRC of a compressed header over the header that it stands for.
#[inline]
pub(crate) fn crc7(bytes: &[u8]) -> u8 {
    update(&CRC7, 0x7f, bytes)
}

/// CRC of IR headers and feedback. The field of the CRC itself counts as 0; the parts before and after it are
/// given separately.
#[inline]
pub(crate) fn crc8(before: &[u8], after: &[u8]) -> u8 {
    update(&CRC8, update(&CRC8, update(&CRC8, 0xff, before), &[0]), after)
}

/// As [`crc8`] where the field of the CRC is not covered: the IR header of profile 0x0000.
#[inline]
pub(crate) fn crc8_of(bytes: &[u8]) -> u8 {
    update(&CRC8, 0xff, bytes)
}

#[inline]
fn update(table: &CrcTable, initial: u8, bytes: &[u8]) -> u8 {
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let crc = steps.iter().fold(initial, |crc, step| {
        let mut step = *step;
        let [first, ..] = &mut step;
        *first ^= crc;
        step.iter().zip(table.iter().rev()).fold(0, |crc, (byte, row)| crc ^ entry(row, *byte))
    });
    let [single, ..] = table;
    rest.iter().fold(crc, |crc, byte| entry(single, crc ^ byte))
}

/// Every byte has an entry.
#[inline]
fn entry(row: &[u8; 256], byte: u8) -> u8 {
    row.get(usize::from(byte)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// The CRC bit by bit, from the polynomial in its usual form.
    fn reference(width: u32, polynomial: u32, bytes: &[u8]) -> u8 {
        let mut crc = (1 << width) - 1;
        for bit in bytes.iter().flat_map(|byte| (0..8).map(move |n| u32::from(byte >> n & 1))) {
            let feedback = (crc >> (width - 1) & 1) ^ bit;
            crc = crc << 1 & ((1 << width) - 1);
            if feedback == 1 {
                crc ^= polynomial;
            }
        }
        (0..width).fold(0, |reversed, n| reversed << 1 | (crc >> n & 1) as u8)
    }

    #[test]
    fn tables_match_the_polynomials() {
        let bytes: Vec<u8> = (0..=255).map(|n: u8| n.wrapping_mul(37) ^ 0x5a).collect();
        for len in [0, 1, 2, 20, 40, 255] {
            let bytes = &bytes[..len];
            assert_eq!(crc3(bytes), reference(3, 0b011, bytes));
            assert_eq!(crc7(bytes), reference(7, 0b100_1111, bytes));
            assert_eq!(crc8_of(bytes), reference(8, 0b111, bytes));
        }
    }

    #[test]
    fn field_of_the_crc_counts_as_zero() {
        assert_eq!(crc8(&[1, 2, 3], &[4, 5]), crc8_of(&[1, 2, 3, 0, 4, 5]));
    }
}
