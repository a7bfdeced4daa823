//! The one door to the C library: safe wrappers, and all `unsafe` of this crate.
//!
//! Every wrapper owns its C struct on the heap ([`Wiped`], or one that the library makes and wipes): the struct never moves and
//! is wiped when it is dropped. What a call takes is fixed by its Rust types (whole blocks for CBC, one buffer in place), and a
//! failure of the library comes out as `false`, `None` or an error. No call with a key of a packet allocates once the key stands,
//! except that a thread's first failed [`Aead::open`] makes the library set up that thread's error queue.

mod aead;
mod aes;
mod bn;
mod ec;
mod evp;
mod hash;
mod x25519;

pub(crate) use aead::{Aead, AeadKind};
pub(crate) use aes::{AesDecrypt, AesEncrypt, BLOCK, Block};
pub(crate) use bn::mod_exp;
pub(crate) use ec::{Curve, EcKey, EcdhError};
pub(crate) use evp::EvpKey;
pub(crate) use hash::{Hash, Sha1, Sha256, Sha384, Sha512};
pub(crate) use x25519::{X25519, x25519, x25519_public};

use core::ffi::c_void;
use core::ops::{Deref, DerefMut};

/// A struct of the C library that is plain memory.
///
/// # Safety
/// All-zero bytes must be a valid value.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers, and pointers that may be null.
unsafe impl Plain for aws_lc_sys::EVP_AEAD_CTX {}
// SAFETY: integers only.
unsafe impl Plain for aws_lc_sys::AES_KEY {}
// SAFETY: as for one.
unsafe impl<T: Plain> Plain for [T; 2] {}

/// Plain memory in one place on the heap, wiped on drop.
pub(crate) struct Wiped<T: Plain>(Box<T>);

impl<T: Plain> Wiped<T> {
    pub(crate) fn zeroed() -> Self {
        // SAFETY: `Plain` promises that zero bytes are a valid value.
        Self(Box::new(unsafe { core::mem::zeroed() }))
    }
}

impl<T: Plain> Deref for Wiped<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Plain> DerefMut for Wiped<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Plain> Drop for Wiped<T> {
    fn drop(&mut self) {
        let memory: *mut T = &mut *self.0;
        // SAFETY: the memory is ours, `size_of::<T>()` bytes long, and holds nothing that has a destructor (`Copy`).
        unsafe { aws_lc_sys::OPENSSL_cleanse(memory.cast::<c_void>(), size_of::<T>()) }
    }
}

/// Wipes bytes that held a secret on the stack.
pub(crate) fn wipe(bytes: &mut [u8]) {
    // SAFETY: the pointer and the length are those of one slice.
    unsafe { aws_lc_sys::OPENSSL_cleanse(bytes.as_mut_ptr().cast::<c_void>(), bytes.len()) }
}
