//! The error type of all parsers but those of IKE: the field, and the rule that it breaks.

use core::fmt;

/// Error: invalid bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Malformed {
    /// Field, prefixed with its format: `IPv4 total length`.
    pub field: &'static str,
    /// The broken rule, as a requirement: `must lie inside the buffer`.
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
