//! The functions that compilers call for copies and comparisons, which a C library would bring.
//!
//! Written with string instructions: a loop in Rust might be compiled to a call of the very function.

use core::arch::asm;

/// `memcpy` of C.
///
/// # Safety
///
/// Both places are `len` bytes long and do not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller's promise; the direction flag is clear by the ABI.
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
/// Both places are `len` bytes long.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= len {
        // The target begins in front of the source or behind its end: forwards, no byte is read after it was written.
        // SAFETY: the caller's promise; `memcpy` above goes forwards in whole words, each of which is read before it is
        // written, and no later read is of what was written, as the target lies in front.
        return unsafe { memcpy(to, from, len) };
    }
    // SAFETY: the caller's promise; the last bytes exist since `len` is not 0 here. The direction flag is cleared again.
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
/// The place is `len` bytes long.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8 {
    let word = u64::from_ne_bytes([value as u8; 8]);
    // SAFETY: the caller's promise; the direction flag is clear by the ABI.
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
/// Both places are `len` bytes long.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    for at in 0..len {
        // SAFETY: the caller's promise. Volatile, so that the loop is not compiled to a call of this function.
        let (a, b) = unsafe { (one.add(at).read_volatile(), other.add(at).read_volatile()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// `bcmp` of BSD: `memcmp` without an order.
///
/// # Safety
///
/// As with [`memcmp`].
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { memcmp(one, other, len) }
}

/// `strlen` of C.
///
/// # Safety
///
/// There is a byte of 0 at the end.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut len = 0;
    // SAFETY: the caller's promise: up to the 0 there are bytes. Volatile for the reason that `memcmp` has.
    while unsafe { text.add(len).read_volatile() } != 0 {
        len += 1;
    }
    len
}
