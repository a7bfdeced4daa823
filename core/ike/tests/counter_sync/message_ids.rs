//! The peer of a cluster: rules for requests with message ID 0 (RFC 6311 sections 5.1, 5.2, 9 and 11).

use super::*;
use casemate_ike::RecordChange;

const NONCE: [u8; 4] = [0xca, 0xfe, 0xba, 0xbe];

fn data(nonce: [u8; 4], send: u32, receive: u32) -> Vec<u8> {
    [nonce, send.to_be_bytes(), receive.to_be_bytes()].concat()
}

/// A request of the left side, which is the cluster, with the values M1 and P1.
fn request(attack: &mut Attack, m1: u32, p1: u32, more: &[Raw]) -> Vec<u8> {
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, 0, false);
    let inside = [&[Raw::notify(IDS, &data(NONCE, m1, p1))], more].concat();
    attack.forger.seal(&header, &inside)
}

/// The values P2 and M2 of the only response; `None` if there is no response.
fn values(attack: &Attack, responses: &[Vec<u8>]) -> Option<(u32, u32)> {
    let (response, requests) = responses.split_first()?;
    assert!(requests.iter().all(|request| !attack.forger.open(request).0.flags.response));
    let (header, payloads) = attack.forger.open(response);
    assert!(header.flags.response);
    assert_eq!((header.message_id, header.exchange), (0, ExchangeType::INFORMATIONAL));
    assert_eq!(payloads.len(), 1, "no additional payloads");
    let (kind, data) = notifies(&payloads).remove(0);
    assert_eq!((kind, data.len(), &data[..4]), (IDS, 12, &NONCE[..]));
    let word = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().unwrap());
    Some((word(4), word(8)))
}

fn synchronize(attack: &mut Attack, m1: u32, p1: u32) -> Option<(u32, u32)> {
    let request = request(attack, m1, p1, &[]);
    let responses = attack.give(&request);
    values(attack, &responses)
}

fn attack() -> Attack {
    let mut pair = keeping(Pair::with_defaults());
    pair.right.ike.report_keys(true);
    // The left side has sent IKE_SA_INIT and IKE_AUTH, so its next message ID is 2. That of the right is 0.
    Attack::on(pair)
}

/// A liveness check of the right side. Returns its message ID.
fn own_request(attack: &mut Attack) -> u32 {
    let child = attack.pair.right.children()[0].id;
    let now = attack.pair.now;
    attack.pair.right.with_context(now, |ike, host, context| ike.rekey_child(child, host, context));
    let sent = attack.pair.right.sent.pop_back().unwrap();
    attack.forger.open(&sent.message).0.message_id
}

#[test]
fn section_5_1_both_move_to_the_higher_values() {
    for ((m1, p1), expected) in [
        // The cluster knows all message IDs, as in appendix A.1.
        ((2, 0), (0, 2)),
        // It increments its own by its window, and has lost requests of the peer, as in A.3.
        ((7, 3), (3, 7)),
        ((3, 0), (0, 3)),
    ] {
        let mut attack = attack();
        assert_eq!(synchronize(&mut attack, m1, p1), Some(expected));
        let (send, receive) = expected;
        // Section 8.1: messages outside of the window are dropped silently.
        for outside in [receive.wrapping_sub(1), receive + 1, u32::MAX] {
            let header = attack.forger.header(ExchangeType::INFORMATIONAL, outside, false);
            let message = attack.forger.seal(&header, &[Raw::delete(&[1])]);
            assert!(attack.give(&message).is_empty(), "{outside}");
        }
        attack.next = receive;
        attack.check_alive();
        assert_eq!(own_request(&mut attack), send);
    }
}

#[test]
fn section_5_1_a_repeated_or_older_request_is_dropped_silently() {
    let mut attack = attack();
    let first = request(&mut attack, 5, 4, &[Raw::notify(NUMBERS, &[0, 0, 0, 9])]);
    let responses = attack.give(&first);
    assert_eq!(values(&attack, &responses), Some((4, 5)));
    let before = attack.count("message-id");
    for _ in 0..3 {
        assert!(attack.give(&first).is_empty());
    }
    // "M1 is lower than or equal to the highest value it has seen": of this exchange, or of other requests.
    for (m1, p1) in [(5, 9), (4, 9), (0, 9)] {
        assert_eq!(synchronize(&mut attack, m1, p1), None);
    }
    attack.next = 5;
    attack.check_alive();
    attack.check_alive();
    for (m1, p1) in [(5, 9), (6, 9)] {
        assert_eq!(synchronize(&mut attack, m1, p1), None);
    }
    assert_eq!(attack.count("message-id"), before + 8);
    assert_eq!(skipped(&attack.pair.right), [9], "once");
    // Message IDs have not moved.
    attack.check_alive();
    assert_eq!(own_request(&mut attack), 4);
    // Section 2, multiple failover: the next cluster member chooses a higher value.
    assert_eq!(synchronize(&mut attack, 8, 0), Some((5, 8)));
    assert_eq!(synchronize(&mut attack, 9, 0), Some((6, 9)));
}

#[test]
fn section_11_forged_requests_are_dropped() {
    let mut attack = attack();
    let mut forged = request(&mut attack, 9, 9, &[]);
    *forged.last_mut().unwrap() ^= 1;
    assert!(attack.give(&forged).is_empty());
    assert_eq!(attack.count("icv-mismatch"), 1);
    // Without the notification, message ID 0 is outside of the window, such as in an old request.
    let spi = attack.pair.right.children()[0].outbound.spi.get();
    for inside in [vec![], vec![Raw::delete(&[spi])], vec![Raw::notify(NUMBERS, &[0, 0, 0, 1])]] {
        let header = attack.forger.header(ExchangeType::INFORMATIONAL, 0, false);
        let message = attack.forger.seal(&header, &inside);
        assert!(attack.give(&message).is_empty());
    }
    assert_eq!((attack.count("message-id"), attack.pair.right.children().len()), (3, 1));
    assert!(skipped(&attack.pair.right).is_empty());
    // Other exchanges with message ID 0, and responses, have no meaning.
    for exchange in [ExchangeType::CREATE_CHILD_SA, ExchangeType::IKE_AUTH] {
        let header = attack.forger.header(exchange, 0, false);
        let message = attack.forger.seal(&header, &[Raw::notify(IDS, &data(NONCE, 9, 9))]);
        assert!(attack.give(&message).is_empty());
    }
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, 0, true);
    let response = attack.forger.seal(&header, &[Raw::notify(IDS, &data(NONCE, 9, 9))]);
    assert!(attack.give(&response).is_empty());
    attack.check_alive();
    assert_eq!(own_request(&mut attack), 0);
}

#[test]
fn section_5_1_malformed_requests_change_nothing() {
    let more = [
        Raw::notify(IDS, &data(NONCE, 9, 9)),
        Raw::notify(NUMBERS, &[0; 5]),
        Raw::delete(&[1]),
        Raw::notify(NotifyType::INITIAL_CONTACT, &[]),
    ];
    for payload in more {
        let mut attack = attack();
        let message = request(&mut attack, 9, 9, &[payload]);
        assert!(attack.give(&message).is_empty());
        assert!(skipped(&attack.pair.right).is_empty());
        attack.check_alive();
    }
    // RFC 7296 section 2.2: message IDs do not wrap. Such a request would leave none.
    for (m1, p1) in [(u32::MAX, 0), (9, u32::MAX)] {
        let mut attack = attack();
        assert_eq!(synchronize(&mut attack, m1, p1), None);
        attack.check_alive();
        assert_eq!(own_request(&mut attack), 0);
    }
}

/// A pair whose IKE SA has been rekeyed, so that message IDs begin with 0 again.
fn rekeyed() -> Attack {
    let mut attack = attack();
    let id = ids(&attack.pair.left)[0];
    let now = attack.pair.now;
    attack.pair.left.with_context(now, |ike, host, context| assert!(ike.rekey(id, host, context)));
    attack.pair.run();
    attack.forger = MessageForger::against(&attack.pair.right);
    attack
}

/// After a rekeying, regular requests begin with message ID 0, too.
#[test]
fn a_regular_request_with_message_id_0_is_a_regular_request() {
    let mut attack = rekeyed();
    // The left side has closed the old IKE SA. The first request on the new one comes from the forger.
    attack.next = 0;
    attack.check_alive();
    assert_eq!(synchronize(&mut attack, 0, 0), None, "M1 is not higher than 0");
    assert_eq!(synchronize(&mut attack, 1, 0), Some((0, 1)));
    attack.next = 1;
    attack.check_alive();
}

/// Appendix A.1 has a peer that has received nothing: M1 may be 0.
#[test]
fn appendix_a_1_the_first_value_is_0() {
    let mut attack = rekeyed();
    assert_eq!(synchronize(&mut attack, 0, 5), Some((5, 0)));
    assert_eq!(synchronize(&mut attack, 0, 5), None);
    attack.next = 0;
    attack.check_alive();
}

#[test]
fn section_5_2_numbers_are_left_out_once() {
    let mut attack = attack();
    let with = |count: &[u8]| [Raw::notify(NUMBERS, count)];
    // A regular exchange, whose repetition gets the same response.
    assert_eq!(attack.ask(ExchangeType::INFORMATIONAL, &with(&[0, 0, 1, 0])), []);
    assert_eq!(skipped(&attack.pair.right), [256]);
    // "The peer MUST process the Message ID notification first (which might cause the entire message to be
    // dropped as a replay)."
    let dropped = request(&mut attack, 2, 0, &with(&[0, 0, 0, 1]));
    assert!(attack.give(&dropped).is_empty());
    let accepted = request(&mut attack, 3, 0, &with(&[0, 0, 0, 0, 0, 0, 0, 2]));
    assert_eq!(attack.give(&accepted).len(), 1);
    assert_eq!(skipped(&attack.pair.right), [256, 2]);
    // A malformed count is a syntax error (RFC 7296 section 2.21.3).
    attack.next = 3;
    let response = attack.ask(ExchangeType::INFORMATIONAL, &with(&[0, 0, 1]));
    assert_eq!(notifies(&response)[0].0, NotifyType::INVALID_SYNTAX);
    assert_eq!(skipped(&attack.pair.right), [256, 2]);
}

/// The response leaves when the record is written: a next owner must not accept the same request again, nor
/// send with numbers that the cluster does not accept.
#[test]
fn a_synchronization_is_a_change_of_the_record() {
    let numbers = Raw::notify(NUMBERS, &[0, 0, 0, 1]);
    for regular in [false, true] {
        let mut attack = attack();
        let before = records(&attack.pair.right, attack.pair.now).remove(0);
        let message = match regular {
            true => {
                let header = attack.forger.header(ExchangeType::INFORMATIONAL, 2, false);
                attack.forger.seal(&header, std::slice::from_ref(&numbers))
            }
            // The message IDs of the cluster are exact: neither moves.
            false => request(&mut attack, 2, 0, &[]),
        };
        assert_eq!(attack.give(&message).len(), 1);
        let after = records(&attack.pair.right, attack.pair.now);
        assert_eq!(after[0].change_since(&before), RecordChange::State, "{regular}");
        // The next owner repeats the regular response, and drops the repeated request with message ID 0.
        let now = attack.pair.now;
        attack.pair.right = next_owner(&attack.pair.right, after, 1, now, |_| {});
        assert_eq!(attack.give(&message).len(), usize::from(regular));
        assert!(skipped(&attack.pair.right).is_empty());
    }
}
