//! AES-CCM (RFC 4309, NIST SP 800-38C), from the library's CBC and CTR.
//!
//! The library has CCM for Bluetooth and Matter only, whose nonces are of another length than ESP's 11 bytes.

use crate::done;
use crate::ffi::{AesEncrypt, BLOCK, Block};
use casemate_crypto::{AeadJob, AeadKey, AesBits, Tag, verifies};

/// Bytes of the length field, less one, as both kinds of first block state it (RFC 4309 section 4: L is 4).
const L_LESS_ONE: u8 = 3;

/// AES-CCM with an ICV of `icv` bytes; `None` if the library refuses.
pub(crate) fn ccm(bits: AesBits, key: &[u8], icv: usize) -> Option<Box<dyn AeadKey>> {
    Some(Box::new(Ccm { aes: AesEncrypt::new(bits, key)?, icv }))
}

struct Ccm {
    aes: AesEncrypt,
    icv: usize,
}

impl Ccm {
    fn seal_one(&self, job: &mut AeadJob<'_>) -> bool {
        let Some(tag) = self.tag(&job.nonce, job.aad, job.text) else { return false };
        if job.tag.len() != tag.as_slice().len() {
            return false;
        }
        job.tag.copy_from_slice(tag.as_slice());
        self.aes.ctr(&counter(&job.nonce, 1), job.text);
        true
    }

    /// What does not verify is wiped: it was decrypted before it could be checked.
    fn open_one(&self, job: &mut AeadJob<'_>) -> bool {
        self.aes.ctr(&counter(&job.nonce, 1), job.text);
        let tag = self.tag(&job.nonce, job.aad, job.text);
        let verified = tag.is_some_and(|tag| verifies(tag.as_slice(), job.tag));
        if !verified {
            job.text.fill(0);
        }
        verified
    }

    /// The tag of a plaintext; `None` if the text or the additional data is too long.
    fn tag(&self, nonce: &[u8; 12], aad: &[u8], plain: &[u8]) -> Option<Tag> {
        let mut state = [0; BLOCK];
        self.aes.cbc_mac(&mut state, &[self.first_block(nonce, aad, plain)?]);
        if !aad.is_empty() {
            // Two bytes of length lead the data (SP 800-38C, A.2.2); the two forms for longer data are not for ESP.
            let len = u16::try_from(aad.len()).ok().filter(|len| *len < 0xff00)?;
            let (head, rest) = aad.split_at(aad.len().min(BLOCK - 2));
            self.aes.cbc_mac(&mut state, &[filled(len.to_be_bytes().iter().chain(head))]);
            self.absorb(&mut state, rest);
        }
        self.absorb(&mut state, plain);
        let mut mask = counter(nonce, 0);
        self.aes.block(&mut mask);
        let tag = u128::from_ne_bytes(state) ^ u128::from_ne_bytes(mask);
        tag.to_ne_bytes().get(..self.icv).map(Tag::from_slice)
    }

    /// B0 (SP 800-38C, A.2.1).
    fn first_block(&self, nonce: &[u8; 12], aad: &[u8], plain: &[u8]) -> Option<Block> {
        let adata = if aad.is_empty() { 0 } else { 0x40 };
        let icv = u8::try_from(self.icv.checked_sub(2)?.checked_mul(4)?).ok()?;
        Some(prefixed(adata | icv | L_LESS_ONE, nonce, u32::try_from(plain.len()).ok()?))
    }

    /// Takes in `data`, filled up with zeros to whole blocks.
    fn absorb(&self, state: &mut Block, data: &[u8]) {
        let (blocks, rest) = data.as_chunks();
        self.aes.cbc_mac(state, blocks);
        if !rest.is_empty() {
            self.aes.cbc_mac(state, &[filled(rest)]);
        }
    }
}

impl AeadKey for Ccm {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.outcome = done(self.seal_one(job));
        }
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.outcome = done(self.open_one(job));
        }
    }
}

/// Counter block number `n` (SP 800-38C, A.3).
fn counter(nonce: &[u8; 12], n: u32) -> Block {
    prefixed(L_LESS_ONE, nonce, n)
}

/// Flags, the 11 bytes of nonce, a number.
fn prefixed(flags: u8, nonce: &[u8; 12], number: u32) -> Block {
    let [a, b, c, d, e, f, g, h, i, j, k, _] = *nonce;
    let [w, x, y, z] = number.to_be_bytes();
    [flags, a, b, c, d, e, f, g, h, i, j, k, w, x, y, z]
}

/// At most a block of bytes, filled up with zeros.
fn filled<'b>(bytes: impl IntoIterator<Item = &'b u8>) -> Block {
    let mut block = [0; BLOCK];
    for (to, from) in block.iter_mut().zip(bytes) {
        *to = *from;
    }
    block
}
