//! Random jobs for the differential test.

use alloc::vec::Vec;
use casemate_crypto::CipherAlg;

const LONGEST: usize = 9000;
/// Lengths near the block lengths of ciphers and hashes, and of their implementations.
const EDGES: [usize; 20] =
    [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 512, 1420, LONGEST];

/// SplitMix64: the same numbers on all machines, without dependencies.
pub(crate) struct TestRng(pub(crate) u64);

impl TestRng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        [(); N].map(|()| self.next() as u8)
    }

    pub(crate) fn between(&mut self, min: usize, max: usize) -> Vec<u8> {
        let len = min + self.below(max - min + 1);
        self.bytes(len)
    }

    /// A text of random length, half of them near a block length.
    pub(crate) fn text(&mut self) -> Vec<u8> {
        let len = if self.below(2) == 0 { EDGES[self.below(EDGES.len())] } else { self.below(LONGEST + 1) };
        self.bytes(len)
    }

    /// Like [`text`](Self::text), truncated to whole blocks of the cipher.
    pub(crate) fn blocks(&mut self, alg: CipherAlg) -> Vec<u8> {
        let mut text = self.text();
        text.truncate(text.len() - text.len() % alg.block_len());
        text
    }

    /// An IV as ESP generates it: AES-CTR counts from 1 (RFC 3686 section 4).
    pub(crate) fn iv(&mut self, alg: CipherAlg) -> [u8; 16] {
        let mut iv = self.array();
        if alg.is_counter_mode() {
            iv[12..].copy_from_slice(&1u32.to_be_bytes());
        }
        iv
    }

    pub(crate) fn flip_bit(&mut self, bytes: &mut [u8]) {
        let bit = self.below(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}
