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
