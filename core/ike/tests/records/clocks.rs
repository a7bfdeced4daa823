//! Takeovers by a host whose clock is ahead of the clock of the former owner.

use crate::pair::{IkePeer, Pair, connection};
use crate::{SECOND, SIDES, Side, check_usable, established, ids, records, restore, successor_of};
use casemate_ike::DownReason;
use casemate_ike::config::Lifespan;
use std::sync::Arc;
use std::time::Duration;

const DAY: Duration = Duration::from_hours(24);
const LIFETIME: Duration = Duration::from_hours(1);

/// A pair whose left host rekeys its SAs after an hour, or ends them.
fn with_lifetime(is_rekeyed: bool) -> Pair {
    let tenth = LIFETIME / 10;
    let lifespan = match is_rekeyed {
        true => Lifespan { rekey: Some(LIFETIME), jitter: Duration::ZERO, hard: Some(LIFETIME + tenth) },
        false => Lifespan { rekey: None, jitter: Duration::ZERO, hard: Some(LIFETIME) },
    };
    let mut left = connection("left", "right");
    left.lifespan = lifespan;
    Arc::make_mut(&mut left.children[0]).lifespan = lifespan;
    established(Pair::new(left, connection("right", "left")))
}

/// Replaces a host with another one whose clock is ahead by `step`.
fn take_over_after(pair: &mut Pair, side: Side, step: Duration, has_had_owner: bool) {
    let now = pair.now;
    let old = side.of(pair);
    let mut records = records(old, now);
    records.iter_mut().for_each(|record| record.advance_by_clocks(step, has_had_owner));
    let mut new = successor_of(old, 1_000);
    restore(&mut new, records, 1, now).unwrap();
    *side.of(pair) = new;
}

/// SPIs of the IKE SA and of the inbound Child SA.
fn spis(peer: &IkePeer) -> (Vec<u64>, Vec<u32>) {
    let ikes = peer.ike.status().map(|status| status.spis.initiator.0).collect();
    (ikes, peer.children().iter().map(|child| child.inbound.spi.get()).collect())
}

#[test]
fn sas_are_rekeyed_if_the_clock_of_the_next_owner_is_ahead() {
    for step in [LIFETIME, 2 * LIFETIME, DAY] {
        let mut pair = with_lifetime(true);
        let before = spis(&pair.left);
        take_over_after(&mut pair, Side::Left, step, true);
        pair.run();
        pair.check_children(1);
        pair.advance(90 * SECOND);
        pair.check_children(1);
        assert_eq!(pair.left.down_reasons(), [DownReason::Replaced], "{step:?}");
        let after = spis(&pair.left);
        assert!(before.0 != after.0 && before.1 != after.1, "{step:?}: not rekeyed: {before:?} {after:?}");
        check_usable(&mut pair);
    }
}

#[test]
fn sas_that_are_not_rekeyed_end_after_five_minutes() {
    let mut pair = with_lifetime(false);
    take_over_after(&mut pair, Side::Left, DAY, true);
    pair.advance(295 * SECOND);
    pair.check_children(1);
    pair.advance(10 * SECOND);
    pair.check_children(0);
    assert_eq!((ids(&pair.left).len(), ids(&pair.right).len()), (0, 0));
}

/// The renewal and the end were two seconds away.
#[test]
fn renewals_and_ends_that_were_near_are_not_delayed() {
    for is_rekeyed in [true, false] {
        let mut pair = with_lifetime(is_rekeyed);
        let before = spis(&pair.left);
        pair.now = pair.now.after(LIFETIME - 2 * SECOND);
        take_over_after(&mut pair, Side::Left, 3 * SECOND, true);
        pair.advance(3 * SECOND);
        assert_ne!(spis(&pair.left).1, before.1);
        pair.check_children(usize::from(is_rekeyed));
    }
}

/// A machine that was off for a day.
#[test]
fn without_an_owner_meanwhile_expired_sas_end() {
    let mut pair = with_lifetime(true);
    take_over_after(&mut pair, Side::Left, DAY, false);
    pair.advance(5 * SECOND);
    assert_eq!((ids(&pair.left).len(), ids(&pair.right).len()), (0, 0));
}

/// The peer repeats its request, whose response was lost with the former owner.
#[test]
fn a_lost_response_is_repeated_whatever_the_clocks_say() {
    for side in SIDES {
        for step in [5 * Duration::from_mins(1), DAY] {
            let mut pair = established(Pair::with_defaults());
            let now = pair.now;
            let peer = if side == Side::Left { &mut pair.right } else { &mut pair.left };
            let child = peer.children()[0].id;
            assert!(peer.with_context(now, |ike, host, context| ike.rekey_child(child, host, context)));
            match side {
                Side::Left => pair.deliver_to_left(),
                Side::Right => pair.deliver_to_right(),
            }
            side.of(&mut pair).sent.clear();
            take_over_after(&mut pair, side, step, false);
            pair.advance(20 * SECOND);
            assert_eq!((ids(&pair.left).len(), ids(&pair.right).len()), (1, 1), "{side:?} {step:?}");
            check_usable(&mut pair);
        }
    }
}
