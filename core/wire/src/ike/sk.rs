//! Encrypted payload (RFC 7296 section 3.14) and encrypted fragments (RFC 7383 section 2.5).
//!
//! Only where the parts are. The lengths of IV, block and ICV come from the negotiated algorithms; decryption happens in
//! place, in the message.

use core::ops::Range;

use super::{Fault, Payload, PayloadType, payload::PAYLOAD_HEADER_LEN};

/// Length of a fragment's two numbers.
pub(super) const FRAGMENT_LEN: usize = 4;

/// What the algorithms of an IKE SA make of an encrypted payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Length of the IV in bytes.
    pub iv: usize,
    /// What the length of the plaintext is a multiple of, 1 to 256: the cipher's block for CBC, 1 for combined-mode ciphers
    /// (RFC 5282 section 3).
    pub block: usize,
    /// Length of the ICV in bytes.
    pub icv: usize,
}

/// Which fragment of how many: both from 1 on, the number not above the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fragment {
    number: u16,
    total: u16,
}

/// An encrypted payload, whole or a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encrypted<'a> {
    /// Type of the first payload inside. Of fragments, only the first says it.
    pub first: PayloadType,
    /// Which fragment it is, if it is one.
    pub fragment: Option<Fragment>,
    /// IV, ciphertext and ICV.
    pub content: &'a [u8],
    /// Offset of the content in the message. What is in front of it is the associated data of combined-mode ciphers
    /// (RFC 5282 section 5.1, RFC 7383 section 2.5).
    pub at: usize,
}

/// Where the parts of an encrypted payload are: offsets in the message, one behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The IV.
    pub iv: Range<usize>,
    /// The ciphertext, or the plaintext with its padding and pad length.
    pub ciphertext: Range<usize>,
    /// The ICV.
    pub icv: Range<usize>,
}

impl Fragment {
    /// Fragment `number` of `total`.
    pub const fn new(number: u16, total: u16) -> Result<Self, Fault> {
        // RFC 7383 section 2.6.
        if number == 0 || number > total {
            return Err(Fault::FragmentNumber { found: number, limit: total });
        }
        Ok(Self { number, total })
    }

    /// Its number, from 1 on.
    #[inline]
    pub const fn number(self) -> u16 {
        self.number
    }

    /// How many there are.
    #[inline]
    pub const fn total(self) -> u16 {
        self.total
    }
}

impl<'a> Encrypted<'a> {
    /// An SK payload.
    pub(super) fn whole(payload: &Payload<'a>) -> Self {
        let at = payload.at.saturating_add(PAYLOAD_HEADER_LEN);
        Self { first: payload.next, fragment: None, content: payload.body, at }
    }

    /// An SKF payload.
    pub(super) fn fragment(payload: &Payload<'a>) -> Result<Self, Fault> {
        let (len, whole) = (payload.body.len(), Self::whole(payload));
        let truncated = Fault::EncryptedLength { len, least: FRAGMENT_LEN };
        let (&[a, b, c, d], content) = payload.body.split_first_chunk().ok_or(truncated)?;
        let fragment = Fragment::new(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))?;
        Ok(Self { fragment: Some(fragment), content, at: whole.at.saturating_add(FRAGMENT_LEN), ..whole })
    }

    /// Where its parts are in the message.
    pub fn parts(&self, layout: &Layout) -> Result<Parts, Fault> {
        let len = self.content.len();
        let around = layout.iv.saturating_add(layout.icv);
        // At least the pad length is encrypted, and so at least one block.
        let block = layout.block.max(1);
        let least = around.saturating_add(block);
        let inside =
            len.checked_sub(around).filter(|_| len >= least).ok_or(Fault::EncryptedLength { len, least })?;
        if !inside.is_multiple_of(block) {
            return Err(Fault::EncryptedBlocks { len: inside });
        }
        Ok(Parts::new(self.at, layout, inside))
    }
}

impl Parts {
    /// The parts from offset `at` on, with `inside` bytes of ciphertext.
    pub(super) fn new(at: usize, layout: &Layout, inside: usize) -> Self {
        let ciphertext = at.saturating_add(layout.iv);
        let icv = ciphertext.saturating_add(inside);
        Self { iv: at..ciphertext, ciphertext: ciphertext..icv, icv: icv..icv.saturating_add(layout.icv) }
    }
}

/// The payloads in a decrypted and authenticated `plaintext`: without padding, which may be anything, and its length.
pub fn unpad(plaintext: &[u8]) -> Result<&[u8], Fault> {
    let len = plaintext.len();
    let (&claimed, padded) = plaintext.split_last().ok_or(Fault::EncryptedPadding { claimed: 0, len })?;
    let payloads = padded.len().checked_sub(claimed.into()).and_then(|end| padded.get(..end));
    payloads.ok_or(Fault::EncryptedPadding { claimed, len })
}

/// The padding that makes `len` bytes and the pad length a multiple of `block`, as little as possible.
pub(super) fn pad_len(len: usize, block: usize) -> Option<u8> {
    let over = len.checked_add(1)?.checked_rem(block.max(1))?;
    let missing = if over == 0 { 0 } else { block.checked_sub(over)? };
    u8::try_from(missing).ok()
}

#[cfg(test)]
mod tests;
