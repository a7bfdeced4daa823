//! DER (X.690), as far as keys and certificates need it: one-byte tags, and lengths in their shortest form.
//! Everything else is rejected. `core/pki` uses this parser, too.

use alloc::vec::Vec;

/// Tag of INTEGER.
pub const INTEGER: u8 = 0x02;
/// Tag of BIT STRING.
pub const BIT_STRING: u8 = 0x03;
/// Tag of OCTET STRING.
pub const OCTET_STRING: u8 = 0x04;
/// Tag of NULL.
pub const NULL: u8 = 0x05;
/// Tag of OBJECT IDENTIFIER.
pub const OID: u8 = 0x06;
/// Tag of SEQUENCE and SEQUENCE OF.
pub const SEQUENCE: u8 = 0x30;

/// Error: the bytes are not DER of the expected form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// A DER value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value<'a> {
    /// Tag.
    pub tag: u8,
    /// Content, without tag and length.
    pub content: &'a [u8],
    /// Complete encoding: tag, length and content.
    pub whole: &'a [u8],
}

/// Reads consecutive DER values.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Creates a reader of the values in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns a reader of the content of `bytes`, which must be exactly one value with the tag `tag`.
    pub fn only(tag: u8, bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut outer = Self(bytes);
        let inner = outer.read(tag)?;
        outer.finish()?;
        Ok(Self(inner))
    }

    /// Returns the tag of the next value, without consuming the value.
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Returns the content of the next value, which must have the tag `tag`.
    pub fn read(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        match self.read_any()? {
            value if value.tag == tag => Ok(value.content),
            _ => Err(Malformed),
        }
    }

    /// Returns the next value of any tag. A malformed value is not consumed.
    pub fn read_any(&mut self) -> Result<Value<'a>, Malformed> {
        let (tag, rest) = self.0.split_first().ok_or(Malformed)?;
        // X.690 section 8.1.2.4: a tag of more than one byte.
        if tag & 0x1F == 0x1F {
            return Err(Malformed);
        }
        let (len, rest) = length(rest)?;
        let (content, rest) = rest.split_at_checked(len).ok_or(Malformed)?;
        let len = self.0.len().saturating_sub(rest.len());
        let whole = self.0.get(..len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(Value { tag: *tag, content, whole })
    }

    /// Whether all values have been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Like [`read`](Self::read), for an optional value: returns `None` if the next value has another tag.
    pub fn read_optional(&mut self, tag: u8) -> Result<Option<&'a [u8]>, Malformed> {
        if self.peek() == Some(tag) { self.read(tag).map(Some) } else { Ok(None) }
    }

    /// Returns a reader of the values inside the next value, which must have the tag `tag`.
    pub fn read_nested(&mut self, tag: u8) -> Result<Self, Malformed> {
        self.read(tag).map(Self)
    }

    /// Returns a non-negative INTEGER, big-endian and without leading zeros. Zero is an empty slice.
    pub fn read_unsigned(&mut self) -> Result<&'a [u8], Malformed> {
        match self.read(INTEGER)? {
            [0] => Ok(&[]),
            // X.690 section 8.3.2: the first nine bits are not all equal.
            [0, digits @ ..] if digits.first().is_some_and(|top| *top >= 0x80) => Ok(digits),
            digits @ [0x01..=0x7F, ..] => Ok(digits),
            _ => Err(Malformed),
        }
    }

    /// Returns a BIT STRING of whole bytes.
    pub fn read_bit_string(&mut self) -> Result<&'a [u8], Malformed> {
        match self.read(BIT_STRING)? {
            [0, bytes @ ..] => Ok(bytes),
            _ => Err(Malformed),
        }
    }

    /// Returns the bytes that have not been read.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Checks that all values have been read.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// X.690 section 10.1: the shortest form. Lengths of 2^24 or more are rejected: no key is that long.
fn length(bytes: &[u8]) -> Result<(usize, &[u8]), Malformed> {
    let (len, rest) = match bytes {
        [short @ 0..=0x7F, rest @ ..] => (usize::from(*short), rest),
        [0x81, a @ 0x80..=0xFF, rest @ ..] => (usize::from(*a), rest),
        [0x82, a @ 1..=0xFF, b, rest @ ..] => (usize::from(u16::from_be_bytes([*a, *b])), rest),
        [0x83, a @ 1..=0xFF, b, c, rest @ ..] => {
            (usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).map_err(|_| Malformed)?, rest)
        }
        _ => return Err(Malformed),
    };
    Ok((len, rest))
}

/// Returns the encoding of a value with the tag `tag`. Its content is the concatenation of `parts`.
pub fn write(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len = parts.iter().fold(0_usize, |len, part| len.saturating_add(part.len()));
    let digits = len.to_be_bytes();
    let zeros = digits.iter().take_while(|byte| **byte == 0).count();
    let digits = digits.get(zeros..).unwrap_or_default();
    let mut value = Vec::with_capacity(len.saturating_add(10));
    value.push(tag);
    if len >= 0x80 {
        value.push(0x80 | u8::try_from(digits.len()).unwrap_or_default());
        value.extend_from_slice(digits);
    } else {
        value.push(digits.first().copied().unwrap_or_default());
    }
    parts.iter().for_each(|part| value.extend_from_slice(part));
    value
}

/// Returns the encoding of an INTEGER with a non-negative big-endian value.
pub fn write_unsigned(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let digits = number.get(zeros..).unwrap_or_default();
    let sign: &[u8] = if digits.first().is_none_or(|top| *top >= 0x80) { &[0] } else { &[] };
    write(INTEGER, &[sign, digits])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn only_the_shortest_length_encoding_is_accepted() {
        for len in [0, 1, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x1_0000] {
            let content = vec![7; len];
            let value = write(OCTET_STRING, &[&content]);
            let mut reader = Reader::new(&value);
            assert_eq!(reader.read(OCTET_STRING), Ok(&content[..]));
            assert_eq!(reader.finish(), Ok(()));
        }
        for wrong in [
            &[4, 0x80, 0, 0][..],      // indefinite
            &[4, 0x81, 1, 7],          // a longer form than needed
            &[4, 0x82, 0, 0x80],       // a longer form than needed
            &[4, 0x83, 0, 1, 0],       // a longer form than needed
            &[4, 0x84, 1, 0, 0, 0],    // too long
            &[4, 0xFF, 0xFF, 0xFF],    // reserved
            &[4, 2, 7],                // truncated content
            &[4],                      // truncated length
            &[],                       // nothing
            &[0x1F, 0x81, 0x01, 1, 0], // a tag of several bytes
        ] {
            assert!(Reader::new(wrong).read(OCTET_STRING).is_err(), "{wrong:02x?}");
        }
    }

    #[test]
    fn only_the_shortest_integer_encoding_is_accepted() {
        for (bytes, number) in [
            (&[2, 1, 0][..], Ok(&[][..])),
            (&[2, 1, 0x7F], Ok(&[0x7F])),
            (&[2, 2, 0, 0x80], Ok(&[0x80])),
            (&[2, 0], Err(Malformed)),
            (&[2, 1, 0x80], Err(Malformed)),
            (&[2, 2, 0, 0x7F], Err(Malformed)),
            (&[2, 2, 0, 0], Err(Malformed)),
            (&[2, 2, 0xFF, 0x80], Err(Malformed)),
        ] {
            assert_eq!(Reader::new(bytes).read_unsigned(), number, "{bytes:02x?}");
            if let Ok(number) = number {
                assert_eq!(write_unsigned(number), bytes);
                assert_eq!(write_unsigned(&[&[0, 0], number].concat()), bytes);
            }
        }
    }
}
