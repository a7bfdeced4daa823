//! Units of work handed to a provider, a batch at a time.
//!
//! A job owns no payload: it borrows the packet's bytes and they are transformed in place. Its outcome starts as
//! [`Outcome::Pending`], so a provider that forgets a job can never be taken to have verified it.

use core::ops::Range;

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

    /// Compares in constant time; tags of different length are unequal, and so is an empty one to anything.
    #[inline]
    pub fn verifies(&self, received: &Tag) -> bool {
        use subtle::ConstantTimeEq;
        self.len > 0 && bool::from(self.as_slice().ct_eq(received.as_slice()))
    }
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
