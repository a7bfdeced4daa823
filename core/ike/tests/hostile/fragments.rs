//! Encrypted fragments of a peer that has the keys (RFC 7383).

use crate::forge::{Attack, Raw, RawFragment};
use crate::pair::Pair;
use casemate_wire::ike::{ExchangeType, PayloadType};

/// Sends fragment `number` of `total` of an INFORMATIONAL request.
fn fragment(attack: &mut Attack, number: u16, total: u16, first: PayloadType, text: &[u8]) -> Vec<Vec<u8>> {
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, attack.next, false);
    let message = attack.forger.seal_with(&header, &[], Some(RawFragment { number, total }), first, text);
    attack.give(&message)
}

/// A Vendor ID payload of this many bytes.
fn vendor(len: usize) -> Vec<u8> {
    let size = u16::try_from(len).unwrap().to_be_bytes();
    [&[0, 0], &size[..], &vec![7; len - 4]].concat()
}

#[test]
fn cve_2016_1287_cve_2022_34721_numbers_that_are_none() {
    for (number, total) in [(0, 0), (0, 2), (1, 0), (3, 2), (u16::MAX, 1)] {
        let mut attack = Attack::established();
        assert!(fragment(&mut attack, number, total, PayloadType::VENDOR, &vendor(8)).is_empty());
        assert_eq!(attack.count("fragment-number"), 1, "{number} of {total}");
        attack.check_alive();
    }
    let mut attack = Attack::established();
    for number in [1, 2, 255, u16::MAX] {
        let first = if number == 1 { PayloadType::VENDOR } else { PayloadType::NONE };
        assert!(fragment(&mut attack, number, u16::MAX, first, &vendor(8)).is_empty());
    }
    assert_eq!(attack.count("fragment-limit"), 4);
    attack.check_alive();
}

#[test]
fn a_fragmented_message_in_any_order_is_answered_once() {
    let mut attack = Attack::established();
    let text = vendor(90);
    assert!(fragment(&mut attack, 3, 3, PayloadType::NONE, &text[60..]).is_empty());
    assert!(fragment(&mut attack, 1, 3, PayloadType::VENDOR, &text[..30]).is_empty());
    assert!(fragment(&mut attack, 3, 3, PayloadType::NONE, &text[60..]).is_empty(), "twice");
    assert_eq!(fragment(&mut attack, 2, 3, PayloadType::NONE, &text[30..60]).len(), 1);
    // RFC 7383 section 2.6.1: of the repeated fragments, only the first is answered.
    assert!(fragment(&mut attack, 2, 3, PayloadType::NONE, &text[30..60]).is_empty());
    assert_eq!(fragment(&mut attack, 1, 3, PayloadType::VENDOR, &text[..30]).len(), 1);
    attack.next += 1;
    attack.check_alive();
}

#[test]
fn changing_fragment_totals_are_rejected() {
    let mut attack = Attack::established();
    let text = vendor(90);
    assert!(fragment(&mut attack, 1, 3, PayloadType::VENDOR, &text[..30]).is_empty());
    assert!(fragment(&mut attack, 2, 2, PayloadType::NONE, &text[30..]).is_empty());
    assert_eq!(attack.count("fragment-mismatch"), 1, "a smaller total than before");
    // A larger total: the peer has started again with smaller fragments.
    for (number, at) in [(4, 75..90), (3, 60..75), (2, 30..60)] {
        assert!(fragment(&mut attack, number, 4, PayloadType::NONE, &text[at]).is_empty());
    }
    assert_eq!(fragment(&mut attack, 1, 4, PayloadType::VENDOR, &text[..30]).len(), 1);
    attack.next += 1;
    attack.check_alive();
}

#[test]
fn only_the_first_fragment_has_the_payload_type() {
    let mut attack = Attack::established();
    assert!(fragment(&mut attack, 1, 2, PayloadType::NONE, &[]).is_empty());
    // The type of the inner payload is authenticated like everything before the IV.
    assert!(fragment(&mut attack, 2, 2, PayloadType::VENDOR, &vendor(8)).is_empty());
    assert_eq!(attack.count("fragment-mismatch"), 2);
    attack.check_alive();
}

#[test]
fn a_complete_message_drops_a_partial_one() {
    let mut attack = Attack::established();
    let text = vendor(90);
    assert!(fragment(&mut attack, 1, 2, PayloadType::VENDOR, &text[..30]).is_empty());
    attack.check_alive();
    // A late fragment of the old message is a repetition, and a fragment of the new message does not complete
    // the old one.
    attack.next -= 1;
    assert!(fragment(&mut attack, 2, 2, PayloadType::NONE, &text[30..]).is_empty());
    attack.next += 1;
    assert!(fragment(&mut attack, 2, 2, PayloadType::NONE, &text[30..]).is_empty());
    attack.check_alive();
}

#[test]
fn the_size_of_a_fragmented_message_is_limited() {
    let mut attack = Attack::established();
    let piece = vec![0; 60_000];
    assert!(fragment(&mut attack, 2, 3, PayloadType::NONE, &piece).is_empty());
    assert!(fragment(&mut attack, 3, 3, PayloadType::NONE, &piece).is_empty());
    assert_eq!(attack.count("fragment-limit"), 1);
    attack.check_alive();
}

#[test]
fn cve_2026_12413_a_fragment_behind_unknown_payloads() {
    for count in [0, 1, 127, 128, 300] {
        let mut attack = Attack::established();
        let outside: Vec<_> = (0..count).map(|_| Raw::new(PayloadType(200), &[])).collect();
        let header = attack.forger.header(ExchangeType::INFORMATIONAL, 2, false);
        let text = vendor(8);
        let whole = RawFragment { number: 1, total: 1 };
        let message = attack.forger.seal_with(&header, &outside, Some(whole), PayloadType::VENDOR, &text);
        let answers = attack.give(&message);
        if count < 128 {
            assert_eq!(answers.len(), 1, "{count}");
            attack.next = 3;
        } else {
            assert!(answers.is_empty(), "{count}");
            assert_eq!(attack.count("too-many-payloads"), 1);
        }
        attack.check_alive();
    }
}

#[test]
fn unannounced_fragments_are_rejected() {
    let mut pair = Pair::with_defaults();
    let mut right = crate::pair::connection("right", "left");
    right.fragmentation = casemate_ike::config::Fragmentation::No;
    pair.right = crate::pair::IkePeer::new(crate::pair::RIGHT, 2, right);
    let mut attack = Attack::on(pair);
    assert!(fragment(&mut attack, 1, 1, PayloadType::VENDOR, &vendor(8)).is_empty());
    assert_eq!(attack.count("fragment-unexpected"), 1);
    attack.check_alive();
}
