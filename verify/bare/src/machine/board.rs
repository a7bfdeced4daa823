//! The boards that QEMU emulates: entry point, serial console, exit.

#[cfg(all(target_arch = "arm", target_feature = "mclass"))]
pub(crate) use mps2::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use none::*;
#[cfg(all(target_arch = "arm", not(target_feature = "mclass")))]
pub use raspi1::*;
#[cfg(target_arch = "aarch64")]
pub(crate) use virt::*;

/// An AArch64 processor on QEMU's board `virt`.
#[cfg(target_arch = "aarch64")]
mod virt {
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
        begin = sym crate::machine::begin,
    );

    /// The UART (PL011): data; flags, bit 5 "transmitter full".
    const DATA: *mut u32 = 0x0900_0000 as *mut u32;
    const FLAGS: *mut u32 = 0x0900_0018 as *mut u32;

    /// Sends a byte.
    pub(crate) fn put(byte: u8) {
        // SAFETY: these are registers of the board's UART.
        unsafe {
            while FLAGS.read_volatile() & (1 << 5) != 0 {}
            DATA.write_volatile(byte.into());
        }
    }

    /// Exits the emulator (semihosting, SYS_EXIT_EXTENDED).
    pub(crate) fn exit(passed: bool) -> ! {
        let block = [0x2_0026, usize::from(!passed)];
        loop {
            // SAFETY: QEMU reads the block and exits.
            unsafe { asm!("hlt #0xf000", in("x0") 0x20, in("x1") block.as_ptr()) };
        }
    }
}

/// A Cortex-M4 on ARM's board MPS2 (QEMU's `mps2-an386`).
#[cfg(all(target_arch = "arm", target_feature = "mclass"))]
mod mps2 {
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
        begin = sym crate::machine::begin,
    );

    /// The first UART (CMSDK APB UART): data; state, bit 0 "transmitter full"; control, bit 0 "transmitter
    /// enable".
    const DATA: *mut u32 = 0x4000_4000 as *mut u32;
    const STATE: *mut u32 = 0x4000_4004 as *mut u32;
    const CONTROL: *mut u32 = 0x4000_4008 as *mut u32;
    /// Baud rate divisor, at least 16.
    const DIVISOR: *mut u32 = 0x4000_4010 as *mut u32;

    /// Sends a byte.
    pub(crate) fn put(byte: u8) {
        // SAFETY: these are registers of the board's UART.
        unsafe {
            DIVISOR.write_volatile(16);
            CONTROL.write_volatile(1);
            while STATE.read_volatile() & 1 != 0 {}
            DATA.write_volatile(byte.into());
        }
    }

    /// Exits the emulator (semihosting, SYS_EXIT_EXTENDED).
    pub(crate) fn exit(passed: bool) -> ! {
        let block = [0x2_0026, usize::from(!passed)];
        loop {
            // SAFETY: QEMU reads the block and exits.
            unsafe { asm!("bkpt #0xab", in("r0") 0x20, in("r1") block.as_ptr()) };
        }
    }
}

/// An ARM1176 on the Raspberry Pi 1 (QEMU's `raspi1ap`).
#[cfg(all(target_arch = "arm", not(target_feature = "mclass")))]
mod raspi1 {
    use core::arch::{asm, global_asm};

    global_asm!(
        ".section .text.start, \"ax\"",
        ".global reset",
        ".type reset, %function",
        ".arm",
        "reset: ldr sp, =stack_top",
        "bl {begin}",
        begin = sym crate::machine::begin,
    );

    /// The first UART (PL011): data; flags, bit 5 "transmitter full".
    const DATA: *mut u32 = 0x2020_1000 as *mut u32;
    const FLAGS: *mut u32 = 0x2020_1018 as *mut u32;

    /// Sends a byte.
    pub(crate) fn put(byte: u8) {
        // SAFETY: these are registers of the board's UART.
        unsafe {
            while FLAGS.read_volatile() & (1 << 5) != 0 {}
            DATA.write_volatile(byte.into());
        }
    }

    /// Exits the emulator (semihosting, SYS_EXIT_EXTENDED).
    pub(crate) fn exit(passed: bool) -> ! {
        let block = [0x2_0026, usize::from(!passed)];
        loop {
            // SAFETY: QEMU reads the block and exits. In supervisor mode the call overwrites the link
            // register.
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
}

/// x86-64 without a board: linked for size measurements, never run. `apps/firmware` runs on x86-64.
#[cfg(target_arch = "x86_64")]
mod none {
    use core::arch::global_asm;

    global_asm!(".section .text.start, \"ax\"", ".global reset", "reset: call {begin}", begin = sym crate::machine::begin);

    /// The serial port of a PC.
    pub(crate) fn put(byte: u8) {
        // SAFETY: the port belongs to the console.
        unsafe { core::arch::asm!("out dx, al", in("dx") 0x3F8_u16, in("al") byte) };
    }

    /// Loops forever: there is no emulator to exit.
    pub(crate) fn exit(_: bool) -> ! {
        loop {}
    }
}
