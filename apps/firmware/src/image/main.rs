//! The image: Casemate, smoltcp and a web server on a machine without an operating system.
//!
//! ```text
//!  boot (PVH, 64 bits, exceptions) -- memory plan -- clock, randomness -- network card
//!                                                                             |
//!                              console <-- round of tasks: network, IKE, HTTP -+
//! ```
//!
//! One processor, one address space, no interrupts: what is to be done is found by asking, round after round. Everything
//! that needs `unsafe` is here, in the files of the hardware; what the machine does with packets is in the library beside.
#![no_std]
#![no_main]

extern crate alloc;

mod boot;
mod clock;
mod console;
mod cpu;
mod memory;
mod runtime;

use boot::StartInfo;
use clock::Clock;
use console::say;
use core::panic::PanicInfo;

/// What the machine does once it is in 64-bit mode. Returns only what keeps it from working.
fn start(info: &StartInfo) -> Result<core::convert::Infallible, Trouble> {
    console::open();
    say!("casemate firmware {}, on {}", env!("CARGO_PKG_VERSION"), cpu::Brand::read());
    boot::catch_exceptions();
    cpu::enable_vectors();
    memory::set_up(info)?;
    let clock = Clock::calibrate()?;
    say!("clock: {} kHz", clock.kilohertz());
    Err("nothing to do yet")
}

/// Why the machine cannot go on, for the person at the console.
type Trouble = &'static str;

/// Where boot/entry.rs leads to.
extern "C" fn main(info: &StartInfo) -> ! {
    match start(info) {
        Ok(never) => match never {},
        Err(trouble) => {
            say!("error: {trouble}");
            cpu::reset()
        }
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    say!("panic: {info}");
    cpu::reset()
}
