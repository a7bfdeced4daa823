//! Loading of the library, and the functions that it exports.

use super::layout::{
    ARCH_AVX, CipherBurst, CmacSubkeys, ExpandKey, FEATURE_AESNI, FEATURE_PCLMULQDQ, FEATURE_SAFE_DATA,
    FEATURE_SAFE_PARAM, FEATURE_SELF_TEST_PASS, GcmCrypt, GcmExpand, HashAll, HashBurst, ManagerHead,
    OneBlock, QueueBurst, SUPPORTED_VERSIONS, XcbcExpand,
};
use super::manager::{Manager, Memory};
use crate::Unavailable;
use core::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

/// File name with which Debian and others install the library.
const NAME: &CStr = c"libIPSec_MB.so.1";

/// `imb_get_version`.
type GetVersion = unsafe extern "C" fn() -> u32;
/// `imb_get_mb_mgr_size`: size of a manager in bytes.
type GetSize = unsafe extern "C" fn() -> usize;
/// `imb_set_pointers_mb_mgr`: memory, flags, whether to clear the memory. Returns the manager in the memory.
type SetPointers = unsafe extern "C" fn(*mut c_void, u64, u32) -> *mut ManagerHead;
/// `init_mb_mgr_auto`: manager; output: the selected instruction set, or null.
type InitAuto = unsafe extern "C" fn(*mut ManagerHead, *mut c_int);
/// `imb_get_errno`.
type GetErrno = unsafe extern "C" fn(*mut ManagerHead) -> c_int;

/// The loaded library with its functions for this processor.
pub(crate) struct Library {
    start: Start,
    pub(super) functions: Functions,
}

/// Functions that create managers.
struct Start {
    manager_size: usize,
    set_pointers: SetPointers,
    init_auto: InitAuto,
    get_errno: GetErrno,
}

/// Functions from a manager. Arrays of 3 are for keys of 128, 192 and 256 bits; arrays of 5 are for SHA-1,
/// SHA-224, SHA-256, SHA-384 and SHA-512.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) expand_key: [ExpandKey; 3],
    pub(super) one_block: [OneBlock; 5],
    pub(super) hash_all: [HashAll; 5],
    pub(super) gcm_seal: [GcmCrypt; 3],
    pub(super) gcm_open: [GcmCrypt; 3],
    pub(super) gcm_expand: [GcmExpand; 3],
    pub(super) cipher_burst: CipherBurst,
    pub(super) hash_burst: HashBurst,
    pub(super) cmac_subkeys: CmacSubkeys,
    pub(super) xcbc_expand: XcbcExpand,
    pub(super) queue_free: QueueBurst,
    pub(super) queue_submit: QueueBurst,
    pub(super) queue_flush: QueueBurst,
}

/// Returns the library, or why it is not available. The first call loads it.
pub(crate) fn library() -> Result<&'static Library, Unavailable> {
    static LIBRARY: OnceLock<Result<Library, Unavailable>> = OnceLock::new();
    LIBRARY.get_or_init(open).as_ref().map_err(|unavailable| *unavailable)
}

fn open() -> Result<Library, Unavailable> {
    // The struct layout is that of Linux on x86-64.
    if !cfg!(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")) {
        return Err(Unavailable::Platform);
    }
    // SAFETY: the name ends with a zero byte. The initialisers of the library are trusted like the library
    // itself.
    let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(Unavailable::NotInstalled);
    }
    // SAFETY: the header of the library declares the function like this in every version.
    let get_version: GetVersion = unsafe { symbol(handle, c"imb_get_version") }?;
    // SAFETY: the function has no parameters.
    let version = unsafe { get_version() };
    if !SUPPORTED_VERSIONS.contains(&version) {
        return Err(Unavailable::UnknownVersion(version));
    }
    // SAFETY: the headers of the versions in `SUPPORTED_VERSIONS` declare the functions like this.
    let (get_size, set_pointers, init_auto, get_errno): (GetSize, SetPointers, InitAuto, GetErrno) = unsafe {
        (
            symbol(handle, c"imb_get_mb_mgr_size")?,
            symbol(handle, c"imb_set_pointers_mb_mgr")?,
            symbol(handle, c"init_mb_mgr_auto")?,
            symbol(handle, c"imb_get_errno")?,
        )
    };
    // SAFETY: the function has no parameters.
    let manager_size = unsafe { get_size() };
    let start = Start { manager_size, set_pointers, init_auto, get_errno };
    let manager = start.manager()?;
    // SAFETY: the manager is alive and exclusively owned, and its start has the layout of `layout`.
    let functions = functions(unsafe { &*manager.head })?;
    Ok(Library { start, functions })
}

/// Looks up a function of the library.
///
/// # Safety
/// `F` is a pointer to a function with the signature of the function `name` in the library.
unsafe fn symbol<F: Copy>(handle: *mut c_void, name: &CStr) -> Result<F, Unavailable> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the handle belongs to a loaded library, and the name ends with a zero byte.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if address.is_null() {
        return Err(Unavailable::Incomplete);
    }
    // SAFETY: both types are pointers; the caller guarantees the type of the function.
    Ok(unsafe { core::mem::transmute_copy::<*mut c_void, F>(&address) })
}

impl Start {
    /// Creates a manager for the best instruction set of the processor.
    fn manager(&self) -> Result<Manager, Unavailable> {
        let memory = Memory::new(self.manager_size);
        // SAFETY: the memory has the size that the library requires, and is aligned to a cache line.
        let head = unsafe { (self.set_pointers)(memory.start(), 0, 1) };
        if head.is_null() {
            return Err(Unavailable::Refused);
        }
        let mut arch = 0;
        // SAFETY: `head` is a newly initialised manager; `arch` is writable.
        let error = unsafe {
            (self.init_auto)(head, &mut arch);
            (self.get_errno)(head)
        };
        // SAFETY: the manager is valid and exclusively owned, and its start has the layout of `layout`.
        let (features, used_arch) = unsafe { ((*head).features, (*head).used_arch) };
        let processor = FEATURE_AESNI | FEATURE_PCLMULQDQ;
        if used_arch < ARCH_AVX || features & processor != processor {
            return Err(Unavailable::Processor);
        }
        let built = FEATURE_SAFE_DATA | FEATURE_SAFE_PARAM | FEATURE_SELF_TEST_PASS;
        if error != 0 || features & built != built {
            return Err(Unavailable::Refused);
        }
        Ok(Manager { head, _memory: memory })
    }
}

/// Returns all functions, or an error if one is missing.
fn functions(head: &ManagerHead) -> Result<Functions, Unavailable> {
    Ok(Functions {
        expand_key: all(head.expand_key)?,
        one_block: all(head.one_block)?,
        hash_all: all(head.hash_all)?,
        gcm_seal: all(head.gcm_seal)?,
        gcm_open: all(head.gcm_open)?,
        gcm_expand: all(head.gcm_expand)?,
        cipher_burst: head.cipher_burst.ok_or(Unavailable::Incomplete)?,
        hash_burst: head.hash_burst.ok_or(Unavailable::Incomplete)?,
        cmac_subkeys: head.cmac_subkeys.ok_or(Unavailable::Incomplete)?,
        xcbc_expand: head.xcbc_expand.ok_or(Unavailable::Incomplete)?,
        queue_free: head.queue_free.ok_or(Unavailable::Incomplete)?,
        queue_submit: head.queue_submit.ok_or(Unavailable::Incomplete)?,
        queue_flush: head.queue_flush.ok_or(Unavailable::Incomplete)?,
    })
}

fn all<F: Copy, const N: usize>(pointers: [Option<F>; N]) -> Result<[F; N], Unavailable> {
    let found: arrayvec::ArrayVec<F, N> = pointers.into_iter().flatten().collect();
    found.into_inner().map_err(|_| Unavailable::Incomplete)
}

impl Library {
    /// Creates another manager, for another thread.
    pub(super) fn manager(&self) -> Result<Manager, Unavailable> {
        self.start.manager()
    }
}
