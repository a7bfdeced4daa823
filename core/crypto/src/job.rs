//! Units of work handed to a provider, a batch at a time.
//!
//! A job owns no payload: it borrows the packet's bytes and they are transformed in place. Its outcome starts as
//! [`Outcome::Pending`], so a provider that forgets a job can never be taken to have verified it.

use core::ops::Range;
use subtle::ConstantTimeEq;

/// Longest tag of any algorithm here, in bytes (HMAC-SHA2-512 in full).
pub const MAX_TAG: usize = 64;

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The provider has not handled the job; to be treated like [`Outcome::Failed`].
    Pending,
    /// Sealed, signed, or opened with a tag that verified.
    Done,
    /// The tag did not verify, or the algorithm refused the input. The text's content is then unspecified.
    Failed,
}

/// A tag (ICV) by value: at most [`MAX_TAG`] bytes, the first `len` of which count.
#[derive(Debug, Clone, Copy)]
pub struct Tag {
    bytes: [u8; MAX_TAG],
    len: u8,
}

impl Tag {
    /// A tag of `len` zero bytes; a `len` above [`MAX_TAG`] is cut to it.
    #[inline]
    pub fn zeroed(len: usize) -> Self {
        Self { bytes: [0; MAX_TAG], len: len.min(MAX_TAG) as u8 }
    }

    /// A tag holding `bytes`, cut to [`MAX_TAG`].
    #[inline]
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut tag = Self::zeroed(bytes.len());
        for (to, from) in tag.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        tag
    }

    /// The tag's bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The tag's bytes, for a provider to fill.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether it is the tag that was received; see [`verifies`].
    #[inline]
    pub fn verifies(&self, received: &Tag) -> bool {
        verifies(self.as_slice(), received.as_slice())
    }
}

/// Compares tags in constant time; those of different length are unequal, and so is an empty one to anything.
///
/// Word by word, because each packet that is opened pays for it. All tags are whole words, but any length is compared.
#[inline]
pub fn verifies(computed: &[u8], received: &[u8]) -> bool {
    let (words, rest) = computed.as_chunks();
    let (received_words, received_rest) = received.as_chunks();
    let differ = |all, (a, b): (&[u8; 4], &[u8; 4])| all | (u32::from_ne_bytes(*a) ^ u32::from_ne_bytes(*b));
    let in_words = words.iter().zip(received_words).fold(0, differ);
    let difference = rest.iter().zip(received_rest).fold(in_words, |all, (a, b)| all | u32::from(a ^ b));
    !computed.is_empty() && computed.len() == received.len() && bool::from(difference.ct_eq(&0))
}

/// One packet for a combined-mode cipher (RFC 5116 terms).
#[derive(Debug)]
pub struct AeadJob<'a> {
    /// Nonce, left-aligned: the first [`nonce_len`](crate::AeadAlg::nonce_len) bytes are used.
    pub nonce: [u8; 12],
    /// Additional authenticated data.
    pub aad: &'a [u8],
    /// Plaintext in, ciphertext out (seal), or the reverse (open).
    pub text: &'a mut [u8],
    /// Written by seal, checked by open; its length is the algorithm's ICV length.
    pub tag: &'a mut [u8],
    /// Set by the provider.
    pub outcome: Outcome,
}

/// One packet for a cipher and a MAC, encrypt-then-MAC over one contiguous run of bytes.
#[derive(Debug)]
pub struct EtmJob<'a> {
    /// Cipher IV, left-aligned: 16 bytes for AES-CBC, 8 for DES; for AES-CTR the whole initial counter block.
    pub iv: [u8; 16],
    /// Nonce of a MAC that needs one (AES-GMAC), else unused.
    pub mac_nonce: [u8; 12],
    /// Everything that the MAC covers, in order.
    pub data: &'a mut [u8],
    /// The part of `data` that is encrypted; a multiple of the cipher's block for CBC.
    pub text: Range<usize>,
    /// Written by seal; for open the received tag. Its length is the MAC's tag length.
    pub tag: Tag,
    /// Set by the provider.
    pub outcome: Outcome,
}

/// One run of bytes to be signed. Verification is [`Tag::verifies`] by the caller.
#[derive(Debug)]
pub struct MacJob<'a> {
    /// Nonce of a MAC that needs one (AES-GMAC), else unused.
    pub nonce: [u8; 12],
    /// Everything that the MAC covers.
    pub data: &'a [u8],
    /// Written by sign; its length is the MAC's tag length.
    pub tag: Tag,
    /// Set by the provider.
    pub outcome: Outcome,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_tag_counts() {
        for len in 1..=MAX_TAG {
            let tag: [u8; MAX_TAG] = core::array::from_fn(|at| at as u8);
            let computed = &tag[..len];
            assert!(verifies(computed, computed));
            for bit in 0..8 * len {
                let mut received = tag;
                received[bit / 8] ^= 1 << (bit % 8);
                assert!(!verifies(computed, &received[..len]), "bit {bit} of {len} bytes");
            }
            assert!(!verifies(computed, &tag[..len - 1]) && !verifies(&tag[..len - 1], computed));
        }
        assert!(!verifies(&[], &[]), "nothing proves nothing");
    }
}
