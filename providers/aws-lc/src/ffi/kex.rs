//! Key exchange: exponentiation modulo a prime, ECDH on the NIST prime curves (whose keys also sign), and
//! X25519 (RFC 7748).

use aws_lc_sys as c;
use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};

/// A number, wiped on drop.
pub(super) struct Number(NonNull<c::BIGNUM>);

impl Number {
    /// Creates a number from big-endian bytes. The library allocates space for all of them, so leading zeros
    /// do not affect its timing.
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        // SAFETY: the bytes are passed with their length; the result is null or owned.
        NonNull::new(unsafe { c::BN_bin2bn(bytes.as_ptr(), bytes.len(), ptr::null_mut()) }).map(Self)
    }

    pub(super) fn as_ptr(&self) -> *const c::BIGNUM {
        self.0.as_ptr()
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // SAFETY: the number is owned and not used afterwards.
        unsafe { c::BN_clear_free(self.0.as_ptr()) }
    }
}

/// Working memory of the library for big numbers.
struct BnContext(NonNull<c::BN_CTX>);

impl Drop for BnContext {
    fn drop(&mut self) {
        // SAFETY: the memory is owned and not used afterwards.
        unsafe { c::BN_CTX_free(self.0.as_ptr()) }
    }
}

/// Writes `base` to the power of `exponent` modulo `modulus` to `out`. `modulus` is odd and greater than
/// `base`, and `out` has its length. All numbers are big-endian. The time depends only on the lengths.
/// Returns `None` if the library fails.
pub(crate) fn mod_exp(base: &[u8], exponent: &[u8], modulus: &[u8], out: &mut [u8]) -> Option<()> {
    let (base, exponent, modulus) = (Number::new(base)?, Number::new(exponent)?, Number::new(modulus)?);
    let result = Number::new(&[])?;
    // SAFETY: the function has no parameters; the result is null or owned.
    let context = BnContext(NonNull::new(unsafe { c::BN_CTX_new() })?);
    let (to, base, exponent, modulus) =
        (result.0.as_ptr(), base.as_ptr(), exponent.as_ptr(), modulus.as_ptr());
    // SAFETY: all numbers are valid and distinct. For a null pointer, the library computes the Montgomery
    // constants itself.
    let done = unsafe {
        c::CRYPTO_library_init();
        c::BN_mod_exp_mont_consttime(to, base, exponent, modulus, context.0.as_ptr(), ptr::null())
    };
    // SAFETY: `out` is passed with its length, and the library fails instead of writing beyond it.
    let written = unsafe { c::BN_bn2bin_padded(out.as_mut_ptr(), out.len(), result.as_ptr()) };
    (done == 1 && written == 1).then_some(())
}

/// A curve.
#[derive(Clone, Copy)]
pub(crate) enum Curve {
    P256,
    P384,
    P521,
}

/// First byte of an uncompressed point (SEC 1 section 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// A private value on a curve. The library wipes keys that it frees.
pub(crate) struct EcKey(NonNull<c::EC_KEY>);

// SAFETY: the key has only one owner, and the library does not bind keys to threads.
unsafe impl Send for EcKey {}

/// Why ECDH returned no shared secret.
pub(crate) enum EcdhError {
    /// The peer's coordinates are not a point on the curve.
    NotOnCurve,
    /// The library failed.
    Failed,
}

impl EcKey {
    /// Creates a key. Returns `None` if the private value is zero or not below the order of the curve, or if
    /// the library fails.
    pub(crate) fn new(curve: Curve, private: &[u8]) -> Option<Self> {
        let nid = match curve {
            Curve::P256 => c::NID_X9_62_prime256v1,
            Curve::P384 => c::NID_secp384r1,
            Curve::P521 => c::NID_secp521r1,
        };
        let private = Number::new(private)?;
        // SAFETY: the function takes a number; the result is null or owned.
        let key = unsafe {
            c::CRYPTO_library_init();
            Self(NonNull::new(c::EC_KEY_new_by_curve_name(nid as c_int))?)
        };
        // SAFETY: both pointers are valid; the library copies the number.
        let set = unsafe { c::EC_KEY_set_private_key(key.0.as_ptr(), private.as_ptr()) };
        (set == 1).then_some(key)
    }

    /// Returns the coordinates x and y of the public value, together `len` bytes. Returns `None` if the
    /// library fails or the curve needs another length.
    pub(crate) fn public(&self, len: usize) -> Option<Vec<u8>> {
        self.coordinates(&self.public_point()?, len)
    }

    /// Like [`public`](Self::public), and also stores the point in the key. Signing needs the point.
    pub(crate) fn complete(&mut self, len: usize) -> Option<Vec<u8>> {
        let point = self.public_point()?;
        // SAFETY: both pointers are valid and belong to one group; the library copies the point.
        let set = unsafe { c::EC_KEY_set_public_key(self.0.as_ptr(), point.0.as_ptr()) };
        if set == 1 { self.coordinates(&point, len) } else { None }
    }

    fn public_point(&self) -> Option<Point> {
        let point = Point::new(self)?;
        // SAFETY: all pointers are valid and belong to one group; `new` has set the private value. For a null
        // context, the library allocates its own scratch memory.
        let made = unsafe {
            let private = c::EC_KEY_get0_private_key(self.0.as_ptr());
            let (group, none) = (self.group(), ptr::null_mut());
            c::EC_POINT_mul(group, point.0.as_ptr(), private, ptr::null(), ptr::null(), none)
        };
        (made == 1).then_some(point)
    }

    fn coordinates(&self, point: &Point, len: usize) -> Option<Vec<u8>> {
        let mut encoded = vec![0; len.checked_add(1)?];
        // SAFETY: the point is valid and belongs to the group; the library writes at most the length of
        // `encoded`.
        let written = unsafe {
            let form = c::point_conversion_form_t::POINT_CONVERSION_UNCOMPRESSED;
            let (bytes, len, none) = (encoded.as_mut_ptr(), encoded.len(), ptr::null_mut());
            c::EC_POINT_point2oct(self.group(), point.0.as_ptr(), form, bytes, len, none)
        };
        let coordinates = encoded.split_off(1);
        (written == len.checked_add(1)? && encoded == [UNCOMPRESSED]).then_some(coordinates)
    }

    /// Writes the x coordinate of the common point to `out`, which must have the length of the coordinate.
    pub(crate) fn agree(&self, peer: &[u8], out: &mut [u8]) -> Result<(), EcdhError> {
        let point = Point::new(self).ok_or(EcdhError::Failed)?;
        let encoded = [&[UNCOMPRESSED], peer].concat();
        // SAFETY: all pointers are valid and belong to one group; the bytes are passed with their length. The
        // library only accepts coordinates below the prime of the field that are on the curve.
        let on_curve = unsafe {
            let (group, none) = (self.group(), ptr::null_mut());
            c::EC_POINT_oct2point(group, point.0.as_ptr(), encoded.as_ptr(), encoded.len(), none)
        };
        if on_curve != 1 {
            return Err(EcdhError::NotOnCurve);
        }
        let bytes = out.as_mut_ptr().cast::<c_void>();
        // SAFETY: `out` is passed with its length; point and key are valid and belong to one group.
        let written =
            unsafe { c::ECDH_compute_key(bytes, out.len(), point.0.as_ptr(), self.0.as_ptr(), None) };
        if usize::try_from(written) == Ok(out.len()) { Ok(()) } else { Err(EcdhError::Failed) }
    }

    /// Pointer to the key, which keeps its owner.
    pub(super) fn as_ptr(&self) -> *mut c::EC_KEY {
        self.0.as_ptr()
    }

    fn group(&self) -> *const c::EC_GROUP {
        // SAFETY: the key is valid; its group is a constant of the library.
        unsafe { c::EC_KEY_get0_group(self.0.as_ptr()) }
    }
}

impl Drop for EcKey {
    fn drop(&mut self) {
        // SAFETY: the key is owned and not used afterwards.
        unsafe { c::EC_KEY_free(self.0.as_ptr()) }
    }
}

/// A point on the curve of a key.
struct Point(NonNull<c::EC_POINT>);

impl Point {
    fn new(key: &EcKey) -> Option<Self> {
        // SAFETY: the group is valid; the result is null or owned.
        NonNull::new(unsafe { c::EC_POINT_new(key.group()) }).map(Self)
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // SAFETY: the point is owned and not used afterwards.
        unsafe { c::EC_POINT_free(self.0.as_ptr()) }
    }
}

/// Length of private, public and shared values, in bytes.
pub(crate) const X25519: usize = 32;

/// Returns the public value of a private value.
pub(crate) fn x25519_public(private: &[u8; X25519]) -> [u8; X25519] {
    let mut public = [0; X25519];
    // SAFETY: both arrays have the length that the library requires.
    unsafe {
        c::CRYPTO_library_init();
        c::X25519_public_from_private(public.as_mut_ptr(), private.as_ptr());
    }
    public
}

/// Writes the shared value. Returns `false` if it is zero, which happens for all peer values of low order.
pub(crate) fn x25519(private: &[u8; X25519], peer: &[u8; X25519], out: &mut [u8; X25519]) -> bool {
    // SAFETY: all three arrays have the length that the library requires.
    unsafe { c::X25519(out.as_mut_ptr(), private.as_ptr(), peer.as_ptr()) == 1 }
}
