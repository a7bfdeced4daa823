//! Nonce payload (RFC 7296 section 3.9).

use core::ops::RangeInclusive;

use super::Fault;

/// Allowed lengths of a nonce, in bytes.
pub const NONCE_LENGTHS: RangeInclusive<usize> = 16..=256;

/// A nonce with an allowed length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce<'a>(&'a [u8]);

impl<'a> Nonce<'a> {
    /// Parses the body of a Nonce payload. Also creates nonces to send.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let len = body.len();
        if NONCE_LENGTHS.contains(&len) { Ok(Self(body)) } else { Err(Fault::NonceLength { len }) }
    }

    /// Bytes of the nonce.
    #[inline]
    pub fn data(&self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_to_256_bytes() {
        for len in 0..300 {
            let expected = (16..=256).contains(&len);
            assert_eq!(Nonce::parse(&[1; 300][..len]).is_ok(), expected, "{len}");
        }
        assert_eq!(Nonce::parse(&[1; 15]), Err(Fault::NonceLength { len: 15 }));
    }
}
