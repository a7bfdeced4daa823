//! Faults and memory shortage caused on request, for tests of the machine (`fault=` and `hold-heap=`).

use crate::memory::layout;
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_firmware::Fault;
use core::hint::black_box;
use smoltcp::time::Instant;

/// The instruction `ret`: a complete function.
const RETURN: [u8; 1] = [0xC3];

/// Causes the fault. Returns only if the processor did not catch it.
pub(crate) fn trigger(fault: Fault) {
    match fault {
        Fault::WriteCode => write(layout().code.start),
        Fault::WriteConstants => write(layout().constants.start),
        Fault::RunHeap => {
            let boxed = black_box(Box::new(RETURN));
            execute(&boxed);
        }
        Fault::RunStack => execute(&black_box(RETURN)),
        Fault::FillStack => {
            fill_stack(&[0; 1024]);
        }
    }
}

fn write(address: u64) {
    let byte = address as *mut u8;
    // SAFETY: the byte exists and is written with its own value, so a permitted write changes nothing.
    unsafe { byte.write_volatile(byte.read_volatile()) }
}

fn execute(instruction: &[u8; 1]) {
    // SAFETY: the bytes are a complete function that returns. They are readable, whether or not they are
    // executable.
    let function: extern "C" fn() = unsafe { core::mem::transmute(instruction.as_ptr()) };
    function();
}

/// Overflows the stack by recursion.
#[allow(unconditional_recursion, reason = "the exception that is to be tested stops it")]
fn fill_stack(above: &[u8; 1024]) -> u8 {
    let mine = black_box(*above);
    fill_stack(&mine).wrapping_add(mine.len() as u8)
}

/// Size of the largest block that stays free, and of the smallest block that is allocated.
const LEFT: usize = 8 << 10;
const LEAST: usize = 1 << 10;

/// The allocated blocks.
pub(crate) struct HeldMemory {
    pieces: Vec<Vec<u8>>,
    until: Instant,
}

impl HeldMemory {
    /// Allocates nearly all free memory until `until`, a time since the start of the machine.
    pub(crate) fn hold_until(until: Instant) -> Self {
        let left = Vec::<u8>::with_capacity(LEFT);
        let (mut pieces, mut size) = (Vec::with_capacity(LEAST), 1 << 20);
        while size >= LEAST {
            let mut piece = Vec::new();
            match piece.try_reserve_exact(size) {
                Ok(()) => pieces.push(piece),
                Err(_) => size /= 2,
            }
        }
        drop(left);
        Self { pieces, until }
    }

    /// Frees the memory at the given time. Returns true if it was freed by this call.
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        let is_over = now >= self.until && !self.pieces.is_empty();
        if is_over {
            self.pieces = Vec::new();
        }
        is_over
    }
}
