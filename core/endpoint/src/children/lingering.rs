//! Inbound SAs whose Child SA has ended. They continue to receive for a short time, because packets may still
//! be in flight (decision 0069). `Children` adds them and removes them from the data path.
//!
//! A peer that rekeys and deletes Child SAs without a pause would create more and more of them, so their
//! number is limited for each IKE SA. An IKE SA and those that replace it by rekeying have one origin and
//! count together.

use casemate_datapath::SaId;
use casemate_ike::IkeSaId;
use casemate_sa::table::{MapKey, OrderedMap, WordSet};
use casemate_sa::{Instant, Spi};
use core::time::Duration;

/// How long an inbound SA receives after the end of its Child SA.
const LINGER: Duration = Duration::from_secs(5);

/// An inbound SA, and its SPI, which is released when the SA is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InboundSa {
    pub(crate) id: SaId,
    pub(crate) spi: Spi,
}

struct Entry {
    until: Instant,
    origin: IkeSaId,
    sa: InboundSa,
}

/// All lingering inbound SAs.
pub(crate) struct Lingering {
    /// Entries by number. All linger equally long, so the lowest number ends first.
    entries: OrderedMap<u64, Entry>,
    /// Origin, number.
    by_origin: WordSet,
    last: u64,
    /// Maximum number of SAs of one origin.
    max: usize,
}

impl Lingering {
    pub(crate) fn new(max: usize) -> Self {
        Self { entries: OrderedMap::default(), by_origin: WordSet::new(), last: 0, max }
    }

    /// Adds an SA. If there are too many of its origin, returns the oldest one, which is to be removed at
    /// once.
    pub(crate) fn add(&mut self, origin: IkeSaId, sa: InboundSa, now: Instant) -> Option<InboundSa> {
        self.last = self.last.wrapping_add(1);
        self.entries.insert(self.last, Entry { until: now.after(LINGER), origin, sa });
        self.by_origin.insert(entry(origin, self.last));
        let [_, oldest, _] = self.by_origin.with_first(word(origin)).next()?;
        let is_full = self.by_origin.with_first(word(origin)).nth(self.max).is_some();
        if is_full { self.take(oldest) } else { None }
    }

    /// When the first SA ends.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.entries.values().next().map(|first| first.until)
    }

    /// Removes and returns an SA that has lingered long enough.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Option<InboundSa> {
        let first = self.entries.values().next().filter(|first| first.until <= now)?;
        // The first of all SAs is also the first of its origin.
        let [_, oldest, _] = self.by_origin.with_first(word(first.origin)).next()?;
        self.take(oldest)
    }

    fn take(&mut self, number: u64) -> Option<InboundSa> {
        let taken = self.entries.remove(number)?;
        self.by_origin.remove(entry(taken.origin, number));
        Some(taken.sa)
    }
}

fn word(origin: IkeSaId) -> u64 {
    let [_, word] = origin.words();
    word
}

fn entry(origin: IkeSaId, number: u64) -> [u64; 3] {
    [word(origin), number, 0]
}
