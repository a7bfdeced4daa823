//! The memory that the caller provides, and the panic handler of the build without std.

use crate::Status;
#[cfg(panic = "abort")]
use crate::arena::Arena;

#[cfg(panic = "abort")]
#[global_allocator]
static ARENA: Arena = Arena::new();

/// Takes over the memory. It can be provided only once.
///
/// # Safety
///
/// From now on only the library may use the `bytes` bytes at `memory`.
#[cfg(panic = "abort")]
pub(crate) unsafe fn give(memory: *mut u8, bytes: usize) -> Result<(), Status> {
    // SAFETY: guaranteed by the caller.
    if unsafe { ARENA.give(memory, bytes) } { Ok(()) } else { Err(Status::Twice) }
}

/// With std there is an allocator already; the memory is not used.
///
/// # Safety
///
/// No requirement; the signature matches the other build.
#[cfg(not(panic = "abort"))]
pub(crate) unsafe fn give(_: *mut u8, _: usize) -> Result<(), Status> {
    Ok(())
}

/// Returns the number of free bytes.
pub(crate) fn free() -> usize {
    #[cfg(panic = "abort")]
    return ARENA.free();
    #[cfg(not(panic = "abort"))]
    return usize::MAX;
}

/// Returns [`Status::Memory`] unless a block of this size is free: a failed allocation would be a panic.
pub(crate) fn check(bytes: usize) -> Result<(), Status> {
    #[cfg(panic = "abort")]
    let room = ARENA.largest();
    #[cfg(not(panic = "abort"))]
    let room = usize::MAX;
    if room >= bytes { Ok(()) } else { Err(Status::Memory) }
}

#[cfg(panic = "abort")]
mod bare {
    use core::ffi::c_char;
    use core::panic::PanicInfo;

    unsafe extern "C" {
        /// Defined by the application; must not return.
        fn casemate_panic(file: *const c_char, file_bytes: usize, line: u32) -> !;
    }

    /// Symbol for unwinding that the precompiled libraries refer to. Nothing unwinds, so it is never called.
    #[unsafe(no_mangle)]
    extern "C" fn rust_eh_personality() {}

    #[panic_handler]
    fn end(info: &PanicInfo<'_>) -> ! {
        let (file, line) = info.location().map_or(("", 0), |location| (location.file(), location.line()));
        // SAFETY: the header requires that the application defines this function; the string is static.
        unsafe { casemate_panic(file.as_ptr().cast(), file.len(), line) }
    }
}
