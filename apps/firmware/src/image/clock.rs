//! The time since the machine was started: the processor's time stamp counter, measured against the timer chip (8254).

use crate::Trouble;
use crate::cpu::{in8, out8};
use core::arch::x86_64::_rdtsc;
use smoltcp::time::Instant;

const CHANNEL_0: u16 = 0x40;
const COMMAND: u16 = 0x43;
/// Ticks of the chip in a second.
const PIT_HERTZ: u64 = 1_193_182;
/// How long to measure: 10 ms.
const TICKS: u16 = 11_932;
/// How often the chip is asked. That takes a microsecond or so each time; a chip that does not tick is not waited for.
const PATIENCE: u32 = 1_000_000;

pub(crate) struct Clock {
    kilohertz: u64,
}

impl Clock {
    /// Measures the counter. Port 0x61, by which channel 2 is usually asked, is missing on some machines; channel 0 can be read
    /// while it runs.
    pub(crate) fn calibrate() -> Result<Self, Trouble> {
        // SAFETY: the timer chip does nothing to memory, and nobody waits for its interrupt. Channel 0, both bytes, mode 2,
        // from 65,536 down.
        unsafe {
            out8(COMMAND, 0x34);
            out8(CHANNEL_0, 0);
            out8(CHANNEL_0, 0);
        }
        let (first, begin) = (count(), counter());
        for _ in 0..PATIENCE {
            let passed = first.wrapping_sub(count());
            if passed >= TICKS {
                let cycles = counter().saturating_sub(begin);
                let kilohertz = cycles.saturating_mul(PIT_HERTZ) / u64::from(passed) / 1_000;
                return if kilohertz == 0 {
                    Err("the time stamp counter stands still")
                } else {
                    Ok(Self { kilohertz })
                };
            }
        }
        Err("the timer chip stands still, so there is no clock")
    }

    /// How fast the counter is.
    pub(crate) const fn kilohertz(&self) -> u64 {
        self.kilohertz
    }

    /// The time since the machine was started.
    pub(crate) fn now(&self) -> Instant {
        // The counter times 1,000 would be full after months; 128 bits are not.
        let micros = u128::from(counter()).saturating_mul(1_000) / u128::from(self.kilohertz.max(1));
        Instant::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and nothing forbids it in ring 0.
    unsafe { _rdtsc() }
}

/// What channel 0 shows: it is latched, then read in two halves.
fn count() -> u16 {
    // SAFETY: as in `calibrate`.
    unsafe {
        out8(COMMAND, 0);
        u16::from_le_bytes([in8(CHANNEL_0), in8(CHANNEL_0)])
    }
}
