//! How the library's structs lie in memory, as `intel-ipsec-mb.h` of the versions in [`KNOWN`] declares them.
//!
//! The library has no functions for what is done to packets: its header has macros that call through pointers in the
//! manager. The offsets below are checked when this file is compiled, and against the header itself by a test.

use core::ffi::{c_int, c_void};

/// Versions whose header was compared with this file, as `imb_get_version` numbers them.
pub(super) const KNOWN: [u32; 1] = [0x1_03_00];

/// Alignment of everything that the library is lent, in bytes: a cache line, and its widest register.
pub(super) const ALIGN: usize = 64;

/// Most bytes that a job of CBC encryption, of CCM or of a MAC but GMAC may have: the library counts them in 16 bits.
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

/// `cmac_subkey_gen_t`: round keys; both subkeys out.
pub(super) type CmacSubkeys = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_void);
/// `xcbc_keyexp_t`: key; round keys of the first derived key, the second and the third derived key out.
pub(super) type XcbcExpand = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_void, *mut c_void);
/// `burst_fn_t`: manager, number of jobs, pointers to that many jobs in the manager in or out. Answers how many were written out.
pub(super) type QueueBurst = unsafe extern "C" fn(*mut ManagerHead, u32, *mut *mut Job) -> u32;

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
    pub(super) cmac_subkeys: Option<CmacSubkeys>,
    pub(super) xcbc_expand: Option<XcbcExpand>,
    des_key: Unused,
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
    other_ciphers: [Unused; 60],
    pub(super) queue_free: Option<QueueBurst>,
    pub(super) queue_submit: Option<QueueBurst>,
    queue_submit_unchecked: Unused,
    pub(super) queue_flush: Option<QueueBurst>,
    pub(super) cipher_burst: Option<CipherBurst>,
    cipher_burst_unchecked: Unused,
    pub(super) hash_burst: Option<HashBurst>,
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(ManagerHead, features) == 8);
    assert!(offset_of!(ManagerHead, used_arch) == 56);
    assert!(offset_of!(ManagerHead, expand_key) == 112);
    assert!(offset_of!(ManagerHead, cmac_subkeys) == 136);
    assert!(offset_of!(ManagerHead, xcbc_expand) == 144);
    assert!(offset_of!(ManagerHead, one_block) == 160);
    assert!(offset_of!(ManagerHead, hash_all) == 208);
    assert!(offset_of!(ManagerHead, gcm_seal) == 256);
    assert!(offset_of!(ManagerHead, gcm_open) == 280);
    assert!(offset_of!(ManagerHead, gcm_expand) == 448);
    assert!(offset_of!(ManagerHead, queue_free) == 952);
    assert!(offset_of!(ManagerHead, queue_submit) == 960);
    assert!(offset_of!(ManagerHead, queue_flush) == 976);
    assert!(offset_of!(ManagerHead, cipher_burst) == 984);
    assert!(offset_of!(ManagerHead, hash_burst) == 1000);
    assert!(offset_of!(Job, initial_vector) == 72);
    assert!(offset_of!(Job, hash_fields) == 104);
    assert!(size_of::<HashFields>() == 24);
    assert!(offset_of!(Job, status) == 128);
    assert!(offset_of!(Job, cipher_mode) == 132);
    assert!(offset_of!(Job, chain_order) == 144);
    assert!(offset_of!(Job, user) == 152);
    assert!(size_of::<Job>() == 200);
};

/// What HMAC needs of its key: the states of the inner and the outer hash.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct HmacFields {
    pub(super) inner: *const u8,
    pub(super) outer: *const u8,
}

/// What AES-XCBC and AES-CMAC need of their key.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct AesMacFields {
    pub(super) round_keys: *const u8,
    /// For a last block that is whole.
    pub(super) whole: *const u8,
    /// For one that is filled up.
    pub(super) filled: *const u8,
}

/// The additional data of AES-CCM.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct CcmFields {
    pub(super) aad: *const u8,
    pub(super) aad_len: u64,
}

/// `IMB_JOB.u`.
#[repr(C)]
pub(super) union HashFields {
    pub(super) hmac: HmacFields,
    pub(super) aes_mac: AesMacFields,
    pub(super) ccm: CcmFields,
}

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
    pub(super) hash_fields: HashFields,
    pub(super) status: c_int,
    pub(super) cipher_mode: c_int,
    pub(super) direction: c_int,
    pub(super) hash: c_int,
    pub(super) chain_order: c_int,
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
        hash_fields: HashFields {
            aes_mac: AesMacFields {
                round_keys: core::ptr::null(),
                whole: core::ptr::null(),
                filled: core::ptr::null(),
            },
        },
        status: 0,
        cipher_mode: 0,
        direction: 0,
        hash: 0,
        chain_order: 0,
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
