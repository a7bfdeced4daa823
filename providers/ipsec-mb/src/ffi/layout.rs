//! How the library's structs lie in memory, as `intel-ipsec-mb.h` of the versions in [`KNOWN`] declares them.
//!
//! The library has no functions for what is done to packets: its header has macros that call through pointers in the
//! manager. The offsets below are checked when this file is compiled, and against the header itself by a test.

use core::ffi::{c_int, c_void};

/// Versions whose header was compared with this file, as `imb_get_version` numbers them.
pub(super) const KNOWN: [u32; 1] = [0x1_03_00];

/// Alignment of everything that the library is lent, in bytes: a cache line, and its widest register.
pub(super) const ALIGN: usize = 64;

/// Most bytes that a job of CBC encryption or of HMAC may have: the library counts them in 16 bits.
pub(crate) const MOST_BYTES: usize = 65534;

pub(super) const ARCH_AVX: u32 = 3;
pub(super) const FEATURE_AESNI: u64 = 1 << 1;
pub(super) const FEATURE_PCLMULQDQ: u64 = 1 << 2;
/// The library was built to wipe keys and text from its registers and its stack.
pub(super) const FEATURE_SAFE_DATA: u64 = 1 << 14;
/// It checks what it is given.
pub(super) const FEATURE_SAFE_PARAM: u64 = 1 << 15;
/// It tested itself, and was right.
pub(super) const FEATURE_SELF_TEST_PASS: u64 = 1 << 21;

pub(super) const STATUS_COMPLETED: c_int = 3;

/// `keyexp_t`: key; round keys of encryption and of decryption out.
pub(super) type ExpandKey = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_void);
/// `hash_one_block_t`: one block; the hash's state after it out.
pub(super) type OneBlock = unsafe extern "C" fn(*const c_void, *mut c_void);
/// `hash_fn_t`: data and its length; digest out.
pub(super) type HashAll = unsafe extern "C" fn(*const c_void, u64, *mut c_void);
/// `aes_gcm_enc_dec_t`: key, scratch, output, input and its length, nonce, additional data and its length, tag and its length.
pub(super) type GcmCrypt = unsafe extern "C" fn(
    *const GcmKeyData,
    *mut GcmContext,
    *mut u8,
    *const u8,
    u64,
    *const u8,
    *const u8,
    u64,
    *mut u8,
    u64,
);
/// `aes_gcm_pre_t`: key; everything that is derived from it out.
pub(super) type GcmExpand = unsafe extern "C" fn(*const c_void, *mut GcmKeyData);
/// `submit_cipher_burst_t`: manager, jobs and their number, mode, direction, key length. Answers how many jobs it did.
pub(super) type CipherBurst =
    unsafe extern "C" fn(*mut ManagerHead, *mut Job, u32, c_int, c_int, c_int) -> u32;
/// `submit_hash_burst_t`: manager, jobs and their number, hash. Answers how many jobs it did.
pub(super) type HashBurst = unsafe extern "C" fn(*mut ManagerHead, *mut Job, u32, c_int) -> u32;

/// A pointer that is not called here.
type Unused = *const c_void;

/// The front of `IMB_MGR`, to the last pointer that is called here.
#[repr(C)]
pub(super) struct ManagerHead {
    flags: u64,
    pub(super) features: u64,
    reserved: [u64; 5],
    pub(super) used_arch: u32,
    error: c_int,
    jobs: [Unused; 6],
    /// For keys of 128, 192 and 256 bits.
    pub(super) expand_key: [Option<ExpandKey>; 3],
    other_keys: [Unused; 3],
    /// SHA-1, SHA-224, SHA-256, SHA-384, SHA-512.
    pub(super) one_block: [Option<OneBlock>; 5],
    md5_one_block: Unused,
    /// In the same order.
    pub(super) hash_all: [Option<HashAll>; 5],
    aes128_cfb_one: Unused,
    /// For keys of 128, 192 and 256 bits, as the next two.
    pub(super) gcm_seal: [Option<GcmCrypt>; 3],
    pub(super) gcm_open: [Option<GcmCrypt>; 3],
    gcm_in_parts: [Unused; 18],
    pub(super) gcm_expand: [Option<GcmExpand>; 3],
    other_ciphers: [Unused; 64],
    pub(super) cipher_burst: Option<CipherBurst>,
    cipher_burst_unchecked: Unused,
    pub(super) hash_burst: Option<HashBurst>,
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(ManagerHead, features) == 8);
    assert!(offset_of!(ManagerHead, used_arch) == 56);
    assert!(offset_of!(ManagerHead, expand_key) == 112);
    assert!(offset_of!(ManagerHead, one_block) == 160);
    assert!(offset_of!(ManagerHead, hash_all) == 208);
    assert!(offset_of!(ManagerHead, gcm_seal) == 256);
    assert!(offset_of!(ManagerHead, gcm_open) == 280);
    assert!(offset_of!(ManagerHead, gcm_expand) == 448);
    assert!(offset_of!(ManagerHead, cipher_burst) == 984);
    assert!(offset_of!(ManagerHead, hash_burst) == 1000);
    assert!(offset_of!(Job, initial_vector) == 72);
    assert!(offset_of!(Job, hmac_inner) == 104);
    assert!(offset_of!(Job, status) == 128);
    assert!(size_of::<Job>() == 200);
};

/// `IMB_JOB`: one packet of a burst.
#[repr(C)]
pub(super) struct Job {
    pub(super) encrypt_keys: *const c_void,
    pub(super) decrypt_keys: *const c_void,
    pub(super) key_len: u64,
    pub(super) source: *const u8,
    pub(super) target: *mut u8,
    pub(super) cipher_offset: u64,
    pub(super) cipher_len: u64,
    pub(super) hash_offset: u64,
    pub(super) hash_len: u64,
    pub(super) initial_vector: *const u8,
    pub(super) initial_vector_len: u64,
    pub(super) tag: *mut u8,
    pub(super) tag_len: u64,
    pub(super) hmac_inner: *const u8,
    pub(super) hmac_outer: *const u8,
    pub(super) hash_field: u64,
    pub(super) status: c_int,
    pub(super) modes: [c_int; 4],
    pub(super) user: [usize; 4],
    pub(super) scatter_state: c_int,
    pub(super) cipher_field: usize,
}

impl Job {
    /// A job in which nothing is filled in.
    pub(super) const EMPTY: Self = Self {
        encrypt_keys: core::ptr::null(),
        decrypt_keys: core::ptr::null(),
        key_len: 0,
        source: core::ptr::null(),
        target: core::ptr::null_mut(),
        cipher_offset: 0,
        cipher_len: 0,
        hash_offset: 0,
        hash_len: 0,
        initial_vector: core::ptr::null(),
        initial_vector_len: 0,
        tag: core::ptr::null_mut(),
        tag_len: 0,
        hmac_inner: core::ptr::null(),
        hmac_outer: core::ptr::null(),
        hash_field: 0,
        status: 0,
        modes: [0; 4],
        user: [0; 4],
        scatter_state: 0,
        cipher_field: 0,
    };
}

/// `struct gcm_key_data`: 15 round keys and 48 powers of the hash key, filled up to a whole cache line.
#[repr(C, align(64))]
pub(super) struct GcmKeyData(pub(super) [u8; 1024]);

/// `struct gcm_context_data`: scratch of one call.
#[repr(C, align(64))]
pub(super) struct GcmContext(pub(super) [u8; 128]);

const _: () = {
    assert!(align_of::<GcmKeyData>() == ALIGN);
    assert!(size_of::<GcmKeyData>() >= 1008);
    assert!(size_of::<GcmContext>() >= 88);
};
