//! A Cortex-M4 on ARM's board MPS2 (QEMU's `mps2-an386`).

use core::arch::{asm, global_asm};

// The vector table stands first: the stack, and where to begin.
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

/// The first UART (CMSDK APB UART): data, state with bit 0 "full", control with bit 0 "may send".
const DATA: *mut u32 = 0x4000_4000 as *mut u32;
const STATE: *mut u32 = 0x4000_4004 as *mut u32;
const CONTROL: *mut u32 = 0x4000_4008 as *mut u32;
/// The least divisor of its clock that it takes.
const DIVISOR: *mut u32 = 0x4000_4010 as *mut u32;

/// Sends a byte.
pub(super) fn put(byte: u8) {
    // SAFETY: registers of the board's UART.
    unsafe {
        DIVISOR.write_volatile(16);
        CONTROL.write_volatile(1);
        while STATE.read_volatile() & 1 != 0 {}
        DATA.write_volatile(byte.into());
    }
}

/// Ends the emulation (semihosting, SYS_EXIT_EXTENDED).
pub(super) fn exit(passed: bool) -> ! {
    let block = [0x2_0026, usize::from(!passed)];
    loop {
        // SAFETY: QEMU reads the block and ends.
        unsafe { asm!("bkpt #0xab", in("r0") 0x20, in("r1") block.as_ptr()) };
    }
}
