//! What went wrong in other implementations and is not the subject of another file here, by its name there.

use crate::create_child::child_request;
use crate::forge::{Attack, Forger, Raw, count, give_left, give_right, notifies};
use crate::pair::Pair;
use casemate_ike::{Event, StateFault};
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};

/// Payload numbers of IKEv1 inside a protected message are unknown ones, critical or not.
#[test]
fn cve_2015_3991_payloads_of_ikev1() {
    for kind in 1..=13 {
        let mut attack = Attack::established();
        assert_eq!(attack.ask(ExchangeType::INFORMATIONAL, &[Raw::new(PayloadType(kind), &[0; 20])]), []);
        let answer = attack.ask(ExchangeType::INFORMATIONAL, &[Raw::critical(kind)]);
        assert_eq!(notifies(&answer), [(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![kind])]);
        attack.check_alive();
    }
}

/// A second answer to IKE_AUTH, or one before there is a first message, moves nothing.
#[test]
fn cve_2015_8023_success_out_of_its_state() {
    let success = [Raw::new(PayloadType::EAP, &[3, 1, 0, 4])];
    let mut attack = Attack::established();
    assert_eq!(attack.ask(ExchangeType::INFORMATIONAL, &success), []);
    let header = attack.forger.header(ExchangeType::IKE_AUTH, 1, true);
    let message = attack.forger.seal(&header, &success);
    assert!(attack.give(&message).is_empty());
    assert_eq!(attack.count("stray-response"), 1);
    attack.check_alive();
}

/// Every event and every fault can be printed: a log path that looks at what is not there would fail here.
#[test]
fn cve_2020_1763_cve_2022_23094_everything_can_be_told() {
    let mut attack = Attack::established();
    for exchange in [34, 35, 36, 37, 255] {
        for first in 0..=255u8 {
            let header = attack.forger.header(ExchangeType(exchange), attack.next, false);
            let text = [0, 0, 0, 8, 1, 2, 3, 4];
            let message = attack.forger.seal_with(&header, &[], None, (PayloadType(first), &text));
            attack.give(&message);
            if attack.pair.right.ike.status().count() == 0 {
                attack = Attack::established();
            } else if exchange != 34 {
                attack.next += 1;
            }
            for event in &attack.pair.right.events {
                assert!(!format!("{event:?}").is_empty());
                if let Event::Fault { fault, .. } = event {
                    assert!(!fault.to_string().is_empty() && !fault.name().is_empty());
                }
            }
            attack.pair.right.events.clear();
            attack.pair.right.ike.tell_keys(true);
        }
    }
}

/// A protected message to a side that has sent its first request and has no keys.
#[test]
fn vpp_98d6f29_encrypted_before_there_are_keys() {
    let established = Attack::established();
    let mut pair = Pair::usual();
    pair.left.initiate(pair.now);
    let request = pair.left.sent.pop_front().unwrap();
    let (mut header, _) = crate::forge::read_plain(&request.message);
    header.flags.initiator = false;
    let mut forger = Forger::new(established.forger.keys, false);
    for exchange in [35, 36, 37] {
        for response in [false, true] {
            header.exchange = ExchangeType(exchange);
            header.flags.response = response;
            header.spi_r.0 = 7;
            let message = forger.seal(&header, &[]);
            assert!(give_left(&mut pair, &message).is_empty());
        }
    }
    assert_eq!(count(&pair.left, "wrong-exchange"), 6);
    // The attempt goes on.
    pair.left.sent.push_back(request);
    pair.run();
    pair.check_children(1);
}

/// Lengths of the encrypted payload, from none to one byte more than there are.
#[test]
fn vpp_7c8644c_lengths_of_the_encrypted_payload() {
    let mut attack = Attack::established();
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, 2, false);
    let message = attack.forger.seal(&header, &[]);
    let whole = u16::try_from(message.len() - 28).unwrap();
    for len in (0..whole).chain([whole + 1, u16::MAX]) {
        let mut changed = message.clone();
        changed[30..32].copy_from_slice(&len.to_be_bytes());
        assert!(attack.give(&changed).is_empty(), "{len}");
    }
    for len in 28..message.len() {
        let mut cut = message[..len].to_vec();
        let claimed = u32::try_from(len).unwrap().to_be_bytes();
        cut[24..28].copy_from_slice(&claimed);
        if let Some(size) = cut.get_mut(30..32) {
            size.copy_from_slice(&u16::try_from(len - 28).unwrap().to_be_bytes());
        }
        assert!(attack.give(&cut).is_empty(), "{len}");
    }
    attack.check_alive();
}

/// NAT detection of a wrong length says that there is a NAT, and nothing else.
#[test]
fn vpp_c3f677c_nat_detection_of_any_length() {
    for len in [0, 1, 19, 21, 1_000] {
        let mut pair = Pair::usual();
        let request = crate::forge::first_request(&mut pair);
        let (header, mut payloads) = crate::forge::read_plain(&request);
        for payload in &mut payloads {
            let kind = payload.body.get(2..4).map(|kind| u16::from_be_bytes([kind[0], kind[1]]));
            if payload.kind == PayloadType::NOTIFY && kind == Some(NotifyType::NAT_DETECTION_SOURCE_IP.0) {
                payload.body.truncate(4);
                payload.body.extend(vec![7; len]);
            }
        }
        let answers = give_right(&mut pair, &crate::forge::plain(&header, &payloads));
        let refused = count(&pair.right, "notify-data");
        assert_eq!(answers.len() as u64 + refused, 1, "{len}");
    }
}

/// Of two installed Child SAs with the same SPI of the peer, a Delete payload takes one at a time and ends in none.
#[test]
fn cve_2023_30570_the_same_spi_twice() {
    let mut attack = Attack::established();
    for _ in 0..2 {
        assert_eq!(attack.ask(ExchangeType::CREATE_CHILD_SA, &child_request(0x77))[0].kind, PayloadType::SA);
    }
    for left in [2, 1] {
        attack.ask(ExchangeType::INFORMATIONAL, &[Raw::delete(&[0x77])]);
        assert_eq!(attack.pair.right.children().len(), left);
    }
    attack.check_alive();
    assert_eq!(attack.pair.right.ike.faults().state(StateFault::ChildNotFound), 0);
}
