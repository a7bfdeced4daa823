//! Time and lifetimes. Callers read their own monotonic clock and pass the time as an argument.

use core::time::Duration;

/// A point on the caller's monotonic clock, in microseconds since an origin of the caller's choice.
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

    /// Time since `earlier`; zero if `earlier` is later, so that a clock that jumps back does no harm.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// This instant plus `duration`; saturates.
    pub const fn after(self, duration: Duration) -> Self {
        // Avoids the 128-bit arithmetic of `Duration::as_micros`, which is much code on a small processor.
        let micros =
            duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros() as u64);
        Self(self.0.saturating_add(micros))
    }
}

/// Bounds of an SA's lifetime (RFC 4301 section 4.4.2.1); `None` is unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Bytes of the packets that the SA protected or opened.
    pub bytes: Option<u64>,
    /// Packets that the SA protected or opened.
    pub packets: Option<u64>,
    /// Time since the SA was added.
    pub since_added: Option<Duration>,
    /// Time since the SA was first used.
    pub since_used: Option<Duration>,
}

impl Bounds {
    /// No bounds.
    pub const NONE: Self = Self { bytes: None, packets: None, since_added: None, since_used: None };
}

/// Lifetime of an SA: soft bounds raise an event, hard bounds end the SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// Reaching one of these raises an event once: rekey the SA.
    pub soft: Bounds,
    /// Reaching one of these ends the SA: it drops all further packets.
    pub hard: Bounds,
}

impl Lifetime {
    /// An SA that lives until it is removed or its sequence numbers are exhausted.
    pub const UNBOUNDED: Self = Self { soft: Bounds::NONE, hard: Bounds::NONE };
}
