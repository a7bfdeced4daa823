//! Jobs: units of work for a provider, submitted in batches.
//!
//! A job borrows the bytes of the packet, and the provider transforms them in place. A job starts as
//! [`JobStatus::Pending`]: if a provider skips a job, the job never counts as verified.

use core::ops::Range;
use subtle::ConstantTimeEq;

/// Longest tag of all algorithms, in bytes (HMAC-SHA2-512 without truncation).
pub const MAX_TAG: usize = 64;

/// Status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStatus {
    /// The provider has not processed the job. Callers treat this like [`JobStatus::Failed`].
    Pending,
    /// The job was sealed or signed, or it was opened and its tag verified.
    Done,
    /// The tag did not verify, or the algorithm rejected the input. The content of the text is unspecified.
    Failed,
}

/// A tag (ICV), stored inline: the first `len` of [`MAX_TAG`] bytes are used.
#[derive(Debug, Clone, Copy)]
pub struct Tag {
    bytes: [u8; MAX_TAG],
    len: u8,
}

impl Tag {
    /// Creates a tag of `len` zero bytes; `len` is limited to [`MAX_TAG`].
    #[inline]
    pub fn zeroed(len: usize) -> Self {
        Self { bytes: [0; MAX_TAG], len: len.min(MAX_TAG) as u8 }
    }

    /// Creates a tag with a copy of `bytes`, truncated to [`MAX_TAG`].
    #[inline]
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut tag = Self::zeroed(bytes.len());
        for (to, from) in tag.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        tag
    }

    /// Bytes of the tag.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Bytes of the tag, for a provider to write.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether this tag equals the received tag; see [`tags_equal`].
    #[inline]
    pub fn matches(&self, received: &Tag) -> bool {
        tags_equal(self.as_slice(), received.as_slice())
    }
}

/// Compares two tags in constant time. Tags of different lengths are unequal, and an empty tag equals no tag.
///
/// The comparison works on words of four bytes, because every opened packet pays for it. All tags of the RFCs
/// are whole words; other lengths are compared as well.
#[inline]
pub fn tags_equal(computed: &[u8], received: &[u8]) -> bool {
    let (words, rest) = computed.as_chunks();
    let (received_words, received_rest) = received.as_chunks();
    let differ = |all, (a, b): (&[u8; 4], &[u8; 4])| all | (u32::from_ne_bytes(*a) ^ u32::from_ne_bytes(*b));
    let in_words = words.iter().zip(received_words).fold(0, differ);
    let difference = rest.iter().zip(received_rest).fold(in_words, |all, (a, b)| all | u32::from(a ^ b));
    !computed.is_empty() && computed.len() == received.len() && bool::from(difference.ct_eq(&0))
}

/// A packet for a combined-mode cipher (terms of RFC 5116).
#[derive(Debug)]
pub struct AeadJob<'a> {
    /// Nonce, left-aligned: only the first [`nonce_len`](crate::AeadAlg::nonce_len) bytes are used.
    pub nonce: [u8; 12],
    /// Additional authenticated data.
    pub aad: &'a [u8],
    /// Plaintext that seal replaces with ciphertext, or ciphertext that open replaces with plaintext.
    pub text: &'a mut [u8],
    /// Tag: output of seal, input of open. Its length is the ICV length of the algorithm.
    pub tag: &'a mut [u8],
    /// Status; the provider sets it.
    pub status: JobStatus,
}

/// A packet for a cipher and a MAC (encrypt-then-MAC), as one contiguous range of bytes.
#[derive(Debug)]
pub struct EtmJob<'a> {
    /// Cipher IV, left-aligned: 16 bytes for AES-CBC, 8 for DES; for AES-CTR the whole initial counter block.
    pub iv: [u8; 16],
    /// Nonce of a MAC that takes one (AES-GMAC), otherwise unused.
    pub mac_nonce: [u8; 12],
    /// All bytes that the MAC covers, in order.
    pub data: &'a mut [u8],
    /// Part of `data` that is encrypted. For CBC its length is a multiple of the cipher's block length.
    pub text: Range<usize>,
    /// Tag: output of seal, input of open. Its length is the tag length of the MAC.
    pub tag: Tag,
    /// Status; the provider sets it.
    pub status: JobStatus,
}

/// Data to sign. To verify a signature, the caller compares tags with [`Tag::matches`].
#[derive(Debug)]
pub struct MacJob<'a> {
    /// Nonce of a MAC that takes one (AES-GMAC), otherwise unused.
    pub nonce: [u8; 12],
    /// All bytes that the MAC covers.
    pub data: &'a [u8],
    /// Tag: output of sign. Its length is the tag length of the MAC.
    pub tag: Tag,
    /// Status; the provider sets it.
    pub status: JobStatus,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_makes_tags_unequal() {
        for len in 1..=MAX_TAG {
            let tag: [u8; MAX_TAG] = core::array::from_fn(|at| at as u8);
            let computed = &tag[..len];
            assert!(tags_equal(computed, computed));
            for bit in 0..8 * len {
                let mut received = tag;
                received[bit / 8] ^= 1 << (bit % 8);
                assert!(!tags_equal(computed, &received[..len]), "bit {bit} of {len} bytes");
            }
            assert!(!tags_equal(computed, &tag[..len - 1]) && !tags_equal(&tag[..len - 1], computed));
        }
        assert!(!tags_equal(&[], &[]), "an empty tag verified");
    }
}
