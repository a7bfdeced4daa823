//! The data path's clock: microseconds since this value was made.

use casemate_sa::Instant;

/// A monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// A clock that starts at zero, now.
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant::from_micros(u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}
