//! MACs: HMAC (RFC 2104) with SHA-1 (RFC 2404) and SHA-2 (RFC 4868), AES-CMAC (RFC 4493, for IPsec RFC 4494),
//! AES-XCBC-MAC (RFC 3566), and AES-GMAC (RFC 4543).
//!
//! For HMAC, the key block is hashed once, when the key is set up. Each packet then copies two hash states of
//! about 100 bytes; the HMAC context of the library would take 1,200 bytes.

use crate::done;
use crate::ffi::{Aead, AeadKind, AesEncrypt, BLOCK, Block, Hash, Wiped, wipe};
use casemate_crypto::{AesBits, MAX_TAG, MacJob, MacKey};

/// Maximum block length of the hash functions, in bytes.
const MAX_BLOCK: usize = 128;

/// Sets up an HMAC key over `H` with tags of `len` bytes. Returns `None` if the library fails.
pub(crate) fn hmac<H: Hash>(key: &[u8], len: usize) -> Option<Box<dyn MacKey>> {
    let mut states = Wiped::<[H; 2]>::zeroed();
    let mut block = [0; MAX_BLOCK];
    let keyed = key_block::<H>(key, &mut block) && keyed(&mut states, &block);
    wipe(&mut block);
    keyed.then(|| Box::new(Hmac { states, len }) as Box<dyn MacKey>)
}

/// Writes the key to the start of `block`; a key longer than the block of the hash is replaced by its digest
/// (RFC 2104 section 2).
fn key_block<H: Hash>(key: &[u8], block: &mut [u8; MAX_BLOCK]) -> bool {
    if key.len() <= H::BLOCK {
        block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        return true;
    }
    let mut hash = Wiped::<H>::zeroed();
    block.first_chunk_mut().is_some_and(|out| hash.start() && hash.update(key) && hash.finish(out))
}

/// Initialises the inner and the outer hash with the key block.
fn keyed<H: Hash>(states: &mut [H; 2], block: &[u8; MAX_BLOCK]) -> bool {
    states.iter_mut().zip([0x36, 0x5c]).all(|(state, pad)| {
        let mut padded = block.map(|byte| byte ^ pad);
        let ok = state.start() && padded.get(..H::BLOCK).is_some_and(|padded| state.update(padded));
        wipe(&mut padded);
        ok
    })
}

struct Hmac<H: Hash> {
    /// Inner and outer hash after the key block.
    states: Wiped<[H; 2]>,
    /// Length of the tag in bytes.
    len: usize,
}

impl<H: Hash> Hmac<H> {
    // The hash overwrites both copies of the keyed states, so no key remains on the stack.
    #[inline]
    fn sign_one(&self, data: &[u8], tag: &mut [u8]) -> bool {
        let [mut inner, mut outer] = *self.states;
        let mut digest = [0; MAX_TAG];
        let hashed = inner.update(data)
            && inner.finish(&mut digest)
            && digest.get(..H::DIGEST).is_some_and(|d| outer.update(d))
            && outer.finish(&mut digest);
        match digest.get(..self.len) {
            Some(cut) if hashed && cut.len() == tag.len() => {
                tag.copy_from_slice(cut);
                true
            }
            _ => false,
        }
    }
}

impl<H: Hash> MacKey for Hmac<H> {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        for job in jobs {
            job.status = done(self.sign_one(job.data, job.tag.as_mut_slice()));
        }
    }
}

/// Sets up an AES-CMAC key with tags of `len` bytes. Returns `None` if the library rejects it.
pub(crate) fn cmac(key: &[u8], len: usize) -> Option<Box<dyn MacKey>> {
    let mut mac = Box::new(BlockMac::new(key, len)?);
    // RFC 4493 section 2.3
    mac.aes.block(&mut mac.whole);
    double(&mut mac.whole);
    mac.padded = mac.whole;
    double(&mut mac.padded);
    Some(mac)
}

/// Sets up an AES-XCBC-MAC key with tags of `len` bytes. Returns `None` if the library rejects it.
pub(crate) fn xcbc(key: &[u8], len: usize) -> Option<Box<dyn MacKey>> {
    let master = AesEncrypt::new(AesBits::B128, key)?;
    // RFC 3566 section 4
    let mut k1 = [1; BLOCK];
    master.block(&mut k1);
    let made = BlockMac::new(&k1, len);
    wipe(&mut k1);
    let mut mac = Box::new(made?);
    (mac.whole, mac.padded) = ([2; BLOCK], [3; BLOCK]);
    master.block(&mut mac.whole);
    master.block(&mut mac.padded);
    Some(mac)
}

/// Doubling in GF(2^128) (RFC 4493 section 2.3), in constant time.
fn double(block: &mut Block) {
    let n = u128::from_be_bytes(*block);
    let carry = (n >> 127).wrapping_neg() & 0x87;
    *block = ((n << 1) ^ carry).to_be_bytes();
}

/// AES-CMAC (RFC 4493, for IPsec RFC 4494) and AES-XCBC-MAC (RFC 3566).
///
/// Both are CBC-MAC in which the last block is XORed with one of two subkeys: one for a complete block, the
/// other one for a padded block. They differ in how the subkeys are derived.
struct BlockMac {
    aes: AesEncrypt,
    /// Subkey for a complete last block.
    whole: Block,
    /// Subkey for a padded last block.
    padded: Block,
    /// Length of the tag in bytes.
    len: usize,
}

impl BlockMac {
    /// Sets up CBC-MAC with `key`; the subkeys are still zero.
    fn new(key: &[u8], len: usize) -> Option<Self> {
        Some(Self { aes: AesEncrypt::new(AesBits::B128, key)?, whole: [0; BLOCK], padded: [0; BLOCK], len })
    }

    fn sign_one(&self, data: &[u8], tag: &mut [u8]) -> bool {
        let (blocks, rest) = data.as_chunks::<BLOCK>();
        let (blocks, last) = match (rest, blocks.split_last()) {
            ([], Some((last, blocks))) => (blocks, xor(last, &self.whole)),
            _ => (blocks, xor(&pad(rest), &self.padded)),
        };
        let mut state = [0; BLOCK];
        self.aes.cbc_mac(&mut state, blocks);
        state = xor(&state, &last);
        self.aes.block(&mut state);
        match state.get(..self.len) {
            Some(cut) if cut.len() == tag.len() => {
                tag.copy_from_slice(cut);
                true
            }
            _ => false,
        }
    }
}

impl MacKey for BlockMac {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        for job in jobs {
            job.status = done(self.sign_one(job.data, job.tag.as_mut_slice()));
        }
    }
}

impl Drop for BlockMac {
    fn drop(&mut self) {
        wipe(&mut self.whole);
        wipe(&mut self.padded);
    }
}

fn xor(a: &Block, b: &Block) -> Block {
    (u128::from_ne_bytes(*a) ^ u128::from_ne_bytes(*b)).to_ne_bytes()
}

/// Pads `rest`, which is shorter than a block, with a one bit and zeros.
fn pad(rest: &[u8]) -> Block {
    let mut block = [0; BLOCK];
    for (to, from) in block.iter_mut().zip(rest.iter().chain(&[0x80])) {
        *to = *from;
    }
    block
}

/// Sets up an AES-GMAC key. Returns `None` if the library rejects it.
pub(crate) fn gmac(kind: AeadKind, key: &[u8], icv: usize) -> Option<Box<dyn MacKey>> {
    Some(Box::new(Gmac(Aead::new(kind, key, icv)?)))
}

/// RFC 4543 section 3: AES-GCM with all data as additional data, and an empty text.
struct Gmac(Aead);

impl MacKey for Gmac {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        for job in jobs {
            job.status = done(self.0.seal(&job.nonce, job.data, &mut [], job.tag.as_mut_slice()));
        }
    }
}
