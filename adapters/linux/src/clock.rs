//! The clock of the data path, in microseconds since its start.

use casemate_sa::Instant;

/// A monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// Starts a clock at zero.
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// The current time.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant::from_micros(u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}
