//! The next owner of an IKE SA asks its peer to leave out numbers (RFC 6311 section 5, case 2).

use super::*;
use casemate_sa::Spi;

/// What the peer has sent since the record was made is not known, up to this number.
const RESERVE: u64 = 1_000;
/// What the peer has sent before, as the record says.
const USED: u64 = 1;
/// What the peer is to leave out.
const SKIP: u64 = RESERVE - USED;

/// Records of the left side whose next owner accepts higher numbers than [`RESERVE`] only.
fn reserved(pair: &Pair) -> Vec<IkeRecord> {
    let mut made = records(&pair.left, pair.now);
    for record in &mut made {
        let children: Vec<(u32, Option<u64>)> =
            record.sequences().map(|child| (child.spi, child.reached)).collect();
        for (spi, reached) in children {
            if reached == Some(0) {
                record.set_used_numbers(spi, 0, USED);
            }
            record.set_sequence_numbers(spi, 0, RESERVE);
        }
    }
    made
}

fn take_over(pair: &mut Pair, owners: u16) {
    let made = reserved(pair);
    pair.left = next_owner(&pair.left, made, owners, pair.now, |_| {});
}

/// The numbers from which the Child SA of the left side goes on, and the peer's that are known.
fn numbers(pair: &Pair) -> (u64, Option<u64>) {
    let child = records(&pair.left, pair.now)[0].sequences().next().unwrap();
    (child.received, child.reached)
}

#[test]
fn the_peer_leaves_out_numbers_and_nothing_is_rekeyed() {
    let mut pair = established(Pair::with_defaults());
    let before = spis(&pair.left);
    take_over(&mut pair, 1);
    assert_eq!(pair.left.children()[0].inbound.last_received, RESERVE);
    assert_eq!(numbers(&pair), (RESERVE, Some(USED)));
    pair.advance(60 * SECOND);
    assert_eq!(skipped(&pair.right), [SKIP]);
    assert_eq!(spis(&pair.left), before);
    // The record knows that the peer has reached the number, so the next owner asks for the difference.
    assert_eq!(numbers(&pair), (RESERVE, Some(RESERVE)));
    let mut made = records(&pair.left, pair.now);
    made[0].set_sequence_numbers(before[0], 0, RESERVE + 7);
    pair.left = next_owner(&pair.left, made, 2, pair.now, |_| {});
    pair.advance(60 * SECOND);
    assert_eq!((skipped(&pair.right), spis(&pair.left)), (vec![SKIP, 7], before));
}

#[test]
fn after_an_orderly_end_the_peer_is_not_asked() {
    let mut pair = established(Pair::with_defaults());
    let mut made = records(&pair.left, pair.now);
    made[0].set_used_numbers(spis(&pair.left)[0], 5, 300);
    assert_eq!(made[0].sequences().next().unwrap().reached, Some(300));
    pair.left = next_owner(&pair.left, made, 1, pair.now, |_| {});
    pair.advance(10 * SECOND);
    assert!(skipped(&pair.right).is_empty());
    assert_eq!(numbers(&pair), (300, Some(300)));
}

/// A number that the data path has not seen is no number of the peer: the window began above it.
#[test]
fn an_end_before_the_peer_has_answered_is_not_orderly() {
    let mut pair = established(Pair::with_defaults());
    take_over(&mut pair, 1);
    pair.left.sent.clear();
    let mut made = records(&pair.left, pair.now);
    made[0].set_used_numbers(spis(&pair.left)[0], 5, RESERVE);
    assert_eq!(made[0].sequences().next().unwrap().reached, Some(USED));
    pair.left = next_owner(&pair.left, made, 2, pair.now, |_| {});
    pair.advance(10 * SECOND);
    // The request of the first owner is repeated, and then the second owner asks on its own.
    assert_eq!(skipped(&pair.right), [SKIP, SKIP]);
    assert_eq!(numbers(&pair), (RESERVE, Some(RESERVE)));
}

#[test]
fn the_peer_leaves_out_numbers_once_if_messages_are_lost() {
    for lost in 0..2 {
        let mut pair = established(Pair::with_defaults());
        let before = spis(&pair.left);
        take_over(&mut pair, 1);
        if lost == 1 {
            pair.deliver_to_right();
        }
        pair.left.sent.clear();
        pair.right.sent.clear();
        pair.advance(30 * SECOND);
        assert_eq!((skipped(&pair.right), spis(&pair.left)), (vec![SKIP], before), "{lost}");
        assert_eq!(numbers(&pair), (RESERVE, Some(RESERVE)));
    }
}

/// The peer has left out numbers twice then, which costs numbers only.
#[test]
fn several_owners_fail_before_they_know_the_answer() {
    let mut pair = established(Pair::with_defaults());
    let before = spis(&pair.left);
    for owners in 1..4 {
        take_over(&mut pair, owners);
        pair.deliver_to_right();
        pair.right.sent.clear();
    }
    pair.advance(30 * SECOND);
    assert_eq!(spis(&pair.left), before);
    let total: u64 = skipped(&pair.right).into_iter().sum();
    assert!((SKIP..=4 * RESERVE).contains(&total), "{total}");
    assert_eq!(numbers(&pair), (RESERVE, Some(RESERVE)));
    pair.advance(300 * SECOND);
    assert_eq!((ids(&pair.left).len(), ids(&pair.right).len()), (1, 1));
}

#[test]
fn both_hosts_are_taken_over_at_the_same_time() {
    let mut pair = established(Pair::with_defaults());
    let mut of_right = records(&pair.right, pair.now);
    of_right[0].set_used_numbers(spis(&pair.right)[0], 0, USED);
    of_right[0].set_sequence_numbers(spis(&pair.right)[0], 0, 5 * RESERVE);
    take_over(&mut pair, 1);
    pair.right = next_owner(&pair.right, of_right, 1, pair.now, |_| {});
    let before = (spis(&pair.left), spis(&pair.right));
    pair.advance(30 * SECOND);
    assert_eq!((skipped(&pair.left), skipped(&pair.right)), (vec![5 * RESERVE - USED], vec![SKIP]));
    assert_eq!((spis(&pair.left), spis(&pair.right)), before);
}

/// New Child SAs would have other numbers than the peer is to leave out.
#[test]
fn the_peer_makes_no_child_sa_meanwhile() {
    let mut pair = established(Pair::with_defaults());
    take_over(&mut pair, 1);
    let asks = pair.left.sent.pop_front().unwrap();
    let (child, id, now) = (pair.right.children()[0].id, ids(&pair.right)[0], pair.now);
    pair.right.with_context(now, |ike, host, context| assert!(ike.rekey_child(child, host, context)));
    pair.deliver_to_left();
    assert_eq!(pair.left.children().len(), 1);
    pair.deliver_to_right();
    pair.right.with_context(now, |ike, host, context| assert!(ike.rekey(id, host, context)));
    pair.deliver_to_left();
    assert_eq!(ids(&pair.left).len(), 1);
    pair.left.sent.push_back(asks);
    pair.advance(60 * SECOND);
    assert_eq!(skipped(&pair.right), [SKIP]);
    pair.check_children(1);
    assert_ne!(pair.right.children()[0].id, child, "rekeyed later");
}

/// The peer responds to the request of the former owner first.
#[test]
fn an_exchange_of_the_former_owner_is_completed_first() {
    let mut pair = established(Pair::with_defaults());
    let (child, now) = (pair.left.children()[0].id, pair.now);
    assert!(pair.left.with_context(now, |ike, host, context| ike.rekey_child(child, host, context)));
    take_over(&mut pair, 1);
    pair.advance(30 * SECOND);
    pair.check_children(1);
    assert_eq!(skipped(&pair.right), [SKIP]);
}

#[test]
fn a_peer_without_support_gets_new_child_sas() {
    for keeps in [&[][..], &[SUPPORTS_IDS]] {
        let mut pair = announcing(Pair::with_defaults(), |kind| keeps.contains(&kind)).pair;
        let before = spis(&pair.left);
        take_over(&mut pair, 1);
        pair.advance(5 * SECOND);
        assert!(skipped(&pair.right).is_empty());
        pair.check_children(1);
        assert_ne!(spis(&pair.left), before);
    }
}

#[test]
fn a_peer_that_refuses_gets_new_child_sas() {
    let refusals = [Raw::notify(NotifyType::INVALID_SYNTAX, &[]), Raw::notify(NotifyType(9_999), &[])];
    for (refusal, is_fatal) in refusals.into_iter().zip([true, false]) {
        let mut pair = established(Pair::with_defaults());
        pair.left.ike.report_keys(true);
        let id = ids(&pair.left)[0];
        pair.left.with_context(pair.now, |ike, host, context| assert!(ike.rekey(id, host, context)));
        pair.run();
        let mut forger = MessageForger::against(&pair.left);
        let before = spis(&pair.left);
        take_over(&mut pair, 1);
        let request = pair.left.sent.pop_front().unwrap().message;
        let (header, inside) = forger.open(&request);
        assert_eq!((header.exchange, notifies(&inside)[0].0), (ExchangeType::INFORMATIONAL, NUMBERS));
        assert_eq!(notifies(&inside)[0].1, [0, 0, 3, 231]);
        let header = forger.header(ExchangeType::INFORMATIONAL, header.message_id, true);
        let response = from_right(&pair, forger.seal(&header, &[refusal]));
        let now = pair.now;
        pair::deliver(&mut pair.left, response, now);
        // RFC 7296 section 2.21.3: after a syntax error, the peer has closed the IKE SA.
        assert_eq!(ids(&pair.left).is_empty(), is_fatal);
        if !is_fatal {
            let (header, inside) = forger.open(&pair.left.sent.pop_front().unwrap().message);
            assert_eq!(header.exchange, ExchangeType::CREATE_CHILD_SA);
            let (kind, _) = notifies(&inside).remove(0);
            assert_eq!((kind, spis(&pair.left)), (NotifyType::REKEY_SA, before));
        }
    }
}

#[test]
fn a_peer_that_does_not_respond_is_dead() {
    let mut pair = established(Pair::with_defaults());
    take_over(&mut pair, 1);
    for _ in 0..400 {
        pair.now = pair.now.after(SECOND);
        pair.left.handle_timeouts(pair.now);
        pair.left.sent.clear();
    }
    assert!(ids(&pair.left).is_empty());
    assert!(pair.left.leaked_spis().iter().all(|spi: &Spi| spi.get() == 0));
}
