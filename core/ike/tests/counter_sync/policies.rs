//! `replay_takeover`: which numbers the next owner accepts, and when Child SAs are rekeyed.

use super::*;
use casemate_ike::config::{ChildConfig, EsnPolicy, ReplayTakeover};
use std::sync::Arc;

/// The left side is taken over. Its record says that the peer has reached `reached` and may have been
/// accepted up to `reserve`.
fn taken_over(mut pair: Pair, (reached, reserve): (u64, u64), policy: ReplayTakeover) -> Pair {
    let mut made = records(&pair.left, pair.now);
    let all: Vec<u32> = made[0].sequences().map(|child| child.spi).collect();
    for spi in all {
        made[0].set_used_numbers(spi, 0, reached);
        made[0].set_sequence_numbers(spi, 0, reserve);
    }
    let now = pair.now;
    pair.left = next_owner(&pair.left, made, 1, now, |connection| connection.replay_takeover = policy);
    pair
}

fn start(pair: &Pair) -> u64 {
    pair.left.children()[0].inbound.last_received
}

#[test]
fn strict_accepts_higher_numbers_only_and_asks_for_nothing() {
    let pair = established(Pair::with_defaults());
    let before = spis(&pair.left);
    let mut pair = taken_over(pair, (40, 1_000), ReplayTakeover::Strict);
    assert_eq!(start(&pair), 1_000);
    pair.advance(60 * SECOND);
    assert!(skipped(&pair.right).is_empty());
    assert_eq!(spis(&pair.left), before);
}

#[test]
fn learn_accepts_what_is_above_the_recorded_number() {
    let pair = established(Pair::with_defaults());
    let before = spis(&pair.left);
    let mut pair = taken_over(pair, (40, 1_000), ReplayTakeover::Learn);
    assert_eq!(start(&pair), 40);
    pair.advance(60 * SECOND);
    assert!(skipped(&pair.right).is_empty());
    assert_eq!(spis(&pair.left), before);
}

#[test]
fn sync_asks_for_the_difference() {
    let pair = established(Pair::with_defaults());
    let mut pair = taken_over(pair, (40, 1_000), ReplayTakeover::Sync);
    assert_eq!(start(&pair), 1_000);
    pair.advance(SECOND);
    assert_eq!(skipped(&pair.right), [960]);
}

fn with_children(children: &[EsnPolicy], replay_window: u32) -> Pair {
    let connection = |own, peer| {
        let mut connection = pair::connection(own, peer);
        let one = |(at, esn): (usize, &EsnPolicy)| {
            let mut child = ChildConfig { replay_window, ..(*connection.children[0]).clone() };
            child.name = format!("child {at}");
            child.proposals.iter_mut().for_each(|proposal| proposal.esn = *esn);
            Arc::new(child)
        };
        connection.children = children.iter().enumerate().map(one).collect();
        connection
    };
    let mut pair = keeping(Pair::new(connection("left", "right"), connection("right", "left")));
    pair.left.initiate(pair.now);
    pair.run();
    let connection = pair.left.ike.connections()[0].clone();
    for child in connection.children.iter().skip(1) {
        let now = pair.now;
        let begun = pair.left.with_context(now, |ike, host, context| {
            ike.initiate(&connection, Some(child), None, host, context)
        });
        begun.unwrap();
        pair.run();
    }
    pair.check_children(children.len());
    pair
}

/// The length of the notification says which numbers the Child SAs have, so it fits all or none (section
/// 6.4).
#[test]
fn extended_numbers_have_a_longer_notification() {
    for (children, is_asked) in [
        (&[EsnPolicy::Disabled][..], true),
        (&[EsnPolicy::Required], true),
        (&[EsnPolicy::Required, EsnPolicy::Required], true),
        (&[EsnPolicy::Required, EsnPolicy::Disabled], false),
    ] {
        let pair = with_children(children, 32);
        let before = spis(&pair.left);
        let mut pair = taken_over(pair, (40, 1_000), ReplayTakeover::Sync);
        pair.advance(10 * SECOND);
        pair.check_children(children.len());
        assert_eq!(skipped(&pair.right), if is_asked { vec![960] } else { vec![] });
        let stayed = spis(&pair.left).iter().filter(|spi| before.contains(spi)).count();
        assert_eq!(stayed, if is_asked { children.len() } else { 0 });
    }
}

/// Without a replay window, numbers below are accepted as well.
#[test]
fn without_a_window_nothing_is_asked() {
    for policy in [ReplayTakeover::Sync, ReplayTakeover::Strict, ReplayTakeover::Learn] {
        let pair = with_children(&[EsnPolicy::Disabled], 0);
        let before = spis(&pair.left);
        let mut pair = taken_over(pair, (40, 1_000), policy);
        pair.advance(10 * SECOND);
        assert!(skipped(&pair.right).is_empty());
        assert_eq!(spis(&pair.left), before);
    }
}

/// Section 5.2: "a rekey SHOULD follow shortly afterwards, to ensure that the counter never wraps around."
#[test]
fn a_child_sa_with_few_numbers_left_is_rekeyed_as_well() {
    let three_quarters = u64::from(u32::MAX / 4 * 3);
    for (reserve, is_rekeyed) in [(three_quarters - 10, false), (three_quarters - 9, true)] {
        let pair = with_children(&[EsnPolicy::Disabled], 32);
        let before = spis(&pair.left);
        let mut pair = taken_over(pair, (reserve - 10, reserve), ReplayTakeover::Sync);
        pair.advance(10 * SECOND);
        pair.check_children(1);
        assert_eq!(skipped(&pair.right), [10]);
        assert_eq!(spis(&pair.left) != before, is_rekeyed, "{reserve}");
    }
}

/// Encoded as versions did that knew neither field, and whose next owner rekeyed at once.
#[test]
fn records_of_earlier_versions_are_read() {
    for policy in [ReplayTakeover::Sync, ReplayTakeover::Strict, ReplayTakeover::Learn] {
        let mut pair = established(Pair::with_defaults());
        let before = spis(&pair.left);
        let mut made = records(&pair.left, pair.now).remove(0);
        made.set_sequence_numbers(before[0], 0, 1_000);
        let bytes = without_new_fields(made.encode().unwrap().expose());
        let old = IkeRecord::decode(&bytes).unwrap();
        assert_eq!(old.sequences().next().unwrap().reached, None);
        let now = pair.now;
        pair.left =
            next_owner(&pair.left, vec![old], 1, now, |connection| connection.replay_takeover = policy);
        assert_eq!(start(&pair), 1_000);
        pair.advance(10 * SECOND);
        assert!(skipped(&pair.right).is_empty());
        assert_eq!(spis(&pair.left) == before, policy == ReplayTakeover::Strict, "{policy:?}");
        pair.check_children(1);
    }
}

/// Removes field 18 of the Child SA and field 20 of the IKE SA, and counts them off their CBOR maps.
fn without_new_fields(record: &[u8]) -> Vec<u8> {
    let position = |bytes: &[u8], wanted: &[u8]| {
        let found: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(wanted)).collect();
        assert_eq!(found.len(), 1, "{wanted:?}");
        found[0]
    };
    let mut bytes = record.to_vec();
    // Field 20: { 0: true, 1: true, 3: 0 }, the last one.
    let sync = [20, 0xa3, 0, 0xf5, 1, 0xf5, 3, 0];
    assert!(bytes.ends_with(&sync));
    bytes.truncate(bytes.len() - sync.len());
    assert_eq!(bytes[0] & 0xe0, 0xa0, "a map with at most 23 fields");
    bytes[0] -= 1;
    // Field 17 is 1,000, and field 18 is 0.
    let at = position(&bytes, &[17, 0x19, 3, 232, 18, 0]);
    bytes.drain(at + 4..at + 6);
    // The map begins with field 0, the name "net".
    let map = position(&bytes, &[0, 0x63, b'n', b'e', b't']) - 1;
    assert_eq!(bytes[map] & 0xe0, 0xa0);
    bytes[map] -= 1;
    bytes
}

/// The request applies to all Child SAs, so it names what the farthest one needs.
#[test]
fn the_largest_difference_is_asked_for() {
    for order in [[1_000, 3_000], [3_000, 1_000]] {
        let mut pair = with_children(&[EsnPolicy::Disabled; 2], 32);
        let mut made = records(&pair.left, pair.now);
        for (spi, reserve) in spis(&pair.left).into_iter().zip(order) {
            made[0].set_used_numbers(spi, 0, 40);
            made[0].set_sequence_numbers(spi, 0, reserve);
        }
        pair.left = next_owner(&pair.left, made, 1, pair.now, |_| {});
        pair.advance(SECOND);
        assert_eq!(skipped(&pair.right), [2_960]);
    }
}
