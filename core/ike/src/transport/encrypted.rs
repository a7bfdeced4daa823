//! The Encrypted payload and the Encrypted Fragment payload (RFC 7296 section 3.14, RFC 5282, RFC 7383
//! section 2.5).
//!
//! ```text
//!  | IKE header | ... | SK |    IV    | payloads | padding | pad len |     ICV     |
//!  |<--- associated data -->|         |<------- ciphertext --------->|
//!  |<------------------- what a separate MAC covers ---------------->|
//! ```
//! `casemate_wire::ike` parses and writes these parts. This module encrypts and decrypts them in place. A key
//! serves one direction.

use alloc::boxed::Box;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, CipherAlg, EtmJob, EtmKey, JobStatus, KeyError, MacAlg, Providers, Rng, Salt,
    SecretBytes, Tag,
};
use casemate_wire::ike::sk::{Parts, unpad};
use casemate_wire::ike::{Fault, Sealable, SkLayout};
use core::fmt;
use core::ops::Range;

/// Encryption and integrity algorithms of an IKE SA. IKE always encrypts: NULL is not allowed (RFC 7296
/// section 3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkSuite {
    /// A combined-mode algorithm.
    Combined(AeadAlg),
    /// A cipher and a MAC.
    Separate(CipherAlg, MacAlg),
}

impl SkSuite {
    /// Length of SK_e in bytes, salt or nonce included (RFC 5282 section 7.1).
    pub const fn encr_key_len(self) -> usize {
        match self {
            Self::Combined(alg) => alg.key_len().saturating_add(alg.salt_len()),
            Self::Separate(cipher, _) => cipher.key_len().saturating_add(cipher.salt_len()),
        }
    }

    /// Length of SK_a in bytes; 0 with a combined-mode cipher.
    pub const fn integ_key_len(self) -> usize {
        match self {
            Self::Combined(_) => 0,
            Self::Separate(_, mac) => mac.key_len(),
        }
    }

    /// Lengths of IV, block and ICV of the encrypted payload.
    pub const fn layout(self) -> SkLayout {
        match self {
            // RFC 5282 section 3: no padding is needed.
            Self::Combined(alg) => SkLayout { iv: alg.iv_len(), block: 1, icv: alg.icv_len() },
            Self::Separate(cipher, mac) => {
                SkLayout { iv: cipher.iv_len(), block: cipher.block_len(), icv: mac.tag_len() }
            }
        }
    }
}

/// Reason why a payload could not be decrypted. The message is ignored (RFC 7296 section 2.21.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkError {
    /// The ICV is wrong: the message was changed, or encrypted with another key.
    IcvMismatch,
    /// The padding is wrong. The sender has the key.
    Padding(Fault),
}

impl fmt::Display for SkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IcvMismatch => f.write_str("the ICV is wrong"),
            Self::Padding(fault) => fault.fmt(f),
        }
    }
}

impl core::error::Error for SkError {}

/// The message could not be encrypted: its parts do not fit the message or the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealError;

/// Key of one direction of an IKE SA: SK_ei and SK_ai, or SK_er and SK_ar.
pub struct SkKey {
    engine: Engine,
    layout: SkLayout,
}

enum Engine {
    Combined { key: Box<dyn AeadKey>, salt: Salt },
    Ctr { key: Box<dyn EtmKey>, nonce: Salt },
    Cbc { key: Box<dyn EtmKey> },
}

impl SkKey {
    /// Sets up a key. `encr` is the key followed by the salt or nonce, as in the key material (RFC 5282
    /// section 7.1). `integ` is empty with a combined-mode algorithm. NULL and AES-GMAC are not supported.
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
        Ok(Self { engine, layout: suite.layout() })
    }

    /// Lengths of the parts of a payload under this key.
    pub fn layout(&self) -> &SkLayout {
        &self.layout
    }

    /// Encrypts and authenticates a message that was written for this key's layout. Returns the message to
    /// send.
    ///
    /// `counter` must never repeat under one key, because counter modes use it as the IV. CBC takes its IV
    /// from `rng` (RFC 7296 section 3.14: unpredictable).
    pub fn seal<'b>(
        &self,
        sealable: Sealable<'b>,
        counter: u64,
        rng: &mut dyn Rng,
    ) -> Result<&'b mut [u8], SealError> {
        let Sealable { message, parts, .. } = sealable;
        let iv = message.get_mut(parts.iv.clone()).ok_or(SealError)?;
        match (&self.engine, iv.first_chunk_mut::<8>()) {
            (Engine::Cbc { .. }, _) => rng.public(iv),
            (_, Some(iv)) => *iv = counter.to_be_bytes(),
            (_, None) => return Err(SealError),
        }
        let done = match &self.engine {
            Engine::Combined { key, salt } => run_aead(message, &parts, *salt, |job| key.seal(job)),
            Engine::Ctr { key, .. } | Engine::Cbc { key } => {
                let mut tag = Tag::zeroed(parts.icv.len());
                let done = self.run_etm(message, &parts, &mut tag, |job| key.seal(job));
                let icv = message.get_mut(parts.icv.clone()).ok_or(SealError)?;
                icv.iter_mut().zip(tag.as_slice()).for_each(|(to, from)| *to = *from);
                done
            }
        };
        if done { Ok(message) } else { Err(SealError) }
    }

    /// Verifies and decrypts `message` in place. Returns the range of the inner payloads, or of the part of
    /// them in a fragment. After an error the contents must not be used. Parts beyond the end of the message
    /// are an error.
    pub fn open(&self, message: &mut [u8], parts: &Parts) -> Result<Range<usize>, SkError> {
        let done = match &self.engine {
            Engine::Combined { key, salt } => run_aead(message, parts, *salt, |job| key.open(job)),
            Engine::Ctr { key, .. } | Engine::Cbc { key } => {
                let icv = message.get(parts.icv.clone()).ok_or(SkError::IcvMismatch)?;
                let mut tag = Tag::from_slice(icv);
                self.run_etm(message, parts, &mut tag, |job| key.open(job))
            }
        };
        if !done {
            return Err(SkError::IcvMismatch);
        }
        let text = message.get(parts.ciphertext.clone()).ok_or(SkError::IcvMismatch)?;
        let payloads = unpad(text).map_err(SkError::Padding)?;
        let start = parts.ciphertext.start;
        Ok(start..start.saturating_add(payloads.len()))
    }

    /// RFC 7296 section 3.14: the MAC covers the message up to the MAC. Returns `false` if the transform
    /// fails or if a part lies beyond the end of the message.
    fn run_etm(
        &self,
        message: &mut [u8],
        parts: &Parts,
        tag: &mut Tag,
        transform: impl FnOnce(&mut [EtmJob<'_>]),
    ) -> bool {
        let Some(in_message) = message.get(parts.iv.clone()) else { return false };
        let iv = match &self.engine {
            Engine::Ctr { nonce, .. } => {
                let Some(iv) = in_message.first_chunk() else { return false };
                nonce.counter_block(*iv)
            }
            _ => {
                let mut iv = [0; 16];
                iv.iter_mut().zip(in_message).for_each(|(to, from)| *to = *from);
                iv
            }
        };
        let text = parts.ciphertext.clone();
        let Some(data) = message.get_mut(..text.end) else { return false };
        let mut jobs = [EtmJob { iv, mac_nonce: [0; 12], data, text, tag: *tag, status: JobStatus::Pending }];
        transform(&mut jobs);
        let [job] = jobs;
        *tag = job.tag;
        job.status == JobStatus::Done
    }
}

/// RFC 5282 section 5.1: the associated data is everything before the IV.
fn run_aead(
    message: &mut [u8],
    parts: &Parts,
    salt: Salt,
    transform: impl FnOnce(&mut [AeadJob<'_>]),
) -> bool {
    let (text_len, icv_len) = (parts.ciphertext.len(), parts.icv.len());
    let split = message.split_at_mut_checked(parts.iv.start).and_then(|(aad, rest)| {
        let (iv, rest) = rest.split_first_chunk_mut::<8>()?;
        let (text, rest) = rest.split_at_mut_checked(text_len)?;
        Some((&*aad, *iv, text, rest.get_mut(..icv_len)?))
    });
    let Some((aad, iv, text, tag)) = split else { return false };
    let mut jobs = [AeadJob { nonce: salt.nonce(iv), aad, text, tag, status: JobStatus::Pending }];
    transform(&mut jobs);
    let [job] = jobs;
    job.status == JobStatus::Done
}

#[cfg(test)]
mod tests;
