//! AES key schedules, and CBC and CTR with them.

use super::Wiped;
use aws_lc_sys as c;
use casemate_crypto::AesBits;
use core::ffi::{c_int, c_uint};

/// AES block length in bytes.
pub(crate) const BLOCK: usize = 16;

/// One AES block.
pub(crate) type Block = [u8; BLOCK];

/// Blocks that [`AesEncrypt::cbc_mac`] hands to the library at a time.
const MAC_RUN: usize = 16;

/// An AES key set up for encryption.
pub(crate) struct AesEncrypt(Wiped<c::AES_KEY>);

/// An AES key set up for decryption.
pub(crate) struct AesDecrypt(Wiped<c::AES_KEY>);

/// The function that sets up an AES key: key, its length in bits, schedule.
type SetKey = unsafe extern "C" fn(*const u8, c_uint, *mut c::AES_KEY) -> c_int;

fn schedule(set_key: SetKey, bits: AesBits, key: &[u8]) -> Option<Wiped<c::AES_KEY>> {
    if key.len() != bits.bytes() {
        return None;
    }
    let mut schedule = Wiped::<c::AES_KEY>::zeroed();
    // SAFETY: `key` has as many bits as is said, and the schedule is writable.
    let status = unsafe {
        c::CRYPTO_library_init();
        set_key(key.as_ptr(), bits.bits() as c_uint, &mut *schedule)
    };
    (status == 0).then_some(schedule)
}

impl AesEncrypt {
    /// `None` if the key is not of that size.
    pub(crate) fn new(bits: AesBits, key: &[u8]) -> Option<Self> {
        schedule(c::AES_set_encrypt_key, bits, key).map(Self)
    }

    /// Encrypts one block in place.
    #[inline]
    pub(crate) fn block(&self, block: &mut Block) {
        let bytes = block.as_mut_ptr();
        // SAFETY: one block, encrypted in place, which the library allows; the schedule is one for encryption.
        unsafe { c::AES_encrypt(bytes.cast_const(), bytes, &*self.0) }
    }

    /// CBC encryption in place.
    #[inline]
    pub(crate) fn cbc(&self, iv: &Block, text: &mut [Block]) {
        let mut iv = *iv;
        let (bytes, len) = (text.as_mut_ptr().cast::<u8>(), size_of_val(text));
        // SAFETY: `text` is `len` bytes of whole blocks, encrypted in place, which the library allows; `iv` is one block.
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

    /// CBC-MAC: takes `state` over `data`, block by block.
    #[inline]
    pub(crate) fn cbc_mac(&self, state: &mut Block, data: &[Block]) {
        let mut sink = [[0; BLOCK]; MAC_RUN];
        for run in data.chunks(MAC_RUN) {
            let (from, to) = (run.as_ptr().cast::<u8>(), sink.as_mut_ptr().cast::<u8>());
            // SAFETY: `run` is whole blocks and no longer than `sink`, which is another buffer. The library leaves the
            // last block in `state`, its IV.
            unsafe {
                let (key, iv) = (&*self.0, state.as_mut_ptr());
                c::AES_cbc_encrypt(from, to, size_of_val(run), key, iv, c::AES_ENCRYPT as c_int);
            }
        }
    }

    /// CTR in place, from the initial counter block on.
    #[inline]
    pub(crate) fn ctr(&self, counter: &Block, text: &mut [u8]) {
        let (mut counter, mut stream, mut used) = (*counter, [0; BLOCK], 0);
        let (bytes, len) = (text.as_mut_ptr(), text.len());
        let (counter, stream, used) = (counter.as_mut_ptr(), stream.as_mut_ptr(), &mut used);
        // SAFETY: `text` is transformed in place, which the library allows; the counter and the key stream buffer are one
        // block each.
        unsafe { c::AES_ctr128_encrypt(bytes.cast_const(), bytes, len, &*self.0, counter, stream, used) }
    }
}

impl AesDecrypt {
    /// `None` if the key is not of that size.
    pub(crate) fn new(bits: AesBits, key: &[u8]) -> Option<Self> {
        schedule(c::AES_set_decrypt_key, bits, key).map(Self)
    }

    /// CBC decryption in place.
    #[inline]
    pub(crate) fn cbc(&self, iv: &Block, text: &mut [Block]) {
        let mut iv = *iv;
        let (bytes, len) = (text.as_mut_ptr().cast::<u8>(), size_of_val(text));
        // SAFETY: as for `AesEncrypt::cbc`.
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
