//! Memory functions that compilers call and that a C library would provide.
//!
//! They use string instructions, because the compiler might turn a loop in Rust into a call of the same
//! function.

use core::arch::asm;

/// `memcpy` of C.
///
/// # Safety
///
/// Both ranges are valid for `len` bytes and do not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: guaranteed by the caller; the ABI keeps the direction flag clear.
    unsafe {
        asm!(
            "rep movsq", "mov ecx, {rest:e}", "rep movsb",
            rest = in(reg) len % 8, inout("rcx") len / 8 => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
    to
}

/// `memmove` of C.
///
/// # Safety
///
/// Both ranges are valid for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= len {
        // The target begins before the source or after its end: copy forwards.
        // SAFETY: guaranteed by the caller. `memcpy` above copies forwards in whole words, each of which
        // is read before it is written. No later read overlaps a written byte, because the target is in
        // front.
        return unsafe { memcpy(to, from, len) };
    }
    // SAFETY: guaranteed by the caller; the last bytes exist because `len` is not 0 here. The direction
    // flag is cleared again.
    unsafe {
        asm!(
            "std", "rep movsb", "cld",
            inout("rcx") len => _, inout("rdi") to.wrapping_add(len).wrapping_sub(1) => _,
            inout("rsi") from.wrapping_add(len).wrapping_sub(1) => _, options(nostack),
        );
    }
    to
}

/// `memset` of C.
///
/// # Safety
///
/// The range is valid for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8 {
    let word = u64::from_ne_bytes([value as u8; 8]);
    // SAFETY: guaranteed by the caller; the ABI keeps the direction flag clear.
    unsafe {
        asm!(
            "rep stosq", "mov ecx, {rest:e}", "rep stosb",
            rest = in(reg) len % 8, inout("rcx") len / 8 => _, inout("rdi") to => _, in("rax") word,
            options(nostack, preserves_flags),
        );
    }
    to
}

/// `memcmp` of C.
///
/// # Safety
///
/// Both ranges are valid for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    for at in 0..len {
        // SAFETY: guaranteed by the caller. Volatile, so that the compiler does not turn the loop into a
        // call of this function.
        let (a, b) = unsafe { (one.add(at).read_volatile(), other.add(at).read_volatile()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// `bcmp` of BSD: `memcmp` without an ordering.
///
/// # Safety
///
/// As with [`memcmp`].
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { memcmp(one, other, len) }
}

/// `strlen` of C.
///
/// # Safety
///
/// The string is NUL-terminated.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut len = 0;
    // SAFETY: guaranteed by the caller: all bytes up to the NUL are valid. Volatile for the same reason
    // as in `memcmp`.
    while unsafe { text.add(len).read_volatile() } != 0 {
        len += 1;
    }
    len
}
