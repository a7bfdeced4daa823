//! MACs: HMAC, AES-GMAC, AES-CMAC and AES-XCBC-MAC.

use crate::cipher::{Chain, run_chains, xor};
use crate::init;
use aes::cipher::{BlockCipherEncrypt, BlockSizeUser, KeyInit};
use aes::{Aes128Enc, Aes192Enc, Aes256Enc, Block};
use aes_gcm::AesGcm;
use aes_gcm::aead::AeadInOut;
use aes_gcm::aead::consts::{U12, U16};
use alloc::boxed::Box;
use casemate_crypto::{AesBits, JobStatus, KeyError, MacJob, MacKey, Tag};
use core::slice;
use hmac::{EagerHash, Hmac, Mac};
use zeroize::Zeroizing;

/// A keyed function from a message to an untruncated tag.
trait MacFunction: Send + Sync {
    /// Returns the untruncated tag of `data`, or `None` if the data is too long. Only GMAC uses the nonce.
    fn tag(&self, nonce: &[u8; 12], data: &[u8]) -> Option<impl AsRef<[u8]>>;
}

/// Adapter from a MAC function to [`MacKey`] that truncates tags.
struct Truncated<F> {
    function: F,
    tag_len: usize,
}

/// Creates a MAC key that truncates the tags of `function` to `tag_len` bytes.
fn truncated<F: MacFunction + 'static>(function: F, tag_len: usize) -> Box<dyn MacKey> {
    Box::new(Truncated { function, tag_len })
}

impl<F: MacFunction> MacKey for Truncated<F> {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        for job in jobs {
            job.status = match self.function.tag(&job.nonce, job.data) {
                Some(full) => put_tag(&mut job.tag, full.as_ref(), self.tag_len),
                None => JobStatus::Failed,
            };
        }
    }
}

/// Writes the first `tag_len` bytes of `full` to `tag`. Fails if `tag` has another length.
fn put_tag(tag: &mut Tag, full: &[u8], tag_len: usize) -> JobStatus {
    let out = tag.as_mut_slice();
    match full.get(..tag_len) {
        Some(cut) if cut.len() == out.len() => {
            out.copy_from_slice(cut);
            JobStatus::Done
        }
        _ => JobStatus::Failed,
    }
}

/// Sets up an HMAC key over the hash `D`, SHA-1 (RFC 2404) or SHA-2 (RFC 4868). Keys may have any length (RFC
/// 2104 section 2).
///
/// The two padded key blocks are hashed once, when the key is set up (RFC 2104 section 4). Each packet starts
/// with a copy of that state.
pub(crate) fn hmac<D>(key: &[u8], tag_len: usize) -> Result<Box<dyn MacKey>, KeyError>
where
    D: EagerHash + 'static,
    Hmac<D>: Send + Sync,
{
    Ok(truncated(init::<Hmac<D>>(key)?, tag_len))
}

impl<D: EagerHash> MacFunction for Hmac<D>
where
    Self: Send + Sync,
{
    fn tag(&self, _nonce: &[u8; 12], data: &[u8]) -> Option<impl AsRef<[u8]>> {
        let mut mac = self.clone();
        mac.update(data);
        Some(mac.finalize().into_bytes())
    }
}

/// AES-GMAC (RFC 4543): the tag of AES-GCM over data that is only authenticated. The tag is never truncated
/// (section 2).
struct Gmac<A>(AesGcm<A, U12>);

/// Sets up an AES-GMAC key.
pub(crate) fn gmac(bits: AesBits, key: &[u8], tag_len: usize) -> Result<Box<dyn MacKey>, KeyError> {
    match bits {
        AesBits::B128 => gmac_for::<Aes128Enc>(key, tag_len),
        AesBits::B192 => gmac_for::<Aes192Enc>(key, tag_len),
        AesBits::B256 => gmac_for::<Aes256Enc>(key, tag_len),
    }
}

fn gmac_for<A>(key: &[u8], tag_len: usize) -> Result<Box<dyn MacKey>, KeyError>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit + Send + Sync + 'static,
{
    Ok(truncated(Gmac(init::<AesGcm<A, U12>>(key)?), tag_len))
}

impl<A> MacFunction for Gmac<A>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + Send + Sync,
{
    fn tag(&self, nonce: &[u8; 12], data: &[u8]) -> Option<impl AsRef<[u8]>> {
        let no_text: &mut [u8] = &mut [];
        self.0.encrypt_inout_detached(nonce.into(), data, no_text.into()).ok()
    }
}

/// Sets up an AES-CMAC key (RFC 4494, RFC 4493).
pub(crate) fn cmac(key: &[u8], tag_len: usize) -> Result<Box<dyn MacKey>, KeyError> {
    let cipher: Aes128Enc = init(key)?;
    let mut l = Zeroizing::new(Block::default());
    cipher.encrypt_block(&mut l);
    // RFC 4493 section 2.3: K1 and K2.
    let whole = Zeroizing::new(doubled(&l));
    let padded = Zeroizing::new(doubled(&whole));
    Ok(Box::new(ChainMac { cipher, whole, padded, tag_len }))
}

/// Multiplies by x in GF(2^128) with the polynomial of RFC 4493 section 2.3, without branches on secret bits.
fn doubled(block: &Block) -> Block {
    let value = u128::from_be_bytes(block.0);
    let carry = value >> 127;
    ((value << 1) ^ (carry * 0x87)).to_be_bytes().into()
}

/// Sets up an AES-XCBC-MAC key (RFC 3566).
pub(crate) fn xcbc(key: &[u8], tag_len: usize) -> Result<Box<dyn MacKey>, KeyError> {
    let master: Aes128Enc = init(key)?;
    // RFC 3566 section 4: K1, K2 and K3 are the encryptions of 0x01.., 0x02.. and 0x03..
    let derive = |byte: u8| {
        let mut derived = Zeroizing::new(Block::from([byte; 16]));
        master.encrypt_block(&mut derived);
        derived
    };
    let cipher = Aes128Enc::new(&*derive(1));
    Ok(Box::new(ChainMac { cipher, whole: derive(2), padded: derive(3), tag_len }))
}

/// AES-CMAC or AES-XCBC-MAC.
///
/// Both MACs encrypt the message like CBC and XOR the last block with one subkey if it is complete, or with
/// another subkey if it was padded (RFC 4493 section 2.4, RFC 3566 section 4). They differ only in how the
/// keys are derived.
struct ChainMac {
    /// Cipher of the chain.
    cipher: Aes128Enc,
    /// Subkey for a complete last block.
    whole: Zeroizing<Block>,
    /// Subkey for a padded last block.
    padded: Zeroizing<Block>,
    /// Length of the tag, in bytes.
    tag_len: usize,
}

impl MacKey for ChainMac {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        run_chains(&self.cipher, jobs.iter_mut().map(|job| (self.chain(job), Block::default())));
    }
}

impl ChainMac {
    fn chain<'j, 'd>(&self, job: &'j mut MacJob<'d>) -> Sign<'j, 'd> {
        let (blocks, rest) = Block::slice_as_chunks(job.data);
        let (blocks, last) = match blocks.split_last() {
            Some((last, before)) if rest.is_empty() => (before, masked(*last, &self.whole)),
            _ => (blocks, masked(pad(rest), &self.padded)),
        };
        Sign { blocks: blocks.iter(), last: Some(last), job, tag_len: self.tag_len }
    }
}

/// Pads with a one bit and zeros. An empty message is padded, too.
fn pad(rest: &[u8]) -> Block {
    let mut block = Block::default();
    for (to, from) in block.iter_mut().zip(rest.iter().chain(&[0x80])) {
        *to = *from;
    }
    block
}

fn masked(mut block: Block, mask: &Block) -> Block {
    xor(&mut block, mask);
    block
}

/// The MAC of one message.
struct Sign<'j, 'd> {
    blocks: slice::Iter<'d, Block>,
    last: Option<Block>,
    job: &'j mut MacJob<'d>,
    tag_len: usize,
}

impl Chain for Sign<'_, '_> {
    #[inline(always)]
    fn step(&mut self, state: &mut Block) -> bool {
        if let Some(block) = self.blocks.next() {
            xor(state, block);
        } else if let Some(last) = self.last.take() {
            xor(state, &last);
        } else {
            self.job.status = put_tag(&mut self.job.tag, state, self.tag_len);
            return false;
        }
        true
    }
}
