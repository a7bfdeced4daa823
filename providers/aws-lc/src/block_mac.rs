//! AES-CMAC (RFC 4493, for IPsec RFC 4494) and AES-XCBC-MAC (RFC 3566).
//!
//! Both are CBC-MAC with a last block that is crossed with one of two derived keys: one for a whole block, the other for a
//! padded one. They differ in how the keys are derived.

use crate::done;
use crate::ffi::{AesEncrypt, BLOCK, Block, wipe};
use casemate_crypto::{AesBits, MacJob, MacKey};

/// AES-CMAC cut to `len` bytes; `None` if the library refuses.
pub(crate) fn cmac(key: &[u8], len: usize) -> Option<Box<dyn MacKey>> {
    let mut mac = Box::new(BlockMac::new(key, len)?);
    // RFC 4493 section 2.3
    mac.aes.block(&mut mac.whole);
    double(&mut mac.whole);
    mac.padded = mac.whole;
    double(&mut mac.padded);
    Some(mac)
}

/// AES-XCBC-MAC cut to `len` bytes; `None` if the library refuses.
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

struct BlockMac {
    aes: AesEncrypt,
    /// Crossed with a last block that is whole.
    whole: Block,
    /// Crossed with a last block that was padded.
    padded: Block,
    /// Length of the tag in bytes.
    len: usize,
}

impl BlockMac {
    /// CBC-MAC with `key`; the derived keys are still zero.
    fn new(key: &[u8], len: usize) -> Option<Self> {
        Some(Self { aes: AesEncrypt::new(AesBits::B128, key)?, whole: [0; BLOCK], padded: [0; BLOCK], len })
    }

    fn sign_one(&self, data: &[u8], tag: &mut [u8]) -> bool {
        let (blocks, rest) = data.as_chunks::<BLOCK>();
        let (blocks, last) = match (rest, blocks.split_last()) {
            ([], Some((last, blocks))) => (blocks, cross(last, &self.whole)),
            _ => (blocks, cross(&pad(rest), &self.padded)),
        };
        let mut state = [0; BLOCK];
        self.aes.cbc_mac(&mut state, blocks);
        state = cross(&state, &last);
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
            job.outcome = done(self.sign_one(job.data, job.tag.as_mut_slice()));
        }
    }
}

impl Drop for BlockMac {
    fn drop(&mut self) {
        wipe(&mut self.whole);
        wipe(&mut self.padded);
    }
}

fn cross(a: &Block, b: &Block) -> Block {
    (u128::from_ne_bytes(*a) ^ u128::from_ne_bytes(*b)).to_ne_bytes()
}

/// `rest`, which is shorter than a block, a one bit, and zeros.
fn pad(rest: &[u8]) -> Block {
    let mut block = [0; BLOCK];
    for (to, from) in block.iter_mut().zip(rest.iter().chain(&[0x80])) {
        *to = *from;
    }
    block
}
