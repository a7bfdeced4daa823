//! The sequence numbers that an owner has used, written at its orderly end.
//!
//! Without them, the next owner begins behind the reserves, as after a crash, and its peers have to leave out
//! numbers. An entry has the numbers of many Child SAs: no packet moves meanwhile, and to write them to each
//! record would take as many writes as there are IKE SAs.
//!
//! Numbers of an entry count for a record if the owner of the entry has written the record, or a former one
//! has. They are not above those that the formula of [`reserve`](crate::reserve) gives the owner of the entry
//! for that record. So it does not matter whether a later owner still finds the entry: the ranges that it and
//! the owners before it derive are disjoint in either case.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use casemate::ChildSequence;
use casemate_crypto::SecretBytes;
use minicbor::{Decode, Encode};

/// Child SAs of an entry: it must not be longer than a value of the store.
const MAX_CHILDREN: usize = 1_500;

/// An entry, before its encryption.
#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct StoredNumbers {
    /// Identity of the store in which it was written.
    #[n(0)]
    store: Option<u64>,
    #[n(1)]
    children: Vec<ChildNumbers>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
struct ChildNumbers {
    /// SPI of the inbound SA.
    #[n(0)]
    spi: u32,
    /// The last one sent.
    #[n(1)]
    sent: u64,
    /// The highest one received.
    #[n(2)]
    received: u64,
    /// The highest one that the peer has used or left out, as far as is known.
    #[n(3)]
    reached: Option<u64>,
}

/// Encodes the numbers of all Child SAs, for as many entries as they need.
pub(crate) fn encode(all: &[ChildSequence], store: Option<u64>) -> Vec<SecretBytes> {
    let numbers = |child: &ChildSequence| {
        let ChildSequence { spi, sent, received, reached, .. } = *child;
        ChildNumbers { spi, sent, received, reached }
    };
    let entry = |children: &[ChildSequence]| {
        let numbers = StoredNumbers { store, children: children.iter().map(numbers).collect() };
        let mut bytes = Vec::new();
        minicbor::encode(&numbers, &mut bytes).ok().map(|()| SecretBytes::new(&bytes))
    };
    all.chunks(MAX_CHILDREN).filter_map(entry).collect()
}

/// What former owners have used, by the SPIs of inbound SAs.
#[derive(Debug, Default)]
pub(crate) struct FormerNumbers(BTreeMap<u32, (u64, ChildNumbers)>);

impl FormerNumbers {
    /// Adds a decrypted entry of an owner, unless it was written in another store.
    pub(crate) fn add(&mut self, owner: u64, text: &[u8], store: Option<u64>) {
        let numbers = minicbor::decode::<StoredNumbers>(text).ok();
        for child in numbers.into_iter().filter(|numbers| numbers.store == store).flat_map(|it| it.children) {
            let known = self.0.entry(child.spi).or_insert((owner, child));
            if known.0 < owner {
                *known = (owner, child);
            }
        }
    }

    /// The numbers of the Child SA with this SPI, if they count for a record that owner `writer` has written.
    pub(crate) fn of(&self, writer: u64, spi: u32) -> Option<UsedNumbers> {
        let (owner, numbers) = self.0.get(&spi)?;
        (*owner >= writer).then_some(UsedNumbers { owner: *owner, numbers: *numbers })
    }
}

/// The numbers of a Child SA that an owner has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UsedNumbers {
    owner: u64,
    numbers: ChildNumbers,
}

impl UsedNumbers {
    /// The owner that has written them, and these numbers instead of those that a record has.
    pub(crate) fn instead_of(self, recorded: ChildSequence) -> (u64, ChildSequence) {
        let ChildNumbers { sent, received, reached, .. } = self.numbers;
        (self.owner, ChildSequence { sent, received, reached, ..recorded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_store::MAX_VALUE;

    fn child(spi: u32, sent: u64) -> ChildSequence {
        ChildSequence { spi, esn: true, sent, received: sent + 1, reached: Some(sent + 2) }
    }

    #[test]
    fn numbers_count_for_records_of_their_owner_and_former_ones() {
        let mut former = FormerNumbers::default();
        let [entry] = &encode(&[child(1, 10), child(2, 20)], Some(7))[..] else { panic!("one entry") };
        former.add(5, entry.expose(), Some(8));
        assert_eq!(former.of(5, 1), None, "of another store");
        former.add(5, entry.expose(), Some(7));
        for writer in [3, 5] {
            assert_eq!(former.of(writer, 1).unwrap().instead_of(child(1, 1_000)), (5, child(1, 10)));
        }
        assert_eq!(former.of(6, 1), None, "of a later owner");
        assert_eq!(former.of(5, 3), None, "of another Child SA");
        // The entry of an earlier owner was not deleted.
        former.add(4, encode(&[child(1, 5)], Some(7))[0].expose(), Some(7));
        assert_eq!(former.of(3, 1).unwrap().instead_of(child(1, 1_000)), (5, child(1, 10)));
        former.add(5, b"something else", Some(7));
    }

    #[test]
    fn entries_are_not_too_long() {
        let largest = |spi| ChildSequence { esn: true, ..child(spi, u64::MAX - 2) };
        let all: Vec<ChildSequence> = (u32::MAX - 4_000..u32::MAX).map(largest).collect();
        let entries = encode(&all, Some(u64::MAX));
        assert_eq!(entries.len(), 3);
        assert!(entries.iter().all(|entry| entry.expose().len() + 100 < MAX_VALUE));
    }
}
