//! AES-GCM, by the direct functions of the library, which take all their input as arguments.

use super::layout::{GcmContext, GcmCrypt, GcmKeyData};
use super::library::Library;
use casemate_crypto::AesBits;
use zeroize::Zeroize;

/// Length of an untruncated tag, in bytes.
const TAG: usize = 16;

/// An AES-GCM key: round keys and powers of the hash key, at a fixed address on the heap, wiped on drop.
pub(crate) struct GcmKey {
    data: Box<GcmKeyData>,
    seal: GcmCrypt,
    open: GcmCrypt,
}

impl GcmKey {
    /// Sets up a key. Returns `None` if it does not have `bits`.
    pub(crate) fn new(library: &Library, bits: AesBits, key: &[u8]) -> Option<Self> {
        if key.len() != bits.bytes() {
            return None;
        }
        let functions = &library.functions;
        let ([e128, e192, e256], [s128, s192, s256], [o128, o192, o256]) =
            (functions.gcm_expand, functions.gcm_seal, functions.gcm_open);
        let (expand, seal, open) = match bits {
            AesBits::B128 => (e128, s128, o128),
            AesBits::B192 => (e192, s192, o192),
            AesBits::B256 => (e256, s256, o256),
        };
        let mut data = Box::new(GcmKeyData([0; 1024]));
        // SAFETY: the function reads a key of `bits`, which is the length of `key`, and writes one
        // `gcm_key_data`.
        unsafe { expand(key.as_ptr().cast(), &mut *data) };
        Some(Self { data, seal, open })
    }

    /// Encrypts `text` in place and returns the untruncated tag.
    #[inline]
    pub(crate) fn seal(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8]) -> [u8; TAG] {
        self.crypt(self.seal, nonce, aad, text)
    }

    /// Decrypts `text` in place and returns the untruncated expected tag.
    #[inline]
    pub(crate) fn open(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8]) -> [u8; TAG] {
        self.crypt(self.open, nonce, aad, text)
    }

    #[inline]
    fn crypt(&self, crypt: GcmCrypt, nonce: &[u8; 12], aad: &[u8], text: &mut [u8]) -> [u8; TAG] {
        let mut context = core::mem::MaybeUninit::<GcmContext>::uninit();
        let mut tag = [0; TAG];
        let bytes = text.as_mut_ptr();
        // SAFETY: `crypt` matches the size of this key and only reads the key. Each pointer is passed with
        // the length of its slice. The nonce has 12 bytes, as the library requires. Input and output are the
        // same buffer, which the library allows. The context has the required size, and the library writes to
        // it before it reads it.
        unsafe {
            crypt(
                &*self.data,
                context.as_mut_ptr(),
                bytes,
                bytes.cast_const(),
                text.len() as u64,
                nonce.as_ptr(),
                aad.as_ptr(),
                aad.len() as u64,
                tag.as_mut_ptr(),
                TAG as u64,
            );
        }
        tag
    }
}

impl Drop for GcmKey {
    fn drop(&mut self) {
        self.data.0.zeroize();
    }
}
