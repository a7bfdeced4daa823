//! Safe wrappers of the C library, and the only module of this crate with `unsafe` code.
//!
//! Each wrapper owns its C struct on the heap, as [`Wiped`] memory or as an object that the library allocates
//! and wipes. The struct never moves and is wiped on drop. Rust types enforce the preconditions of the calls
//! (whole blocks for CBC, one buffer in place), and failures of the library become `false`, `None` or an
//! error.
//!
//! Packet processing with an existing key allocates nothing, with one exception: on the first failed
//! [`Aead::open`] of a thread, the library allocates the error queue of the thread.

mod aes;
mod evp;
mod kem;
mod kex;

pub(crate) use aes::{Aead, AeadKind};
pub(crate) use aes::{AesDecrypt, AesEncrypt, BLOCK, Block};
pub(crate) use evp::EvpKey;
pub(crate) use evp::{Hash, Sha1, Sha256, Sha384, Sha512};
pub(crate) use kem::{DecapsulationKey, EncapsulationError, Kem, encapsulate};
pub(crate) use kex::{Curve, EcKey, EcdhError, X25519, mod_exp, x25519, x25519_public};

use core::ffi::c_void;
use core::ops::{Deref, DerefMut};

/// A struct of the C library that is plain data.
///
/// # Safety
/// All-zero bytes must be a valid value.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: the struct contains integers, and pointers that may be null.
unsafe impl Plain for aws_lc_sys::EVP_AEAD_CTX {}
// SAFETY: the struct contains only integers.
unsafe impl Plain for aws_lc_sys::AES_KEY {}
// SAFETY: zero bytes are valid for each element.
unsafe impl<T: Plain> Plain for [T; 2] {}

/// Plain data at a fixed address on the heap, wiped on drop.
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
        // SAFETY: the memory is owned, has `size_of::<T>()` bytes, and needs no destructor (`Copy`).
        unsafe { aws_lc_sys::OPENSSL_cleanse(memory.cast::<c_void>(), size_of::<T>()) }
    }
}

/// Wipes secret bytes on the stack.
pub(crate) fn wipe(bytes: &mut [u8]) {
    // SAFETY: pointer and length belong to one slice.
    unsafe { aws_lc_sys::OPENSSL_cleanse(bytes.as_mut_ptr().cast::<c_void>(), bytes.len()) }
}
