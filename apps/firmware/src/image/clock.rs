//! Time since the start of the machine: the time stamp counter, calibrated with the timer chip (8254).

use crate::BootError;
use crate::cpu::{in8, out8};
use core::arch::x86_64::_rdtsc;
use smoltcp::time::Instant;

const CHANNEL_0: u16 = 0x40;
const COMMAND: u16 = 0x43;
/// Frequency of the timer chip in Hz.
const PIT_HERTZ: u64 = 1_193_182;
/// Calibration time in ticks: 10 ms.
const TICKS: u16 = 11_932;
/// Maximum number of reads during calibration. Each read takes about a microsecond, so a timer that does
/// not run is detected.
const TIMEOUT: u32 = 1_000_000;

pub(crate) struct Clock {
    kilohertz: u64,
}

impl Clock {
    /// Calibrates the counter. Uses channel 0, which can be read while it runs, because port 0x61, which
    /// channel 2 needs, is missing on some machines.
    pub(crate) fn calibrate() -> Result<Self, BootError> {
        // SAFETY: the timer chip does not access memory, and its interrupt is masked. Channel 0, low and
        // high byte, mode 2, reload value 65,536.
        unsafe {
            out8(COMMAND, 0x34);
            out8(CHANNEL_0, 0);
            out8(CHANNEL_0, 0);
        }
        let (first, begin) = (count(), counter());
        for _ in 0..TIMEOUT {
            let passed = first.wrapping_sub(count());
            if passed >= TICKS {
                let cycles = counter().saturating_sub(begin);
                let kilohertz = cycles.saturating_mul(PIT_HERTZ) / u64::from(passed) / 1_000;
                return if kilohertz == 0 {
                    Err("the time stamp counter does not run")
                } else {
                    Ok(Self { kilohertz })
                };
            }
        }
        Err("the timer chip does not run, so the clock cannot be calibrated")
    }

    /// Returns the frequency of the counter.
    pub(crate) const fn kilohertz(&self) -> u64 {
        self.kilohertz
    }

    /// Returns the time since the start of the machine.
    pub(crate) fn now(&self) -> Instant {
        // The product of counter and 1,000 would exceed 64 bits after months.
        let micros = u128::from(counter()).saturating_mul(1_000) / u128::from(self.kilohertz.max(1));
        Instant::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it is permitted in ring 0.
    unsafe { _rdtsc() }
}

/// Latches and reads the count of channel 0.
fn count() -> u16 {
    // SAFETY: as in `calibrate`.
    unsafe {
        out8(COMMAND, 0);
        u16::from_le_bytes([in8(CHANNEL_0), in8(CHANNEL_0)])
    }
}
