//! IPv4 options (RFC 791 section 3.1).
//!
//! AH needs the position and length of each option. This module does not interpret options.

use crate::Malformed;

/// An IPv4 option (RFC 791 section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// Option type: copied flag, class and number.
    pub kind: u8,
    /// Offset of the option type in the packet.
    pub at: usize,
    /// Length with type and length bytes.
    pub len: usize,
    /// Data after the type and length bytes.
    pub data: &'a [u8],
}

impl Ipv4Option<'_> {
    /// End of option list.
    pub const END: u8 = 0;
    /// No operation.
    pub const NOP: u8 = 1;

    /// The "copied" flag: every fragment contains this option.
    #[inline]
    pub fn copied(&self) -> bool {
        self.kind & 0x80 != 0
    }
}

/// Iterator over options. "End of option list" ends the iteration and is not returned; a malformed option
/// ends it with an error.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Options<'a> {
    // `at` is the offset of `bytes` in the packet.
    #[inline]
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { rest: bytes, at }
    }

    fn take(&mut self, kind: u8) -> Result<Ipv4Option<'a>, Malformed> {
        let len = match (kind, self.rest.get(1)) {
            (Ipv4Option::NOP, _) => 1,
            (_, Some(&len)) if len >= 2 => usize::from(len),
            _ => return Err(Malformed::new("IPv4 option length", "must be present and at least 2")),
        };
        let (option, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(Malformed::new("IPv4 option length", "must not run past the header"))?;
        let taken = Ipv4Option { kind, at: self.at, len, data: option.get(2..).unwrap_or_default() };
        self.rest = rest;
        self.at = self.at.saturating_add(len);
        Ok(taken)
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<Ipv4Option<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let kind = *self.rest.first().filter(|&&kind| kind != Ipv4Option::END)?;
        let taken = self.take(kind);
        if taken.is_err() {
            self.rest = &[];
        }
        Some(taken)
    }
}
