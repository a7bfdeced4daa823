//! Attributes of transforms (RFC 7296 section 3.3.5).

use crate::ike::{AttributeType, Fault};

/// The most attributes that one transform may have. One is defined.
pub const MAX_ATTRIBUTES: usize = 16;

const HEADER_LEN: usize = 4;
/// The bit AF: the value is in place of the length.
pub(super) const FIXED: u16 = 0x8000;

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its type, below 32768.
    pub kind: AttributeType,
    /// Its value.
    pub value: AttributeValue<'a>,
}

/// The value of an attribute, in the format in which it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeValue<'a> {
    /// Two bytes (type and value).
    Fixed(u16),
    /// Any number of bytes (type, length and value).
    Variable(&'a [u8]),
}

impl<'a> Attribute<'a> {
    /// A key of this many bits.
    pub const fn of_key_length(bits: u16) -> Self {
        Self { kind: AttributeType::KEY_LENGTH, value: AttributeValue::Fixed(bits) }
    }

    /// The key length in bits, if this attribute is one.
    pub const fn key_length(&self) -> Option<u16> {
        match (self.kind, self.value) {
            (AttributeType::KEY_LENGTH, AttributeValue::Fixed(bits)) => Some(bits),
            _ => None,
        }
    }

    /// The attribute at the start of `bytes`, and what is behind it.
    fn split(bytes: &'a [u8], at: usize) -> Result<(Self, &'a [u8]), Fault> {
        let truncated = Fault::AttributeTruncated { at, len: bytes.len() };
        let (&[a, b, c, d], rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(truncated)?;
        let (kind, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let attribute = AttributeType(kind & !FIXED);
        if kind & FIXED != 0 {
            return Ok((Self { kind: attribute, value: AttributeValue::Fixed(second) }, rest));
        }
        // RFC 7296 section 3.3.5: a fixed length is not encoded as a variable one.
        if attribute == AttributeType::KEY_LENGTH {
            return Err(Fault::AttributeFormat { at, attribute });
        }
        let (value, rest) = rest.split_at_checked(second.into()).ok_or(truncated)?;
        Ok((Self { kind: attribute, value: AttributeValue::Variable(value) }, rest))
    }
}

/// Whether `attributes` consist of whole attributes, of which no two have the same type.
pub(super) fn check(attributes: &[u8], start: usize) -> Result<(), Fault> {
    let mut seen = [AttributeType(0); MAX_ATTRIBUTES];
    let (mut rest, mut at, mut count) = (attributes, start, 0usize);
    while !rest.is_empty() {
        let (Attribute { kind, .. }, behind) = Attribute::split(rest, at)?;
        // RFC 7296 section 3.3: not several of the same type.
        if seen.iter().take(count).any(|other| *other == kind) {
            return Err(Fault::AttributeTwice { at, attribute: kind });
        }
        *seen.get_mut(count).ok_or(Fault::TooManyAttributes { at: start, limit: MAX_ATTRIBUTES })? = kind;
        count = count.saturating_add(1);
        at = at.saturating_add(rest.len().saturating_sub(behind.len()));
        rest = behind;
    }
    Ok(())
}

/// The attributes of a transform.
#[derive(Debug, Clone)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    pub(super) fn new(attributes: &'a [u8]) -> Self {
        Self(attributes)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (attribute, rest) = Attribute::split(self.0, 0).ok()?;
        self.0 = rest;
        Some(attribute)
    }
}
