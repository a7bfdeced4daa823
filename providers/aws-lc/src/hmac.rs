//! HMAC (RFC 2104) with SHA-1 (RFC 2404) and SHA-2 (RFC 4868).
//!
//! The key's block is hashed once, when the key is set up. A packet then copies two hash states of about 100 bytes, where
//! the library's own HMAC context would copy 1,200.

use crate::done;
use crate::ffi::{Hash, Wiped, wipe};
use casemate_crypto::{MAX_TAG, MacJob, MacKey};

/// Longest block of any hash here, in bytes.
const MAX_BLOCK: usize = 128;

/// HMAC over `H`, cut to `len` bytes; `None` if the library fails.
pub(crate) fn hmac<H: Hash>(key: &[u8], len: usize) -> Option<Box<dyn MacKey>> {
    let mut states = Wiped::<[H; 2]>::zeroed();
    let mut block = [0; MAX_BLOCK];
    let keyed = key_block::<H>(key, &mut block) && keyed(&mut states, &block);
    wipe(&mut block);
    keyed.then(|| Box::new(Hmac { states, len }) as Box<dyn MacKey>)
}

/// Puts the key at the front of `block`, hashed if it is longer than the hash's block (RFC 2104 section 2).
fn key_block<H: Hash>(key: &[u8], block: &mut [u8; MAX_BLOCK]) -> bool {
    if key.len() <= H::BLOCK {
        block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        return true;
    }
    let mut hash = Wiped::<H>::zeroed();
    block.first_chunk_mut().is_some_and(|out| hash.start() && hash.update(key) && hash.finish(out))
}

/// Starts the inner and the outer hash with the key's block.
fn keyed<H: Hash>(states: &mut [H; 2], block: &[u8; MAX_BLOCK]) -> bool {
    states.iter_mut().zip([0x36, 0x5c]).all(|(state, pad)| {
        let mut padded = block.map(|byte| byte ^ pad);
        let ok = state.start() && padded.get(..H::BLOCK).is_some_and(|padded| state.update(padded));
        wipe(&mut padded);
        ok
    })
}

struct Hmac<H: Hash> {
    /// Inner and outer hash, each with the key's block taken in.
    states: Wiped<[H; 2]>,
    /// Length of the tag in bytes.
    len: usize,
}

impl<H: Hash> Hmac<H> {
    // Both copies of a keyed state are overwritten as the hash runs on, so no key stays on the stack.
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
            job.outcome = done(self.sign_one(job.data, job.tag.as_mut_slice()));
        }
    }
}
