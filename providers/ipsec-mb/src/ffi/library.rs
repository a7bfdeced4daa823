//! Opening the library, and what is taken from it.

use super::layout::{
    ARCH_AVX, CipherBurst, CmacSubkeys, ExpandKey, FEATURE_AESNI, FEATURE_PCLMULQDQ, FEATURE_SAFE_DATA,
    FEATURE_SAFE_PARAM, FEATURE_SELF_TEST_PASS, GcmCrypt, GcmExpand, HashAll, HashBurst, KNOWN, ManagerHead,
    OneBlock, QueueBurst, XcbcExpand,
};
use super::manager::{Manager, Memory};
use crate::Absent;
use core::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

/// The name under which Debian and others install it for programs to load.
const NAME: &CStr = c"libIPSec_MB.so.1";

/// `imb_get_version`.
type GetVersion = unsafe extern "C" fn() -> u32;
/// `imb_get_mb_mgr_size`: bytes of a manager.
type GetSize = unsafe extern "C" fn() -> usize;
/// `imb_set_pointers_mb_mgr`: memory, flags, whether to clear it. Answers the manager in it.
type SetPointers = unsafe extern "C" fn(*mut c_void, u64, u32) -> *mut ManagerHead;
/// `init_mb_mgr_auto`: manager; the instruction set that was chosen out, or null.
type InitAuto = unsafe extern "C" fn(*mut ManagerHead, *mut c_int);
/// `imb_get_errno`.
type GetErrno = unsafe extern "C" fn(*mut ManagerHead) -> c_int;

/// The library, open: its functions for this processor.
pub(crate) struct Library {
    start: Start,
    pub(super) functions: Functions,
}

/// What makes managers.
struct Start {
    manager_size: usize,
    set_pointers: SetPointers,
    init_auto: InitAuto,
    get_errno: GetErrno,
}

/// What a manager points to. For keys of 128, 192 and 256 bits; for SHA-1, SHA-224, SHA-256, SHA-384 and SHA-512.
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

/// The library, or why it is not used. Opened by the first call.
pub(crate) fn library() -> Result<&'static Library, Absent> {
    static LIBRARY: OnceLock<Result<Library, Absent>> = OnceLock::new();
    LIBRARY.get_or_init(open).as_ref().map_err(|absent| *absent)
}

fn open() -> Result<Library, Absent> {
    // The layout is that of Linux on x86-64.
    if !cfg!(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")) {
        return Err(Absent::Platform);
    }
    // SAFETY: the name ends with a zero. What the library runs when it is loaded is trusted as the rest of it is.
    let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(Absent::NotInstalled);
    }
    // SAFETY: the library's header declares the function of this name so, in every version.
    let get_version: GetVersion = unsafe { symbol(handle, c"imb_get_version") }?;
    // SAFETY: the function takes nothing.
    let version = unsafe { get_version() };
    if !KNOWN.contains(&version) {
        return Err(Absent::UnknownVersion(version));
    }
    // SAFETY: the header of a version in `KNOWN` declares these functions so.
    let (get_size, set_pointers, init_auto, get_errno): (GetSize, SetPointers, InitAuto, GetErrno) = unsafe {
        (
            symbol(handle, c"imb_get_mb_mgr_size")?,
            symbol(handle, c"imb_set_pointers_mb_mgr")?,
            symbol(handle, c"init_mb_mgr_auto")?,
            symbol(handle, c"imb_get_errno")?,
        )
    };
    // SAFETY: the function takes nothing.
    let manager_size = unsafe { get_size() };
    let start = Start { manager_size, set_pointers, init_auto, get_errno };
    let manager = start.manager()?;
    // SAFETY: the manager is alive, nobody else has it, and its front is as in `layout`.
    let functions = functions(unsafe { &*manager.head })?;
    Ok(Library { start, functions })
}

/// A function of the library.
///
/// # Safety
/// `F` is a pointer to a function as the library declares the one of this name.
unsafe fn symbol<F: Copy>(handle: *mut c_void, name: &CStr) -> Result<F, Absent> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the handle is that of an open library, the name ends with a zero.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if address.is_null() {
        return Err(Absent::Incomplete);
    }
    // SAFETY: both are pointers; the caller promises that the function has this type.
    Ok(unsafe { core::mem::transmute_copy::<*mut c_void, F>(&address) })
}

impl Start {
    /// A manager for the best instruction set that the processor has.
    fn manager(&self) -> Result<Manager, Absent> {
        let memory = Memory::new(self.manager_size);
        // SAFETY: the memory has the size that the library asked for, and is aligned to a cache line.
        let head = unsafe { (self.set_pointers)(memory.start(), 0, 1) };
        if head.is_null() {
            return Err(Absent::Refused);
        }
        let mut arch = 0;
        // SAFETY: `head` is the manager that was just laid out; `arch` is writable.
        let error = unsafe {
            (self.init_auto)(head, &mut arch);
            (self.get_errno)(head)
        };
        // SAFETY: as above; nobody else has the manager, and its front is as in `layout`.
        let (features, used_arch) = unsafe { ((*head).features, (*head).used_arch) };
        let processor = FEATURE_AESNI | FEATURE_PCLMULQDQ;
        if used_arch < ARCH_AVX || features & processor != processor {
            return Err(Absent::Processor);
        }
        let built = FEATURE_SAFE_DATA | FEATURE_SAFE_PARAM | FEATURE_SELF_TEST_PASS;
        if error != 0 || features & built != built {
            return Err(Absent::Refused);
        }
        Ok(Manager { head, _memory: memory })
    }
}

/// Every function, or that one is missing.
fn functions(head: &ManagerHead) -> Result<Functions, Absent> {
    Ok(Functions {
        expand_key: all(head.expand_key)?,
        one_block: all(head.one_block)?,
        hash_all: all(head.hash_all)?,
        gcm_seal: all(head.gcm_seal)?,
        gcm_open: all(head.gcm_open)?,
        gcm_expand: all(head.gcm_expand)?,
        cipher_burst: head.cipher_burst.ok_or(Absent::Incomplete)?,
        hash_burst: head.hash_burst.ok_or(Absent::Incomplete)?,
        cmac_subkeys: head.cmac_subkeys.ok_or(Absent::Incomplete)?,
        xcbc_expand: head.xcbc_expand.ok_or(Absent::Incomplete)?,
        queue_free: head.queue_free.ok_or(Absent::Incomplete)?,
        queue_submit: head.queue_submit.ok_or(Absent::Incomplete)?,
        queue_flush: head.queue_flush.ok_or(Absent::Incomplete)?,
    })
}

fn all<F: Copy, const N: usize>(pointers: [Option<F>; N]) -> Result<[F; N], Absent> {
    let found: arrayvec::ArrayVec<F, N> = pointers.into_iter().flatten().collect();
    found.into_inner().map_err(|_| Absent::Incomplete)
}

impl Library {
    /// A manager more, for another thread.
    pub(super) fn manager(&self) -> Result<Manager, Absent> {
        self.start.manager()
    }
}
