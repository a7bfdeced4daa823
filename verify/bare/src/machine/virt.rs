//! An AArch64 processor on QEMU's board `virt`.

use core::arch::{asm, global_asm};

// Registers of vectors are the compiler's to use, so they must be open (CPACR_EL1.FPEN).
global_asm!(
    ".section .text.start, \"ax\"",
    ".global reset",
    "reset: mov x0, #(3 << 20)",
    "msr cpacr_el1, x0",
    "isb",
    "ldr x0, =stack_top",
    "mov sp, x0",
    "bl {begin}",
    begin = sym super::begin,
);

/// The UART (PL011): data, and flags with bit 5 "full".
const DATA: *mut u32 = 0x0900_0000 as *mut u32;
const FLAGS: *mut u32 = 0x0900_0018 as *mut u32;

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
        // SAFETY: QEMU reads the block and ends.
        unsafe { asm!("hlt #0xf000", in("x0") 0x20, in("x1") block.as_ptr()) };
    }
}
