//! Peak stack usage: the stack is filled with a pattern at the start, and overwritten bytes were in use.

use core::ptr::{addr_of, addr_of_mut};

const PAINT: u8 = 0xA5;
/// Number of bytes below the filling function that are not filled: its own frame and a red zone.
const MARGIN: usize = 512;

unsafe extern "C" {
    static mut stack_lowest: u8;
    static stack_top: u8;
}

/// Fills the stack below the current frame with the pattern.
#[inline(never)]
pub(super) fn paint() {
    let here = 0_u8;
    let lowest = addr_of_mut!(stack_lowest);
    let bytes = addr_of!(here).addr().saturating_sub(lowest.addr()).saturating_sub(MARGIN);
    for at in 0..bytes {
        // SAFETY: the memory between the end of the stack and this frame is not in use.
        unsafe { lowest.add(at).write_volatile(PAINT) };
    }
}

/// Returns the number of bytes from the top of the stack to the lowest overwritten byte.
pub(super) fn deepest() -> usize {
    let lowest = addr_of!(stack_lowest);
    let bytes = addr_of!(stack_top).addr().saturating_sub(lowest.addr());
    // SAFETY: the whole range is memory of the stack.
    let untouched = (0..bytes).take_while(|at| unsafe { lowest.add(*at).read_volatile() } == PAINT).count();
    bytes.saturating_sub(untouched)
}
