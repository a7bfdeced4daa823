//! Both sides set up the same SA at the same time, because one of them or both have lost what they had.

use crate::pair::{IkePeer, Pair, RecordingRng, connection};
use crate::{SECOND, SIDES, Side, check_usable, established, ids, take_over};
use casemate_ike::config::{AddrPattern, Connection, Unique};
use casemate_ike::{DownReason, IkeState, Transmit};
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, Header};

fn exchange(transmit: &Transmit) -> ExchangeType {
    Header::parse(&transmit.message).unwrap().exchange
}

/// Starts the Child SA of a restored host.
fn start(peer: &mut IkePeer, now: Instant) {
    let connection = peer.ike.connections()[0].clone();
    let child = connection.children[0].clone();
    peer.with_context(now, |ike, host, context| {
        ike.start_after_restoration(&connection, &child, host, context);
    });
}

fn terminate(peer: &mut IkePeer, reason: DownReason, now: Instant) {
    let id = ids(peer)[0];
    peer.with_context(now, |ike, host, context| ike.terminate(id, reason, host, context));
}

/// Two hosts whose Child SA was closed and which have restarted, with random numbers of this seed.
fn without_child(seed: u64) -> Pair {
    let mut pair = established(Pair::with_defaults());
    let child = pair.left.children()[0].id;
    pair.left.with_context(pair.now, |ike, host, context| {
        ike.terminate_child(child, DownReason::Local, host, context);
    });
    pair.run();
    restart_both(&mut pair, seed);
    pair
}

fn restart_both(pair: &mut Pair, seed: u64) {
    for side in SIDES {
        take_over(pair, side, 1);
    }
    (pair.left.rng, pair.right.rng) = (RecordingRng::new(seed), RecordingRng::new(seed + 100));
}

fn check_one_child(pair: &mut Pair, seed: u64) {
    let now = pair.now;
    pair.advance(30 * SECOND);
    assert_eq!(
        (pair.left.children().len(), pair.right.children().len()),
        (1, 1),
        "seed {seed}, from {now:?}"
    );
    assert!(pair.left.children()[0].active && pair.right.children()[0].active, "seed {seed}");
    check_usable(pair);
}

#[test]
fn of_two_child_sas_that_both_sides_start_one_remains() {
    for seed in 0..8 {
        let mut pair = without_child(seed);
        for side in SIDES {
            start(side.of(&mut pair), Instant::from_secs(1_000));
        }
        assert_eq!((pair.left.sent.len(), pair.right.sent.len()), (1, 1));
        check_one_child(&mut pair, seed);
    }
}

/// The request of the left side is lost, and the right side has finished its exchange when the left side
/// repeats it. Only the left side knows that they crossed.
#[test]
fn a_side_that_knows_of_both_child_sas_closes_the_redundant_one() {
    for seed in 0..8 {
        let mut pair = without_child(seed);
        for side in SIDES {
            start(side.of(&mut pair), Instant::from_secs(1_000));
        }
        pair.left.sent.clear();
        pair.run();
        pair.check_children(1);
        check_one_child(&mut pair, seed);
    }
}

/// A Child SA that the peer has requested before ours was sent is enough.
#[test]
fn a_child_sa_is_not_started_twice() {
    let mut pair = without_child(1);
    take_over(&mut pair, Side::Right, 2);
    let (now, id) = (pair.now, ids(&pair.right)[0]);
    // Another request of the right side is outstanding.
    pair.right.with_context(now, |ike, host, context| ike.rekey(id, host, context));
    let rekeying = pair.right.sent.pop_front().unwrap();
    start(&mut pair.right, now);
    start(&mut pair.left, now);
    pair.run();
    pair.right.sent.push_back(rekeying);
    pair.run();
    pair.check_children(1);
    check_one_child(&mut pair, 1);
}

/// The left side replaces the Child SA that it has rekeyed in an exchange whose keys are lost, without naming
/// it, and the right side has restarted without it.
#[test]
fn a_child_sa_that_replaces_a_lost_one_crosses_that_of_the_peer() {
    for seed in 0..8 {
        let mut pair = established(Pair::with_defaults());
        let (now, child) = (pair.now, pair.left.children()[0].id);
        assert!(pair.left.with_context(now, |ike, host, context| ike.rekey_child(child, host, context)));
        pair.deliver_to_right();
        pair.right.sent.clear();
        restart_both(&mut pair, seed);
        pair.left.handle_timeouts(now);
        // The former request, and the Delete of the lost Child SA.
        for _ in 0..2 {
            pair.advance(SECOND / 2);
            pair.left.handle_timeouts(pair.now.after(2 * SECOND));
            pair.deliver_to_right();
            pair.deliver_to_left();
        }
        assert_eq!(pair.left.sent.iter().map(exchange).collect::<Vec<_>>(), [ExchangeType::CREATE_CHILD_SA]);
        start(&mut pair.right, now);
        assert_eq!(pair.right.sent.iter().map(exchange).collect::<Vec<_>>(), [ExchangeType::CREATE_CHILD_SA]);
        check_one_child(&mut pair, seed);
    }
}

/// Two hosts with two IKE SAs: the left side has lost the keys of the successor of the former one and
/// authenticates the right side again. At the same time, the right side finds that the left side does not
/// know the successor, and does so, too.
fn with_two_ike_sas(seed: u64) -> Pair {
    let right = Connection { dpd_delay: Some(10 * SECOND), ..connection("right", "left") };
    let mut pair = established(Pair::new(connection("left", "right"), right));
    let (now, id) = (pair.now, ids(&pair.left)[0]);
    pair.left.with_context(now, |ike, host, context| ike.rekey(id, host, context));
    pair.deliver_to_right();
    pair.right.sent.clear();
    take_over(&mut pair, Side::Left, 1);
    (pair.left.rng, pair.right.rng) = (RecordingRng::new(seed), RecordingRng::new(seed + 100));
    let begins = |sent: &Transmit| exchange(sent) == ExchangeType::IKE_SA_INIT;
    for _ in 0..60 {
        if pair.right.sent.iter().any(begins) {
            break;
        }
        pair.deliver_to_left();
        pair.deliver_to_right();
        pair.now = pair.now.after(SECOND);
        pair.right.handle_timeouts(pair.now);
    }
    let first: Vec<Transmit> = pair.right.sent.drain(..).filter(begins).collect();
    pair.left.handle_timeouts(pair.now);
    pair.deliver_to_right();
    pair.deliver_to_left();
    assert_eq!((first.len(), pair.left.sent.iter().filter(|sent| begins(sent)).count()), (1, 1));
    pair.right.sent.extend(first);
    pair.advance(20 * SECOND);
    let count = |peer: &IkePeer| peer.ike.status().filter(|ike| !ike.children.is_empty()).count();
    assert_eq!((count(&pair.left), count(&pair.right)), (2, 2), "seed {seed}");
    pair
}

fn check_one_ike_sa(mut pair: Pair, seed: u64) {
    pair.advance(250 * SECOND);
    assert_eq!((ids(&pair.left).len(), ids(&pair.right).len()), (1, 1), "seed {seed}");
    check_usable(&mut pair);
}

#[test]
fn of_two_ike_sas_in_place_of_a_lost_one_one_remains() {
    for seed in 0..8 {
        check_one_ike_sa(with_two_ike_sas(seed), seed);
    }
}

#[test]
fn a_redundant_ike_sa_is_closed_after_it_was_rekeyed() {
    for seed in 0..8 {
        let mut pair = with_two_ike_sas(seed);
        for id in ids(&pair.left) {
            pair.left.with_context(pair.now, |ike, host, context| ike.rekey(id, host, context));
        }
        check_one_ike_sa(pair, seed);
    }
}

#[test]
fn the_next_owner_closes_the_redundant_ike_sa() {
    for seed in 0..8 {
        let mut pair = with_two_ike_sas(seed);
        for side in SIDES {
            take_over(&mut pair, side, 2);
        }
        check_one_ike_sa(pair, seed);
    }
}

/// Two hosts of which the right one accepts one IKE SA only.
fn with_keeping_peer() -> Pair {
    let right = Connection { unique: Unique::Keep, ..connection("right", "left") };
    established(Pair::new(connection("left", "right"), right))
}

#[test]
fn a_host_that_was_closing_its_ike_sa_sets_up_the_new_one_afterwards() {
    let mut pair = with_keeping_peer();
    terminate(&mut pair.left, DownReason::Local, pair.now);
    take_over(&mut pair, Side::Left, 1);
    start(&mut pair.left, pair.now);
    assert!(!pair.left.sent.iter().any(|sent| exchange(sent) == ExchangeType::IKE_SA_INIT));
    pair.advance(10 * SECOND);
    assert_eq!(pair.left.down_reasons(), [DownReason::Local], "nothing was refused");
    assert_eq!((ids(&pair.left).len(), ids(&pair.right).len()), (1, 1));
    check_usable(&mut pair);
}

#[test]
fn a_delete_without_a_response_delays_the_new_ike_sa_for_ten_seconds() {
    let mut pair = with_keeping_peer();
    terminate(&mut pair.left, DownReason::Local, pair.now);
    take_over(&mut pair, Side::Left, 1);
    start(&mut pair.left, pair.now);
    let mut begun = None;
    for second in 1..=60 {
        pair.now = pair.now.after(SECOND);
        pair.left.handle_timeouts(pair.now);
        if pair.left.sent.drain(..).any(|sent| exchange(&sent) == ExchangeType::IKE_SA_INIT) {
            begun = begun.or(Some(second));
        }
    }
    assert_eq!(begun, Some(10));
}

/// The former owner was closing the IKE SA because it had not been reauthenticated.
#[test]
fn the_next_owner_sets_up_again_what_the_former_one_would_have() {
    for (reason, is_started, count) in
        [(DownReason::Reauth, false, 1), (DownReason::Reauth, true, 1), (DownReason::Local, false, 0)]
    {
        let mut pair = with_keeping_peer();
        terminate(&mut pair.left, reason, pair.now);
        take_over(&mut pair, Side::Left, 1);
        take_over(&mut pair, Side::Left, 2);
        if is_started {
            start(&mut pair.left, pair.now);
        }
        pair.advance(10 * SECOND);
        assert_eq!((ids(&pair.left).len(), ids(&pair.right).len()), (count, count), "{reason}");
        pair.check_children(count);
    }
}

/// A host that does not know where its peer is can only close an IKE SA whose successor is lost. It does not
/// rekey it again, which the peer would refuse.
#[test]
fn an_ike_sa_with_a_lost_successor_is_closed_at_once() {
    let right = Connection { remote_addrs: vec![AddrPattern::Any], ..connection("right", "left") };
    let mut pair = established(Pair::new(connection("left", "right"), right));
    let (now, id) = (pair.now, ids(&pair.right)[0]);
    pair.right.with_context(now, |ike, host, context| ike.rekey(id, host, context));
    pair.deliver_to_left();
    pair.left.sent.clear();
    take_over(&mut pair, Side::Right, 1);
    pair.now = pair.now.after(2 * SECOND);
    pair.right.handle_timeouts(pair.now);
    pair.deliver_to_left();
    pair.deliver_to_right();
    assert_eq!(pair.right.sent.iter().map(exchange).collect::<Vec<_>>(), [ExchangeType::INFORMATIONAL]);
    let states: Vec<IkeState> = pair.right.ike.status().map(|ike| ike.state).collect();
    assert_eq!(states, [IkeState::Closing]);
}
