//! Idle state: when there is nothing to do, the processor halts until its own timer interrupts it.
//!
//! The timer is the only interrupt. It is enabled only while the processor halts, and its handler only
//! acknowledges it. After waking, the main loop polls for work as usual.

use crate::clock::Clock;
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{AtomicU32, Ordering};
use smoltcp::time::{Duration, Instant};

/// Idle time before the processor halts, and maximum time of a halt. The time is shorter than the
/// retransmission timeout of a peer; a frame that arrives during a halt waits up to a millisecond.
const TIMEOUT: Duration = Duration::from_millis(2);
const REST_MICROS: u64 = 1_000;

/// Number of halts during which a timer interrupt must occur; otherwise the timer is considered broken.
const TRIES: u32 = 100;

/// `CPUID.1:EDX`: the processor has a local APIC.
const APIC: u32 = 1 << 9;

/// Registers of the local APIC (Intel SDM volume 3, table 11-1).
const REGISTERS: u64 = 0xFEE0_0000;
pub(crate) const END_OF_INTERRUPT: u64 = REGISTERS + 0xB0;
const SPURIOUS: u64 = REGISTERS + 0xF0;
const TIMER: u64 = REGISTERS + 0x320;
const INITIAL_COUNT: u64 = REGISTERS + 0x380;
const CURRENT_COUNT: u64 = REGISTERS + 0x390;
const DIVIDE: u64 = REGISTERS + 0x3E0;

const ENABLED: u32 = 1 << 8;
const MASKED: u32 = 1 << 16;
const BY_16: u32 = 0b0011;

/// Mask registers of the two legacy interrupt controllers.
const OLD_MASKS: [u16; 2] = [0x21, 0xA1];

/// Vectors of the timer interrupt and of the spurious interrupt (boot/exceptions.rs).
pub(crate) const TIMER_VECTOR: u8 = 0x20;
pub(crate) const SPURIOUS_VECTOR: u8 = 0x2F;

/// Number of timer interrupts; incremented by the handler in boot/exceptions.rs.
pub(crate) static WOKEN: AtomicU32 = AtomicU32::new(0);

/// The idle timer, if the processor has one that works.
pub(crate) struct Idle {
    /// Timer count of one halt; 0 if the timer does not work.
    count: u32,
    /// Time of the last activity, and the activity counter at that time.
    busy: Instant,
    activity: u64,
}

fn read(register: u64) -> u32 {
    // SAFETY: the register is mapped, and reading it has no side effect.
    unsafe { (register as *const u32).read_volatile() }
}

fn write(register: u64, value: u32) {
    // SAFETY: the register is mapped; the written values affect the timer and no memory.
    unsafe { (register as *mut u32).write_volatile(value) }
}

impl Idle {
    /// Calibrates and tests the timer: with a timer that never interrupts, the processor would halt forever.
    pub(crate) fn new(clock: &Clock) -> Self {
        let mut idle = Self { count: 0, busy: clock.now(), activity: 0 };
        if __cpuid(1).edx & APIC == 0 {
            return idle;
        }
        for port in OLD_MASKS {
            // SAFETY: masking interrupts does not affect memory.
            unsafe { crate::cpu::out8(port, 0xFF) }
        }
        write(SPURIOUS, ENABLED | u32::from(SPURIOUS_VECTOR));
        write(DIVIDE, BY_16);
        write(TIMER, MASKED);
        write(INITIAL_COUNT, u32::MAX);
        wait(clock);
        let count = u32::MAX.saturating_sub(read(CURRENT_COUNT));
        write(TIMER, TIMER_VECTOR.into());
        write(INITIAL_COUNT, count);
        // SAFETY: boot/exceptions.rs has installed a handler for the only interrupt that can occur.
        unsafe { asm!("sti") }
        // On an emulated processor of a busy host the interrupt may be late.
        let is_woken = (0..TRIES).any(|_| {
            wait(clock);
            WOKEN.load(Ordering::Relaxed) > 0
        });
        // SAFETY: restores the previous state.
        unsafe { asm!("cli") }
        if is_woken {
            idle.count = count;
        }
        idle
    }

    /// Returns whether the processor can halt.
    pub(crate) const fn works(&self) -> bool {
        self.count > 0
    }

    /// Halts for a moment if `activity`, a counter of activity, has not changed for a while.
    pub(crate) fn rest(&mut self, now: Instant, activity: u64) {
        if activity != self.activity {
            (self.busy, self.activity) = (now, activity);
        } else if self.works() && now - self.busy >= TIMEOUT {
            write(INITIAL_COUNT, self.count);
            // SAFETY: as above. `sti` takes effect after the next instruction, so an interrupt cannot be
            // missed before `hlt`.
            unsafe { asm!("sti", "hlt", "cli") }
        }
    }
}

/// Busy-waits for the time of one halt.
fn wait(clock: &Clock) {
    let start = clock.now();
    while (clock.now() - start).total_micros() < REST_MICROS {
        core::hint::spin_loop();
    }
}
