//! Several packets per call: AES-CBC, AES-CTR, AES-XCBC (RFC 3566) and AES-CMAC (RFC 4493).

use super::layout::{AesMacFields, HashFields, Job, MAX_JOB_LEN, STATUS_COMPLETED};
use super::library::Library;
use super::manager::{self, Jobs};
use super::{BURST, Secret};
use arrayvec::ArrayVec;
use casemate_crypto::{AesBits, MAX_TAG};
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

/// `IMB_CIPHER_NULL`.
const NO_CIPHER: c_int = 3;
/// `IMB_ORDER_HASH_CIPHER`.
const HASH_FIRST: c_int = 2;

/// A MAC that is a chain of AES-128 blocks.
#[derive(Clone, Copy)]
pub(crate) enum Chain {
    Xcbc,
    Cmac,
}

impl Chain {
    /// `IMB_HASH_ALG`.
    const fn number(self) -> c_int {
        match self {
            Self::Xcbc => 6,
            Self::Cmac => 12,
        }
    }

    /// Maximum tag length that the library writes, in bytes.
    pub(crate) const fn tag_len(self) -> usize {
        match self {
            Self::Xcbc => 12,
            Self::Cmac => 16,
        }
    }
}

/// An expanded key for either MAC.
pub(crate) struct AesMacKey {
    library: &'static Library,
    chain: Chain,
    blocks: AesKeys,
    /// Subkey for a complete last block.
    whole: Box<Secret<16>>,
    /// Subkey for a padded last block.
    padded: Box<Secret<16>>,
    /// Tag of an empty message. The library is not called for it, because it would read a last block that
    /// does not exist.
    empty_tag: Box<Secret<16>>,
}

impl AesMacKey {
    /// Sets up a key. Returns `None` if the key does not have 16 bytes, or if the library fails.
    pub(crate) fn new(library: &'static Library, chain: Chain, key: &[u8]) -> Option<Self> {
        if key.len() != 16 {
            return None;
        }
        let (mut whole, mut padded) = (Box::new(Secret([0; 16])), Box::new(Secret([0; 16])));
        let (out_whole, out_filled) = ((&raw mut *whole).cast(), (&raw mut *padded).cast());
        let blocks_of = |key| AesKeys::new(library, Mode::Cbc, AesBits::B128, key);
        let blocks = match chain {
            Chain::Xcbc => {
                let mut first = Secret([0; 256]);
                let expand = library.functions.xcbc_expand;
                // SAFETY: the key has 16 bytes; `first` has space for 11 round keys, and the other outputs
                // have space for a block.
                unsafe { expand(key.as_ptr().cast(), (&raw mut first).cast(), out_whole, out_filled) };
                blocks_of(first.0.get(..16)?)?
            }
            Chain::Cmac => {
                let blocks = blocks_of(key)?;
                let subkeys = library.functions.cmac_subkeys;
                // SAFETY: the round keys belong to a 128-bit key; each output has space for a block.
                unsafe { subkeys((&raw const *blocks.round_keys()).cast(), out_whole, out_filled) };
                blocks
            }
        };
        let empty_tag = tag_of_empty_message(&blocks, &padded)?;
        Some(Self { library, chain, blocks, whole, padded, empty_tag })
    }

    /// Signs at most [`BURST`] messages. Writes the tags, of [`Chain::tag_len`] bytes, to the start of `tags`
    /// in order. Returns `false` if a message is too long ([`MAX_JOB_LEN`]), if there are too many, or if the
    /// library fails.
    pub(crate) fn sign<'w>(
        &self,
        work: impl Iterator<Item = &'w [u8]>,
        tags: &mut [[u8; MAX_TAG]; BURST],
    ) -> bool {
        let mut jobs = Jobs::new();
        let mut free = tags.iter_mut();
        for data in work {
            let Some(tag) = free.next() else { return false };
            if data.is_empty() {
                tag.iter_mut().zip(&self.empty_tag.0).for_each(|(to, from)| *to = *from);
            } else if data.len() > MAX_JOB_LEN || jobs.try_push(self.job(data, tag)).is_err() {
                return false;
            }
        }
        // SAFETY: the data of each job is borrowed for `'w` and not empty; each job has its own tag buffer,
        // which is longer than the tag length of the job; the keys belong to the MAC.
        unsafe { manager::run_jobs(self.library, &mut jobs) }
    }

    fn job(&self, data: &[u8], tag: &mut [u8; MAX_TAG]) -> Job {
        let (round_keys, whole, padded) =
            ((&raw const *self.blocks.round_keys()).cast(), self.whole.0.as_ptr(), self.padded.0.as_ptr());
        Job {
            source: data.as_ptr(),
            hash_len: data.len() as u64,
            tag: tag.as_mut_ptr(),
            tag_len: self.chain.tag_len() as u64,
            hash_fields: HashFields { aes_mac: AesMacFields { round_keys, whole, padded } },
            cipher_mode: NO_CIPHER,
            direction: Direction::Encrypt.number(),
            hash: self.chain.number(),
            chain_order: HASH_FIRST,
            ..Job::EMPTY
        }
    }
}

/// Encrypts a block that contains only padding, XORed with the subkey for padded blocks.
fn tag_of_empty_message(blocks: &AesKeys, padded: &Secret<16>) -> Option<Box<Secret<16>>> {
    let mut tag = Box::new(Secret([0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    blocks.run(Direction::Encrypt, [(&padded.0, &mut tag.0[..])].into_iter()).then_some(tag)
}
