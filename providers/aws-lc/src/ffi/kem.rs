//! ML-KEM (FIPS 203), with random bytes from the caller.

use aws_lc_sys as c;
use core::ffi::c_int;
use core::ptr::{self, NonNull};

/// A parameter set.
#[derive(Clone, Copy)]
pub(crate) enum Kem {
    MlKem512,
    MlKem768,
    MlKem1024,
}

// `include/openssl/experimental/kem_deterministic_api.h`. These declarations are those of the complete
// bindings of `aws-lc-sys`, which need bindgen on some targets; build.rs finds the prefix. If the library
// drops a function, the program does not link; the vectors of verify/vectors call both.
unsafe extern "C" {
    #[link_name = concat!(env!("CASEMATE_AWS_LC_PREFIX"), "EVP_PKEY_keygen_deterministic")]
    fn keygen_deterministic(
        context: *mut c::EVP_PKEY_CTX,
        key: *mut *mut c::EVP_PKEY,
        seed: *const u8,
        seed_len: *mut usize,
    ) -> c_int;

    #[link_name = concat!(env!("CASEMATE_AWS_LC_PREFIX"), "EVP_PKEY_encapsulate_deterministic")]
    fn encapsulate_deterministic(
        context: *mut c::EVP_PKEY_CTX,
        ciphertext: *mut u8,
        ciphertext_len: *mut usize,
        shared: *mut u8,
        shared_len: *mut usize,
        seed: *const u8,
        seed_len: *mut usize,
    ) -> c_int;
}

impl Kem {
    fn nid(self) -> c_int {
        match self {
            Self::MlKem512 => c::NID_MLKEM512,
            Self::MlKem768 => c::NID_MLKEM768,
            Self::MlKem1024 => c::NID_MLKEM1024,
        }
    }
}

/// A decapsulation key. The library wipes keys that it frees.
pub(crate) struct DecapsulationKey(Key);

// SAFETY: the key has only one owner, and the library does not bind keys to threads.
unsafe impl Send for DecapsulationKey {}

impl DecapsulationKey {
    /// Computes the key from its seed d || z, of 64 bytes. Returns `None` if the library fails or the seed
    /// has another length.
    pub(crate) fn from_seed(kem: Kem, seed: &[u8]) -> Option<Self> {
        // SAFETY: the functions have no pointers but null; the result is null or owned.
        let context = Context::new(unsafe {
            c::CRYPTO_library_init();
            c::EVP_PKEY_CTX_new_id(c::EVP_PKEY_KEM, ptr::null_mut())
        })?;
        let (mut key, mut len) = (ptr::null_mut(), seed.len());
        // SAFETY: the context is valid; the seed is passed with its length, and the library fails if that is
        // not its own. On success, `key` is owned.
        let made = unsafe {
            c::EVP_PKEY_CTX_kem_set_params(context.0.as_ptr(), kem.nid()) == 1
                && c::EVP_PKEY_keygen_init(context.0.as_ptr()) == 1
                && keygen_deterministic(context.0.as_ptr(), &raw mut key, seed.as_ptr(), &raw mut len) == 1
        };
        if made { Key::new(key).map(Self) } else { None }
    }

    /// Returns the encapsulation key, of `len` bytes. Returns `None` if it has another length.
    pub(crate) fn public(&self, len: usize) -> Option<Vec<u8>> {
        let (mut public, mut written) = (vec![0; len], len);
        // SAFETY: the key is valid; the buffer is passed with its length, and the library fails if it is too
        // short.
        let got = unsafe {
            c::EVP_PKEY_get_raw_public_key(self.0.0.as_ptr(), public.as_mut_ptr(), &raw mut written)
        };
        (got == 1 && written == len).then_some(public)
    }

    /// Writes the shared secret, or for a wrong ciphertext the pseudorandom one of FIPS 203 section 6.3.
    /// Returns `None` if the library fails or a length is wrong.
    pub(crate) fn decapsulate(&self, ciphertext: &[u8], shared: &mut [u8]) -> Option<()> {
        let context = Context::of(&self.0)?;
        let (to, mut len, from) = (shared.as_mut_ptr(), shared.len(), ciphertext.as_ptr());
        // SAFETY: context and key are valid; both slices are passed with their lengths, and the library fails
        // if they are not its own.
        let done =
            unsafe { c::EVP_PKEY_decapsulate(context.0.as_ptr(), to, &raw mut len, from, ciphertext.len()) };
        (done == 1 && len == shared.len()).then_some(())
    }
}

/// Why an encapsulation failed.
pub(crate) enum EncapsulationError {
    /// A coefficient of the key is not below the modulus (FIPS 203 section 7.2).
    NotReduced,
    /// The library failed, or a length is wrong.
    Failed,
}

/// Writes the ciphertext and the shared secret that result from the key and the randomness `m`.
pub(crate) fn encapsulate(
    kem: Kem,
    key: &[u8],
    m: &[u8; 32],
    ciphertext: &mut [u8],
    shared: &mut [u8],
) -> Result<(), EncapsulationError> {
    // SAFETY: the bytes are passed with their length; the result is null or owned.
    let key = Key::new(unsafe {
        c::CRYPTO_library_init();
        c::EVP_PKEY_kem_new_raw_public_key(kem.nid(), key.as_ptr(), key.len())
    });
    let key = key.ok_or(EncapsulationError::Failed)?;
    let context = Context::of(&key).ok_or(EncapsulationError::Failed)?;
    let (mut ciphertext_len, mut shared_len, mut m_len) = (0, 0, 0);
    let (length, other_length, m_length) = (&raw mut ciphertext_len, &raw mut shared_len, &raw mut m_len);
    let none = ptr::null_mut();
    // SAFETY: context and key are valid; without buffers, the library only writes the three lengths.
    let asked = unsafe {
        encapsulate_deterministic(context.0.as_ptr(), none, length, none, other_length, ptr::null(), m_length)
    };
    if asked != 1 || (ciphertext_len, shared_len, m_len) != (ciphertext.len(), shared.len(), m.len()) {
        return Err(EncapsulationError::Failed);
    }
    let (ciphertext, shared) = (ciphertext.as_mut_ptr(), shared.as_mut_ptr());
    // SAFETY: as before; the three buffers have the lengths that the library has just written.
    let made = unsafe {
        encapsulate_deterministic(
            context.0.as_ptr(),
            ciphertext,
            length,
            shared,
            other_length,
            m.as_ptr(),
            m_length,
        )
    };
    // With the right lengths, the check of the key is the only step that can fail: nothing is allocated.
    if made == 1 { Ok(()) } else { Err(EncapsulationError::NotReduced) }
}

/// A private or public key of the library.
struct Key(NonNull<c::EVP_PKEY>);

impl Key {
    fn new(key: *mut c::EVP_PKEY) -> Option<Self> {
        NonNull::new(key).map(Self)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the key is owned and not used afterwards.
        unsafe { c::EVP_PKEY_free(self.0.as_ptr()) }
    }
}

/// State of one operation.
struct Context(NonNull<c::EVP_PKEY_CTX>);

impl Context {
    fn new(context: *mut c::EVP_PKEY_CTX) -> Option<Self> {
        NonNull::new(context).map(Self)
    }

    fn of(key: &Key) -> Option<Self> {
        // SAFETY: the key is valid, and the library adds a reference to it; the result is null or owned.
        Self::new(unsafe { c::EVP_PKEY_CTX_new(key.0.as_ptr(), ptr::null_mut()) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is owned and not used afterwards.
        unsafe { c::EVP_PKEY_CTX_free(self.0.as_ptr()) }
    }
}
