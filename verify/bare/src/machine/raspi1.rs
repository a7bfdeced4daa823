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

/// The first UART (PL011): data; flags, bit 5 "transmitter full".
const DATA: *mut u32 = 0x2020_1000 as *mut u32;
const FLAGS: *mut u32 = 0x2020_1018 as *mut u32;

/// Sends a byte.
pub(super) fn put(byte: u8) {
    // SAFETY: these are registers of the board's UART.
    unsafe {
        while FLAGS.read_volatile() & (1 << 5) != 0 {}
        DATA.write_volatile(byte.into());
    }
}

/// Exits the emulator (semihosting, SYS_EXIT_EXTENDED).
pub(super) fn exit(passed: bool) -> ! {
    let block = [0x2_0026, usize::from(!passed)];
    loop {
        // SAFETY: QEMU reads the block and exits. In supervisor mode the call overwrites the link register.
        unsafe { asm!("svc #0x123456", in("r0") 0x20, in("r1") block.as_ptr(), out("lr") _) };
    }
}

/// The system timer: lower half of the microseconds since reset.
#[cfg(feature = "pi")]
const TIMER: *const u32 = 0x2000_3004 as *const u32;

/// Returns the emulated time in microseconds; it wraps around to 0.
#[cfg(feature = "pi")]
pub fn microseconds() -> u32 {
    // SAFETY: this is a register of the board's timer, and reading it has no side effect.
    unsafe { TIMER.read_volatile() }
}

/// Executes a loop of two instructions `rounds` times.
#[cfg(feature = "pi")]
pub fn spin(rounds: u32) {
    // SAFETY: the code changes one register and the flags only.
    unsafe {
        asm!("2: subs {left}, {left}, #1", "bne 2b", left = inout(reg) rounds => _, options(nomem, nostack))
    };
}

/// Reads the command line of the emulator (semihosting, SYS_GET_CMDLINE) into `buffer`. The result is
/// empty if there is none or if it does not fit.
#[cfg(feature = "pi")]
pub fn read_words(buffer: &mut [u8]) -> &str {
    let mut block = [buffer.as_mut_ptr().addr(), buffer.len()];
    let failed: usize;
    // SAFETY: QEMU writes no more into the buffer than the block says, and the length of the text into
    // the block. In supervisor mode the call overwrites the link register.
    unsafe {
        asm!("svc #0x123456", inout("r0") 0x15_usize => failed, in("r1") block.as_mut_ptr(), out("lr") _)
    };
    let len = if failed == 0 { block[1] } else { 0 };
    buffer.get(..len).and_then(|text| core::str::from_utf8(text).ok()).unwrap_or_default()
}
