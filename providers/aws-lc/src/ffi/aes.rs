//! AES key schedules, and the CBC and CTR modes.

use super::Wiped;
use aws_lc_sys as c;
use casemate_crypto::AesBits;
use core::ffi::{c_int, c_uint};

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
