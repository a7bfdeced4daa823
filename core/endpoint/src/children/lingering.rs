//! Inbound SAs whose Child SA has ended. They receive for a moment longer, because packets may be on their way
//! (decision 0069). `Children` adds them and removes them from the data path.
//!
//! A peer that rekeys and deletes Child SAs without a pause would make ever more of them, so their number is limited
//! for each IKE SA. An IKE SA and those that replace it by rekeying have one origin and count together.

use casemate_datapath::SaId;
use casemate_ike::IkeSaId;
use casemate_sa::{Instant, Spi};
use casemate_tables::{Index, Key, Table};
use core::time::Duration;

/// How long an inbound SA receives after the end of its Child SA.
const LINGER: Duration = Duration::from_secs(5);

/// An inbound SA, and the SPI that is free again when the SA is removed.
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

/// All inbound SAs that linger.
pub(crate) struct Lingering {
    /// By their numbers. Each lingers equally long, so the one with the lowest number ends first.
    entries: Table<u64, Entry>,
    /// In this order: origin, number.
    by_origin: Index,
    last: u64,
    /// How many there may be of one origin.
    most: usize,
}

impl Lingering {
    pub(crate) fn new(most: usize) -> Self {
        Self { entries: Table::default(), by_origin: Index::new(), last: 0, most }
    }

    /// Adds an SA. Returns the oldest one of the same origin if there are too many: it is to be removed at once.
    pub(crate) fn add(&mut self, origin: IkeSaId, sa: InboundSa, now: Instant) -> Option<InboundSa> {
        self.last = self.last.wrapping_add(1);
        self.entries.insert(self.last, Entry { until: now.after(LINGER), origin, sa });
        self.by_origin.insert(entry(origin, self.last));
        let [_, oldest, _] = self.by_origin.with(word(origin)).next()?;
        let is_full = self.by_origin.with(word(origin)).nth(self.most).is_some();
        if is_full { self.take(oldest) } else { None }
    }

    /// When the first of them ends.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.entries.values().next().map(|first| first.until)
    }

    /// Takes one that has lingered long enough.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<InboundSa> {
        let first = self.entries.values().next().filter(|first| first.until <= now)?;
        // The first of all is also the first of its origin.
        let [_, oldest, _] = self.by_origin.with(word(first.origin)).next()?;
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
