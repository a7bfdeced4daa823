//! Large numbers, and exponentiation modulo a prime.

use aws_lc_sys as c;
use core::ptr::{self, NonNull};

/// A number, wiped on drop.
pub(super) struct Number(NonNull<c::BIGNUM>);

impl Number {
    /// From big-endian bytes. The library keeps room for all of them, so that leading zeros do not show in its timing.
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        // SAFETY: the bytes come with their length; the number is ours or null.
        NonNull::new(unsafe { c::BN_bin2bn(bytes.as_ptr(), bytes.len(), ptr::null_mut()) }).map(Self)
    }

    pub(super) fn as_ptr(&self) -> *const c::BIGNUM {
        self.0.as_ptr()
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // SAFETY: the number is ours and is not used after this.
        unsafe { c::BN_clear_free(self.0.as_ptr()) }
    }
}

/// The library's scratch memory.
struct Scratch(NonNull<c::BN_CTX>);

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: the memory is ours and is not used after this.
        unsafe { c::BN_CTX_free(self.0.as_ptr()) }
    }
}

/// `base` to the power of `exponent`, modulo an odd `modulus` above `base`; in constant time but for the lengths, and as long as
/// `out`. All are big-endian. `None` if the library failed.
pub(crate) fn mod_exp(base: &[u8], exponent: &[u8], modulus: &[u8], out: &mut [u8]) -> Option<()> {
    let (base, exponent, modulus) = (Number::new(base)?, Number::new(exponent)?, Number::new(modulus)?);
    let result = Number::new(&[])?;
    // SAFETY: takes nothing; the memory is ours or null.
    let scratch = Scratch(NonNull::new(unsafe { c::BN_CTX_new() })?);
    let (to, base, exponent, modulus) =
        (result.0.as_ptr(), base.as_ptr(), exponent.as_ptr(), modulus.as_ptr());
    // SAFETY: all numbers are valid and distinct; the library sets up Montgomery's constants itself where it gets null.
    let done = unsafe {
        c::CRYPTO_library_init();
        c::BN_mod_exp_mont_consttime(to, base, exponent, modulus, scratch.0.as_ptr(), ptr::null())
    };
    // SAFETY: `out` comes with its length, and the library fails rather than write beyond it.
    let written = unsafe { c::BN_bn2bin_padded(out.as_mut_ptr(), out.len(), result.as_ptr()) };
    (done == 1 && written == 1).then_some(())
}
