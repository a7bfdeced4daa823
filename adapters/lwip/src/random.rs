//! Randomness of the caller's.

use crate::types::Random;
use casemate_crypto::Rng;
use core::ffi::c_void;

pub(crate) struct CallersRandom {
    fill: Random,
    context: *mut c_void,
}

impl CallersRandom {
    pub(crate) const fn new(fill: Random, context: *mut c_void) -> Self {
        Self { fill, context }
    }
}

impl Rng for CallersRandom {
    fn public(&mut self, out: &mut [u8]) {
        // One generator that is cryptographically secure serves both: what it says tells nothing of what it will say.
        self.secret(out);
    }

    fn secret(&mut self, out: &mut [u8]) {
        // SAFETY: the caller of casemate_create promised that the function may be called with its context as long as the
        // host lives; `out` is writable for its length.
        unsafe { (self.fill)(self.context, out.as_mut_ptr(), out.len()) }
    }
}
