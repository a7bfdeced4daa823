//! `EVP_AEAD`: AES-GCM and ChaCha20-Poly1305.

use super::Wiped;
use aws_lc_sys as c;
use core::ptr;

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
