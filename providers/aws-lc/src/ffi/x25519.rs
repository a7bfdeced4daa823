//! X25519 (RFC 7748).

use aws_lc_sys as c;

/// Length of private, public and shared values, in bytes.
pub(crate) const X25519: usize = 32;

/// The public value of a private one.
pub(crate) fn x25519_public(private: &[u8; X25519]) -> [u8; X25519] {
    let mut public = [0; X25519];
    // SAFETY: both are as long as the library asks.
    unsafe {
        c::CRYPTO_library_init();
        c::X25519_public_from_private(public.as_mut_ptr(), private.as_ptr());
    }
    public
}

/// Writes the shared value; `false` if it is all zero, as for every peer's value of low order.
pub(crate) fn x25519(private: &[u8; X25519], peer: &[u8; X25519], out: &mut [u8; X25519]) -> bool {
    // SAFETY: all three are as long as the library asks.
    unsafe { c::X25519(out.as_mut_ptr(), private.as_ptr(), peer.as_ptr()) == 1 }
}
