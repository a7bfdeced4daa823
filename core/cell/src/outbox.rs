//! Changes of IKE SAs whose records are not written yet, and the messages that wait for them.
//!
//! A change has the IKE SAs whose records depend on each other: a Child SA may have moved from one to the
//! other. One write contains the present records of all of them. So no two changes that wait have an IKE SA
//! in common: the later one is added to the earlier one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use casemate_ike::Transmit;

/// Messages that wait, at most, besides the first one of each change. Further ones are dropped: the peer or
/// this host repeats them.
const MAX_HELD: usize = 4_096;

/// Names a change. Later ones are higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeId(u64);

/// A change whose records are not all written.
#[derive(Debug, Default)]
struct PendingChange {
    /// Our SPIs of its IKE SAs.
    spis: BTreeSet<u64>,
    held: Vec<Transmit>,
}

/// The changes whose records are not written, and their messages.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    last: u64,
    changes: BTreeMap<ChangeId, PendingChange>,
    /// Those that no write contains yet.
    waiting: BTreeSet<ChangeId>,
    /// The last change of each IKE SA, by our SPI.
    by_spi: BTreeMap<u64, ChangeId>,
    held: usize,
    /// Messages that were dropped.
    dropped: u64,
}

/// Changes for one write.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) changes: Vec<ChangeId>,
    /// Our SPIs of their IKE SAs.
    pub(crate) spis: Vec<u64>,
}

impl Outbox {
    /// Adds a change of the IKE SAs with these SPIs of ours.
    pub(crate) fn add(&mut self, spis: impl IntoIterator<Item = u64>) {
        self.last = self.last.saturating_add(1);
        self.join(ChangeId(self.last), PendingChange { spis: spis.into_iter().collect(), held: Vec::new() });
    }

    /// Whether changes wait that no write contains yet.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the oldest changes out of those that wait, for a write with about `most` records.
    pub(crate) fn take(&mut self, most: usize) -> Batch {
        let mut batch = Batch::default();
        while batch.spis.len() < most
            && let Some(id) = self.waiting.pop_first()
        {
            batch.changes.push(id);
            batch.spis.extend(self.changes.get(&id).into_iter().flat_map(|change| &change.spis));
        }
        batch
    }

    /// Lets changes wait again whose write has failed.
    pub(crate) fn put_back(&mut self, changes: Vec<ChangeId>) {
        for id in changes {
            if let Some(change) = self.changes.remove(&id) {
                self.join(id, change);
            }
        }
    }

    /// Lets a change wait, together with those that wait already and have an IKE SA in common with it.
    fn join(&mut self, id: ChangeId, mut change: PendingChange) {
        let last = |spi| self.by_spi.get(spi).filter(|last| self.waiting.contains(*last)).copied();
        let related: BTreeSet<ChangeId> = change.spis.iter().filter_map(last).collect();
        let first = related.first().map_or(id, |first| id.min(*first));
        for id in related {
            self.waiting.remove(&id);
            let PendingChange { spis, held } = self.changes.remove(&id).unwrap_or_default();
            change.spis.extend(spis);
            change.held.extend(held);
        }
        self.by_spi.extend(change.spis.iter().map(|spi| (*spi, first)));
        self.waiting.insert(first);
        self.changes.insert(first, change);
    }

    /// Holds a message whose IKE SA has changes that are not written, or returns it.
    pub(crate) fn hold(&mut self, transmit: Transmit) -> Option<Transmit> {
        let change = own_spi(&transmit.message).and_then(|spi| self.by_spi.get(&spi));
        let Some(change) = change.and_then(|id| self.changes.get_mut(id)) else { return Some(transmit) };
        // A request that is sent again needs to wait once only.
        if change.held.contains(&transmit) {
            return None;
        }
        if self.held >= MAX_HELD && !change.held.is_empty() {
            self.dropped = self.dropped.saturating_add(1);
            return None;
        }
        self.held = self.held.saturating_add(1);
        change.held.push(transmit);
        None
    }

    /// Notes that all records of these changes are written. Returns their messages.
    pub(crate) fn written(&mut self, changes: Vec<ChangeId>) -> Vec<Transmit> {
        changes.into_iter().flat_map(|id| self.end(id)).collect()
    }

    fn end(&mut self, id: ChangeId) -> Vec<Transmit> {
        let PendingChange { spis, held } = self.changes.remove(&id).unwrap_or_default();
        for spi in spis {
            if self.by_spi.get(&spi) == Some(&id) {
                self.by_spi.remove(&spi);
            }
        }
        self.held = self.held.saturating_sub(held.len());
        held
    }

    /// Notes messages that were dropped elsewhere.
    pub(crate) fn note_dropped(&mut self, count: usize) {
        self.dropped = self.dropped.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Number of messages that wait.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    /// Number of messages that were dropped.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Our SPI in a message of ours; `None` for a NAT keepalive.
fn own_spi(message: &[u8]) -> Option<u64> {
    /// Flag of the original initiator of the IKE SA (RFC 7296 section 3.1).
    const INITIATOR: u8 = 0x08;
    let (spis, rest) = message.split_first_chunk::<16>()?;
    let (initiator, responder) = spis.split_at_checked(8)?;
    let own = if rest.get(3)? & INITIATOR == 0 { responder } else { initiator };
    own.as_array::<8>().map(|spi| u64::from_be_bytes(*spi))
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_ike::Path;

    /// A message of ours with this SPI.
    fn message(spi: u64, initiator: bool, number: u8) -> Transmit {
        let other = [7; 8];
        let own = spi.to_be_bytes();
        let spis = if initiator { [own, other] } else { [other, own] };
        let flags = if initiator { 0x08 } else { 0x20 };
        let message = [&spis.concat()[..], &[0, 0, 0, flags, number]].concat();
        let addr = "192.0.2.1:500".parse().unwrap();
        let path = Path { local: addr, remote: addr };
        Transmit { path, non_esp_marker: false, probe_len: None, message }
    }

    /// Takes all changes that wait.
    fn take(outbox: &mut Outbox) -> Batch {
        outbox.take(usize::MAX)
    }

    #[test]
    fn a_message_waits_for_the_last_change_of_its_ike_sa() {
        let mut outbox = Outbox::default();
        outbox.add([1, 2]);
        let first = take(&mut outbox);
        outbox.add([1]);
        for initiator in [true, false] {
            assert_eq!(outbox.hold(message(1, initiator, 1)), None);
            assert_eq!(outbox.hold(message(2, initiator, 2)), None);
            let other = message(3, initiator, 3);
            assert_eq!(outbox.hold(other.clone()), Some(other));
        }
        assert_eq!(outbox.hold(message(2, true, 2)), None);
        assert_eq!(outbox.held(), 4);
        assert_eq!(outbox.written(first.changes), [message(2, true, 2), message(2, false, 2)]);
        assert_eq!(outbox.hold(message(2, true, 4)), Some(message(2, true, 4)));
        assert_eq!(outbox.hold(message(1, true, 5)), None);
        let second = take(&mut outbox);
        assert_eq!(outbox.written(second.changes).len(), 3);
        assert_eq!((outbox.held(), outbox.hold(message(1, true, 6))), (0, Some(message(1, true, 6))));
    }

    #[test]
    fn changes_with_a_common_ike_sa_wait_for_the_same_write() {
        let mut outbox = Outbox::default();
        outbox.add([1]);
        outbox.add([2]);
        outbox.add([3]);
        assert_eq!(outbox.hold(message(3, true, 3)), None);
        // A Child SA moves from 3 to 1.
        outbox.add([3, 1]);
        let Batch { changes, spis } = outbox.take(1);
        assert_eq!((changes.len(), spis), (1, [1, 3].into()));
        assert_eq!(outbox.take(1).spis, [2]);
        assert_eq!(outbox.take(1), Batch::default());
        assert_eq!(outbox.written(changes), [message(3, true, 3)]);
    }

    #[test]
    fn changes_of_a_failed_write_wait_again_together_with_later_ones() {
        let mut outbox = Outbox::default();
        outbox.add([1, 2]);
        assert_eq!(outbox.hold(message(1, true, 1)), None);
        let failed = take(&mut outbox);
        outbox.add([3]);
        outbox.add([2, 4]);
        assert_eq!(outbox.hold(message(4, true, 4)), None);
        outbox.put_back(failed.changes);
        let again = outbox.take(1);
        assert_eq!(again.spis, [1, 2, 4]);
        assert_eq!(outbox.hold(message(2, true, 2)), None);
        let messages = [message(1, true, 1), message(4, true, 4), message(2, true, 2)];
        assert_eq!(outbox.written(again.changes), messages);
        assert_eq!(outbox.take(1).spis, [3]);
    }

    #[test]
    fn the_number_of_messages_is_bounded() {
        let mut outbox = Outbox::default();
        outbox.add([1]);
        outbox.add([2]);
        for number in 0..=MAX_HELD {
            let mut transmit = message(1, true, 0);
            transmit.message.extend(u64::try_from(number).unwrap().to_be_bytes());
            assert_eq!(outbox.hold(transmit), None);
        }
        assert_eq!((outbox.held(), outbox.dropped()), (MAX_HELD, 1));
        // The first message of another change is held, and no further one.
        for number in [1, 2] {
            assert_eq!(outbox.hold(message(2, true, number)), None);
        }
        assert_eq!((outbox.held(), outbox.dropped()), (MAX_HELD + 1, 2));
        let Batch { changes, .. } = take(&mut outbox);
        assert_eq!(outbox.written(changes).len(), MAX_HELD + 1);
    }

    #[test]
    fn keepalives_and_short_messages_never_wait() {
        let mut outbox = Outbox::default();
        outbox.add([0]);
        for len in 0..20 {
            let transmit = Transmit { message: [0].repeat(len), ..message(1, true, 1) };
            let free = outbox.hold(transmit.clone());
            assert_eq!(free.is_some(), len < 20, "{len}");
        }
    }
}
