//! Takeovers in the middle of an exchange, and the IVs of several owners.

use crate::pair::{IkePeer, Pair, connection};
use crate::{SECOND, SIDES, Side, check_usable, established, ids, records, restore, successor_of, take_over};
use casemate_crypto::KexMethod;
use casemate_ike::config::{AdditionalKex, Connection, KexRound};
use casemate_ike::{DownReason, RecordChange, Transmit};
use casemate_wire::ike::{ExchangeType, Header};
use std::collections::BTreeSet;
use std::sync::Arc;

fn header(transmit: &Transmit) -> Header {
    Header::parse(&transmit.message).unwrap()
}

fn rekey_child(peer: &mut IkePeer, now: casemate_sa::Instant) {
    let child = peer.children()[0].id;
    assert!(peer.with_context(now, |ike, host, context| ike.rekey_child(child, host, context)));
}

fn rekey_ike(peer: &mut IkePeer, now: casemate_sa::Instant) {
    let id = ids(peer)[0];
    assert!(peer.with_context(now, |ike, host, context| ike.rekey(id, host, context)));
}

/// A host that fails while the peer has not answered its request, or has, and the response is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Request,
    Response,
}

#[test]
fn a_rekeying_of_a_child_sa_begins_again() {
    for lost in [Lost::Request, Lost::Response] {
        let mut pair = established(Pair::with_defaults());
        rekey_child(&mut pair.left, pair.now);
        if lost == Lost::Response {
            pair.deliver_to_right();
            assert_eq!(pair.right.children().len(), 2);
        }
        pair.right.sent.clear();
        take_over(&mut pair, Side::Left, 1);
        pair.advance(20 * SECOND);
        assert_eq!((pair.left.children().len(), pair.right.children().len()), (1, 1), "{lost:?}");
        check_usable(&mut pair);
    }
}

/// The peer rekeys the Child SA that only it has, is told so, and creates another one.
#[test]
fn the_peer_replaces_the_lost_child_sa_itself() {
    let mut pair = established(Pair::with_defaults());
    rekey_child(&mut pair.left, pair.now);
    pair.deliver_to_right();
    pair.right.sent.clear();
    let (now, lost) = (pair.now, pair.right.children()[1].id);
    assert!(pair.right.with_context(now, |ike, host, context| ike.rekey_child(lost, host, context)));
    take_over(&mut pair, Side::Left, 1);
    for _ in 0..2 {
        pair.deliver_to_left();
        pair.deliver_to_right();
    }
    pair.advance(20 * SECOND);
    check_usable(&mut pair);
}

/// The Delete of the Child SA that only the peer has is lost, while the peer rekeys both SAs.
#[test]
fn sas_are_not_rekeyed_while_a_lost_child_sa_is_deleted() {
    let mut pair = established(Pair::with_defaults());
    rekey_child(&mut pair.left, pair.now);
    take_over(&mut pair, Side::Left, 1);
    rekey_child(&mut pair.right, pair.now);
    let rekeying = pair.right.sent.pop_front().unwrap();
    pair.advance(SECOND / 2);
    pair.left.handle_timeouts(pair.now);
    pair.deliver_to_right();
    pair.deliver_to_left();
    assert_eq!(header(&pair.left.sent.pop_front().unwrap()).exchange, ExchangeType::INFORMATIONAL);
    pair.right.sent.push_back(rekeying);
    pair.deliver_to_left();
    assert_eq!(pair.left.children().len(), 1);
    pair.deliver_to_right();
    rekey_ike(&mut pair.right, pair.now);
    pair.deliver_to_left();
    pair.advance(30 * SECOND);
    check_usable(&mut pair);
}

/// A connection whose Child SAs have an additional key exchange.
fn with_followup(own: &str, peer: &str) -> Connection {
    let mut connection = connection(own, peer);
    let kex = AdditionalKex { methods: vec![KexMethod::EcpP256], optional: false };
    for proposal in &mut Arc::make_mut(&mut connection.children[0]).proposals {
        proposal.kex = vec![KexMethod::X25519];
        proposal.additional = [(KexRound::new(1).unwrap(), kex.clone())].into_iter().collect();
    }
    connection
}

/// The host fails after one of two exchanges, or the peer's last response is lost, with which it has the
/// Child SA.
#[test]
fn a_rekeying_with_an_additional_key_exchange_begins_again() {
    for exchanges in [0, 1, 2] {
        let mut pair = established(Pair::new(with_followup("left", "right"), with_followup("right", "left")));
        rekey_child(&mut pair.left, pair.now);
        for count in 0..exchanges {
            pair.deliver_to_right();
            if count + 1 < exchanges {
                pair.deliver_to_left();
            }
        }
        assert_eq!(pair.right.children().len(), if exchanges == 2 { 2 } else { 1 });
        pair.right.sent.clear();
        take_over(&mut pair, Side::Left, 1);
        pair.advance(20 * SECOND);
        assert_eq!((pair.left.children().len(), pair.right.children().len()), (1, 1), "{exchanges}");
        check_usable(&mut pair);
    }
}

/// Two owners would answer with other nonces and keys: only the one whose record is written may.
#[test]
fn the_response_before_an_additional_key_exchange_is_a_change() {
    let mut pair = established(Pair::new(with_followup("left", "right"), with_followup("right", "left")));
    let former = records(&pair.right, pair.now).remove(0);
    rekey_child(&mut pair.left, pair.now);
    pair.deliver_to_right();
    assert_eq!(pair.right.children().len(), 1, "the additional key exchange follows");
    let now = records(&pair.right, pair.now).remove(0);
    assert_eq!(now.change_since(&former), RecordChange::State);
}

/// The peer may have moved its Child SAs to an IKE SA whose keys are lost. A liveness check shows that.
#[test]
fn after_a_lost_rekeying_of_the_ike_sa_the_peer_is_authenticated_again() {
    for lost in [Lost::Request, Lost::Response] {
        let checked = |own, peer| Connection { dpd_delay: Some(10 * SECOND), ..connection(own, peer) };
        let mut pair = established(Pair::new(checked("left", "right"), checked("right", "left")));
        rekey_ike(&mut pair.left, pair.now);
        if lost == Lost::Response {
            pair.deliver_to_right();
        }
        pair.right.sent.clear();
        take_over(&mut pair, Side::Left, 1);
        pair.advance(20 * SECOND);
        assert_eq!((ids(&pair.left).len(), pair.left.children().len()), (1, 1), "{lost:?}");
        pair.advance(300 * SECOND);
        assert_eq!((ids(&pair.right).len(), pair.right.children().len()), (1, 1), "{lost:?}");
        check_usable(&mut pair);
    }
}

#[test]
fn a_delete_is_completed() {
    for lost in [Lost::Request, Lost::Response] {
        let mut pair = established(Pair::with_defaults());
        let id = ids(&pair.left)[0];
        pair.left
            .with_context(pair.now, |ike, host, context| ike.terminate(id, DownReason::Local, host, context));
        if lost == Lost::Response {
            pair.deliver_to_right();
        }
        pair.right.sent.clear();
        take_over(&mut pair, Side::Left, 1);
        pair.advance(200 * SECOND);
        assert_eq!((ids(&pair.left).len(), ids(&pair.right).len()), (0, 0), "{lost:?}");
    }
}

/// The peer has a Child SA that the next owner deletes. Until then, it does not accept another IKE SA, in
/// which it could not delete it.
#[test]
fn the_ike_sa_is_not_rekeyed_during_a_lost_exchange() {
    let mut pair = established(Pair::with_defaults());
    rekey_child(&mut pair.left, pair.now);
    pair.deliver_to_right();
    pair.right.sent.clear();
    take_over(&mut pair, Side::Left, 1);
    rekey_ike(&mut pair.right, pair.now);
    pair.deliver_to_left();
    assert_eq!(ids(&pair.left).len(), 1);
    pair.advance(20 * SECOND);
    assert_eq!((pair.left.children().len(), pair.right.children().len()), (1, 1));
}

/// While another request is outstanding, the Delete waits in the queue. The Child SA is closed already.
#[test]
fn a_queued_delete_of_a_child_sa_is_sent_by_the_next_owner() {
    let mut pair = established(Pair::with_defaults());
    rekey_child(&mut pair.left, pair.now);
    let child = pair.left.children()[0].id;
    pair.left.with_context(pair.now, |ike, host, context| {
        ike.terminate_child(child, DownReason::Local, host, context);
    });
    take_over(&mut pair, Side::Left, 1);
    assert_eq!(pair.left.children().len(), 0);
    pair.advance(20 * SECOND);
    assert_eq!(pair.right.children().len(), 0);
}

/// The gateway fails after it has written the record and before the peer has got the response.
#[test]
fn a_response_is_repeated_by_the_next_owner() {
    let mut pair = established(Pair::with_defaults());
    rekey_child(&mut pair.left, pair.now);
    pair.deliver_to_right();
    let response = pair.right.sent.pop_front().unwrap();
    take_over(&mut pair, Side::Right, 1);
    pair.advance(2 * SECOND);
    pair.check_children(1);
    assert_eq!(header(&response).exchange, ExchangeType::CREATE_CHILD_SA);
    check_usable(&mut pair);
}

/// The gateway fails before it has written the record: the next owner knows nothing of the request.
#[test]
fn a_request_that_was_not_recorded_is_answered_by_the_next_owner() {
    let mut pair = established(Pair::with_defaults());
    let now = pair.now;
    let before = records(&pair.right, now);
    rekey_child(&mut pair.left, now);
    pair.deliver_to_right();
    let mut new = successor_of(&pair.right, 77);
    restore(&mut new, before, 1, now).unwrap();
    pair.right = new;
    pair.advance(5 * SECOND);
    pair.check_children(1);
    check_usable(&mut pair);
}

/// Two owners of one state send with the same keys, as after a partition. IVs are the eight bytes behind the
/// generic header of the encrypted payload.
#[test]
fn no_two_owners_use_the_same_iv() {
    let mut pair = established(Pair::new(connection("left", "right"), connection("right", "left")));
    let now = pair.now;
    let record = records(&pair.left, now);
    let mut ivs = BTreeSet::new();
    let mut count = 0;
    let mut note = |peer: &mut IkePeer| {
        for transmit in peer.sent.drain(..) {
            assert!(ivs.insert(transmit.message[32..40].to_vec()), "an IV occurs twice");
            count += 1;
        }
    };
    rekey_child(&mut pair.left, now);
    note(&mut pair.left);
    for owners in [1, 2, 3, u16::MAX - 1] {
        let mut owner = successor_of(&pair.left, owners.into());
        restore(&mut owner, record.clone(), owners, now).unwrap();
        rekey_child(&mut owner, now);
        note(&mut owner);
    }
    assert_eq!(count, 5);
    let mut owner = successor_of(&pair.left, 5);
    let error = casemate_ike::RestoreError::TooManyOwners;
    assert_eq!(restore(&mut owner, record.clone(), u16::MAX, now), Err(error));
    assert_eq!(restore(&mut owner, record, 0, now), Err(error));
}

#[test]
fn simultaneous_takeovers_of_both_hosts() {
    let mut pair = established(Pair::with_defaults());
    for side in SIDES {
        rekey_child(side.of(&mut pair), casemate_sa::Instant::from_secs(1_000));
    }
    for side in SIDES {
        take_over(&mut pair, side, 1);
    }
    pair.advance(30 * SECOND);
    check_usable(&mut pair);
}

/// Child SAs move from the old IKE SA to the new one, so both records are written together.
#[test]
fn changes_of_one_message_are_together() {
    let mut pair = established(Pair::with_defaults());
    let old = ids(&pair.left)[0];
    pair.left.ike.take_changes();
    rekey_ike(&mut pair.left, pair.now);
    assert_eq!(pair.left.ike.take_changes(), [[old]]);
    pair.deliver_to_right();
    pair.deliver_to_left();
    let changes = pair.left.ike.take_changes();
    let [of_response] = &changes[..] else { panic!("{changes:?}") };
    let new = ids(&pair.left).into_iter().find(|id| *id != old).unwrap();
    assert!(of_response.contains(&old) && of_response.contains(&new) && of_response.len() == 2);
    // Two commands are two changes, also for the same IKE SA.
    for _ in 0..2 {
        rekey_child(&mut pair.left, pair.now);
    }
    assert_eq!(pair.left.ike.take_changes(), [[new], [new]]);
    assert_eq!(pair.left.ike.take_changes(), [[]; 0]);
}
