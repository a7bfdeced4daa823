//! Faults that the machine makes when it is told to, so that somebody can see that the processor catches them.

use crate::memory::parts;
use alloc::boxed::Box;
use casemate_firmware::Fault;
use core::hint::black_box;

/// The instruction `ret`, with which every function may end and this one begins.
const RETURN: [u8; 1] = [0xC3];

/// Makes the fault. Comes back only if nothing has caught it.
pub(crate) fn make(fault: Fault) {
    match fault {
        Fault::WriteCode => write(parts().code.start),
        Fault::WriteConstants => write(parts().constants.start),
        Fault::RunHeap => {
            let boxed = black_box(Box::new(RETURN));
            run(&boxed);
        }
        Fault::RunStack => run(&black_box(RETURN)),
        Fault::FillStack => {
            fill_stack(&[0; 1024]);
        }
    }
}

fn write(address: u64) {
    let place = address as *mut u8;
    // SAFETY: the byte is there, and is given the value that it has: if it can be written, nothing changes.
    unsafe { place.write_volatile(place.read_volatile()) }
}

fn run(instruction: &[u8; 1]) {
    // SAFETY: the bytes are a whole function: it returns. They can be read, whether or not they can be executed.
    let function: extern "C" fn() = unsafe { core::mem::transmute(instruction.as_ptr()) };
    function();
}

/// Calls itself as often as there is stack.
#[allow(unconditional_recursion, reason = "it is stopped by what is to be seen")]
fn fill_stack(above: &[u8; 1024]) -> u8 {
    let mine = black_box(*above);
    fill_stack(&mine).wrapping_add(mine.len() as u8)
}
