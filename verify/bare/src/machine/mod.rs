//! Start-up code of the boards: from reset to the program, and exit.
//!
//! The only unsafe code of this crate. There is one processor, no interrupt and no second thread.

mod board;
mod memory;

use crate::Board;
#[cfg(all(feature = "pi", target_arch = "arm", not(target_feature = "mclass")))]
pub use board::{microseconds, read_words, spin};
use core::panic::PanicInfo;

unsafe extern "Rust" {
    /// Defined by [`program`](crate::program). Returns true on success.
    safe fn casemate_program(board: &Board) -> bool;
}

/// Called by the board's start-up code, which has set up the stack only.
extern "C" fn begin() -> ! {
    memory::paint_stack();
    memory::open_heap();
    let passed = casemate_program(&Board { print, heap: memory::heap_used, stack: memory::stack_peak });
    board::exit(passed)
}

fn print(text: &str) {
    text.bytes().for_each(board::put);
}

/// Prints the panic message in the self-test only. In the other images, formatting code would be measured.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    #[cfg(feature = "selftest")]
    print(&alloc::format!("{info}"));
    #[cfg(not(feature = "selftest"))]
    let _ = info;
    print("\npanic\n");
    board::exit(false)
}
