//! Requests from another port of the peer (RFC 7296 section 2.11): the response goes to the source of the
//! request, and our own requests keep their destination.

use crate::forge::{Attack, Raw, notifies};
use crate::pair::{Pair, deliver};
use casemate_ike::{DownReason, Path, Transmit};
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};

const INFORMATIONAL: ExchangeType = ExchangeType::INFORMATIONAL;
const DELETE_IKE: [u8; 4] = [1, 0, 0, 0];

/// Path from a port of the left side to a port of the right side.
fn path(attack: &Attack, from: u16, to: u16) -> Path {
    let pair = &attack.pair;
    Path { local: (pair.right.addr, to).into(), remote: (pair.left.addr, from).into() }
}

/// Delivers a message to the right side on a path. Returns what the right side sends.
fn give(attack: &mut Attack, message: &[u8], path: Path) -> Vec<Transmit> {
    let (mut message, pair) = (message.to_vec(), &mut attack.pair);
    pair.right.with_context(pair.now, |ike, host, context| ike.receive(&mut message, path, host, context));
    pair.right.sent.drain(..).collect()
}

/// Checks that the right side answers on the path of the request, and a repetition on the path of the
/// repetition.
fn check_answer(attack: &mut Attack, exchange: ExchangeType, inside: &[Raw]) -> Vec<Raw> {
    let header = attack.forger.header(exchange, attack.next, false);
    attack.next += 1;
    let message = attack.forger.seal(&header, inside);
    let mut answers = vec![];
    for (from, to) in [(1_024, 500), (1_025, 500), (4_500, 4_500)] {
        let path = path(attack, from, to);
        let sent = give(attack, &message, path);
        assert_eq!((sent.len(), sent[0].path, sent[0].non_esp_marker), (1, path, to == 4_500));
        answers.push(sent[0].message.clone());
    }
    assert_eq!((&answers[0], &answers[0]), (&answers[1], &answers[2]));
    attack.forger.open(&answers[0]).1
}

#[test]
fn a_response_goes_where_the_request_came_from() {
    let mut attack = Attack::established();
    assert_eq!(check_answer(&mut attack, INFORMATIONAL, &[]), []);
    // A rejected request, and a malformed one.
    let refused = check_answer(&mut attack, ExchangeType::CREATE_CHILD_SA, &[Raw::critical(99)]);
    assert_eq!(notifies(&refused)[0].0, NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD);
    // Without a NAT the peer's address does not change.
    let ike = attack.pair.right.ike.status().next().unwrap().id;
    assert!(
        attack
            .pair
            .right
            .with_context(attack.pair.now, |engine, host, context| engine.rekey(ike, host, context))
    );
    let sent: Vec<_> = attack.pair.right.sent.drain(..).collect();
    assert_eq!((sent.len(), sent[0].path), (1, path(&attack, 500, 500)));
}

#[test]
fn the_response_to_an_ike_delete_goes_where_the_request_came_from() {
    let mut attack = Attack::established();
    check_answer(&mut attack, INFORMATIONAL, &[Raw::new(PayloadType::DELETE, &DELETE_IKE)]);
    assert_eq!(attack.pair.right.down_reasons(), [DownReason::Peer]);
}

/// The initiator sends IKE_AUTH to port 4500, and is rejected there.
#[test]
fn a_refusal_of_ike_auth_goes_where_the_request_came_from() {
    let (mut attack, _) = Attack::half_open(Pair::with_defaults());
    let header = attack.forger.header(ExchangeType::IKE_AUTH, 1, false);
    let message = attack.forger.seal(&header, &[]);
    let path = path(&attack, 4_500, 4_500);
    let sent = give(&mut attack, &message, path);
    assert_eq!((sent.len(), sent[0].path, sent[0].non_esp_marker), (1, path, true));
    attack.check_gone();
}

/// The initiator accepts a response at any of its ports.
#[test]
fn a_rekeying_is_answered_where_it_came_from() {
    let mut attack = Attack::established();
    let pair = &mut attack.pair;
    let child = pair.left.children()[0].id;
    assert!(pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(child, host, context)));
    let Transmit { message, .. } = pair.left.sent.pop_front().unwrap();
    let path = path(&attack, 1_024, 500);
    let sent = give(&mut attack, &message, path);
    assert_eq!((sent.len(), sent[0].path), (1, path));
    let pair = &mut attack.pair;
    sent.into_iter().for_each(|transmit| deliver(&mut pair.left, transmit, pair.now));
    pair.run();
    pair.check_children(1);
}
