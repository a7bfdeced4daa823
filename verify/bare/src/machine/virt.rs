//! An AArch64 processor on QEMU's board `virt`.

use core::arch::{asm, global_asm};

// Enable SIMD registers, which the compiler uses (CPACR_EL1.FPEN).
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

/// The UART (PL011): data; flags, bit 5 "transmitter full".
const DATA: *mut u32 = 0x0900_0000 as *mut u32;
const FLAGS: *mut u32 = 0x0900_0018 as *mut u32;

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
        // SAFETY: QEMU reads the block and exits.
        unsafe { asm!("hlt #0xf000", in("x0") 0x20, in("x1") block.as_ptr()) };
    }
}
