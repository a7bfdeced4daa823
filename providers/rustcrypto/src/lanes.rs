//! CBC chains of independent packets in parallel.
//!
//! A chain needs the previous ciphertext block to encrypt the next block, so one packet leaves most of an AES
//! unit idle. Up to [`LANES`] packets of a batch are processed in parallel. When a packet ends, its lane
//! continues with the next packet.

use aes::Block;
use aes::cipher::inout::InOutBuf;
use aes::cipher::{
    BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, consts::U16,
};
use arrayvec::ArrayVec;

/// Number of blocks that AES-NI and the bitsliced software process at once.
pub(crate) const LANES: usize = 8;

/// CBC chain of one packet.
pub(crate) trait Chain {
    /// Replaces `state`, which is the last output of the cipher or at first the initial state, with the next
    /// input. Returns `false` at the end of the chain.
    fn step(&mut self, state: &mut Block) -> bool;
}

/// Runs each chain from its initial state to its end.
pub(crate) fn run<C: Chain>(
    cipher: &impl BlockCipherEncrypt<BlockSize = U16>,
    chains: impl Iterator<Item = (C, Block)>,
) {
    cipher.encrypt_with_backend(Lanes(chains));
}

/// All lanes in one call of the cipher, which detects the AES instructions of the processor on each call.
struct Lanes<I>(I);

impl<I> BlockSizeUser for Lanes<I> {
    type BlockSize = U16;
}

impl<C: Chain, I: Iterator<Item = (C, Block)>> BlockCipherEncClosure for Lanes<I> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut waiting = self.0;
        let (mut lanes, mut states): (ArrayVec<C, LANES>, ArrayVec<Block, LANES>) =
            waiting.by_ref().take(LANES).unzip();
        loop {
            let mut at = 0;
            while let (Some(lane), Some(state)) = (lanes.get_mut(at), states.get_mut(at)) {
                if lane.step(state) {
                    at = at.saturating_add(1);
                } else if let Some(next) = waiting.next() {
                    (*lane, *state) = next;
                } else {
                    lanes.swap_pop(at);
                    states.swap_pop(at);
                }
            }
            match (&mut lanes[..], &mut states[..]) {
                ([], _) => return,
                ([lane], [state]) => return alone(lane, *state, backend),
                (_, states) => encrypt(states, backend),
            }
        }
    }
}

#[inline(always)]
fn encrypt(states: &mut [Block], backend: &impl BlockCipherEncBackend<BlockSize = U16>) {
    let (groups, rest) = InOutBuf::from(states).into_chunks();
    for group in groups {
        backend.encrypt_par_blocks(group);
    }
    backend.encrypt_tail_blocks(rest);
}

/// Processes a single lane, with its state in a register.
#[inline(always)]
fn alone(lane: &mut impl Chain, mut state: Block, backend: &impl BlockCipherEncBackend<BlockSize = U16>) {
    loop {
        backend.encrypt_block((&mut state).into());
        if !lane.step(&mut state) {
            return;
        }
    }
}

/// Adds `with` to the block in GF(2^128).
#[inline(always)]
pub(crate) fn xor(block: &mut Block, with: &Block) {
    for (to, from) in block.iter_mut().zip(with) {
        *to ^= from;
    }
}
