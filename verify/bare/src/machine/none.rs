//! x86-64 without a board: linked to be measured, never run. `apps/firmware` is the machine that runs.

use core::arch::global_asm;

global_asm!(".section .text.start, \"ax\"", ".global reset", "reset: call {begin}", begin = sym super::begin);

/// The serial port of a PC.
pub(super) fn put(byte: u8) {
    // SAFETY: a port of the console.
    unsafe { core::arch::asm!("out dx, al", in("dx") 0x3F8_u16, in("al") byte) };
}

/// There is nowhere to go.
pub(super) fn exit(_: bool) -> ! {
    loop {}
}
