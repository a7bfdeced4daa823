//! SHA-1 and SHA-2 with states that can be copied, as HMAC with a precomputed key requires.

use super::Plain;
use aws_lc_sys as c;
use casemate_crypto::MAX_TAG;
use core::ffi::c_void;

/// State of a hash function.
pub(crate) trait Hash: Plain + Send + Sync + 'static {
    /// Block length in bytes.
    const BLOCK: usize;
    /// Digest length in bytes.
    const DIGEST: usize;

    /// Initialises the state. Returns `false` if the library fails.
    fn start(&mut self) -> bool;
    /// Adds `data`. Returns `false` if the library fails.
    fn update(&mut self, data: &[u8]) -> bool;
    /// Writes the digest to the start of `out`. Returns `false` if the library fails.
    fn finish(&mut self, out: &mut [u8; MAX_TAG]) -> bool;
}

// The library has the same three functions for each hash, with different names and structs.
macro_rules! hash {
    (
        $name:ident, $state:ident, $block:literal, $digest:literal, $start:ident, $update:ident, $finish:ident
    ) => {
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(crate) struct $name(c::$state);

        // SAFETY: the struct contains only integers.
        unsafe impl Plain for $name {}

        impl Hash for $name {
            const BLOCK: usize = $block;
            const DIGEST: usize = $digest;

            #[inline]
            fn start(&mut self) -> bool {
                // SAFETY: the state is writable.
                unsafe { c::$start(&mut self.0) == 1 }
            }

            #[inline]
            fn update(&mut self, data: &[u8]) -> bool {
                // SAFETY: pointer and length belong to one slice.
                unsafe { c::$update(&mut self.0, data.as_ptr().cast::<c_void>(), data.len()) == 1 }
            }

            #[inline]
            fn finish(&mut self, out: &mut [u8; MAX_TAG]) -> bool {
                const { assert!($digest <= MAX_TAG) };
                // SAFETY: the library writes the digest, which is not longer than `out`.
                unsafe { c::$finish(out.as_mut_ptr(), &mut self.0) == 1 }
            }
        }
    };
}

hash!(Sha1, SHA_CTX, 64, 20, SHA1_Init, SHA1_Update, SHA1_Final);
hash!(Sha256, SHA256_CTX, 64, 32, SHA256_Init, SHA256_Update, SHA256_Final);
hash!(Sha384, SHA512_CTX, 128, 48, SHA384_Init, SHA384_Update, SHA384_Final);
hash!(Sha512, SHA512_CTX, 128, 64, SHA512_Init, SHA512_Update, SHA512_Final);
