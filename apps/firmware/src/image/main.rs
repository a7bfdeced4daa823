//! The image: Casemate, smoltcp and a web server on a machine without an operating system.
//!
//! ```text
//!  boot (PVH, 64 bits, exceptions) -- memory plan -- clock, randomness -- network card
//!                                                                             |
//!                              console <-- round of tasks: network, IKE, HTTP -+
//! ```
//!
//! One processor, one address space, no interrupts but the one that ends a rest: what is to be done is found by asking, round
//! after round. Everything
//! that needs `unsafe` is here, in the files of the hardware; what the machine does with packets is in the library beside.
#![no_std]
#![no_main]

extern crate alloc;

mod boot;
mod clock;
mod console;
mod cpu;
mod fault;
mod idle;
mod memory;
mod net;
mod rng;
mod runtime;

use alloc::boxed::Box;
use alloc::format;
use boot::StartInfo;
use casemate_firmware::{Config, Journal, Station};
use clock::Clock;
use console::say;
use core::convert::Infallible;
use core::panic::PanicInfo;
use idle::Idle;
use memory::Hoard;
use net::Nic;
use rng::HardwareRng;
use smoltcp::time::{Duration, Instant};
use zeroize::Zeroizing;

/// How often the console is asked whether somebody typed something: ports are slow.
const CONSOLE: Duration = Duration::from_millis(20);

/// What the machine does once it is in 64-bit mode. Returns only what keeps it from working.
fn start(info: &StartInfo) -> Result<Infallible, Trouble> {
    console::open();
    say!("casemate firmware {}, on {}", env!("CARGO_PKG_VERSION"), cpu::Brand::read());
    boot::catch_exceptions();
    boot::protect_memory()?;
    cpu::enable_vectors();
    memory::set_up(info)?;
    let clock = Clock::calibrate()?;
    let mut idle = Idle::new(&clock);
    let rests = if idle.works() { "rests when idle" } else { "never rests" };
    say!("clock: {} kHz; the processor {rests}", clock.kilohertz());
    let mut rng = HardwareRng::new()?;
    let config = read_config(info)?;
    if let Some(fault) = config.fault {
        fault::make(fault);
        return Err("nothing has caught the fault");
    }
    let nic = net::open(info.command_line())?;
    let address = nic.address();
    say!("network: {address}, {}/{}", config.address, config.prefix);
    let seed = rng.secret_u64();
    let station = Station::new(nic, address, &config, Box::new(rng), seed, clock.now());
    let mut station = station.map_err(|trouble| {
        say!("{trouble}");
        "the configuration cannot be carried out"
    })?;
    let mut hoard = config.holds_heap.map(|seconds| Hoard::take_until(Instant::from_secs(seconds)));
    memory::say_heap();
    say!("ready after {} us", clock.now().total_micros());
    let (mut journal, mut asked, mut seen) = (Journal::default(), clock.now(), Seen::of(&mut station));
    loop {
        let now = clock.now();
        station.round(now, |line| journal.tell(now, line, |line| say!("{line}")));
        if now - asked >= CONSOLE {
            asked = now;
            if console::typed().is_some() {
                say_status(&mut station);
            }
            if hoard.as_mut().is_some_and(|hoard| hoard.is_over(now)) {
                memory::say_heap();
            }
            let before = core::mem::replace(&mut seen, Seen::of(&mut station));
            for line in seen.lines_after(before) {
                journal.tell(now, line.into(), |line| say!("{line}"));
            }
        }
        idle.rest(now, station.device_mut().counts().moved());
    }
}

const STOPPED: &str = "network: the card took no frame for a second";

/// What the card showed when it was looked at.
#[derive(Clone, Copy)]
struct Seen {
    stopped: u64,
    has_cable: bool,
}

impl Seen {
    fn of(station: &mut Station<Nic>) -> Self {
        let nic = station.device_mut();
        Self { stopped: nic.counts().stopped, has_cable: nic.has_cable() }
    }

    /// What is worth a line since an earlier look.
    fn lines_after(self, before: Self) -> impl Iterator<Item = &'static str> {
        let cable = if self.has_cable { "network: the cable is in" } else { "network: the cable is out" };
        let stopped = (self.stopped != before.stopped).then_some(STOPPED);
        let cable = (self.has_cable != before.has_cable).then_some(cable);
        stopped.into_iter().chain(cable)
    }
}

/// The command line and the file together.
fn read_config(info: &StartInfo) -> Result<Config, Trouble> {
    let text = Zeroizing::new(format!("{}\n{}", info.command_line(), *info.take_file()));
    Config::parse(&text).map_err(|error| {
        say!("{error}");
        "without a configuration there is nothing to do"
    })
}

/// What there is to know, for somebody who typed something.
fn say_status(station: &mut Station<Nic>) {
    let counts = station.device_mut().counts();
    say!("frames: {} received, {} sent, {} had to wait", counts.received, counts.sent, counts.refused);
    if counts.stopped > 0 {
        say!("{STOPPED}, {} times", counts.stopped);
    }
    say!("pages: {}", station.served());
    if station.refused() > 0 {
        say!("ike: no memory, {} refused", station.refused());
    }
    for (reason, count) in station.drops() {
        say!("dropped: {count} {reason}");
    }
    memory::say_heap();
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
