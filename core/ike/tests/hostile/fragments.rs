//! Encrypted fragments of a peer that has the keys (RFC 7383).

use crate::forge::{Attack, Raw};
use crate::pair::Pair;
use casemate_wire::ike::{ExchangeType, PayloadType};

/// Gives a fragment of an empty or filled INFORMATIONAL request with this number.
fn fragment(attack: &mut Attack, numbers: (u16, u16), first: PayloadType, text: &[u8]) -> Vec<Vec<u8>> {
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, attack.next, false);
    let message = attack.forger.seal_with(&header, &[], Some(numbers), (first, text));
    attack.give(&message)
}

/// A vendor payload that takes these many bytes.
fn vendor(len: usize) -> Vec<u8> {
    let size = u16::try_from(len).unwrap().to_be_bytes();
    [&[0, 0], &size[..], &vec![7; len - 4]].concat()
}

#[test]
fn cve_2016_1287_cve_2022_34721_numbers_that_are_none() {
    for numbers in [(0, 0), (0, 2), (1, 0), (3, 2), (u16::MAX, 1)] {
        let mut attack = Attack::established();
        assert!(fragment(&mut attack, numbers, PayloadType::VENDOR, &vendor(8)).is_empty());
        assert_eq!(attack.count("fragment-number"), 1, "{numbers:?}");
        attack.check_alive();
    }
    let mut attack = Attack::established();
    for number in [1, 2, 255, u16::MAX] {
        let first = if number == 1 { PayloadType::VENDOR } else { PayloadType::NONE };
        assert!(fragment(&mut attack, (number, u16::MAX), first, &vendor(8)).is_empty());
    }
    assert_eq!(attack.count("fragment-limit"), 4);
    attack.check_alive();
}

#[test]
fn a_message_in_pieces_in_any_order_is_answered_once() {
    let mut attack = Attack::established();
    let text = vendor(90);
    assert!(fragment(&mut attack, (3, 3), PayloadType::NONE, &text[60..]).is_empty());
    assert!(fragment(&mut attack, (1, 3), PayloadType::VENDOR, &text[..30]).is_empty());
    assert!(fragment(&mut attack, (3, 3), PayloadType::NONE, &text[60..]).is_empty(), "twice");
    assert_eq!(fragment(&mut attack, (2, 3), PayloadType::NONE, &text[30..60]).len(), 1);
    // RFC 7383 section 2.6.1: of the repeated ones, only the first is answered again.
    assert!(fragment(&mut attack, (2, 3), PayloadType::NONE, &text[30..60]).is_empty());
    assert_eq!(fragment(&mut attack, (1, 3), PayloadType::VENDOR, &text[..30]).len(), 1);
    attack.next += 1;
    attack.check_alive();
}

#[test]
fn totals_that_change() {
    let mut attack = Attack::established();
    let text = vendor(90);
    assert!(fragment(&mut attack, (1, 3), PayloadType::VENDOR, &text[..30]).is_empty());
    assert!(fragment(&mut attack, (2, 2), PayloadType::NONE, &text[30..]).is_empty());
    assert_eq!(attack.count("fragment-mismatch"), 1, "fewer than before");
    // More: the peer began anew with smaller ones.
    for (number, at) in [(4, 75..90), (3, 60..75), (2, 30..60)] {
        assert!(fragment(&mut attack, (number, 4), PayloadType::NONE, &text[at]).is_empty());
    }
    assert_eq!(fragment(&mut attack, (1, 4), PayloadType::VENDOR, &text[..30]).len(), 1);
    attack.next += 1;
    attack.check_alive();
}

#[test]
fn only_the_first_names_what_is_inside() {
    let mut attack = Attack::established();
    assert!(fragment(&mut attack, (1, 2), PayloadType::NONE, &[]).is_empty());
    // The payload that follows is authenticated like everything in front of the IV.
    assert!(fragment(&mut attack, (2, 2), PayloadType::VENDOR, &vendor(8)).is_empty());
    assert_eq!(attack.count("fragment-mismatch"), 2);
    attack.check_alive();
}

#[test]
fn a_whole_message_ends_what_was_in_the_making() {
    let mut attack = Attack::established();
    let text = vendor(90);
    assert!(fragment(&mut attack, (1, 2), PayloadType::VENDOR, &text[..30]).is_empty());
    attack.check_alive();
    // A late piece of the old message is a repetition, and one of the new message does not complete the old.
    attack.next -= 1;
    assert!(fragment(&mut attack, (2, 2), PayloadType::NONE, &text[30..]).is_empty());
    attack.next += 1;
    assert!(fragment(&mut attack, (2, 2), PayloadType::NONE, &text[30..]).is_empty());
    attack.check_alive();
}

#[test]
fn what_pieces_may_hold_is_bounded() {
    let mut attack = Attack::established();
    let piece = vec![0; 60_000];
    assert!(fragment(&mut attack, (2, 3), PayloadType::NONE, &piece).is_empty());
    assert!(fragment(&mut attack, (3, 3), PayloadType::NONE, &piece).is_empty());
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
        let message = attack.forger.seal_with(&header, &outside, Some((1, 1)), (PayloadType::VENDOR, &text));
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
fn where_fragments_are_not_wanted_they_are_not_taken() {
    let mut pair = Pair::usual();
    let mut right = crate::pair::connection("right", "left");
    right.fragmentation = casemate_ike::config::Fragmentation::No;
    pair.right = crate::pair::Side::new(crate::pair::RIGHT, 2, right);
    let mut attack = Attack::on(pair);
    assert!(fragment(&mut attack, (1, 1), PayloadType::VENDOR, &vendor(8)).is_empty());
    assert_eq!(attack.count("fragment-unexpected"), 1);
    attack.check_alive();
}
