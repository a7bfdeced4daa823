//! IKE messages that wait for the records on which they depend.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use casemate_ike::Transmit;

/// Messages that wait, at most. Further ones are dropped: the peer or this host repeats them.
const MAX_HELD: usize = 4_096;

/// Names a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeId(u64);

/// A change whose records are not all written.
#[derive(Debug, Default)]
struct PendingChange {
    /// Our SPIs of its IKE SAs.
    spis: Vec<u64>,
    held: Vec<Transmit>,
}

/// The changes whose records are not written, and their messages.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    last: u64,
    changes: BTreeMap<ChangeId, PendingChange>,
    /// The last change of each IKE SA, by our SPI.
    by_spi: BTreeMap<u64, ChangeId>,
    held: usize,
    /// Messages that were dropped.
    dropped: u64,
}

impl Outbox {
    /// Adds a change of the IKE SAs with these SPIs of ours.
    pub(crate) fn add(&mut self, spis: Vec<u64>) -> ChangeId {
        self.last = self.last.saturating_add(1);
        let id = ChangeId(self.last);
        self.by_spi.extend(spis.iter().map(|spi| (*spi, id)));
        self.changes.insert(id, PendingChange { spis, held: Vec::new() });
        id
    }

    /// Holds a message whose IKE SA has changes that are not written, or returns it.
    pub(crate) fn hold(&mut self, transmit: Transmit) -> Option<Transmit> {
        let change = own_spi(&transmit.message).and_then(|spi| self.by_spi.get(&spi));
        let Some(change) = change.and_then(|id| self.changes.get_mut(id)) else { return Some(transmit) };
        // A request that is sent again needs to wait once only.
        if change.held.contains(&transmit) {
            return None;
        }
        if self.held >= MAX_HELD {
            self.dropped = self.dropped.saturating_add(1);
            return None;
        }
        self.held = self.held.saturating_add(1);
        change.held.push(transmit);
        None
    }

    /// Notes that all records of a change are written. Returns its messages.
    pub(crate) fn written(&mut self, id: ChangeId) -> Vec<Transmit> {
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

    #[test]
    fn a_message_waits_for_the_last_change_of_its_ike_sa() {
        let mut outbox = Outbox::default();
        let first = outbox.add([1, 2].into());
        let second = outbox.add([1].into());
        for initiator in [true, false] {
            assert_eq!(outbox.hold(message(1, initiator, 1)), None);
            assert_eq!(outbox.hold(message(2, initiator, 2)), None);
            let other = message(3, initiator, 3);
            assert_eq!(outbox.hold(other.clone()), Some(other));
        }
        assert_eq!(outbox.hold(message(2, true, 2)), None);
        assert_eq!(outbox.held(), 4);
        assert_eq!(outbox.written(first), [message(2, true, 2), message(2, false, 2)]);
        assert_eq!(outbox.hold(message(2, true, 4)), Some(message(2, true, 4)));
        assert_eq!(outbox.hold(message(1, true, 5)), None);
        assert_eq!(outbox.written(second).len(), 3);
        assert_eq!((outbox.held(), outbox.hold(message(1, true, 6))), (0, Some(message(1, true, 6))));
    }

    #[test]
    fn the_number_of_messages_is_bounded() {
        let mut outbox = Outbox::default();
        let change = outbox.add([1].into());
        for number in 0..=MAX_HELD {
            let mut transmit = message(1, true, 0);
            transmit.message.extend(u64::try_from(number).unwrap().to_be_bytes());
            assert_eq!(outbox.hold(transmit), None);
        }
        assert_eq!((outbox.held(), outbox.dropped()), (MAX_HELD, 1));
        assert_eq!(outbox.written(change).len(), MAX_HELD);
    }

    #[test]
    fn keepalives_and_short_messages_never_wait() {
        let mut outbox = Outbox::default();
        outbox.add([0].into());
        for len in 0..20 {
            let transmit = Transmit { message: [0].repeat(len), ..message(1, true, 1) };
            let free = outbox.hold(transmit.clone());
            assert_eq!(free.is_some(), len < 20, "{len}");
        }
    }
}
