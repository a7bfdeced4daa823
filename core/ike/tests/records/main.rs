//! IKE SAs that another process or host continues from their records (docs/decisions/0140-cells.md).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

#[path = "../pair/mod.rs"]
mod pair;

mod both_sides;
mod clocks;
mod configuration;
mod exchanges;
mod kinds;

use casemate_ike::{IkeRecord, IkeSaId, Restoration, RestoreError};
use casemate_sa::Instant;
use pair::{IkePeer, Pair};
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// The identifiers of the IKE SAs of a host.
fn ids(peer: &IkePeer) -> Vec<IkeSaId> {
    peer.ike.status().map(|status| status.id).collect()
}

/// The records of the IKE SAs of a host, after encoding and decoding.
fn records(peer: &IkePeer, now: Instant) -> Vec<IkeRecord> {
    let records = ids(peer).into_iter().filter_map(|id| peer.ike.record(id, now));
    records.map(|record| IkeRecord::decode(record.encode().unwrap().expose()).unwrap()).collect()
}

/// A host with the configuration of `old`, and another random source.
fn successor_of(old: &IkePeer, seed: u64) -> IkePeer {
    let mut new = IkePeer::new(&old.addr.to_string(), seed, (*old.ike.connections()[0]).clone());
    new.ike.keep_records(true);
    // Other SPIs than those of the former owner, as if they were random.
    new.host.last = u32::try_from(seed).unwrap() * 100;
    new
}

/// Restores records on a host.
fn restore(
    new: &mut IkePeer,
    records: Vec<IkeRecord>,
    owners: u16,
    now: Instant,
) -> Result<Vec<IkeSaId>, RestoreError> {
    let mut restoration = Restoration::new(new.ike.connections());
    new.with_context(now, |ike, host, context| {
        let mut restored = Vec::new();
        for record in records {
            restored.push(ike.restore(record, owners, &mut restoration, host, context)?);
        }
        for restored in &restored {
            ike.begin_restored(*restored, &BTreeMap::new(), host, context);
        }
        Ok(restored.into_iter().map(|restored| restored.ike).collect())
    })
}

/// Which host of a pair fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

const SIDES: [Side; 2] = [Side::Left, Side::Right];

impl Side {
    fn of(self, pair: &mut Pair) -> &mut IkePeer {
        match self {
            Self::Left => &mut pair.left,
            Self::Right => &mut pair.right,
        }
    }
}

/// Replaces a host with another one that continues its IKE SAs.
fn take_over(pair: &mut Pair, side: Side, owners: u16) {
    let now = pair.now;
    let old = side.of(pair);
    let records = records(old, now);
    let seed = if side == Side::Left { 1_000 } else { 2_000 };
    let mut new = successor_of(old, seed + u64::from(owners));
    restore(&mut new, records, owners, now).unwrap();
    *side.of(pair) = new;
}

/// Two hosts that keep records, with an IKE SA that the left one has initiated.
fn established(mut pair: Pair) -> Pair {
    pair.left.ike.keep_records(true);
    pair.right.ike.keep_records(true);
    pair.left.initiate(pair.now);
    pair.run();
    pair
}

/// Checks that both hosts can do everything with their IKE SA: rekey it and its Child SA, and close it.
fn check_usable(pair: &mut Pair) {
    pair.check_children(1);
    for side in SIDES {
        let now = pair.now;
        let peer = side.of(pair);
        let child = peer.children()[0].id;
        assert!(peer.with_context(now, |ike, host, context| ike.rekey_child(child, host, context)));
        pair.advance(5 * SECOND);
        pair.check_children(1);
        let now = pair.now;
        let peer = side.of(pair);
        assert_ne!(peer.children()[0].id, child, "{side:?}");
        let id = *ids(peer).last().unwrap();
        assert!(peer.with_context(now, |ike, host, context| ike.rekey(id, host, context)));
        pair.advance(5 * SECOND);
        pair.check_children(1);
        assert_eq!((ids(&pair.left).len(), ids(&pair.right).len()), (1, 1), "{side:?}");
    }
    let id = ids(&pair.left)[0];
    pair.left.with_context(pair.now, |ike, host, context| {
        ike.terminate(id, casemate_ike::DownReason::Local, host, context)
    });
    pair.advance(5 * SECOND);
    pair.check_children(0);
    assert_eq!((ids(&pair.left).len(), ids(&pair.right).len()), (0, 0));
    assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
}
