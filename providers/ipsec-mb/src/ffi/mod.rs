//! Safe wrappers of the C library, and the only module of this crate with `unsafe` code.
//!
//! The library is loaded on first use and never unloaded. The `layout` module lists the supported versions
//! and the layout of the library's structs. Each call processes all its jobs: no job of a caller remains in
//! the library.

mod burst;
mod ccm;
mod gcm;
mod hmac;
mod layout;
mod library;
mod manager;

pub(crate) use burst::{AesKeys, Direction, Mode};
pub(crate) use burst::{AesMacKey, Chain};
pub(crate) use ccm::{CcmKey, CcmWork};
pub(crate) use gcm::GcmKey;
pub(crate) use hmac::{HmacKey, Sha};
pub(crate) use layout::MAX_JOB_LEN;
pub(crate) use library::{Library, library};

use zeroize::Zeroize;

/// Maximum number of packets per call.
pub(crate) const BURST: usize = 32;

/// Key bytes or bytes derived from a key, on their own cache lines, wiped on drop.
#[repr(C, align(64))]
pub(super) struct Secret<const N: usize>(pub(super) [u8; N]);

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
