//! AES key schedules with the CBC and CTR modes, and `EVP_AEAD`: AES-GCM and ChaCha20-Poly1305.

use super::Wiped;
use aws_lc_sys as c;
use casemate_crypto::AesBits;
use core::ffi::{c_int, c_uint};
use core::ptr;

/// AES block length in bytes.
pub(crate) const BLOCK: usize = 16;

/// One AES block.
pub(crate) type Block = [u8; BLOCK];

/// Number of blocks that [`AesEncrypt::cbc_mac`] passes to the library per call.
const MAC_RUN: usize = 16;

/// An AES key for encryption.
pub(crate) struct AesEncrypt(Wiped<c::AES_KEY>);

/// An AES key for decryption.
pub(crate) struct AesDecrypt(Wiped<c::AES_KEY>);

/// Function that sets up an AES key from the key, its length in bits, and an empty schedule.
type SetKey = unsafe extern "C" fn(*const u8, c_uint, *mut c::AES_KEY) -> c_int;

fn schedule(set_key: SetKey, bits: AesBits, key: &[u8]) -> Option<Wiped<c::AES_KEY>> {
    if key.len() != bits.bytes() {
        return None;
    }
    let mut schedule = Wiped::<c::AES_KEY>::zeroed();
    // SAFETY: `key` has the stated number of bits, and the schedule is writable.
    let status = unsafe {
        c::CRYPTO_library_init();
        set_key(key.as_ptr(), bits.bits() as c_uint, &mut *schedule)
    };
    (status == 0).then_some(schedule)
}

impl AesEncrypt {
    /// Sets up a key. Returns `None` if it does not have this size.
    pub(crate) fn new(bits: AesBits, key: &[u8]) -> Option<Self> {
        schedule(c::AES_set_encrypt_key, bits, key).map(Self)
    }

    /// Encrypts one block in place.
    #[inline]
    pub(crate) fn block(&self, block: &mut Block) {
        let bytes = block.as_mut_ptr();
        // SAFETY: one block is encrypted in place, which the library allows; the schedule is for encryption.
        unsafe { c::AES_encrypt(bytes.cast_const(), bytes, &*self.0) }
    }

    /// Encrypts in CBC mode, in place.
    #[inline]
    pub(crate) fn cbc(&self, iv: &Block, text: &mut [Block]) {
        let mut iv = *iv;
        let (bytes, len) = (text.as_mut_ptr().cast::<u8>(), size_of_val(text));
        // SAFETY: `text` has `len` bytes of whole blocks and is encrypted in place, which the library allows;
        // `iv` is one block.
        unsafe {
            c::AES_cbc_encrypt(
                bytes.cast_const(),
                bytes,
                len,
                &*self.0,
                iv.as_mut_ptr(),
                c::AES_ENCRYPT as c_int,
            )
        }
    }

    /// Continues the CBC-MAC `state` with `data`.
    #[inline]
    pub(crate) fn cbc_mac(&self, state: &mut Block, data: &[Block]) {
        let mut sink = [[0; BLOCK]; MAC_RUN];
        for run in data.chunks(MAC_RUN) {
            let (from, to) = (run.as_ptr().cast::<u8>(), sink.as_mut_ptr().cast::<u8>());
            // SAFETY: `run` has whole blocks and is not longer than `sink`, which is a different buffer. The
            // library stores the last block in `state`, its IV.
            unsafe {
                let (key, iv) = (&*self.0, state.as_mut_ptr());
                c::AES_cbc_encrypt(from, to, size_of_val(run), key, iv, c::AES_ENCRYPT as c_int);
            }
        }
    }

    /// Encrypts or decrypts in CTR mode, in place, from the initial counter block.
    #[inline]
    pub(crate) fn ctr(&self, counter: &Block, text: &mut [u8]) {
        let (mut counter, mut stream, mut used) = (*counter, [0; BLOCK], 0);
        let (bytes, len) = (text.as_mut_ptr(), text.len());
        let (counter, stream, used) = (counter.as_mut_ptr(), stream.as_mut_ptr(), &mut used);
        // SAFETY: `text` is transformed in place, which the library allows; the counter and the key stream
        // buffer are one block each.
        unsafe { c::AES_ctr128_encrypt(bytes.cast_const(), bytes, len, &*self.0, counter, stream, used) }
    }
}

impl AesDecrypt {
    /// Sets up a key. Returns `None` if it does not have this size.
    pub(crate) fn new(bits: AesBits, key: &[u8]) -> Option<Self> {
        schedule(c::AES_set_decrypt_key, bits, key).map(Self)
    }

    /// Decrypts in CBC mode, in place.
    #[inline]
    pub(crate) fn cbc(&self, iv: &Block, text: &mut [Block]) {
        let mut iv = *iv;
        let (bytes, len) = (text.as_mut_ptr().cast::<u8>(), size_of_val(text));
        // SAFETY: for the reasons given in `AesEncrypt::cbc`.
        unsafe {
            c::AES_cbc_encrypt(
                bytes.cast_const(),
                bytes,
                len,
                &*self.0,
                iv.as_mut_ptr(),
                c::AES_DECRYPT as c_int,
            )
        }
    }
}

/// An `EVP_AEAD` whose contexts threads may share (openssl/aead.h, `EVP_AEAD_CTX_seal`, "Concurrency").
#[derive(Clone, Copy)]
pub(crate) enum AeadKind {
    Aes128Gcm,
    Aes192Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

/// An AEAD with its key and tag length.
pub(crate) struct Aead(Wiped<c::EVP_AEAD_CTX>);

// SAFETY: only `new` and `drop` write to the context, and for each `AeadKind` the library allows several
// threads to seal and open at the same time.
unsafe impl Send for Aead {}
// SAFETY: for the reasons given for `Send`.
unsafe impl Sync for Aead {}

impl Aead {
    /// Sets up a key. Returns `None` if the library rejects the length of the key or of the tag.
    pub(crate) fn new(kind: AeadKind, key: &[u8], tag_len: usize) -> Option<Self> {
        // SAFETY: the functions return pointers to constants.
        let aead = unsafe {
            c::CRYPTO_library_init();
            match kind {
                AeadKind::Aes128Gcm => c::EVP_aead_aes_128_gcm(),
                AeadKind::Aes192Gcm => c::EVP_aead_aes_192_gcm(),
                AeadKind::Aes256Gcm => c::EVP_aead_aes_256_gcm(),
                AeadKind::ChaCha20Poly1305 => c::EVP_aead_chacha20_poly1305(),
            }
        };
        let mut ctx = Wiped::<c::EVP_AEAD_CTX>::zeroed();
        // SAFETY: `ctx` is zeroed, as the library requires, and does not move; the key is read within its
        // length.
        let ok = unsafe {
            c::EVP_AEAD_CTX_init(&mut *ctx, aead, key.as_ptr(), key.len(), tag_len, ptr::null_mut())
        };
        (ok == 1).then_some(Self(ctx))
    }

    /// Encrypts `text` in place and writes `tag`. Returns `false` if the library fails or `tag` does not have
    /// the tag length of the key.
    #[inline]
    pub(crate) fn seal(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8], tag: &mut [u8]) -> bool {
        let (bytes, len) = (text.as_mut_ptr(), text.len());
        let mut written = 0;
        // SAFETY: each pointer is passed with the length of its slice. Input and output are the same buffer,
        // which the library allows. `tag` is a different buffer (two `&mut`), to which the library writes at
        // most `tag.len()` bytes.
        let ok = unsafe {
            c::EVP_AEAD_CTX_seal_scatter(
                &*self.0,
                bytes,
                tag.as_mut_ptr(),
                &mut written,
                tag.len(),
                nonce.as_ptr(),
                nonce.len(),
                bytes.cast_const(),
                len,
                ptr::null(),
                0,
                aad.as_ptr(),
                aad.len(),
            )
        };
        ok == 1 && written == tag.len()
    }

    /// Verifies `tag` and decrypts `text` in place. If the tag does not verify, returns `false` and zeroes
    /// `text`.
    #[inline]
    pub(crate) fn open(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8], tag: &[u8]) -> bool {
        let (bytes, len) = (text.as_mut_ptr(), text.len());
        // SAFETY: each pointer is passed with the length of its slice. Input and output are the same buffer,
        // which the library allows.
        let ok = unsafe {
            c::EVP_AEAD_CTX_open_gather(
                &*self.0,
                bytes,
                nonce.as_ptr(),
                nonce.len(),
                bytes.cast_const(),
                len,
                tag.as_ptr(),
                tag.len(),
                aad.as_ptr(),
                aad.len(),
            )
        };
        ok == 1
    }
}

impl Drop for Aead {
    fn drop(&mut self) {
        // SAFETY: `new` initialised the context, and it is not used afterwards. `Wiped` wipes it, because the
        // cleanup of the library does not do so for AES-GCM.
        unsafe { c::EVP_AEAD_CTX_cleanup(&mut *self.0) }
    }
}
