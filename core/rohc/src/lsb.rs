//! Least significant bits of a field, and what they stand for (RFC 4997 section 4.11.5).

/// The low bits of a field that changes in small steps.
///
/// With an offset `p`, `bits` bits stand for the one value of the interval `[reference - p, reference +
/// 2^bits
/// - 1 - p]` that ends in them. Fields are 16 or 32 bits wide and wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lsb {
    /// Number of bits, 1 to 32.
    pub(crate) bits: u32,
    /// The bits, in the lowest positions.
    pub(crate) value: u32,
}

impl Lsb {
    /// The low bits of a field.
    pub(crate) const fn of(field: u32, bits: u32) -> Self {
        Self { bits, value: field & mask(bits) }
    }

    /// Returns the value of a field of 32 bits.
    pub(crate) const fn decode(self, reference: u32, offset: u32) -> u32 {
        let lowest = reference.wrapping_sub(offset);
        lowest.wrapping_add(self.value.wrapping_sub(lowest) & mask(self.bits))
    }

    /// Returns the value of a field of 16 bits.
    pub(crate) const fn decode16(self, reference: u16, offset: u32) -> u16 {
        (self.decode(reference as u32, offset) & 0xffff) as u16
    }
}

const fn mask(bits: u32) -> u32 {
    if bits >= 32 { u32::MAX } else { (1u32 << bits).wrapping_sub(1) }
}

/// Whether `bits` bits of `field` decode to it with this reference. Both have 32 bits.
pub(crate) const fn is_decodable(field: u32, reference: u32, bits: u32, offset: u32) -> bool {
    field.wrapping_sub(reference.wrapping_sub(offset)) <= mask(bits)
}

/// Offset of all fields but the sequence number: a quarter of the interval.
pub(crate) const fn quarter(bits: u32) -> u32 {
    mask(bits) >> 2
}

/// How a field of the packet differs from the same field of the packets in the window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Differences {
    least: i32,
    most: i32,
}

impl Differences {
    fn of(differences: impl Iterator<Item = i32>) -> Self {
        let none = Self { least: i32::MAX, most: i32::MIN };
        differences.fold(none, |all, difference| Self {
            least: all.least.min(difference),
            most: all.most.max(difference),
        })
    }

    /// No differences.
    pub(crate) const NONE: Self = Self { least: 0, most: 0 };

    /// Of fields of 16 bits, which wrap around.
    pub(crate) fn of16(field: u16, window: impl Iterator<Item = u16>) -> Self {
        Self::of(window.map(|former| field.wrapping_sub(former).cast_signed().into()))
    }

    /// Of fields of 32 bits, which wrap around.
    pub(crate) fn of32(field: u32, window: impl Iterator<Item = u32>) -> Self {
        Self::of(window.map(|former| field.wrapping_sub(former).cast_signed()))
    }

    /// Whether `bits` bits of the field decode with every packet of the window.
    pub(crate) fn fit(self, bits: u32, offset: u32) -> bool {
        let lowest = i64::from(offset).saturating_neg();
        let interval = 1i64 << bits;
        i64::from(self.least) >= lowest && i64::from(self.most) < lowest.saturating_add(interval)
    }

    /// Whether the field is the same in every packet of the window.
    pub(crate) const fn are_zero(self) -> bool {
        self.least >= 0 && self.most <= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_is_a_quarter_of_the_interval_minus_one() {
        for bits in 2..=31 {
            assert_eq!(quarter(bits), (1u32 << bits) / 4 - 1, "{bits}");
        }
    }

    #[test]
    fn bits_decode_exactly_inside_the_interval() {
        for bits in 1..=10 {
            for offset in [0, 1, quarter(bits.max(2))] {
                for reference in [0u16, 3, 700, 0x8000, 0xfffe] {
                    for delta in -1100i32..1100 {
                        let field = (i32::from(reference) + delta) as u16;
                        let inside = -(offset as i32) <= delta && delta < (1 << bits) - offset as i32;
                        let decoded = Lsb::of(field.into(), bits).decode16(reference, offset);
                        assert_eq!(decoded == field, inside, "{bits} {offset} {reference} {delta}");
                        let wide = u32::from(reference).wrapping_add(delta as u32);
                        assert_eq!(is_decodable(wide, reference.into(), bits, offset), inside);
                    }
                }
            }
        }
    }

    #[test]
    fn fields_of_32_bits_wrap_around() {
        assert_eq!(Lsb::of(5, 7).decode(u32::MAX - 20, 31), 5);
        assert!(is_decodable(5, u32::MAX - 20, 7, 31) && !is_decodable(200, u32::MAX - 20, 7, 31));
        assert_eq!(Lsb::of(0xdead_beef, 32).decode(7, 0), 0xdead_beef);
    }
}
