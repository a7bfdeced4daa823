//! The CBC chain behind AES-CMAC and AES-XCBC-MAC.
//!
//! The two differ only in where their keys come from: both encrypt the message in CBC fashion and mask the last block with
//! one subkey where it is whole, with another where it had to be padded (RFC 4493 section 2.4, RFC 3566 section 4).

use crate::lanes::{self, Chain, xor};
use crate::mac::put_tag;
use aes::{Aes128Enc, Block};
use casemate_crypto::{MacJob, MacKey};
use core::slice;
use zeroize::Zeroizing;

pub(crate) struct ChainMac {
    /// Runs the chain.
    pub(crate) cipher: Aes128Enc,
    /// Masks a last block that is whole.
    pub(crate) whole: Zeroizing<Block>,
    /// Masks a last block that was padded.
    pub(crate) padded: Zeroizing<Block>,
    /// The tag is cut to this many bytes.
    pub(crate) tag_len: usize,
}

impl MacKey for ChainMac {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        lanes::run(&self.cipher, jobs.iter_mut().map(|job| (self.chain(job), Block::default())));
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

/// A one bit, then zeros. An empty message is padded too.
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
            self.job.outcome = put_tag(&mut self.job.tag, state, self.tag_len);
            return false;
        }
        true
    }
}
