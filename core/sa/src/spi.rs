//! Security Parameters Index (RFC 4301 section 4.1, RFC 4303 section 2.1).

use core::fmt;
use core::num::NonZeroU32;

/// An SPI. Never zero: zero is for local use and never on the wire (RFC 4303 section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spi(NonZeroU32);

impl Spi {
    /// The SPI with this value, or `None` for zero.
    pub const fn new(value: u32) -> Option<Self> {
        match NonZeroU32::new(value) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// Its value, as on the wire.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Whether IANA keeps the value for itself (1 to 255); legal, but nobody should pick it.
    pub const fn is_reserved(self) -> bool {
        self.get() < 256
    }
}

impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.get())
    }
}
