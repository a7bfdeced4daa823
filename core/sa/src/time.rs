//! Time as an argument: a monotonic instant that the caller reads from its own clock.

use core::time::Duration;

/// A point on the caller's monotonic clock, in microseconds since an origin of its choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// `secs` seconds after the origin.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if that is later, so a clock that jumps back does no harm.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// This instant plus `duration`, at most the end of time.
    pub const fn after(self, duration: Duration) -> Self {
        // Without the 128 bits of `Duration::as_micros`, which are a lot of code for a small processor.
        let micros =
            duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros() as u64);
        Self(self.0.saturating_add(micros))
    }
}
