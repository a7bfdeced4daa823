//! The memory that the caller gives, and what the bare library does without std.

use crate::Code;
#[cfg(panic = "abort")]
use crate::arena::Arena;

#[cfg(panic = "abort")]
#[global_allocator]
static ARENA: Arena = Arena::new();

/// Takes over memory. It may be given once.
///
/// # Safety
///
/// The `bytes` bytes from `memory` on are the library's alone from now on.
#[cfg(panic = "abort")]
pub(crate) unsafe fn give(memory: *mut u8, bytes: usize) -> Result<(), Code> {
    // SAFETY: by this function's own contract.
    if unsafe { ARENA.give(memory, bytes) } { Ok(()) } else { Err(Code::Twice) }
}

/// With std there is an allocator already, and the memory rests.
///
/// # Safety
///
/// None is needed; the other build has the same signature.
#[cfg(not(panic = "abort"))]
pub(crate) unsafe fn give(_: *mut u8, _: usize) -> Result<(), Code> {
    Ok(())
}

/// The bytes that are free.
pub(crate) fn free() -> usize {
    #[cfg(panic = "abort")]
    return ARENA.free();
    #[cfg(not(panic = "abort"))]
    return usize::MAX;
}

/// Whether a table may be set up that allocates so many bytes: to run out of memory half-way would be a panic.
pub(crate) fn check(bytes: usize) -> Result<(), Code> {
    #[cfg(panic = "abort")]
    let room = ARENA.largest();
    #[cfg(not(panic = "abort"))]
    let room = usize::MAX;
    if room >= bytes { Ok(()) } else { Err(Code::Memory) }
}

#[cfg(panic = "abort")]
mod bare {
    use core::ffi::c_char;
    use core::panic::PanicInfo;

    unsafe extern "C" {
        /// The application's: must not return.
        fn casemate_panic(file: *const c_char, file_bytes: usize, line: u32) -> !;
    }

    /// Named by what the toolchain's own libraries hold for unwinding. Nothing unwinds, so nothing calls it.
    #[unsafe(no_mangle)]
    extern "C" fn rust_eh_personality() {}

    #[panic_handler]
    fn end(info: &PanicInfo<'_>) -> ! {
        let (file, line) = info.location().map_or(("", 0), |place| (place.file(), place.line()));
        // SAFETY: the header asks every application for this function; the text lives for ever.
        unsafe { casemate_panic(file.as_ptr().cast(), file.len(), line) }
    }
}
