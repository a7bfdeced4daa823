//! A Cortex-M4 on ARM's board MPS2 (QEMU's `mps2-an386`).

use core::arch::{asm, global_asm};

// The vector table: initial stack pointer and entry point.
global_asm!(
    ".section .text.start, \"ax\"",
    ".global reset",
    ".type reset, %function",
    ".word stack_top",
    ".word reset",
    ".rept 14",
    ".word reset",
    ".endr",
    ".thumb_func",
    "reset: bl {begin}",
    begin = sym super::begin,
);

/// The first UART (CMSDK APB UART): data; state, bit 0 "transmitter full"; control, bit 0 "transmitter
/// enable".
const DATA: *mut u32 = 0x4000_4000 as *mut u32;
const STATE: *mut u32 = 0x4000_4004 as *mut u32;
const CONTROL: *mut u32 = 0x4000_4008 as *mut u32;
/// Baud rate divisor, at least 16.
const DIVISOR: *mut u32 = 0x4000_4010 as *mut u32;

/// Sends a byte.
pub(super) fn put(byte: u8) {
    // SAFETY: these are registers of the board's UART.
    unsafe {
        DIVISOR.write_volatile(16);
        CONTROL.write_volatile(1);
        while STATE.read_volatile() & 1 != 0 {}
        DATA.write_volatile(byte.into());
    }
}

/// Exits the emulator (semihosting, SYS_EXIT_EXTENDED).
pub(super) fn exit(passed: bool) -> ! {
    let block = [0x2_0026, usize::from(!passed)];
    loop {
        // SAFETY: QEMU reads the block and exits.
        unsafe { asm!("bkpt #0xab", in("r0") 0x20, in("r1") block.as_ptr()) };
    }
}
