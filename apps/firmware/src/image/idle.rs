//! Rest, when there is nothing to do: the processor halts until its own timer wakes it.
//!
//! This is the only interrupt. It is let in only while the processor halts, its handler does nothing but tell the timer so,
//! and nobody waits for it: whoever comes back from a rest finds out by asking whether there is something to do, as ever.

use crate::clock::Clock;
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{AtomicU32, Ordering};
use smoltcp::time::{Duration, Instant};

/// How long nothing must have happened before the processor rests, and how long it rests at most. A peer that waits for an
/// answer asks again sooner; a frame that comes during a rest waits for a millisecond.
const PATIENCE: Duration = Duration::from_millis(2);
const REST_MICROS: u64 = 1_000;

/// Rests that the timer is waited for before it is taken for broken.
const TRIES: u32 = 100;

/// `CPUID.1:EDX`: there is a local APIC.
const APIC: u32 = 1 << 9;

/// Registers of the local APIC (Intel's manual, volume 3, table 11-1).
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

/// Interrupts of the two older controllers, all of them masked.
const OLD_MASKS: [u16; 2] = [0x21, 0xA1];

/// Where the timer leads to, and what the APIC says when it has lost an interrupt (boot/exceptions.rs).
pub(crate) const TIMER_VECTOR: u8 = 0x20;
pub(crate) const SPURIOUS_VECTOR: u8 = 0x2F;

/// How often the timer has woken the processor; its handler in boot/exceptions.rs counts.
pub(crate) static WOKEN: AtomicU32 = AtomicU32::new(0);

/// The timer of the processor, if there is one that works.
pub(crate) struct Idle {
    /// What it counts in one rest; 0 if it does not work.
    count: u32,
    /// When something happened last, and what the caller counted then.
    busy: Instant,
    seen: u64,
}

fn read(register: u64) -> u32 {
    // SAFETY: the register is mapped, and to read it changes nothing.
    unsafe { (register as *const u32).read_volatile() }
}

fn write(register: u64, value: u32) {
    // SAFETY: the register is mapped; what this module writes touches the timer and no memory.
    unsafe { (register as *mut u32).write_volatile(value) }
}

impl Idle {
    /// Measures the timer, and tries it: one that never interrupts would let the processor halt for ever.
    pub(crate) fn new(clock: &Clock) -> Self {
        let mut idle = Self { count: 0, busy: clock.now(), seen: 0 };
        if __cpuid(1).edx & APIC == 0 {
            return idle;
        }
        for port in OLD_MASKS {
            // SAFETY: to mask interrupts does nothing to memory.
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
        // SAFETY: boot/exceptions.rs has a handler for the one interrupt that can come.
        unsafe { asm!("sti") }
        // Emulated, and on a host with other work, it may come late.
        let is_woken = (0..TRIES).any(|_| {
            wait(clock);
            WOKEN.load(Ordering::Relaxed) > 0
        });
        // SAFETY: interrupts are as they were before.
        unsafe { asm!("cli") }
        if is_woken {
            idle.count = count;
        }
        idle
    }

    /// Whether the processor rests at all.
    pub(crate) const fn works(&self) -> bool {
        self.count > 0
    }

    /// Rests for a moment, if nothing has happened for a while. `seen` counts whatever happens.
    pub(crate) fn rest(&mut self, now: Instant, seen: u64) {
        if seen != self.seen {
            (self.busy, self.seen) = (now, seen);
        } else if self.works() && now - self.busy >= PATIENCE {
            write(INITIAL_COUNT, self.count);
            // SAFETY: as above. No interrupt is let in before `hlt` is reached, so none is missed.
            unsafe { asm!("sti", "hlt", "cli") }
        }
    }
}

/// Waits for as long as a rest takes.
fn wait(clock: &Clock) {
    let start = clock.now();
    while (clock.now() - start).total_micros() < REST_MICROS {
        core::hint::spin_loop();
    }
}
