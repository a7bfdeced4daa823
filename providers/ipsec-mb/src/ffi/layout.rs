//! Memory layout of the library's structs, as `intel-ipsec-mb.h` declares it in the versions of
//! [`SUPPORTED_VERSIONS`].
//!
//! The library exports no functions for packet processing: its header has macros that call pointers in the
//! manager struct. Compile-time assertions check the offsets below, and a test compares them with the header.

use core::ffi::{c_int, c_void};

/// Supported versions, in the format of `imb_get_version`. This file was compared with their header.
pub(super) const SUPPORTED_VERSIONS: [u32; 1] = [0x1_03_00];

/// Alignment in bytes of all memory passed to the library: a cache line, and its widest register.
pub(super) const ALIGN: usize = 64;

/// Maximum length in bytes of a job of CBC encryption, of CCM, or of a MAC other than GMAC. The library
/// counts bytes in 16 bits.
pub(crate) const MAX_JOB_LEN: usize = 65534;

pub(super) const ARCH_AVX: u32 = 3;
pub(super) const FEATURE_AESNI: u64 = 1 << 1;
pub(super) const FEATURE_PCLMULQDQ: u64 = 1 << 2;
/// The library was built to wipe keys and text from its registers and its stack.
pub(super) const FEATURE_SAFE_DATA: u64 = 1 << 14;
/// The library validates its arguments.
pub(super) const FEATURE_SAFE_PARAM: u64 = 1 << 15;
/// The self-test of the library passed.
pub(super) const FEATURE_SELF_TEST_PASS: u64 = 1 << 21;

pub(super) const STATUS_COMPLETED: c_int = 3;

/// `keyexp_t`: key; outputs: round keys for encryption and for decryption.
pub(super) type ExpandKey = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_void);
/// `hash_one_block_t`: one block; output: state of the hash after it.
pub(super) type OneBlock = unsafe extern "C" fn(*const c_void, *mut c_void);
/// `hash_fn_t`: data and its length; output: digest.
pub(super) type HashAll = unsafe extern "C" fn(*const c_void, u64, *mut c_void);
/// `aes_gcm_enc_dec_t`: key, scratch, output, input and its length, nonce, additional data and its length,
/// tag and its length.
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
/// `aes_gcm_pre_t`: key; output: all data derived from it.
pub(super) type GcmExpand = unsafe extern "C" fn(*const c_void, *mut GcmKeyData);
/// `submit_cipher_burst_t`: manager, jobs and their number, mode, direction, key length. Returns the number
/// of completed jobs.
pub(super) type CipherBurst =
    unsafe extern "C" fn(*mut ManagerHead, *mut Job, u32, c_int, c_int, c_int) -> u32;
/// `submit_hash_burst_t`: manager, jobs and their number, hash. Returns the number of completed jobs.
pub(super) type HashBurst = unsafe extern "C" fn(*mut ManagerHead, *mut Job, u32, c_int) -> u32;

/// `cmac_subkey_gen_t`: round keys; outputs: both subkeys.
pub(super) type CmacSubkeys = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_void);
/// `xcbc_keyexp_t`: key; outputs: round keys of the first derived key, and the second and the third derived
/// key.
pub(super) type XcbcExpand = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_void, *mut c_void);
/// `burst_fn_t`: manager, number of jobs, array of pointers to jobs in the manager (input or output). Returns
/// the number of pointers written.
pub(super) type QueueBurst = unsafe extern "C" fn(*mut ManagerHead, u32, *mut *mut Job) -> u32;

/// A pointer that this crate does not call.
type Unused = *const c_void;

/// Start of `IMB_MGR`, up to the last pointer that this crate calls.
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
    /// In the order of `one_block`.
    pub(super) hash_all: [Option<HashAll>; 5],
    aes128_cfb_one: Unused,
    /// For keys of 128, 192 and 256 bits, as in the next two fields.
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

/// Key data of HMAC: the states of the inner and the outer hash.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct HmacFields {
    pub(super) inner: *const u8,
    pub(super) outer: *const u8,
}

/// Key data of AES-XCBC and AES-CMAC.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct AesMacFields {
    pub(super) round_keys: *const u8,
    /// Subkey for a complete last block.
    pub(super) whole: *const u8,
    /// Subkey for a padded last block.
    pub(super) padded: *const u8,
}

/// Additional data of AES-CCM.
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
    /// A job without values.
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
                padded: core::ptr::null(),
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

/// `struct gcm_key_data`: 15 round keys and 48 powers of the hash key, padded to whole cache lines.
#[repr(C, align(64))]
pub(super) struct GcmKeyData(pub(super) [u8; 1024]);

/// `struct gcm_context_data`: scratch memory for one call.
#[repr(C, align(64))]
pub(super) struct GcmContext(pub(super) [u8; 128]);

const _: () = {
    assert!(align_of::<GcmKeyData>() == ALIGN);
    assert!(size_of::<GcmKeyData>() >= 1008);
    assert!(size_of::<GcmContext>() >= 88);
};

#[cfg(test)]
mod tests {
    //! Comparison of the layout in this crate with the header, as a C compiler reads it.
    #![allow(clippy::arithmetic_side_effects, reason = "offsets of a struct, in a test")]

    use super::{
        AesMacFields, CcmFields, GcmContext, GcmKeyData, HmacFields, Job, ManagerHead, SUPPORTED_VERSIONS,
    };
    use core::mem::offset_of;
    use std::path::Path;
    use std::process::Command;

    const HEADER: &str = "/usr/include/intel-ipsec-mb.h";

    /// Offset of the hash fields in a job.
    const FIELDS: usize = offset_of!(Job, hash_fields);

    /// Rows of a C expression and its expected value.
    fn expected() -> Vec<(String, usize)> {
        let mut rows = Vec::new();
        let mut row = |expression: &str, value: usize| rows.push((expression.to_owned(), value));
        for (field, offset) in [
            ("features", offset_of!(ManagerHead, features)),
            ("used_arch", offset_of!(ManagerHead, used_arch)),
            ("keyexp_128", offset_of!(ManagerHead, expand_key)),
            ("keyexp_256", offset_of!(ManagerHead, expand_key) + 16),
            ("cmac_subkey_gen_128", offset_of!(ManagerHead, cmac_subkeys)),
            ("xcbc_keyexp", offset_of!(ManagerHead, xcbc_expand)),
            ("sha1_one_block", offset_of!(ManagerHead, one_block)),
            ("sha512_one_block", offset_of!(ManagerHead, one_block) + 32),
            ("sha1", offset_of!(ManagerHead, hash_all)),
            ("sha256", offset_of!(ManagerHead, hash_all) + 16),
            ("sha512", offset_of!(ManagerHead, hash_all) + 32),
            ("gcm128_enc", offset_of!(ManagerHead, gcm_seal)),
            ("gcm256_enc", offset_of!(ManagerHead, gcm_seal) + 16),
            ("gcm128_dec", offset_of!(ManagerHead, gcm_open)),
            ("gcm256_dec", offset_of!(ManagerHead, gcm_open) + 16),
            ("gcm128_pre", offset_of!(ManagerHead, gcm_expand)),
            ("gcm256_pre", offset_of!(ManagerHead, gcm_expand) + 16),
            ("get_next_burst", offset_of!(ManagerHead, queue_free)),
            ("submit_burst", offset_of!(ManagerHead, queue_submit)),
            ("flush_burst", offset_of!(ManagerHead, queue_flush)),
            ("submit_cipher_burst", offset_of!(ManagerHead, cipher_burst)),
            ("submit_hash_burst", offset_of!(ManagerHead, hash_burst)),
        ] {
            row(&format!("offsetof(IMB_MGR, {field})"), offset);
        }
        for (field, offset) in [
            ("enc_keys", offset_of!(Job, encrypt_keys)),
            ("dec_keys", offset_of!(Job, decrypt_keys)),
            ("key_len_in_bytes", offset_of!(Job, key_len)),
            ("src", offset_of!(Job, source)),
            ("dst", offset_of!(Job, target)),
            ("cipher_start_src_offset_in_bytes", offset_of!(Job, cipher_offset)),
            ("msg_len_to_cipher_in_bytes", offset_of!(Job, cipher_len)),
            ("hash_start_src_offset_in_bytes", offset_of!(Job, hash_offset)),
            ("msg_len_to_hash_in_bytes", offset_of!(Job, hash_len)),
            ("iv", offset_of!(Job, initial_vector)),
            ("iv_len_in_bytes", offset_of!(Job, initial_vector_len)),
            ("auth_tag_output", offset_of!(Job, tag)),
            ("auth_tag_output_len_in_bytes", offset_of!(Job, tag_len)),
            ("u.HMAC._hashed_auth_key_xor_ipad", FIELDS + offset_of!(HmacFields, inner)),
            ("u.HMAC._hashed_auth_key_xor_opad", FIELDS + offset_of!(HmacFields, outer)),
            ("u.XCBC._k1_expanded", FIELDS + offset_of!(AesMacFields, round_keys)),
            ("u.XCBC._k2", FIELDS + offset_of!(AesMacFields, whole)),
            ("u.XCBC._k3", FIELDS + offset_of!(AesMacFields, padded)),
            ("u.CMAC._key_expanded", FIELDS + offset_of!(AesMacFields, round_keys)),
            ("u.CMAC._skey1", FIELDS + offset_of!(AesMacFields, whole)),
            ("u.CMAC._skey2", FIELDS + offset_of!(AesMacFields, padded)),
            ("u.CCM.aad", FIELDS + offset_of!(CcmFields, aad)),
            ("u.CCM.aad_len_in_bytes", FIELDS + offset_of!(CcmFields, aad_len)),
            ("cipher_mode", offset_of!(Job, cipher_mode)),
            ("cipher_direction", offset_of!(Job, direction)),
            ("hash_alg", offset_of!(Job, hash)),
            ("chain_order", offset_of!(Job, chain_order)),
            ("status", offset_of!(Job, status)),
        ] {
            row(&format!("offsetof(IMB_JOB, {field})"), offset);
        }
        row("sizeof(IMB_JOB)", size_of::<Job>());
        rows
    }

    #[test]
    fn the_layout_matches_the_header() {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) || !Path::new(HEADER).exists() {
            return casemate_test_support::skip(format!("{HEADER} is not installed"));
        }
        let rows = expected();
        let prints: String = rows
            .iter()
            .map(|(expression, _)| format!("printf(\"%zu\\n\", (size_t)({expression}));\n"))
            .collect();
        let sizes = "printf(\"%zu %zu %d\\n\", \
                     sizeof(struct gcm_key_data), sizeof(struct gcm_context_data), IMB_VERSION_NUM);";
        let source = format!(
            "#include <stdio.h>\n#include <stddef.h>\n#include <intel-ipsec-mb.h>\n\
             int main(void) {{\n{prints}{sizes}\n}}\n"
        );
        let scratch = casemate_test_support::TempDir::new("ipsec-mb-layout").unwrap();
        let (file, program) = (scratch.file("layout.c"), scratch.file("layout"));
        std::fs::write(&file, source).unwrap();
        let compiled = Command::new("cc").arg(&file).arg("-o").arg(&program).status().unwrap();
        assert!(compiled.success(), "the header does not compile");
        let printed = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();

        let lines: Vec<&str> = printed.lines().collect();
        let (last, offsets) = lines.split_last().unwrap();
        let numbers: Vec<usize> = last.split(' ').map(|number| number.parse().unwrap()).collect();
        if !SUPPORTED_VERSIONS.iter().any(|known| *known as usize == numbers[2]) {
            return casemate_test_support::skip(format!("{HEADER} is of version {:#x}", numbers[2]));
        }
        let found: Vec<(String, usize)> =
            rows.iter().zip(offsets).map(|((name, _), line)| (name.clone(), line.parse().unwrap())).collect();
        assert_eq!(found, rows);
        assert!(numbers[0] <= size_of::<GcmKeyData>() && numbers[1] <= size_of::<GcmContext>());
    }
}
