//! AES-GCM (RFC 4106), ChaCha20-Poly1305 (RFC 7634), AES-CCM (RFC 4309), AES-CBC (RFC 3602) and AES-CTR
//! (RFC 3686).

use crate::done;
use crate::ffi::{Aead, AeadKind, AesDecrypt, AesEncrypt, BLOCK, Block};
use casemate_crypto::{AeadJob, AeadKey, AesBits, CipherKey, Tag, tags_equal};

/// Sets up an AEAD key with an ICV of `icv` bytes. Returns `None` if the library rejects it.
pub(crate) fn combined(kind: AeadKind, key: &[u8], icv: usize) -> Option<Box<dyn AeadKey>> {
    Some(Box::new(Combined(Aead::new(kind, key, icv)?)))
}

struct Combined(Aead);

impl AeadKey for Combined {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.status = done(self.0.seal(&job.nonce, job.aad, job.text, job.tag));
        }
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.status = done(self.0.open(&job.nonce, job.aad, job.text, job.tag));
        }
    }
}

/// Length of the length field minus one, as the flags of the CBC-MAC and counter blocks contain it (RFC 4309
/// section 4: L is 4).
const L_LESS_ONE: u8 = 3;

/// Sets up an AES-CCM key with an ICV of `icv` bytes. Returns `None` if the library rejects it.
pub(crate) fn ccm(bits: AesBits, key: &[u8], icv: usize) -> Option<Box<dyn AeadKey>> {
    Some(Box::new(Ccm { aes: AesEncrypt::new(bits, key)?, icv }))
}

/// AES-CCM (RFC 4309, NIST SP 800-38C), built from the CBC and CTR modes of the library.
///
/// The library only has the CCM variants of Bluetooth and Matter, whose nonces do not have the 11 bytes of
/// ESP.
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

    /// Decrypts the text before the tag can be verified, and zeroes it if the tag does not verify.
    fn open_one(&self, job: &mut AeadJob<'_>) -> bool {
        self.aes.ctr(&counter(&job.nonce, 1), job.text);
        let tag = self.tag(&job.nonce, job.aad, job.text);
        let verified = tag.is_some_and(|tag| tags_equal(tag.as_slice(), job.tag));
        if !verified {
            job.text.fill(0);
        }
        verified
    }

    /// Returns the tag of a plaintext, or `None` if the text or the additional data is too long.
    fn tag(&self, nonce: &[u8; 12], aad: &[u8], plain: &[u8]) -> Option<Tag> {
        let mut state = [0; BLOCK];
        self.aes.cbc_mac(&mut state, &[self.first_block(nonce, aad, plain)?]);
        if !aad.is_empty() {
            // A two-byte length precedes the data (SP 800-38C, A.2.2). ESP does not need the two formats for
            // longer data.
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

    /// Block B0 (SP 800-38C, A.2.1).
    fn first_block(&self, nonce: &[u8; 12], aad: &[u8], plain: &[u8]) -> Option<Block> {
        let adata = if aad.is_empty() { 0 } else { 0x40 };
        let icv = u8::try_from(self.icv.checked_sub(2)?.checked_mul(4)?).ok()?;
        Some(prefixed(adata | icv | L_LESS_ONE, nonce, u32::try_from(plain.len()).ok()?))
    }

    /// Adds `data`, padded with zeros to whole blocks, to the CBC-MAC.
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
            job.status = done(self.seal_one(job));
        }
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.status = done(self.open_one(job));
        }
    }
}

/// Counter block number `n` (SP 800-38C, A.3).
fn counter(nonce: &[u8; 12], n: u32) -> Block {
    prefixed(L_LESS_ONE, nonce, n)
}

/// Concatenates flags, the 11 bytes of the nonce, and a number.
fn prefixed(flags: u8, nonce: &[u8; 12], number: u32) -> Block {
    let [a, b, c, d, e, f, g, h, i, j, k, _] = *nonce;
    let [w, x, y, z] = number.to_be_bytes();
    [flags, a, b, c, d, e, f, g, h, i, j, k, w, x, y, z]
}

/// Pads at most a block of bytes with zeros.
fn filled<'b>(bytes: impl IntoIterator<Item = &'b u8>) -> Block {
    let mut block = [0; BLOCK];
    for (to, from) in block.iter_mut().zip(bytes) {
        *to = *from;
    }
    block
}

/// Sets up an AES-CBC key. Returns `None` if the library rejects it.
pub(crate) fn cbc(bits: AesBits, key: &[u8]) -> Option<Box<dyn CipherKey>> {
    Some(Box::new(Cbc { encrypt: AesEncrypt::new(bits, key)?, decrypt: AesDecrypt::new(bits, key)? }))
}

/// Sets up an AES-CTR key. Returns `None` if the library rejects it.
pub(crate) fn ctr(bits: AesBits, key: &[u8]) -> Option<Box<dyn CipherKey>> {
    Some(Box::new(Ctr(AesEncrypt::new(bits, key)?)))
}

struct Cbc {
    encrypt: AesEncrypt,
    decrypt: AesDecrypt,
}

impl CipherKey for Cbc {
    fn encrypt(&self, iv: &Block, text: &mut [u8]) -> bool {
        whole_blocks(text).map(|blocks| self.encrypt.cbc(iv, blocks)).is_some()
    }

    fn decrypt(&self, iv: &Block, text: &mut [u8]) -> bool {
        whole_blocks(text).map(|blocks| self.decrypt.cbc(iv, blocks)).is_some()
    }
}

fn whole_blocks(text: &mut [u8]) -> Option<&mut [Block]> {
    let (blocks, rest) = text.as_chunks_mut::<BLOCK>();
    rest.is_empty().then_some(blocks)
}

struct Ctr(AesEncrypt);

impl CipherKey for Ctr {
    fn encrypt(&self, counter: &Block, text: &mut [u8]) -> bool {
        self.0.ctr(counter, text);
        true
    }

    fn decrypt(&self, counter: &Block, text: &mut [u8]) -> bool {
        self.encrypt(counter, text)
    }
}
