//! `EVP_AEAD`: AES-GCM and ChaCha20-Poly1305.

use super::Wiped;
use aws_lc_sys as c;
use core::ptr;

/// Which `EVP_AEAD`. Only those that the library lets threads share (openssl/aead.h, `EVP_AEAD_CTX_seal`, "Concurrency").
#[derive(Clone, Copy)]
pub(crate) enum AeadKind {
    Aes128Gcm,
    Aes192Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

/// An AEAD with its key and tag length.
pub(crate) struct Aead(Wiped<c::EVP_AEAD_CTX>);

// SAFETY: the context is written by `new` and `drop` only, and sealing and opening from several threads at once is
// allowed for every `AeadKind`.
unsafe impl Send for Aead {}
// SAFETY: as for `Send`.
unsafe impl Sync for Aead {}

impl Aead {
    /// `None` if the library refuses the key's or the tag's length.
    pub(crate) fn new(kind: AeadKind, key: &[u8], tag_len: usize) -> Option<Self> {
        // SAFETY: these return pointers to constants.
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
        // SAFETY: `ctx` is zeroed as the library asks and stays where it is; the key is read within its length.
        let ok = unsafe {
            c::EVP_AEAD_CTX_init(&mut *ctx, aead, key.as_ptr(), key.len(), tag_len, ptr::null_mut())
        };
        (ok == 1).then_some(Self(ctx))
    }

    /// Encrypts `text` in place and writes `tag`; `false` if the library failed or `tag` is not of the key's length.
    #[inline]
    pub(crate) fn seal(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8], tag: &mut [u8]) -> bool {
        let (bytes, len) = (text.as_mut_ptr(), text.len());
        let mut written = 0;
        // SAFETY: every pointer comes with the length of its slice; input and output are one buffer, which the library
        // allows; `tag` is another (two `&mut`), and the library writes at most `tag.len()` bytes to it.
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

    /// Verifies `tag` and decrypts `text` in place; `false` if it did not verify, with `text` zeroed.
    #[inline]
    pub(crate) fn open(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8], tag: &[u8]) -> bool {
        let (bytes, len) = (text.as_mut_ptr(), text.len());
        // SAFETY: every pointer comes with the length of its slice; input and output are one buffer, which the library
        // allows.
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
        // SAFETY: the context was initialised by `new` and is not used after this. `Wiped` then wipes it, which the
        // library's own cleanup does not do for AES-GCM.
        unsafe { c::EVP_AEAD_CTX_cleanup(&mut *self.0) }
    }
}
