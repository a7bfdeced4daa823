//! Memory for what is made from a key.

use zeroize::Zeroize;

/// Bytes that are or were made from a key, on cache lines of their own, wiped on drop.
#[repr(C, align(64))]
pub(super) struct Secret<const N: usize>(pub(super) [u8; N]);

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
