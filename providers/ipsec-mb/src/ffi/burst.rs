//! AES-CBC and AES-CTR for several packets per call.

use super::BURST;
use super::Secret;
use super::layout::{Job, MAX_JOB_LEN, STATUS_COMPLETED};
use super::library::Library;
use super::manager;
use arrayvec::ArrayVec;
use casemate_crypto::AesBits;
use core::ffi::c_int;

/// An AES mode without a tag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Cbc,
    Ctr,
}

impl Mode {
    /// Whether the mode accepts a text of `len` bytes.
    pub(crate) fn takes(self, len: usize) -> bool {
        len <= MAX_JOB_LEN && (self == Self::Ctr || len.is_multiple_of(16))
    }

    /// `IMB_CIPHER_MODE`.
    fn number(self) -> c_int {
        match self {
            Self::Cbc => 1,
            Self::Ctr => 2,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Encrypt,
    Decrypt,
}

impl Direction {
    /// `IMB_CIPHER_DIRECTION`.
    pub(super) fn number(self) -> c_int {
        match self {
            Self::Encrypt => 1,
            Self::Decrypt => 2,
        }
    }
}

/// 15 AES round keys, padded to whole cache lines.
pub(super) type RoundKeys = Secret<256>;

/// An AES key for one mode, expanded for both directions.
pub(crate) struct AesKeys {
    library: &'static Library,
    mode: Mode,
    bits: AesBits,
    encrypt: Box<RoundKeys>,
    decrypt: Box<RoundKeys>,
}

impl AesKeys {
    /// Sets up a key. Returns `None` if it does not have `bits`.
    pub(crate) fn new(library: &'static Library, mode: Mode, bits: AesBits, key: &[u8]) -> Option<Self> {
        if key.len() != bits.bytes() {
            return None;
        }
        let [k128, k192, k256] = library.functions.expand_key;
        let expand = match bits {
            AesBits::B128 => k128,
            AesBits::B192 => k192,
            AesBits::B256 => k256,
        };
        let (mut encrypt, mut decrypt) = (Box::new(Secret([0; 256])), Box::new(Secret([0; 256])));
        // SAFETY: the function reads a key of `bits`, which is the length of `key`, and writes at most 15
        // round keys to each output.
        unsafe {
            expand(key.as_ptr().cast(), (&raw mut *encrypt).cast(), (&raw mut *decrypt).cast());
        }
        Some(Self { library, mode, bits, encrypt, decrypt })
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Encrypts or decrypts at most [`BURST`] texts in place, each with its IV or initial counter block.
    /// Returns `false` if the mode does not accept a text, without changing any text, or if the library
    /// fails.
    pub(crate) fn run<'w>(
        &self,
        direction: Direction,
        work: impl Iterator<Item = (&'w [u8; 16], &'w mut [u8])>,
    ) -> bool {
        let mut jobs = ArrayVec::<Job, BURST>::new();
        for (iv, text) in work.filter(|(_, text)| !text.is_empty()) {
            if !self.mode.takes(text.len()) || jobs.try_push(self.job(iv, text)).is_err() {
                return false;
            }
        }
        if jobs.is_empty() {
            return true;
        }
        let burst = self.library.functions.cipher_burst;
        let (count, key_len) = (jobs.len() as u32, self.bits.bytes() as c_int);
        let done = manager::with(self.library, |head| {
            // SAFETY: the manager belongs to this thread and is in no other call; there are `count` jobs. The
            // text of each job is borrowed mutably for `'w`, only once, as is its IV; the mode accepts its
            // length; the round keys belong to `bits`. The call returns when all jobs are done, so the
            // library keeps no pointer that it would use later.
            Some(unsafe {
                burst(head, jobs.as_mut_ptr(), count, self.mode.number(), direction.number(), key_len)
            })
        });
        done == Some(count) && jobs.iter().all(|job| job.status == STATUS_COMPLETED)
    }

    /// Round keys for encryption.
    pub(super) fn round_keys(&self) -> &RoundKeys {
        &self.encrypt
    }

    fn job(&self, iv: &[u8; 16], text: &mut [u8]) -> Job {
        let bytes = text.as_mut_ptr();
        Job {
            encrypt_keys: (&raw const *self.encrypt).cast(),
            decrypt_keys: (&raw const *self.decrypt).cast(),
            key_len: self.bits.bytes() as u64,
            source: bytes.cast_const(),
            target: bytes,
            cipher_len: text.len() as u64,
            initial_vector: iv.as_ptr(),
            initial_vector_len: iv.len() as u64,
            ..Job::EMPTY
        }
    }
}
