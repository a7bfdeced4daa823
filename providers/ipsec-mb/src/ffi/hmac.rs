//! HMAC for several packets per call.

use super::BURST;
use super::Secret;
use super::layout::{HashFields, HmacFields, Job, MAX_JOB_LEN, STATUS_COMPLETED};
use super::library::Library;
use super::manager;
use arrayvec::ArrayVec;
use casemate_crypto::MAX_TAG;
use core::ffi::c_int;

/// Maximum block length of the hash functions, in bytes.
const MAX_BLOCK: usize = 128;

/// A hash function for HMAC.
#[derive(Clone, Copy)]
pub(crate) enum Sha {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Sha {
    const fn block_len(self) -> usize {
        match self {
            Self::Sha1 | Self::Sha256 => 64,
            Self::Sha384 | Self::Sha512 => 128,
        }
    }

    const fn digest_len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// `IMB_HASH_ALG` of the HMAC.
    const fn number(self) -> c_int {
        match self {
            Self::Sha1 => 1,
            Self::Sha256 => 3,
            Self::Sha384 => 4,
            Self::Sha512 => 5,
        }
    }

    /// Selects the function of this hash from an array for SHA-1, SHA-224, SHA-256, SHA-384 and SHA-512.
    fn of<F>(self, [sha1, _, sha256, sha384, sha512]: [F; 5]) -> F {
        match self {
            Self::Sha1 => sha1,
            Self::Sha256 => sha256,
            Self::Sha384 => sha384,
            Self::Sha512 => sha512,
        }
    }
}

/// An HMAC key: the states of the inner and the outer hash after the key block (RFC 2104 section 4).
pub(crate) struct HmacKey {
    library: &'static Library,
    sha: Sha,
    inner: Box<Secret<MAX_TAG>>,
    outer: Box<Secret<MAX_TAG>>,
    /// Tag of an empty message, which the library does not support in a burst.
    empty_tag: Box<Secret<MAX_TAG>>,
}

impl HmacKey {
    /// Sets up a key of any length.
    pub(crate) fn new(library: &'static Library, sha: Sha, key: &[u8]) -> Self {
        let block = key_block(library, sha, key);
        let [inner, outer] = [0x36, 0x5c].map(|pad| padded(&block, pad));
        Self {
            library,
            sha,
            inner: state(library, sha, &inner),
            outer: state(library, sha, &outer),
            empty_tag: tag_of_empty_message(library, sha, &inner, &outer),
        }
    }

    /// Signs at most [`BURST`] messages. Writes the untruncated tags to the start of `tags` in order. Returns
    /// `false` if a message is too long ([`MAX_JOB_LEN`]), if there are too many, or if the library fails.
    pub(crate) fn sign<'w>(
        &self,
        work: impl Iterator<Item = &'w [u8]>,
        tags: &mut [[u8; MAX_TAG]; BURST],
    ) -> bool {
        let mut jobs = ArrayVec::<Job, BURST>::new();
        let mut free = tags.iter_mut();
        for data in work {
            let Some(tag) = free.next() else { return false };
            if data.is_empty() {
                *tag = self.empty_tag.0;
            } else if data.len() > MAX_JOB_LEN || jobs.try_push(self.job(data, tag)).is_err() {
                return false;
            }
        }
        if jobs.is_empty() {
            return true;
        }
        let burst = self.library.functions.hash_burst;
        let count = jobs.len() as u32;
        let done = manager::with(self.library, |head| {
            // SAFETY: the manager belongs to this thread and is in no other call; there are `count` jobs. The
            // data of each job is borrowed for `'w` and not empty; each job has its own tag buffer, as long
            // as the longest digest; the states belong to `sha`. The call returns when all jobs are done, so
            // the library keeps no pointer that it would use later.
            Some(unsafe { burst(head, jobs.as_mut_ptr(), count, self.sha.number()) })
        });
        done == Some(count) && jobs.iter().all(|job| job.status == STATUS_COMPLETED)
    }

    fn job(&self, data: &[u8], tag: &mut [u8; MAX_TAG]) -> Job {
        Job {
            source: data.as_ptr(),
            hash_len: data.len() as u64,
            tag: tag.as_mut_ptr(),
            tag_len: self.sha.digest_len() as u64,
            hash_fields: HashFields {
                hmac: HmacFields { inner: self.inner.0.as_ptr(), outer: self.outer.0.as_ptr() },
            },
            ..Job::EMPTY
        }
    }
}

/// Returns the key, padded with zeros to a block; a longer key is replaced by its digest (RFC 2104 section
/// 2).
fn key_block(library: &Library, sha: Sha, key: &[u8]) -> Secret<MAX_BLOCK> {
    let mut block = Secret([0; MAX_BLOCK]);
    if key.len() > sha.block_len() {
        hash(library, sha, key, &mut block.0);
    } else {
        block.0.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    }
    block
}

fn padded(block: &Secret<MAX_BLOCK>, pad: u8) -> Secret<MAX_BLOCK> {
    Secret(block.0.map(|byte| byte ^ pad))
}

/// Returns the state of the hash after one block.
fn state(library: &Library, sha: Sha, block: &Secret<MAX_BLOCK>) -> Box<Secret<MAX_TAG>> {
    let mut state = Box::new(Secret([0; MAX_TAG]));
    let one_block = sha.of(library.functions.one_block);
    // SAFETY: block and state are as long as those of every hash function.
    unsafe { one_block(block.0.as_ptr().cast(), state.0.as_mut_ptr().cast()) };
    state
}

fn tag_of_empty_message(
    library: &Library,
    sha: Sha,
    inner: &Secret<MAX_BLOCK>,
    outer: &Secret<MAX_BLOCK>,
) -> Box<Secret<MAX_TAG>> {
    let (block_len, digest_len) = (sha.block_len(), sha.digest_len());
    let mut digest = Secret([0; MAX_TAG]);
    hash(library, sha, inner.0.get(..block_len).unwrap_or_default(), &mut digest.0);
    let mut message = Secret([0; MAX_BLOCK + MAX_TAG]);
    let bytes = outer.0.iter().take(block_len).chain(digest.0.iter().take(digest_len));
    message.0.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    let mut tag = Box::new(Secret([0; MAX_TAG]));
    let message = message.0.get(..block_len.saturating_add(digest_len)).unwrap_or_default();
    hash(library, sha, message, &mut tag.0);
    tag
}

/// Writes the digest of `data` to the start of `out`.
fn hash<const N: usize>(library: &Library, sha: Sha, data: &[u8], out: &mut [u8; N]) {
    const { assert!(N >= MAX_TAG) };
    let hash = sha.of(library.functions.hash_all);
    // SAFETY: pointer and length belong to one slice; `out` is as long as the longest digest.
    unsafe { hash(data.as_ptr().cast(), data.len() as u64, out.as_mut_ptr().cast()) };
}
