//! Reading and writing of bytes and bit fields.

use crate::Fault;
use arrayvec::ArrayVec;

/// Largest compressed or uncompressed header chain, in bytes. A packet with a longer one is not compressed.
pub(crate) const MAX_HEADER: usize = 224;

/// A header that is being written.
pub(crate) type HeaderBytes = ArrayVec<u8, MAX_HEADER>;

/// Bytes that are read from the front.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl<'b> Reader<'b> {
    /// Reads the next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Fault::TooShort)?;
        self.0 = rest;
        Ok(*first)
    }

    /// Reads the next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'b [u8], Fault> {
        let (first, rest) = self.0.split_at_checked(len).ok_or(Fault::TooShort)?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Fault> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u24(&mut self) -> Result<u32, Fault> {
        self.array().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_be_bytes)
    }
}

/// Fields of a few bits, the first in the highest position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bits {
    value: u32,
    /// Bits that are left, in the lowest positions.
    left: u32,
}

impl Bits {
    pub(crate) const fn of_u8(value: u8) -> Self {
        Self { value: value as u32, left: 8 }
    }

    pub(crate) const fn of_u16(value: u16) -> Self {
        Self { value: value as u32, left: 16 }
    }

    pub(crate) const fn of_u24(value: u32) -> Self {
        Self { value, left: 24 }
    }

    /// Takes the next field. At most 31 bits, and not more than are left.
    pub(crate) const fn take(&mut self, bits: u32) -> u32 {
        self.left = self.left.saturating_sub(bits);
        self.value >> self.left & (1u32 << bits).wrapping_sub(1)
    }

    /// As [`take`](Self::take), for fields of at most 8 bits.
    pub(crate) const fn take_u8(&mut self, bits: u32) -> u8 {
        (self.take(bits) & 0xff) as u8
    }

    /// Takes a flag.
    pub(crate) const fn flag(&mut self) -> bool {
        self.take(1) == 1
    }

    /// Takes a reserved field, which must be 0.
    pub(crate) const fn reserved(&mut self, bits: u32) -> Result<(), Fault> {
        if self.take(bits) == 0 { Ok(()) } else { Err(Fault::Reserved) }
    }
}

/// Writing into a header with bounds.
pub(crate) trait Write {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]) -> Result<(), Fault>;

    /// Appends the `len` low bytes of a number, the highest first. At most 4.
    fn put_low(&mut self, value: u32, len: usize) -> Result<(), Fault> {
        let bytes = value.to_be_bytes();
        self.put(bytes.get(4usize.saturating_sub(len)..).unwrap_or(&bytes))
    }
}

impl Write for HeaderBytes {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.try_extend_from_slice(bytes).map_err(|_| Fault::TooLong)
    }
}

/// Packs fields of a few bits into a number, the first in the highest position.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Packed {
    value: u32,
    bits: u32,
}

impl Packed {
    /// Appends a field.
    #[must_use]
    pub(crate) const fn with(self, value: u32, bits: u32) -> Self {
        let field = value & (1u32 << bits).wrapping_sub(1);
        Self { value: self.value << bits | field, bits: self.bits.saturating_add(bits) }
    }

    /// Appends a flag.
    #[must_use]
    pub(crate) const fn with_flag(self, flag: bool) -> Self {
        self.with(flag as u32, 1)
    }

    /// Writes the fields, which are a whole number of bytes, at most 4.
    pub(crate) fn write(self, out: &mut HeaderBytes) -> Result<(), Fault> {
        out.put_low(self.value, (self.bits / 8) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_fields_are_read_back() {
        let mut out = HeaderBytes::new();
        Packed::default().with(0b101, 3).with_flag(true).with(9, 4).with(77, 8).write(&mut out).unwrap();
        assert_eq!(out[..], [0b1011_1001, 77]);
        let mut bits = Bits::of_u16(Reader(&out).u16().unwrap());
        assert_eq!((bits.take(3), bits.flag(), bits.take_u8(4), bits.take(8)), (0b101, true, 9, 77));
    }

    #[test]
    fn reads_and_writes_stay_in_bounds() {
        let mut reader = Reader(&[1, 2, 3]);
        assert_eq!(reader.u16(), Ok(0x0102));
        assert_eq!(reader.u16(), Err(Fault::TooShort));
        assert_eq!((reader.u8(), reader.u8()), (Ok(3), Err(Fault::TooShort)));
        let mut out = HeaderBytes::new();
        assert_eq!(out.put(&[0; MAX_HEADER]), Ok(()));
        assert_eq!(out.put(&[0]), Err(Fault::TooLong));
    }
}
