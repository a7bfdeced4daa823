//! smoltcp's clock and ours.

use casemate_sa::Instant;

/// A time of smoltcp's as one of ours. Times before the origin are the origin.
pub fn from_smoltcp(time: smoltcp::time::Instant) -> Instant {
    Instant::from_micros(u64::try_from(time.total_micros()).unwrap_or(0))
}

/// A time of ours as one of smoltcp's.
pub fn to_smoltcp(time: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}
