//! The prime curves of NIST, ECDH on them, and keys that sign.

use super::bn::Number;
use aws_lc_sys as c;
use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};

/// Which curve.
#[derive(Clone, Copy)]
pub(crate) enum Curve {
    P256,
    P384,
    P521,
}

/// Leads an uncompressed point (SEC 1 section 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// A private value on a curve. The library wipes what it frees.
pub(crate) struct EcKey(NonNull<c::EC_KEY>);

// SAFETY: the key is this value's alone, and the library ties no key to a thread.
unsafe impl Send for EcKey {}

/// Why there is no shared secret.
pub(crate) enum EcdhError {
    /// The peer's coordinates are not those of a point on the curve.
    NotOnCurve,
    /// The library failed.
    Failed,
}

impl EcKey {
    /// `None` if the private value is zero or not below the curve's order, or if the library failed.
    pub(crate) fn new(curve: Curve, private: &[u8]) -> Option<Self> {
        let nid = match curve {
            Curve::P256 => c::NID_X9_62_prime256v1,
            Curve::P384 => c::NID_secp384r1,
            Curve::P521 => c::NID_secp521r1,
        };
        let private = Number::new(private)?;
        // SAFETY: takes a number, and returns a key that is ours or null.
        let key = unsafe {
            c::CRYPTO_library_init();
            Self(NonNull::new(c::EC_KEY_new_by_curve_name(nid as c_int))?)
        };
        // SAFETY: both are valid; the library copies the number.
        let set = unsafe { c::EC_KEY_set_private_key(key.0.as_ptr(), private.as_ptr()) };
        (set == 1).then_some(key)
    }

    /// The public value's coordinates, `len` bytes of x and y; `None` if the library failed or the curve has another length.
    pub(crate) fn public(&self, len: usize) -> Option<Vec<u8>> {
        self.coordinates(&self.public_point()?, len)
    }

    /// As [`public`](Self::public), and the key keeps the point: one that signs needs both.
    pub(crate) fn complete(&mut self, len: usize) -> Option<Vec<u8>> {
        let point = self.public_point()?;
        // SAFETY: both are valid and of one group; the library copies the point.
        let set = unsafe { c::EC_KEY_set_public_key(self.0.as_ptr(), point.0.as_ptr()) };
        if set == 1 { self.coordinates(&point, len) } else { None }
    }

    fn public_point(&self) -> Option<Point> {
        let point = Point::new(self)?;
        // SAFETY: all pointers are valid and of one group; the private value is there since `new`. The library may make its own
        // scratch memory (null context).
        let made = unsafe {
            let private = c::EC_KEY_get0_private_key(self.0.as_ptr());
            let (group, none) = (self.group(), ptr::null_mut());
            c::EC_POINT_mul(group, point.0.as_ptr(), private, ptr::null(), ptr::null(), none)
        };
        (made == 1).then_some(point)
    }

    fn coordinates(&self, point: &Point, len: usize) -> Option<Vec<u8>> {
        let mut encoded = vec![0; len.checked_add(1)?];
        // SAFETY: the point is valid and of this group; the library writes at most as many bytes as `encoded` has.
        let written = unsafe {
            let form = c::point_conversion_form_t::POINT_CONVERSION_UNCOMPRESSED;
            let (bytes, len, none) = (encoded.as_mut_ptr(), encoded.len(), ptr::null_mut());
            c::EC_POINT_point2oct(self.group(), point.0.as_ptr(), form, bytes, len, none)
        };
        let coordinates = encoded.split_off(1);
        (written == len.checked_add(1)? && encoded == [UNCOMPRESSED]).then_some(coordinates)
    }

    /// Writes the x coordinate of the common point, which must have the length of `out`.
    pub(crate) fn agree(&self, peer: &[u8], out: &mut [u8]) -> Result<(), EcdhError> {
        let point = Point::new(self).ok_or(EcdhError::Failed)?;
        let encoded = [&[UNCOMPRESSED], peer].concat();
        // SAFETY: all pointers are valid and of one group; the bytes come with their length. The library takes only coordinates
        // below the field's prime that are on the curve.
        let on_curve = unsafe {
            let (group, none) = (self.group(), ptr::null_mut());
            c::EC_POINT_oct2point(group, point.0.as_ptr(), encoded.as_ptr(), encoded.len(), none)
        };
        if on_curve != 1 {
            return Err(EcdhError::NotOnCurve);
        }
        let bytes = out.as_mut_ptr().cast::<c_void>();
        // SAFETY: `out` comes with its length; point and key are valid and of one group.
        let written =
            unsafe { c::ECDH_compute_key(bytes, out.len(), point.0.as_ptr(), self.0.as_ptr(), None) };
        if usize::try_from(written) == Ok(out.len()) { Ok(()) } else { Err(EcdhError::Failed) }
    }

    /// The key, which stays this value's.
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
        // SAFETY: the key is ours and is not used after this.
        unsafe { c::EC_KEY_free(self.0.as_ptr()) }
    }
}

/// A point on the curve of a key.
struct Point(NonNull<c::EC_POINT>);

impl Point {
    fn new(key: &EcKey) -> Option<Self> {
        // SAFETY: the group is valid; the point is ours or null.
        NonNull::new(unsafe { c::EC_POINT_new(key.group()) }).map(Self)
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // SAFETY: the point is ours and is not used after this.
        unsafe { c::EC_POINT_free(self.0.as_ptr()) }
    }
}
