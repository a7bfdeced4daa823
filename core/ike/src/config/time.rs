//! When something is to be replaced, and when it ends.

use core::time::Duration;

/// When an SA is rekeyed and when it ends, counted from its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifespan {
    /// Time after which it is rekeyed; `None` is never.
    pub rekey: Option<Duration>,
    /// The rekeying comes earlier by a random time of at most this, so that two peers seldom begin together (RFC 7296
    /// section 2.8: jitter).
    pub random: Duration,
    /// Time after which it is closed if the rekeying did not succeed.
    pub hard: Option<Duration>,
}

impl Lifespan {
    /// Rekeys after `rekey`; ends a tenth later; begins up to a tenth earlier.
    pub fn rekeyed_after(rekey: Duration) -> Self {
        let tenth = rekey.checked_div(10).unwrap_or_default();
        Self { rekey: Some(rekey), random: tenth, hard: Some(rekey.saturating_add(tenth)) }
    }

    /// Never ends.
    pub const FOREVER: Self = Self { rekey: None, random: Duration::ZERO, hard: None };
}
