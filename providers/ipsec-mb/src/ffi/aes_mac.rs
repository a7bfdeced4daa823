//! AES-XCBC (RFC 3566) and AES-CMAC (RFC 4493) for many packets in one call.

use super::BURST;
use super::burst::{AesKeys, Direction, Mode};
use super::layout::{AesMacFields, HashFields, Job, MOST_BYTES};
use super::library::Library;
use super::queue::{self, Jobs};
use super::secret::Secret;
use casemate_crypto::{AesBits, MAX_TAG};
use core::ffi::c_int;

/// `IMB_CIPHER_NULL`.
const NO_CIPHER: c_int = 3;
/// `IMB_ORDER_HASH_CIPHER`.
const HASH_FIRST: c_int = 2;

/// A chain of AES-128 blocks.
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

    /// Most bytes of a tag that the library writes.
    pub(crate) const fn tag_len(self) -> usize {
        match self {
            Self::Xcbc => 12,
            Self::Cmac => 16,
        }
    }
}

/// A key of either, expanded.
pub(crate) struct AesMacKey {
    library: &'static Library,
    chain: Chain,
    blocks: AesKeys,
    /// What is added to a last block that is whole.
    whole: Box<Secret<16>>,
    /// And to one that had to be filled up.
    filled: Box<Secret<16>>,
    /// The tag of no bytes, which the library is not asked for: it would have to read a last block that is not there.
    of_nothing: Box<Secret<16>>,
}

impl AesMacKey {
    /// `None` if the key is not 16 bytes long, or the library failed.
    pub(crate) fn new(library: &'static Library, chain: Chain, key: &[u8]) -> Option<Self> {
        if key.len() != 16 {
            return None;
        }
        let (mut whole, mut filled) = (Box::new(Secret([0; 16])), Box::new(Secret([0; 16])));
        let (out_whole, out_filled) = ((&raw mut *whole).cast(), (&raw mut *filled).cast());
        let blocks_of = |key| AesKeys::new(library, Mode::Cbc, AesBits::B128, key);
        let blocks = match chain {
            Chain::Xcbc => {
                let mut first = Secret([0; 256]);
                let expand = library.functions.xcbc_expand;
                // SAFETY: the key is 16 bytes long; 11 round keys fit into `first`, and a block into each other.
                unsafe { expand(key.as_ptr().cast(), (&raw mut first).cast(), out_whole, out_filled) };
                blocks_of(first.0.get(..16)?)?
            }
            Chain::Cmac => {
                let blocks = blocks_of(key)?;
                let subkeys = library.functions.cmac_subkeys;
                // SAFETY: the round keys are those of a key of 128 bits; a block fits into each other.
                unsafe { subkeys((&raw const *blocks.round_keys()).cast(), out_whole, out_filled) };
                blocks
            }
        };
        let of_nothing = tag_of_nothing(&blocks, &filled)?;
        Some(Self { library, chain, blocks, whole, filled, of_nothing })
    }

    /// Signs at most [`BURST`] pieces of data; the tags, of [`Chain::tag_len`], stand at the front of `tags` in their order.
    /// `false` if a piece is too long ([`MOST_BYTES`]), there are too many, or the library failed.
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
                tag.iter_mut().zip(&self.of_nothing.0).for_each(|(to, from)| *to = *from);
            } else if data.len() > MOST_BYTES || jobs.try_push(self.job(data, tag)).is_err() {
                return false;
            }
        }
        // SAFETY: each job's data is borrowed for `'w`, and is not empty; its tag is its own, longer than the job says; the
        // keys are those of the chain.
        unsafe { queue::run(self.library, &mut jobs) }
    }

    fn job(&self, data: &[u8], tag: &mut [u8; MAX_TAG]) -> Job {
        let (round_keys, whole, filled) =
            ((&raw const *self.blocks.round_keys()).cast(), self.whole.0.as_ptr(), self.filled.0.as_ptr());
        Job {
            source: data.as_ptr(),
            hash_len: data.len() as u64,
            tag: tag.as_mut_ptr(),
            tag_len: self.chain.tag_len() as u64,
            hash_fields: HashFields { aes_mac: AesMacFields { round_keys, whole, filled } },
            cipher_mode: NO_CIPHER,
            direction: Direction::Encrypt.number(),
            hash: self.chain.number(),
            chain_order: HASH_FIRST,
            ..Job::EMPTY
        }
    }
}

/// A block that is only filling, with what is added to such a one, through AES.
fn tag_of_nothing(blocks: &AesKeys, filled: &Secret<16>) -> Option<Box<Secret<16>>> {
    let mut tag = Box::new(Secret([0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    blocks.run(Direction::Encrypt, [(&filled.0, &mut tag.0[..])].into_iter()).then_some(tag)
}
