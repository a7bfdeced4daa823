//! An ARM1176 on the Raspberry Pi 1 (QEMU's `raspi1ap`).

use core::arch::{asm, global_asm};

global_asm!(
    ".section .text.start, \"ax\"",
    ".global reset",
    ".type reset, %function",
    ".arm",
    "reset: ldr sp, =stack_top",
    "bl {begin}",
    begin = sym super::begin,
);

/// The first UART (PL011): data, and flags with bit 5 "full".
const DATA: *mut u32 = 0x2020_1000 as *mut u32;
const FLAGS: *mut u32 = 0x2020_1018 as *mut u32;

/// Sends a byte.
pub(super) fn put(byte: u8) {
    // SAFETY: registers of the board's UART.
    unsafe {
        while FLAGS.read_volatile() & (1 << 5) != 0 {}
        DATA.write_volatile(byte.into());
    }
}

/// Ends the emulation (semihosting, SYS_EXIT_EXTENDED).
pub(super) fn exit(passed: bool) -> ! {
    let block = [0x2_0026, usize::from(!passed)];
    loop {
        // SAFETY: QEMU reads the block and ends. In supervisor mode the call takes the link register.
        unsafe { asm!("svc #0x123456", in("r0") 0x20, in("r1") block.as_ptr(), out("lr") _) };
    }
}

/// The system timer: microseconds since reset, the lower half.
#[cfg(feature = "pi")]
const TIMER: *const u32 = 0x2000_3004 as *const u32;

/// Microseconds of the emulation's clock; after the largest number comes 0.
#[cfg(feature = "pi")]
pub fn microseconds() -> u32 {
    // SAFETY: a register of the board's timer, that reading does not change.
    unsafe { TIMER.read_volatile() }
}

/// Two instructions, so often.
#[cfg(feature = "pi")]
pub fn spin(rounds: u32) {
    // SAFETY: it changes one register, and the flags.
    unsafe {
        asm!("2: subs {left}, {left}, #1", "bne 2b", left = inout(reg) rounds => _, options(nomem, nostack))
    };
}

/// What the emulation was given to be read (semihosting, SYS_GET_CMDLINE), in this buffer; empty if there is nothing, or it does not fit.
#[cfg(feature = "pi")]
pub fn read_words(buffer: &mut [u8]) -> &str {
    let mut block = [buffer.as_mut_ptr().addr(), buffer.len()];
    let failed: usize;
    // SAFETY: QEMU writes no more into the buffer than the block says, and the text's length into the block. Semihosting's call takes the link
    // register in supervisor mode.
    unsafe {
        asm!("svc #0x123456", inout("r0") 0x15_usize => failed, in("r1") block.as_mut_ptr(), out("lr") _)
    };
    let len = if failed == 0 { block[1] } else { 0 };
    buffer.get(..len).and_then(|text| core::str::from_utf8(text).ok()).unwrap_or_default()
}
