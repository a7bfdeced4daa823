//! How deep the stack ever was: it is painted at the start, and what lost its paint was in use.

use core::ptr::{addr_of, addr_of_mut};

const PAINT: u8 = 0xA5;
/// Left unpainted below the function that paints: its own frame, and a red zone.
const MARGIN: usize = 512;

unsafe extern "C" {
    static mut stack_lowest: u8;
    static stack_top: u8;
}

/// Paints what is below the present frame.
#[inline(never)]
pub(super) fn paint() {
    let here = 0_u8;
    let lowest = addr_of_mut!(stack_lowest);
    let bytes = addr_of!(here).addr().saturating_sub(lowest.addr()).saturating_sub(MARGIN);
    for at in 0..bytes {
        // SAFETY: between the end of the stack and this frame lies what is not in use.
        unsafe { lowest.add(at).write_volatile(PAINT) };
    }
}

/// Bytes from the top of the stack to the lowest that lost its paint.
pub(super) fn deepest() -> usize {
    let lowest = addr_of!(stack_lowest);
    let bytes = addr_of!(stack_top).addr().saturating_sub(lowest.addr());
    // SAFETY: all of it is the stack's memory.
    let untouched = (0..bytes).take_while(|at| unsafe { lowest.add(*at).read_volatile() } == PAINT).count();
    bytes.saturating_sub(untouched)
}
