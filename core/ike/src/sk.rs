//! The protection of the Encrypted payload, and of Encrypted Fragments (RFC 7296 section 3.14, RFC 5282, RFC 7383 section
//! 2.5).
//!
//! ```text
//!  0                    iv_at        text                             len-icv     len
//!  | IKE header | ... | SK |    IV    | payloads | padding | pad len |     ICV     |
//!  |<--- associated data -->|         |<------- ciphertext --------->|
//!  |<------------------- what a separate MAC covers ---------------->|
//! ```
//! It is the last payload, so its IV's place says where everything is. Works in place; of one direction each.

use alloc::boxed::Box;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, CipherAlg, EtmJob, EtmKey, KeyError, MacAlg, Outcome, Providers, Rng, Salt,
    SecretBytes, Tag,
};
use core::fmt;
use core::ops::Range;

/// Encryption and integrity of an IKE SA. IKE has no SA without encryption (RFC 7296 section 3.3.2: NULL is not for IKE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkSuite {
    /// One combined-mode algorithm.
    Combined(AeadAlg),
    /// A cipher and a MAC.
    Separate(CipherAlg, MacAlg),
}

impl SkSuite {
    const fn sizes(self) -> Sizes {
        match self {
            Self::Combined(alg) => Sizes { iv: alg.iv_len(), icv: alg.icv_len(), block: 1 },
            Self::Separate(cipher, mac) => {
                Sizes { iv: cipher.iv_len(), icv: mac.tag_len(), block: cipher.block_len() }
            }
        }
    }
}

/// Lengths in bytes.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    iv: usize,
    icv: usize,
    /// The ciphertext is a multiple of this.
    block: usize,
}

/// Why a payload did not open. A message with one that does not is ignored (RFC 7296 section 2.21.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkError {
    /// There is no room for IV, pad length and ICV, or the ciphertext is not whole blocks.
    Length,
    /// The ICV is wrong: the message was changed, or is under another key.
    IcvMismatch,
    /// The pad length exceeds the ciphertext. Whoever made it has the key.
    PadLength,
}

impl fmt::Display for SkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "the encrypted payload's length fits neither IV and ICV nor whole blocks",
            Self::IcvMismatch => "the ICV is wrong",
            Self::PadLength => "the pad length exceeds the decrypted payload",
        })
    }
}

impl core::error::Error for SkError {}

/// There is no room, or no IV is left, to protect a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotSealed;

/// The key of one direction of an IKE SA: SK_ei and SK_ai, or SK_er and SK_ar.
pub struct SkKey {
    engine: Engine,
    sizes: Sizes,
}

enum Engine {
    Combined { key: Box<dyn AeadKey>, salt: Salt },
    Ctr { key: Box<dyn EtmKey>, nonce: Salt },
    Cbc { key: Box<dyn EtmKey> },
}

impl SkKey {
    /// Sets the suite up. `encr` is the key and then the salt or nonce, as they are cut from the key material (RFC 5282
    /// section 7.1); `integ` is empty with a combined-mode algorithm. NULL and AES-GMAC are unsupported.
    pub fn new(
        suite: SkSuite,
        encr: &SecretBytes,
        integ: &SecretBytes,
        providers: &Providers<'_>,
    ) -> Result<Self, KeyError> {
        let engine = match suite {
            SkSuite::Combined(alg) => {
                if !integ.is_empty() {
                    return Err(KeyError::KeyLength { expected: 0, given: integ.len() });
                }
                let (key, salt) = Salt::split(encr, alg.key_len(), alg.salt_len())?;
                Engine::Combined { key: providers.aead(alg, key)?, salt }
            }
            SkSuite::Separate(CipherAlg::Null, _) => return Err(KeyError::Unsupported),
            SkSuite::Separate(_, mac) if mac.takes_nonce() => return Err(KeyError::Unsupported),
            SkSuite::Separate(cipher, mac) => {
                let (key, nonce) = Salt::split(encr, cipher.key_len(), cipher.salt_len())?;
                let key = providers.etm(cipher, key, mac, integ.expose())?;
                if cipher.is_counter_mode() { Engine::Ctr { key, nonce } } else { Engine::Cbc { key } }
            }
        };
        Ok(Self { engine, sizes: suite.sizes() })
    }

    /// Length from the IV to the end of the message, for inner payloads of `len` bytes.
    pub fn sealed_len(&self, len: usize) -> usize {
        let text = len.saturating_add(1).checked_next_multiple_of(self.sizes.block).unwrap_or(usize::MAX);
        text.saturating_add(self.sizes.iv).saturating_add(self.sizes.icv)
    }

    /// Length of the IV, behind which the inner payloads are to be written before sealing.
    pub fn iv_len(&self) -> usize {
        self.sizes.iv
    }

    /// Encrypts and signs `message`, whose IV will stand at `iv_at` and whose inner payloads, `len` bytes, stand behind the
    /// IV's room. The message ends [`sealed_len`](Self::sealed_len) behind `iv_at`, and its header says so already.
    ///
    /// `counter` must never come twice under one key: counter modes make the IV of it. CBC takes its IV from `rng`
    /// (RFC 7296 section 3.14: unpredictable).
    pub fn seal(
        &self,
        message: &mut [u8],
        iv_at: usize,
        len: usize,
        counter: u64,
        rng: &mut dyn Rng,
    ) -> Result<(), NotSealed> {
        let end = iv_at.checked_add(self.sealed_len(len)).ok_or(NotSealed)?;
        let message = message.get_mut(..end).ok_or(NotSealed)?;
        let text = self.text(message.len(), iv_at).ok_or(NotSealed)?;
        let padding = message.get_mut(text.start.saturating_add(len)..text.end).ok_or(NotSealed)?;
        let (pad_len, padding) = padding.split_last_mut().ok_or(NotSealed)?;
        padding.fill(0);
        *pad_len = u8::try_from(padding.len()).map_err(|_| NotSealed)?;
        let iv = message.get_mut(iv_at..text.start).ok_or(NotSealed)?;
        match (&self.engine, iv.first_chunk_mut::<8>()) {
            (Engine::Cbc { .. }, _) => rng.public(iv),
            (_, Some(iv)) => *iv = counter.to_be_bytes(),
            (_, None) => return Err(NotSealed),
        }
        let done = match &self.engine {
            Engine::Combined { key, salt } => combined(message, iv_at, text, *salt, |job| key.seal(job)),
            Engine::Ctr { key, .. } | Engine::Cbc { key } => {
                let mut tag = Tag::zeroed(self.sizes.icv);
                let done = self.separate(message, iv_at, text.clone(), &mut tag, |job| key.seal(job));
                let icv = message.get_mut(text.end..).unwrap_or_default();
                icv.iter_mut().zip(tag.as_slice()).for_each(|(to, from)| *to = *from);
                done
            }
        };
        if done { Ok(()) } else { Err(NotSealed) }
    }

    /// Verifies and decrypts `message`, which ends with its SK or SKF payload, whose IV stands at `iv_at`. Answers where in
    /// `message` the inner payloads are, or the piece of them that a fragment holds. What fails is not to be looked at.
    pub fn open(&self, message: &mut [u8], iv_at: usize) -> Result<Range<usize>, SkError> {
        let text = self.text(message.len(), iv_at).ok_or(SkError::Length)?;
        let done = match &self.engine {
            Engine::Combined { key, salt } => {
                combined(message, iv_at, text.clone(), *salt, |job| key.open(job))
            }
            Engine::Ctr { key, .. } | Engine::Cbc { key } => {
                let mut tag = Tag::from_slice(message.get(text.end..).unwrap_or_default());
                self.separate(message, iv_at, text.clone(), &mut tag, |job| key.open(job))
            }
        };
        if !done {
            return Err(SkError::IcvMismatch);
        }
        // RFC 7296 section 3.14: the padding's content is the sender's choice.
        let pad_len = message.get(text.clone()).and_then(|text| text.last()).ok_or(SkError::Length)?;
        let taken = usize::from(*pad_len).saturating_add(1);
        let end = text.end.checked_sub(taken).filter(|&end| end >= text.start).ok_or(SkError::PadLength)?;
        Ok(text.start..end)
    }

    /// Where the ciphertext is in a message of `len` bytes.
    fn text(&self, len: usize, iv_at: usize) -> Option<Range<usize>> {
        let start = iv_at.checked_add(self.sizes.iv)?;
        let end = len.checked_sub(self.sizes.icv)?;
        let text_len = end.checked_sub(start).filter(|&len| len > 0)?;
        text_len.is_multiple_of(self.sizes.block).then_some(start..end)
    }

    /// RFC 7296 section 3.14: the MAC covers the message up to itself.
    fn separate(
        &self,
        message: &mut [u8],
        iv_at: usize,
        text: Range<usize>,
        tag: &mut Tag,
        transform: impl FnOnce(&mut [EtmJob<'_>]),
    ) -> bool {
        let in_message = message.get(iv_at..text.start).unwrap_or_default();
        let iv = match &self.engine {
            Engine::Ctr { nonce, .. } => {
                nonce.counter_block(in_message.first_chunk().copied().unwrap_or_default())
            }
            _ => {
                let mut iv = [0; 16];
                iv.iter_mut().zip(in_message).for_each(|(to, from)| *to = *from);
                iv
            }
        };
        let Some(data) = message.get_mut(..text.end) else { return false };
        let mut jobs = [EtmJob { iv, mac_nonce: [0; 12], data, text, tag: *tag, outcome: Outcome::Pending }];
        transform(&mut jobs);
        let [job] = jobs;
        *tag = job.tag;
        job.outcome == Outcome::Done
    }
}

/// RFC 5282 section 5.1: the associated data is everything in front of the IV.
fn combined(
    message: &mut [u8],
    iv_at: usize,
    text: Range<usize>,
    salt: Salt,
    transform: impl FnOnce(&mut [AeadJob<'_>]),
) -> bool {
    let text_len = text.len();
    let parts = message.split_at_mut_checked(iv_at).and_then(|(aad, rest)| {
        let (iv, rest) = rest.split_first_chunk_mut::<8>()?;
        let (text, tag) = rest.split_at_mut_checked(text_len)?;
        Some((&*aad, *iv, text, tag))
    });
    let Some((aad, iv, text, tag)) = parts else { return false };
    let mut jobs = [AeadJob { nonce: salt.nonce(iv), aad, text, tag, outcome: Outcome::Pending }];
    transform(&mut jobs);
    let [job] = jobs;
    job.outcome == Outcome::Done
}

#[cfg(test)]
mod tests;
