//! The image: Casemate, smoltcp and a web server on bare metal.
//!
//! ```text
//!  boot (PVH, 64-bit mode, exceptions) -- memory layout -- clock, random numbers -- network card
//!                                                                                        |
//!                                 console <-- main loop: network, IKE, HTTP services -----+
//! ```
//!
//! The machine has one processor, one address space, and no interrupt but the idle timer's: the main loop
//! polls for work. All `unsafe` code is here, in the modules for the hardware. The packet processing is
//! in the library of this package.
#![no_std]
#![no_main]

extern crate alloc;

mod boot;
mod clock;
mod console;
mod cpu;
mod fault_injection;
mod idle;
mod memory;
mod net;
mod rng;

use alloc::boxed::Box;
use alloc::format;
use boot::StartInfo;
use casemate_datapath::{Direction, RohcStatus};
use casemate_firmware::{Config, RateLimitedLog, StackRuntime};
use clock::Clock;
use console::println;
use core::convert::Infallible;
use core::panic::PanicInfo;
use fault_injection::HeldMemory;
use idle::Idle;
use net::Nic;
use rng::HardwareRng;
use smoltcp::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Interval at which the console is polled for input; port access is slow.
const CONSOLE: Duration = Duration::from_millis(20);

/// Runs the machine in 64-bit mode. Returns only an error that prevents its operation.
fn start(info: &StartInfo) -> Result<Infallible, BootError> {
    console::open();
    println!("casemate firmware {}, on {}", env!("CARGO_PKG_VERSION"), cpu::Brand::read());
    boot::catch_exceptions();
    boot::protect_memory()?;
    cpu::enable_vectors();
    memory::init_heap(info)?;
    let clock = Clock::calibrate()?;
    let mut idle = Idle::new(&clock);
    let rests = if idle.works() { "rests when idle" } else { "never rests" };
    println!("clock: {} kHz; the processor {rests}", clock.kilohertz());
    let mut rng = HardwareRng::new()?;
    let config = read_config(info)?;
    if let Some(fault) = config.fault {
        fault_injection::trigger(fault);
        return Err("the processor did not catch the fault");
    }
    let nic = net::open(info.command_line()?)?;
    let address = nic.address();
    println!("network: {address}, {}/{}", config.address, config.prefix);
    let seed = rng.secret_u64();
    let runtime = StackRuntime::new(nic, address, &config, Box::new(rng), seed, clock.now());
    let mut runtime = runtime.map_err(|error| {
        println!("{error}");
        "the configuration cannot be applied"
    })?;
    let mut held = config.holds_heap.map(|seconds| HeldMemory::hold_until(Instant::from_secs(seconds)));
    memory::print_heap_usage();
    println!("ready after {} us", clock.now().total_micros());
    let (mut log, mut polled, mut nic_state) =
        (RateLimitedLog::default(), clock.now(), NicState::of(&mut runtime));
    loop {
        let now = clock.now();
        runtime.round(now, |line| log.write(now, line, |line| println!("{line}")));
        if now - polled >= CONSOLE {
            polled = now;
            if console::read_key().is_some() {
                print_status(&mut runtime);
            }
            if held.as_mut().is_some_and(|held| held.is_over(now)) {
                memory::print_heap_usage();
            }
            let before = core::mem::replace(&mut nic_state, NicState::of(&mut runtime));
            for line in nic_state.lines_after(before) {
                log.write(now, line.into(), |line| println!("{line}"));
            }
        }
        idle.rest(now, runtime.device_mut().counts().frames());
    }
}

const STOPPED: &str = "network: the card has accepted no frame for a second";

/// State of the network card at the last check.
#[derive(Clone, Copy)]
struct NicState {
    stopped: u64,
    is_link_up: bool,
}

impl NicState {
    fn of(runtime: &mut StackRuntime<Nic>) -> Self {
        let nic = runtime.device_mut();
        Self { stopped: nic.counts().stopped, is_link_up: nic.is_link_up() }
    }

    /// Returns the lines to log about changes since an earlier check.
    fn lines_after(self, before: Self) -> impl Iterator<Item = &'static str> {
        let cable = if self.is_link_up {
            "network: the cable is connected"
        } else {
            "network: the cable is disconnected"
        };
        let stopped = (self.stopped != before.stopped).then_some(STOPPED);
        let cable = (self.is_link_up != before.is_link_up).then_some(cable);
        stopped.into_iter().chain(cable)
    }
}

/// Reads the command line and the file as one configuration.
fn read_config(info: &StartInfo) -> Result<Config, BootError> {
    let text = Zeroizing::new(format!("{}\n{}", info.command_line()?, *info.take_file()?));
    Config::parse(&text).map_err(|error| {
        println!("{error}");
        "there is no valid configuration"
    })
}

/// Prints the status; called when a key is pressed.
fn print_status(runtime: &mut StackRuntime<Nic>) {
    let counts = runtime.device_mut().counts();
    println!("frames: {} received, {} sent, {} had to wait", counts.received, counts.sent, counts.refused);
    if counts.stopped > 0 {
        println!("{STOPPED}, {} times", counts.stopped);
    }
    println!("pages: {}", runtime.served());
    if runtime.refused() > 0 {
        println!("ike: no memory, {} messages or timers refused", runtime.refused());
    }
    for (direction, what) in [(Direction::Inbound, "received"), (Direction::Outbound, "sent")] {
        if let Some(RohcStatus { packets, header_bytes, compressed_bytes, failures, .. }) =
            runtime.rohc(direction)
        {
            println!(
                "rohc: {packets} packets {what}, {compressed_bytes} instead of {header_bytes} bytes of headers, \
                 {failures} not restored"
            );
        }
    }
    for (reason, count) in runtime.drops() {
        println!("dropped: {count} {reason}");
    }
    memory::print_heap_usage();
}

/// Reason why the machine cannot start, for the console.
type BootError = &'static str;

/// Called by boot/entry.rs.
extern "C" fn main(info: &StartInfo) -> ! {
    match start(info) {
        Ok(never) => match never {},
        Err(error) => {
            println!("error: {error}");
            cpu::reset()
        }
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    println!("panic: {info}");
    cpu::reset()
}

// Symbols for unwinding that the precompiled core library refers to. Nothing unwinds: a panic resets the
// machine.

#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> ! {
    cpu::reset()
}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    cpu::reset()
}
