//! Signatures, through the EVP interface of the library, and SHA-1 and SHA-2 with states that can be copied,
//! as HMAC with a precomputed key requires. Only a return value of 1 means success: some functions fail with
//! -1.

use super::{EcKey, Plain};
use aws_lc_sys as c;
use casemate_crypto::{HashAlg, MAX_TAG, SignatureAlg};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

/// A private or public key. The library wipes keys that it frees.
pub(crate) struct EvpKey(NonNull<c::EVP_PKEY>);

// SAFETY: the key has only one owner, and the library does not bind keys to threads.
unsafe impl Send for EvpKey {}
// SAFETY: signing and verifying only change the reference count and cached constants of a key, which the
// library synchronises.
unsafe impl Sync for EvpKey {}

impl EvpKey {
    /// Parses a public key. Returns `None` if the library rejects it, for example because a point is not on
    /// its curve.
    pub(crate) fn from_spki(spki: &[u8]) -> Option<Self> {
        let mut cursor = MaybeUninit::<c::CBS>::uninit();
        // SAFETY: `CBS_init` initialises the cursor with pointer and length of a slice that outlives it.
        let (key, mut cursor) = unsafe {
            c::CRYPTO_library_init();
            c::CBS_init(cursor.as_mut_ptr(), spki.as_ptr(), spki.len());
            let key = c::EVP_parse_public_key(cursor.as_mut_ptr());
            (key, cursor.assume_init())
        };
        let key = Self(NonNull::new(key)?);
        // SAFETY: the cursor is initialised.
        let left = unsafe { c::CBS_len(&raw mut cursor) };
        (left == 0).then_some(key)
    }

    /// Parses a private key from RSAPrivateKey in DER. Returns `None` if its numbers are inconsistent.
    pub(crate) fn from_rsa(der: &[u8]) -> Option<Self> {
        // SAFETY: the bytes are passed with their length; the result is null or owned.
        let rsa = unsafe {
            c::CRYPTO_library_init();
            NonNull::new(c::RSA_private_key_from_bytes(der.as_ptr(), der.len()))?
        };
        let key = Self::empty();
        // SAFETY: both pointers are valid; the library adds a reference to the numbers.
        let set = key.as_ref().map(|key| unsafe { c::EVP_PKEY_set1_RSA(key.0.as_ptr(), rsa.as_ptr()) });
        // SAFETY: this reference to the numbers is not used afterwards.
        unsafe { c::RSA_free(rsa.as_ptr()) };
        key.filter(|_| set == Some(1))
    }

    /// Creates a private key from a private value on a curve.
    pub(crate) fn from_ec(ec: &EcKey) -> Option<Self> {
        let key = Self::empty()?;
        // SAFETY: both pointers are valid; the library adds a reference to the private value.
        let set = unsafe { c::EVP_PKEY_set1_EC_KEY(key.0.as_ptr(), ec.as_ptr()) };
        (set == 1).then_some(key)
    }

    /// Creates a private key of Ed25519; returns it with the public key.
    pub(crate) fn from_ed25519(seed: &[u8]) -> Option<(Self, [u8; 32])> {
        // SAFETY: the bytes are passed with their length; the result is null or owned.
        let key = unsafe {
            c::CRYPTO_library_init();
            c::EVP_PKEY_new_raw_private_key(c::EVP_PKEY_ED25519, ptr::null_mut(), seed.as_ptr(), seed.len())
        };
        let key = Self(NonNull::new(key)?);
        let (mut public, mut len) = ([0; 32], 32);
        // SAFETY: the key is valid, and `public` has `len` bytes.
        let got =
            unsafe { c::EVP_PKEY_get_raw_public_key(key.0.as_ptr(), public.as_mut_ptr(), &raw mut len) };
        (got == 1 && len == public.len()).then_some((key, public))
    }

    fn empty() -> Option<Self> {
        // SAFETY: the function has no parameters; the result is null or owned.
        NonNull::new(unsafe { c::EVP_PKEY_new() }).map(Self)
    }

    /// Returns the signature, or `None` if the library fails or the key is public.
    pub(crate) fn sign(&self, alg: SignatureAlg, message: &[u8]) -> Option<Vec<u8>> {
        let context = Context::new()?;
        context.start(c::EVP_DigestSignInit, alg, self)?;
        // SAFETY: the key is valid.
        let longest = unsafe { c::EVP_PKEY_size(self.0.as_ptr()) };
        let mut signature = vec![0; usize::try_from(longest).ok()?];
        let mut len = signature.len();
        let (to, at, from) = (signature.as_mut_ptr(), &raw mut len, message.as_ptr());
        // SAFETY: the context is initialised. Both slices are passed with their lengths, and the library
        // writes at most `len` bytes.
        let signed = unsafe { c::EVP_DigestSign(context.0.as_ptr(), to, at, from, message.len()) };
        signature.truncate(len);
        (signed == 1).then_some(signature)
    }

    /// Returns whether the signature is valid, or `None` if the library cannot start the verification.
    pub(crate) fn verify(&self, alg: SignatureAlg, message: &[u8], signature: &[u8]) -> Option<bool> {
        let context = Context::new()?;
        context.start(c::EVP_DigestVerifyInit, alg, self)?;
        let (sig, data) = (signature.as_ptr(), message.as_ptr());
        // SAFETY: the context is initialised; both slices are passed with their lengths.
        let holds =
            unsafe { c::EVP_DigestVerify(context.0.as_ptr(), sig, signature.len(), data, message.len()) };
        Some(holds == 1)
    }
}

impl Drop for EvpKey {
    fn drop(&mut self) {
        // SAFETY: the key is owned and not used afterwards.
        unsafe { c::EVP_PKEY_free(self.0.as_ptr()) }
    }
}

/// Type of `EVP_DigestSignInit` and `EVP_DigestVerifyInit`.
type Start = unsafe extern "C" fn(
    *mut c::EVP_MD_CTX,
    *mut *mut c::EVP_PKEY_CTX,
    *const c::EVP_MD,
    *mut c::ENGINE,
    *mut c::EVP_PKEY,
) -> c_int;

/// State of one signing or verifying operation.
struct Context(NonNull<c::EVP_MD_CTX>);

impl Context {
    fn new() -> Option<Self> {
        // SAFETY: the function has no parameters; the result is null or owned.
        NonNull::new(unsafe { c::EVP_MD_CTX_new() }).map(Self)
    }

    fn start(&self, start: Start, alg: SignatureAlg, key: &EvpKey) -> Option<()> {
        let hash = digest(alg);
        let (mut inner, no_engine) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: context and key are valid; the hash is valid, or null for Ed25519; `inner` stays owned by
        // the context.
        let started = unsafe { start(self.0.as_ptr(), &raw mut inner, hash, no_engine, key.0.as_ptr()) };
        if started != 1 {
            return None;
        }
        let SignatureAlg::RsaPss(_) = alg else { return Some(()) };
        // SAFETY: the successful call has set `inner`, and the hash is a constant of the library.
        let set = unsafe {
            c::EVP_PKEY_CTX_set_rsa_padding(inner, c::RSA_PKCS1_PSS_PADDING) == 1
                && c::EVP_PKEY_CTX_set_rsa_pss_saltlen(inner, c::RSA_PSS_SALTLEN_DIGEST) == 1
                && c::EVP_PKEY_CTX_set_rsa_mgf1_md(inner, hash) == 1
        };
        set.then_some(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is owned and not used afterwards.
        unsafe { c::EVP_MD_CTX_free(self.0.as_ptr()) }
    }
}

/// Hash function of an algorithm; null for Ed25519.
fn digest(alg: SignatureAlg) -> *const c::EVP_MD {
    // SAFETY: the functions have no parameters and return constants.
    unsafe {
        match alg.hash() {
            Some(HashAlg::Sha1) => c::EVP_sha1(),
            Some(HashAlg::Sha256) => c::EVP_sha256(),
            Some(HashAlg::Sha384) => c::EVP_sha384(),
            Some(HashAlg::Sha512) => c::EVP_sha512(),
            None => ptr::null(),
        }
    }
}

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
