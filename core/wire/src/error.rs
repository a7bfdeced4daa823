//! The one error of every parser: which field, and which rule it breaks.

use core::fmt;

/// Bytes that are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Malformed {
    /// The field, with its format in front: `IPv4 total length`.
    pub field: &'static str,
    /// The rule that it breaks, said as a demand: `must lie inside the buffer`.
    pub rule: &'static str,
}

impl Malformed {
    #[inline]
    pub(crate) const fn new(field: &'static str, rule: &'static str) -> Self {
        Self { field, rule }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.rule)
    }
}

impl core::error::Error for Malformed {}
