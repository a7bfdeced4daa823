//! Encrypted payload (RFC 7296 section 3.14) and encrypted fragments (RFC 7383 section 2.5).
//!
//! This module only locates the parts of the payload. The lengths of IV, block and ICV come from the
//! negotiated algorithms. The message is decrypted in place.

use core::ops::Range;

use super::{Fault, Payload, PayloadType, payload::PAYLOAD_HEADER_LEN};

/// Length of fragment number and total number of fragments, in bytes.
pub(super) const FRAGMENT_LEN: usize = 4;

/// Lengths in an encrypted payload, which depend on the algorithms of the IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SkLayout {
    /// Length of the IV in bytes.
    pub iv: usize,
    /// Block length in bytes, 1 to 256, of which the plaintext length is a multiple: the block length of the
    /// cipher for CBC, 1 for combined-mode ciphers (RFC 5282 section 3).
    pub block: usize,
    /// Length of the ICV in bytes.
    pub icv: usize,
}

/// Number of a fragment and total number of fragments. Both start at 1, and the number does not exceed the
/// total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fragment {
    number: u16,
    total: u16,
}

/// An encrypted payload: a whole message or a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encrypted<'a> {
    /// Type of the first payload inside. Of the fragments, only the first contains it.
    pub first: PayloadType,
    /// Fragment number and total, if this is a fragment.
    pub fragment: Option<Fragment>,
    /// IV, ciphertext and ICV.
    pub content: &'a [u8],
    /// Offset of the content in the message. Combined-mode ciphers authenticate all preceding bytes as
    /// associated data (RFC 5282 section 5.1, RFC 7383 section 2.5).
    pub at: usize,
}

/// Parts of an encrypted payload, as consecutive ranges in the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// IV.
    pub iv: Range<usize>,
    /// Ciphertext, or plaintext with padding and pad length.
    pub ciphertext: Range<usize>,
    /// ICV.
    pub icv: Range<usize>,
}

impl Fragment {
    /// Creates fragment `number` of `total`.
    pub const fn new(number: u16, total: u16) -> Result<Self, Fault> {
        // RFC 7383 section 2.6.
        if number == 0 || number > total {
            return Err(Fault::FragmentNumber { found: number, limit: total });
        }
        Ok(Self { number, total })
    }

    /// Number of this fragment, from 1.
    #[inline]
    pub const fn number(self) -> u16 {
        self.number
    }

    /// Total number of fragments.
    #[inline]
    pub const fn total(self) -> u16 {
        self.total
    }
}

impl<'a> Encrypted<'a> {
    /// Parses an SK payload.
    pub(super) fn whole(payload: &Payload<'a>) -> Self {
        let at = payload.at.saturating_add(PAYLOAD_HEADER_LEN);
        Self { first: payload.next, fragment: None, content: payload.body, at }
    }

    /// Parses an SKF payload.
    pub(super) fn fragment(payload: &Payload<'a>) -> Result<Self, Fault> {
        let (len, whole) = (payload.body.len(), Self::whole(payload));
        let truncated = Fault::EncryptedLength { len, min: FRAGMENT_LEN };
        let (&[a, b, c, d], content) = payload.body.split_first_chunk().ok_or(truncated)?;
        let fragment = Fragment::new(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))?;
        Ok(Self { fragment: Some(fragment), content, at: whole.at.saturating_add(FRAGMENT_LEN), ..whole })
    }

    /// Returns the parts of the payload.
    pub fn parts(&self, layout: &SkLayout) -> Result<Parts, Fault> {
        let len = self.content.len();
        let around = layout.iv.saturating_add(layout.icv);
        // At least the pad length field is encrypted, so there is at least one block.
        let block = layout.block.max(1);
        let min = around.saturating_add(block);
        let inside =
            len.checked_sub(around).filter(|_| len >= min).ok_or(Fault::EncryptedLength { len, min })?;
        if !inside.is_multiple_of(block) {
            return Err(Fault::EncryptedBlocks { len: inside });
        }
        Ok(Parts::new(self.at, layout, inside))
    }
}

impl Parts {
    /// Creates the parts from offset `at` on, with `inside` bytes of ciphertext.
    pub(super) fn new(at: usize, layout: &SkLayout, inside: usize) -> Self {
        let ciphertext = at.saturating_add(layout.iv);
        let icv = ciphertext.saturating_add(inside);
        Self { iv: at..ciphertext, ciphertext: ciphertext..icv, icv: icv..icv.saturating_add(layout.icv) }
    }
}

/// Returns the payloads in a decrypted and authenticated `plaintext`, without the padding (any bytes) and its
/// length.
pub fn unpad(plaintext: &[u8]) -> Result<&[u8], Fault> {
    let len = plaintext.len();
    let (&claimed, padded) = plaintext.split_last().ok_or(Fault::EncryptedPadding { claimed: 0, len })?;
    let payloads = padded.len().checked_sub(claimed.into()).and_then(|end| padded.get(..end));
    payloads.ok_or(Fault::EncryptedPadding { claimed, len })
}

/// Returns the minimum padding that makes `len` bytes, padding and pad length a multiple of `block`.
pub(super) fn pad_len(len: usize, block: usize) -> Option<u8> {
    let over = len.checked_add(1)?.checked_rem(block.max(1))?;
    let missing = if over == 0 { 0 } else { block.checked_sub(over)? };
    u8::try_from(missing).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ike::Body;
    use proptest::prelude::*;
    use std::vec;

    fn payload(kind: PayloadType, body: &[u8]) -> Payload<'_> {
        Payload { kind, critical: false, next: PayloadType::NONE, body, at: 28 }
    }

    fn encrypted(kind: PayloadType, body: &[u8]) -> Result<Encrypted<'_>, Fault> {
        Body::parse(&payload(kind, body)).map(|body| match body {
            Body::Encrypted(encrypted) => encrypted,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn cve_2016_1287_cve_2022_34721_fragment_numbers() {
        for (number, total) in [(0, 0), (0, 1), (1, 0), (2, 1), (65_535, 65_534), (0, 65_535), (65_535, 0)] {
            let fault = Fault::FragmentNumber { found: number, limit: total };
            assert_eq!(Fragment::new(number, total), Err(fault));
            let body = [&number.to_be_bytes()[..], &total.to_be_bytes(), &[0; 60]].concat();
            assert_eq!(encrypted(PayloadType::SKF, &body), Err(fault));
        }
        for (number, total) in [(1u16, 1u16), (1, 65_535), (65_535, 65_535)] {
            let body = [&u16::to_be_bytes(number)[..], &total.to_be_bytes(), &[0; 60]].concat();
            let read = encrypted(PayloadType::SKF, &body).unwrap();
            assert_eq!(read.fragment, Some(Fragment::new(number, total).unwrap()));
            assert_eq!((read.at, read.content.len()), (36, 60));
        }
        for len in 0..4 {
            let fault = Fault::EncryptedLength { len, min: 4 };
            assert_eq!(encrypted(PayloadType::SKF, &[0, 1, 0, 1][..len]), Err(fault));
        }
    }

    #[test]
    fn a_payload_too_short_for_its_parts_is_rejected() {
        let layout = SkLayout { iv: 16, block: 16, icv: 12 };
        let body = [0; 200];
        for len in 0..=body.len() {
            let parts = encrypted(PayloadType::SK, &body[..len]).unwrap().parts(&layout);
            match parts {
                Err(fault) if len < 44 => assert_eq!(fault, Fault::EncryptedLength { len, min: 44 }),
                Err(fault) => assert_eq!(fault, Fault::EncryptedBlocks { len: len - 28 }),
                Ok(parts) => {
                    assert!((len - 28) % 16 == 0);
                    assert_eq!((parts.iv, parts.icv), (32..48, 32 + len - 12..32 + len));
                }
            }
        }
    }

    #[test]
    fn extreme_lengths_do_not_overflow() {
        let huge = SkLayout { iv: usize::MAX, block: usize::MAX, icv: usize::MAX };
        let fault = Fault::EncryptedLength { len: 9, min: usize::MAX };
        assert_eq!(encrypted(PayloadType::SK, &[0; 9]).unwrap().parts(&huge), Err(fault));
        let none = SkLayout { iv: 0, block: 0, icv: 0 };
        assert_eq!(encrypted(PayloadType::SK, &[0; 9]).unwrap().parts(&none).unwrap().ciphertext, 32..41);
        assert!(encrypted(PayloadType::SK, &[]).unwrap().parts(&none).is_err());
    }

    #[test]
    fn padding_content_is_ignored() {
        assert_eq!(unpad(&[1, 2, 9, 9, 2]), Ok(&[1, 2][..]));
        assert_eq!(unpad(&[0]), Ok(&[][..]));
        assert_eq!(unpad(&[]), Err(Fault::EncryptedPadding { claimed: 0, len: 0 }));
        assert_eq!(unpad(&[7, 7, 7]), Err(Fault::EncryptedPadding { claimed: 7, len: 3 }));
        assert_eq!(unpad(&[7, 7, 3]), Err(Fault::EncryptedPadding { claimed: 3, len: 3 }));
        assert_eq!(unpad(&[255; 256]), Ok(&[][..]));
    }

    proptest! {
        #[test]
        fn padding_is_minimal(len in 0usize..5_000, block in 1usize..=256) {
            let pad = usize::from(pad_len(len, block).unwrap());
            prop_assert!((len + pad + 1).is_multiple_of(block) && pad < block);
            let mut plaintext = vec![1; len];
            plaintext.resize(len + pad, 0);
            plaintext.push(pad as u8);
            prop_assert_eq!(unpad(&plaintext), Ok(&plaintext[..len]));
        }
    }
}
