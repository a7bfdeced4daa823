//! x86-64 without a board: linked for size measurements, never run. `apps/firmware` runs on x86-64.

use core::arch::global_asm;

global_asm!(".section .text.start, \"ax\"", ".global reset", "reset: call {begin}", begin = sym super::begin);

/// The serial port of a PC.
pub(super) fn put(byte: u8) {
    // SAFETY: the port belongs to the console.
    unsafe { core::arch::asm!("out dx, al", in("dx") 0x3F8_u16, in("al") byte) };
}

/// Loops forever: there is no emulator to exit.
pub(super) fn exit(_: bool) -> ! {
    loop {}
}
