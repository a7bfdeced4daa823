//! IKE_INTERMEDIATE with hostile contents. The peer has the keys of IKE_SA_INIT, but is not authenticated.

use crate::forge::{Attack, MessageForger, Raw, RawFragment, chain, give_left, notifies};
use crate::pair::Pair;
use crate::values::{CHANGES, Change, UNREDUCED_KEY, with_other_value, with_value_of};
use crate::{check_honest, faults};
use casemate_crypto::KexMethod;
use casemate_ike::{DownReason, StateFault};
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};
use std::time::Duration;

const INTERMEDIATE: ExchangeType = ExchangeType::IKE_INTERMEDIATE;

/// A half-open right side, and the payloads of the left side's first IKE_INTERMEDIATE request.
fn half_open() -> (Attack, Vec<Raw>) {
    Attack::half_open(crate::pair())
}

/// The right side after the first of two key exchanges, with the payloads of both requests.
fn after_first_round() -> (Attack, Vec<Raw>, Vec<Raw>) {
    let mut pair = crate::pair();
    pair.left.initiate(pair.now);
    pair.deliver_to_right();
    pair.deliver_to_left();
    let first = MessageForger::against(&pair.right).open(&pair.left.sent[0].message).1;
    pair.deliver_to_right();
    pair.deliver_to_left();
    let forger = MessageForger::against(&pair.right);
    let second = forger.open(&pair.left.sent.pop_front().unwrap().message).1;
    (Attack { pair, forger, next: 2 }, first, second)
}

/// Sends a request that ends the half-open IKE SA. The response is under the same keys.
fn check_ended(mut attack: Attack, payloads: &[Raw], change: &Change) {
    let before = faults(&attack.pair.right, change.fault);
    let response = attack.ask(INTERMEDIATE, payloads);
    let kinds: Vec<_> = notifies(&response).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!((kinds.as_slice(), response.len()), (&[change.notify()][..], 1), "{}", change.name);
    assert_eq!(faults(&attack.pair.right, change.fault), before + 1, "{}", change.name);
    attack.check_gone();
    check_honest(&mut attack.pair, change.name);
}

#[test]
fn a_changed_request_ends_the_half_open_ike_sa() {
    for change in CHANGES.iter().chain([&UNREDUCED_KEY]) {
        let (attack, payloads) = half_open();
        check_ended(attack, &change.apply(&payloads), change);
        let (attack, _, payloads) = after_first_round();
        check_ended(attack, &change.apply(&payloads), change);
    }
}

/// RFC 7296 section 3.10.1: INVALID_KE_PAYLOAD has the number of the method that is expected.
#[test]
fn the_refusal_of_a_method_names_the_right_one() {
    let other = CHANGES.iter().find(|change| change.fault == StateFault::KeMethod).unwrap();
    let (mut first, payloads) = half_open();
    let (mut second, _, later) = after_first_round();
    for (attack, payloads, method) in
        [(&mut first, payloads, KexMethod::MlKem512), (&mut second, later, KexMethod::MlKem768)]
    {
        let response = attack.ask(INTERMEDIATE, &other.apply(&payloads));
        assert_eq!(
            notifies(&response),
            [(NotifyType::INVALID_KE_PAYLOAD, method.id().to_be_bytes().to_vec())]
        );
    }
}

#[test]
fn a_value_of_the_other_round_is_refused() {
    let (attack, first, second) = after_first_round();
    let change = Change { name: "the value of the first round", ..UNREDUCED_KEY };
    check_ended(attack, &with_value_of(&second, &first), &change);
    let (attack, payloads) = half_open();
    check_ended(attack, &with_value_of(&payloads, &second), &change);
}

/// A changed ciphertext, or a changed key, gives the two sides different keys (FIPS 203 section 6.3): no peer
/// is authenticated, and nothing is left.
#[test]
fn another_value_of_the_right_form_authenticates_nobody() {
    let (mut attack, payloads) = half_open();
    let response = attack.ask(INTERMEDIATE, &with_other_value(&payloads));
    assert_eq!(response[0].kind, PayloadType::KE);
    // The keys were replaced: the peer does not have the new ones.
    let header = attack.forger.header(INTERMEDIATE, 2, false);
    let again = attack.forger.seal(&header, &payloads);
    assert_eq!(attack.give(&again), Vec::<Vec<u8>>::new());
    assert_eq!(faults(&attack.pair.right, StateFault::IcvMismatch), 1);
    assert_eq!(attack.pair.right.ike.half_open_count(), 1);
    check_honest(&mut attack.pair, "other keys");
    attack.pair.advance(Duration::from_secs(31));
    assert_eq!(attack.pair.right.ike.half_open_count(), 0);
}

/// A key from an earlier exchange of another IKE SA is a valid key.
#[test]
fn a_repeated_key_makes_new_keys() {
    let (_, old) = half_open();
    let (mut attack, _) = half_open();
    let before = attack.forger.keys.clone();
    attack.ask(INTERMEDIATE, &old);
    assert_ne!(MessageForger::against(&attack.pair.right).keys, before);
    check_honest(&mut attack.pair, "an old key");
}

/// The request of the first round, sent again: first as a retransmission, then with the next message ID under
/// the old keys, and with an old message ID under the new keys.
#[test]
fn replayed_requests_change_nothing() {
    let (mut attack, first, second) = after_first_round();
    let mut pair_keys = attack.pair.right.events.iter().filter_map(|event| match event {
        casemate_ike::Event::Keys(keys) => Some((**keys).clone()),
        _ => None,
    });
    let mut old = MessageForger::new(pair_keys.next().unwrap(), true);
    // A repetition of the last request gets the stored response, whatever its contents are.
    let repeated = old.seal(&old.header(INTERMEDIATE, 1, false), &first);
    let stored = attack.give(&repeated);
    assert_eq!(stored.len(), 1);
    let next = old.seal(&old.header(INTERMEDIATE, 2, false), &first);
    assert!(attack.give(&next).is_empty(), "the old keys");
    let late = attack.forger.seal(&attack.forger.header(INTERMEDIATE, 1, false), &first);
    assert!(attack.give(&late).is_empty(), "an old message ID under the new keys");
    assert_eq!(faults(&attack.pair.right, StateFault::IcvMismatch), 2);
    // The honest peer goes on.
    let response = attack.ask(INTERMEDIATE, &second);
    assert_eq!(response[0].kind, PayloadType::KE);
}

#[test]
fn messages_out_of_turn_end_the_half_open_ike_sa() {
    let early = Change {
        name: "IKE_AUTH before the key exchanges",
        fault: StateFault::WrongExchange,
        ..UNREDUCED_KEY
    };
    for after in [false, true] {
        let mut attack = if after { after_first_round().0 } else { half_open().0 };
        for exchange in [ExchangeType::IKE_AUTH, ExchangeType::CREATE_CHILD_SA, ExchangeType::IKE_FOLLOWUP_KE]
        {
            let response = attack.ask(exchange, &[Raw::notify(NotifyType::INITIAL_CONTACT, &[])]);
            assert_eq!(notifies(&response)[0].0, early.notify(), "{exchange}");
            attack.check_gone();
            attack = if after { after_first_round().0 } else { half_open().0 };
        }
        check_honest(&mut attack.pair, early.name);
    }
}

/// More key exchanges than agreed, and one that was not announced.
#[test]
fn further_exchanges_are_refused() {
    let (mut attack, _, second) = after_first_round();
    attack.ask(INTERMEDIATE, &second);
    // The forger takes the keys that the right side has now.
    attack.forger = MessageForger::against(&attack.pair.right);
    let response = attack.ask(INTERMEDIATE, &second);
    assert_eq!(notifies(&response)[0].0, NotifyType::INVALID_SYNTAX);
    attack.check_gone();
    let mut unannounced = Attack::half_open(Pair::with_defaults()).0;
    let response = unannounced.ask(INTERMEDIATE, &second);
    assert_eq!(notifies(&response)[0].0, NotifyType::INVALID_SYNTAX);
    assert_eq!(faults(&unannounced.pair.right, StateFault::WrongExchange), 1);
    unannounced.check_gone();
}

/// After IKE_AUTH, an IKE_INTERMEDIATE request is a syntax error of an authenticated peer.
#[test]
fn no_key_exchange_follows_ike_auth() {
    let (_, payloads) = half_open();
    let mut attack = Attack::on(crate::pair());
    attack.next = 4;
    let response = attack.ask(INTERMEDIATE, &payloads);
    assert_eq!(notifies(&response)[0].0, NotifyType::INVALID_SYNTAX);
    check_honest(&mut attack.pair, "after IKE_AUTH");
}

/// RFC 9242 section 3.2: other payloads may accompany a key exchange. Both sides authenticate them.
#[test]
fn other_payloads_beside_the_key_exchange_are_ignored() {
    let (mut attack, mut payloads) = half_open();
    payloads.push(Raw::new(PayloadType::VENDOR, b"anything"));
    payloads.insert(0, Raw::notify(NotifyType(40_000), b"unknown"));
    assert_eq!(attack.ask(INTERMEDIATE, &payloads)[0].kind, PayloadType::KE);
    let (mut attack, mut payloads) = half_open();
    payloads.push(Raw::critical(200));
    let response = attack.ask(INTERMEDIATE, &payloads);
    assert_eq!(notifies(&response), [(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![200])]);
    attack.check_gone();
}

/// A host without keys cannot end the half-open IKE SA of another peer.
#[test]
fn forgeries_without_keys_do_not_end_the_exchange() {
    let (mut attack, payloads) = half_open();
    let mut other = Attack::half_open(crate::pair()).0.forger;
    other.keys.spis = attack.forger.keys.spis;
    other.keys.encr.initiator = casemate_crypto::SecretBytes::new(&vec![9; other.keys.encr.initiator.len()]);
    for exchange in [INTERMEDIATE, ExchangeType::IKE_AUTH, ExchangeType::IKE_FOLLOWUP_KE] {
        for id in [0, 1, 2, u32::MAX] {
            let header = other.header(exchange, id, false);
            let sealed = other.seal(&header, &payloads);
            assert!(attack.give(&sealed).is_empty(), "{exchange} {id}");
            assert!(attack.give(&sealed[..sealed.len() - 1]).is_empty(), "{exchange} {id}");
            let clear = crate::forge::plain(&header, &payloads);
            assert!(attack.give(&clear).is_empty(), "{exchange} {id} in clear");
            let text = chain(&payloads, PayloadType::NONE);
            let piece = RawFragment { number: 1, total: 2 };
            let piece = other.seal_with(&header, &[], Some(piece), PayloadType::KE, &text);
            assert!(attack.give(&piece).is_empty(), "{exchange} {id} as a fragment");
        }
    }
    assert_eq!(attack.ask(INTERMEDIATE, &payloads)[0].kind, PayloadType::KE, "the peer goes on");
}

/// Fragments that are missing, overlap, or are too many or too long.
#[test]
fn hostile_fragments_do_not_end_the_exchange() {
    let (mut attack, payloads) = half_open();
    let text = chain(&payloads, PayloadType::NONE);
    let give = |attack: &mut Attack, number, total, text: &[u8]| {
        let header = attack.forger.header(INTERMEDIATE, 1, false);
        let first = if number == 1 { PayloadType::KE } else { PayloadType::NONE };
        let piece = attack.forger.seal_with(&header, &[], Some(RawFragment { number, total }), first, text);
        attack.give(&piece)
    };
    // One is missing, and another one has the same number and other contents.
    assert!(give(&mut attack, 1, 3, &text[..300]).is_empty());
    assert!(give(&mut attack, 1, 3, &text[..100]).is_empty());
    assert!(give(&mut attack, 3, 3, &text[600..]).is_empty());
    // More and longer ones than a peer may send before it is authenticated.
    assert!(give(&mut attack, 1, 256, &text[..300]).is_empty());
    assert!(give(&mut attack, 2, 4, &vec![0; 30_000]).is_empty());
    assert_eq!(faults(&attack.pair.right, StateFault::FragmentLimit), 2);
    // The peer starts again with smaller fragments.
    let pieces: Vec<_> = text.chunks(200).collect();
    let total = u16::try_from(pieces.len()).unwrap();
    let mut answers = vec![];
    for (number, piece) in (1..).zip(&pieces) {
        answers = give(&mut attack, number, total, piece);
    }
    let (_, response) = attack.forger.open(&answers[0]);
    assert_eq!(response[0].kind, PayloadType::KE);
    check_honest(&mut attack.pair, "fragments");
}

/// The left side waits for a response to its first IKE_INTERMEDIATE request.
fn waiting() -> (Pair, MessageForger, Vec<Raw>) {
    let mut pair = crate::pair();
    pair.left.initiate(pair.now);
    pair.deliver_to_right();
    pair.deliver_to_left();
    let forger = MessageForger::against(&pair.left);
    pair.deliver_to_right();
    let (_, payloads) = forger.open(&pair.right.sent.pop_front().unwrap().message);
    (pair, forger, payloads)
}

#[test]
fn a_changed_response_ends_the_attempt_of_an_initiator() {
    for change in &CHANGES {
        let (mut pair, mut forger, payloads) = waiting();
        let message = forger.seal(&forger.header(INTERMEDIATE, 1, true), &change.apply(&payloads));
        give_left(&mut pair, &message);
        let ended = pair.left.down_reasons();
        assert_eq!(ended, [DownReason::Fault(change.fault.into())], "{}", change.name);
        assert!(pair.left.leaked_spis().is_empty(), "{}", change.name);
        check_honest(&mut pair, change.name);
    }
}

/// The initiator derives other keys than the responder, which are replaced in no later exchange. It begins
/// again once the responder has forgotten the IKE SA.
#[test]
fn a_changed_ciphertext_authenticates_nobody() {
    let (mut pair, mut forger, payloads) = waiting();
    let message = forger.seal(&forger.header(INTERMEDIATE, 1, true), &with_other_value(&payloads));
    give_left(&mut pair, &message);
    for _ in 0..29 {
        pair.advance(Duration::from_secs(1));
        assert!(pair.left.children().is_empty() && pair.right.children().is_empty());
    }
    for _ in 0..60 {
        pair.advance(Duration::from_secs(1));
    }
    pair.check_children(1);
    assert_eq!(pair.right.ike.half_open_count(), 0);
    check_honest(&mut pair, "other keys");
}

/// A response out of turn, and responses of a host without keys, change nothing.
#[test]
fn forged_responses_do_not_end_the_attempt() {
    let (mut pair, mut forger, payloads) = waiting();
    let honest = forger.seal(&forger.header(INTERMEDIATE, 1, true), &payloads);
    for id in [0, 2, u32::MAX] {
        let message = forger.seal(&forger.header(INTERMEDIATE, id, true), &payloads);
        assert!(give_left(&mut pair, &message).is_empty(), "{id}");
    }
    let mut changed = honest.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert!(give_left(&mut pair, &changed).is_empty());
    assert!(give_left(&mut pair, &honest[..honest.len() - 4]).is_empty());
    let clear = crate::forge::plain(&forger.header(INTERMEDIATE, 1, true), &payloads);
    assert!(give_left(&mut pair, &clear).is_empty());
    assert_eq!(give_left(&mut pair, &honest).len(), 1, "the attempt goes on");
    assert!(give_left(&mut pair, &honest).is_empty(), "a repeated response");
}
