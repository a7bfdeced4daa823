//! CREATE_CHILD_SA and INFORMATIONAL of a peer that has the keys (RFC 7296 sections 1.3, 1.4, 2.25).

use crate::first_request::{GCM128, PRF, RawTransform, X25519, proposal, sa_of, transform};
use crate::forge::{Attack, Raw, altered, notifies, without};
use crate::pair::{Pair, connection};
use casemate_ike::{DownReason, PeerFault, StateFault};
use casemate_wire::ike::{ExchangeType, Notify, NotifyType, PayloadType, ProtocolId};
use std::sync::Arc;

const NO_ESN: RawTransform = transform(5, 0, &[]);

/// A request for a Child SA between the default networks, as from the left side.
pub(crate) fn child_request(spi: u32) -> Vec<Raw> {
    let sa = sa_of(&[proposal(1, 3, &spi.to_be_bytes(), &[GCM128, NO_ESN])]);
    let ts = |net: [u8; 2]| {
        let ends = [[net[0], net[1], 0, 0], [net[0], net[1], 255, 255]].concat();
        [&[1, 0, 0, 0, 7, 0, 0, 16, 0, 0, 255, 255], &ends[..]].concat()
    };
    vec![
        Raw::new(PayloadType::SA, &sa),
        Raw::new(PayloadType::NONCE, &[7; 32]),
        Raw::new(PayloadType::TS_I, &ts([10, 1])),
        Raw::new(PayloadType::TS_R, &ts([10, 2])),
    ]
}

fn rekey_sa(protocol: u8, spi: &[u8]) -> Raw {
    Raw::notify_of(ProtocolId(protocol), NotifyType::REKEY_SA, spi, &[])
}

/// Sends a request that is rejected with this notification. The IKE SA and its Child SA stay.
fn check_refused(attack: &mut Attack, request: &[Raw], notify: NotifyType, fault: &str) {
    let before = attack.count(fault);
    let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, request);
    assert_eq!(notifies(&answer).first().map(|(kind, _)| *kind), Some(notify), "{fault}: {answer:?}");
    assert_eq!(answer.len(), 1);
    assert_eq!(attack.count(fault), before + 1, "{fault}");
    assert_eq!(attack.pair.right.children().len(), 1);
    assert!(attack.pair.right.leaked_spis().is_empty(), "{fault}");
    attack.check_alive();
}

/// A malformed request closes the IKE SA at both peers (RFC 7296 section 2.21.3).
fn check_fatal(request: &[Raw], fault: &str) {
    let mut attack = Attack::established();
    let header = attack.forger.header(ExchangeType::CREATE_CHILD_SA, 2, false);
    let message = attack.forger.seal(&header, request);
    let answers = attack.give(&message);
    let (_, answer) = attack.forger.open(&answers[0]);
    assert_eq!(notifies(&answer), [(NotifyType::INVALID_SYNTAX, vec![])], "{fault}");
    assert_eq!(attack.count(fault), 1, "{fault}");
    assert!(matches!(attack.pair.right.down_reasons()[..], [DownReason::Fault(_)]));
    assert_eq!(attack.pair.right.children().len(), 0);
    attack.check_gone();
}

#[test]
fn the_hand_made_request_is_accepted() {
    let mut attack = Attack::established();
    let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &child_request(0x77));
    let kinds: Vec<_> = answer.iter().map(|payload| payload.kind).collect();
    assert_eq!(kinds, [PayloadType::SA, PayloadType::NONCE, PayloadType::TS_I, PayloadType::TS_R]);
    assert_eq!(attack.pair.right.children().len(), 2);
    attack.check_alive();
}

/// RFC 7296 section 1.3.1: no traffic-flow padding for a peer that refuses it.
#[test]
fn packets_are_not_padded_for_a_peer_that_refuses_padding() {
    let refused = Raw::notify(NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED, &[]);
    for (notify, expected) in [(None, 96), (Some(refused), 0)] {
        let mut right = connection("right", "left");
        Arc::make_mut(&mut right.children[0]).tfc_pad_to = 96;
        let mut attack = Attack::on(Pair::new(connection("left", "right"), right));
        let request: Vec<Raw> = child_request(0x77).into_iter().chain(notify).collect();
        let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &request);
        assert_eq!(answer[0].kind, PayloadType::SA);
        let children = attack.pair.right.children();
        let new = children.iter().find(|child| child.outbound.spi.get() == 0x77).unwrap();
        assert_eq!(new.outbound.tfc_pad_to, expected);
    }
}

#[test]
fn missing_and_duplicate_payloads_are_rejected() {
    for payload in child_request(0x77) {
        check_fatal(&without(&child_request(0x77), payload.kind), "payload-missing");
        check_fatal(&[child_request(0x77), vec![payload]].concat(), "payload-twice");
    }
}

#[test]
fn an_unknown_critical_payload_is_reported_and_the_ike_sa_stays() {
    let mut attack = Attack::established();
    let request = [child_request(0x77), vec![Raw::critical(201)]].concat();
    let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &request);
    assert_eq!(notifies(&answer), [(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![201])]);
    // The critical bit of a known payload is ignored, and so is an unknown payload without that bit.
    let mut known = child_request(0x77);
    known.iter_mut().for_each(|payload| payload.critical = true);
    known.insert(0, Raw::new(PayloadType(200), &[]));
    let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &known);
    assert_eq!(answer[0].kind, PayloadType::SA);
    assert_eq!(attack.pair.right.children().len(), 2);
    assert_eq!(attack.count("unsupported-critical-payload"), 1);
}

#[test]
fn proposals() {
    let with = |transforms: &[RawTransform], protocol, spi: &[u8]| {
        let body = sa_of(&[proposal(1, protocol, spi, transforms)]);
        altered(&child_request(1), PayloadType::SA, |sa| sa.clone_from(&body))
    };
    let spi = &7u32.to_be_bytes()[..];
    let mut attack = Attack::established();
    let mut check = |transforms: &[RawTransform], protocol| {
        let request = with(transforms, protocol, spi);
        check_refused(&mut attack, &request, NotifyType::NO_PROPOSAL_CHOSEN, "no-proposal-chosen");
    };
    // CVE-2024-3652: a key length of zero, for AES-GCM and AES-GMAC; an unknown type; AH, which is not
    // configured.
    check(&[transform(1, 20, &[0x80, 14, 0, 0]), NO_ESN], 3);
    check(&[transform(1, 21, &[0x80, 14, 0, 0]), NO_ESN], 3);
    check(&[GCM128, NO_ESN, transform(99, 1, &[])], 3);
    check(&[GCM128, transform(3, 12, &[]), NO_ESN], 3);
    check(&[GCM128, transform(5, 7, &[])], 3);
    check(&[transform(3, 12, &[]), NO_ESN], 2);
    check_fatal(&with(&[GCM128, NO_ESN], 3, &[]), "proposal-spi-size");
    check_fatal(&with(&[GCM128, NO_ESN], 3, &[0; 8]), "proposal-spi-size");
    // RFC 7296 section 3.3.3 requires ESN. Without it 32 bits are meant.
    let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &with(&[GCM128], 3, spi));
    assert_eq!(answer[0].kind, PayloadType::SA);
    assert!(!attack.pair.right.children()[1].suite.esn);
}

/// The request is answered without a notification, because no notification fits.
#[test]
fn a_request_with_spi_zero_reserves_no_spi() {
    let mut attack = Attack::established();
    for count in 1..4 {
        assert_eq!(attack.ask(ExchangeType::CREATE_CHILD_SA, &child_request(0)), []);
        assert_eq!(attack.count("zero-spi"), count);
        assert!(attack.pair.right.leaked_spis().is_empty());
    }
    attack.check_alive();
}

#[test]
fn cve_2023_30570_an_spi_of_a_refused_negotiation_can_be_used() {
    let mut attack = Attack::established();
    let refused = altered(&child_request(0x77), PayloadType::TS_I, |ts| ts[12..].fill(9));
    for _ in 0..3 {
        check_refused(&mut attack, &refused, NotifyType::TS_UNACCEPTABLE, "ts-unacceptable");
    }
    for id in 2..5 {
        let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &child_request(0x77));
        assert_eq!(answer[0].kind, PayloadType::SA);
        assert_eq!(attack.pair.right.children().len(), id);
    }
    assert!(attack.pair.right.leaked_spis().is_empty());
    let spis = |attack: &Attack| {
        let mut spis: Vec<_> = attack.pair.right.children().iter().map(|up| up.inbound.spi).collect();
        spis.sort();
        spis.dedup();
        spis.len()
    };
    assert_eq!(spis(&attack), 4, "our SPIs are unique");
}

#[test]
fn cve_2023_23009_traffic_selectors_that_are_none() {
    let ts = |alter: fn(&mut Vec<u8>), fault| {
        check_fatal(&altered(&child_request(0x77), PayloadType::TS_I, alter), fault);
    };
    ts(|ts| ts[0] = 0, "selector-count");
    ts(|ts| ts[0] = 2, "selector-count");
    ts(|ts| ts[0] = 255, "selector-count");
    ts(|ts| ts[7] = 0, "selector-length");
    ts(|ts| ts[7] = 15, "selector-length");
    ts(|ts| ts[7] = 255, "selector-length");
    ts(|ts| ts[12..16].fill(255), "selector-addresses");
    ts(|ts| ts.truncate(4), "selector-count");
    ts(|ts| ts.truncate(3), "body-truncated");
}

#[test]
fn cve_2023_38710_rekey_sa_of_every_protocol_and_length() {
    for protocol in [0, 1, 4, 255] {
        for len in [0, 1, 8] {
            let mut attack = Attack::established();
            let request = [vec![rekey_sa(protocol, &vec![1; len])], child_request(0x77)].concat();
            let header = attack.forger.header(ExchangeType::CREATE_CHILD_SA, 2, false);
            let message = attack.forger.seal(&header, &request);
            let answers = attack.give(&message);
            let (_, answer) = attack.forger.open(&answers[0]);
            let kind = notifies(&answer)[0].0;
            assert!(
                kind == NotifyType::INVALID_SYNTAX || kind == NotifyType::CHILD_SA_NOT_FOUND,
                "{protocol}, {len}: {kind}"
            );
            let ups = attack
                .pair
                .right
                .events
                .iter()
                .filter(|event| matches!(event, casemate_ike::Event::ChildUp(_)));
            assert_eq!(ups.count(), 1, "nothing new");
            assert!(attack.pair.right.leaked_spis().is_empty());
        }
    }
}

#[test]
fn rekeying_an_unknown_spi_is_rejected() {
    let mut attack = Attack::established();
    let ours = attack.pair.right.children()[0].inbound.spi.get();
    // RFC 7296 section 1.3.3: the SPI is that with which the peer receives, not ours.
    for (protocol, spi) in
        [(3, 0x1234_5678), (3, ours ^ 0x8000_0000), (2, attack.pair.right.children()[0].outbound.spi.get())]
    {
        let request = [vec![rekey_sa(protocol, &spi.to_be_bytes())], child_request(0x77)].concat();
        let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &request);
        let notify = Notify::parse(&answer[0].body).unwrap();
        assert_eq!(notify.kind, NotifyType::CHILD_SA_NOT_FOUND);
        assert_eq!((notify.protocol.0, notify.spi), (protocol, &spi.to_be_bytes()[..]));
        attack.check_alive();
    }
    assert_eq!(attack.count("child-not-found"), 3);
    assert_eq!(attack.pair.right.children().len(), 1);
    assert!(attack.pair.right.leaked_spis().is_empty());
}

#[test]
fn an_sa_being_closed_or_rekeyed_is_not_rekeyed_again() {
    let mut attack = Attack::established();
    let (id, spi) = (attack.pair.right.children()[0].id, attack.pair.right.children()[0].outbound.spi.get());
    let request = |new| [vec![rekey_sa(3, &spi.to_be_bytes())], child_request(new)].concat();
    // The first request is valid, the second is not.
    assert_eq!(attack.ask(ExchangeType::CREATE_CHILD_SA, &request(0x77))[0].kind, PayloadType::SA);
    let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &request(0x78));
    assert_eq!(notifies(&answer), [(NotifyType::TEMPORARY_FAILURE, vec![])]);
    assert_eq!(attack.pair.right.children().len(), 2);
    let mut attack = Attack::established();
    let now = attack.pair.now;
    attack
        .pair
        .right
        .with_context(now, |ike, host, context| ike.terminate_child(id, DownReason::Local, host, context));
    attack.pair.right.sent.clear();
    let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &request(0x77));
    assert_eq!(notifies(&answer), [(NotifyType::TEMPORARY_FAILURE, vec![])]);
    assert_eq!((attack.count("busy"), attack.pair.right.children().len()), (1, 0));
    attack.check_alive();
}

#[test]
fn an_ike_sa_is_not_rekeyed_while_a_child_sa_is() {
    let mut attack = Attack::established();
    let (id, now) = (attack.pair.right.children()[0].id, attack.pair.now);
    attack.pair.right.with_context(now, |ike, host, context| ike.rekey_child(id, host, context));
    attack.pair.right.sent.clear();
    let sa = sa_of(&[proposal(1, 1, &[1; 8], &[GCM128, PRF, X25519])]);
    let ke = [&[0, 31, 0, 0][..], &[9; 32]].concat();
    let request = vec![
        Raw::new(PayloadType::SA, &sa),
        Raw::new(PayloadType::NONCE, &[7; 32]),
        Raw::new(PayloadType::KE, &ke),
    ];
    let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &request);
    assert_eq!(notifies(&answer), [(NotifyType::TEMPORARY_FAILURE, vec![])]);
    assert_eq!((attack.count("busy"), attack.pair.right.ike.status().count()), (1, 1));
    attack.check_alive();
}

#[test]
fn a_rejected_kex_method_does_not_make_a_second_successor() {
    let mut attack = Attack::established();
    let (ike, now) = (attack.pair.right.ike.status().next().unwrap().id, attack.pair.now);
    attack.pair.right.with_context(now, |ikes, host, context| ikes.rekey(ike, host, context));
    attack.pair.right.sent.clear();
    // The peer's simultaneous exchange has made the successor when ours is rejected.
    let request = vec![
        Raw::new(PayloadType::SA, &sa_of(&[proposal(1, 1, &[1; 8], &[GCM128, PRF, X25519])])),
        Raw::new(PayloadType::NONCE, &[7; 32]),
        Raw::new(PayloadType::KE, &[&[0, 31, 0, 0][..], &[9; 32]].concat()),
    ];
    assert_eq!(attack.ask(ExchangeType::CREATE_CHILD_SA, &request)[0].kind, PayloadType::SA);
    let header = attack.forger.header(ExchangeType::CREATE_CHILD_SA, 0, true);
    let refusal = attack.forger.seal(&header, &[Raw::notify(NotifyType::INVALID_KE_PAYLOAD, &[0, 19])]);
    assert!(attack.give(&refusal).is_empty());
    // The successor has the Child SA, which stays when the old IKE SA ends.
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, attack.next, false);
    let end = attack.forger.seal(&header, &[Raw::new(PayloadType::DELETE, &[1, 0, 0, 0])]);
    assert_eq!(attack.give(&end).len(), 1);
    assert_eq!(
        (attack.pair.right.down_reasons(), attack.pair.right.children().len()),
        (vec![DownReason::Replaced], 1)
    );
}

#[test]
fn invalid_successors_are_rejected() {
    let request = |spi: &[u8], ke: &[u8]| {
        let sa = sa_of(&[proposal(1, 1, spi, &[GCM128, PRF, X25519])]);
        vec![
            Raw::new(PayloadType::SA, &sa),
            Raw::new(PayloadType::NONCE, &[7; 32]),
            Raw::new(PayloadType::KE, ke),
        ]
    };
    let x25519 = |fill| [&[0, 31, 0, 0][..], &[fill; 32]].concat();
    let good = request(&[1; 8], &x25519(9));
    let mut attack = Attack::established();
    assert_eq!(attack.ask(ExchangeType::CREATE_CHILD_SA, &good)[0].kind, PayloadType::SA);
    assert_eq!(attack.pair.right.ike.status().count(), 2);
    check_fatal(&request(&[1; 8], &x25519(0)), "ke-value");
    check_fatal(&request(&[1; 4], &x25519(9)), "proposal-spi-size");
    check_fatal(&without(&good, PayloadType::KE), "payload-missing");
    check_fatal(&without(&good, PayloadType::NONCE), "payload-missing");
    let mut attack = Attack::established();
    let p256 = [&[0, 19, 0, 0][..], &[9; 64]].concat();
    let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &request(&[1; 8], &p256));
    assert_eq!(notifies(&answer), [(NotifyType::INVALID_KE_PAYLOAD, vec![0, 31])]);
    attack.check_alive();
    assert_eq!(attack.pair.right.ike.status().count(), 1);
}

#[test]
fn the_number_of_child_sas_is_limited() {
    let mut attack = Attack::established();
    for spi in 1..64 {
        assert_eq!(attack.ask(ExchangeType::CREATE_CHILD_SA, &child_request(spi))[0].kind, PayloadType::SA);
    }
    let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &child_request(64));
    assert_eq!(notifies(&answer), [(NotifyType::NO_ADDITIONAL_SAS, vec![])]);
    assert_eq!((attack.count("child-limit"), attack.pair.right.children().len()), (1, 64));
    assert!(attack.pair.right.leaked_spis().is_empty());
}

#[test]
fn cve_2023_38712_several_delete_payloads() {
    let mut attack = Attack::established();
    assert_eq!(attack.ask(ExchangeType::CREATE_CHILD_SA, &child_request(0x77))[0].kind, PayloadType::SA);
    let ups = attack.pair.right.children();
    let theirs: Vec<u32> = ups.iter().map(|up| up.outbound.spi.get()).collect();
    let ours: Vec<u32> = ups.iter().map(|up| up.inbound.spi.get()).collect();
    // Our own SPIs and unknown ones match no Child SA.
    let strange = [Raw::delete(&[0x1234_5678, 0]), Raw::delete(&[ours[0] ^ 0x4000_0000]), Raw::delete(&[])];
    assert_eq!(attack.ask(ExchangeType::INFORMATIONAL, &strange), []);
    assert_eq!(attack.pair.right.children().len(), 2);
    // The same SPI twice, in one payload and in two, is deleted once.
    let deletes =
        [Raw::delete(&[theirs[0], theirs[0]]), Raw::delete(&[theirs[0], 0x77, 0x77]), Raw::delete(&[0x77])];
    let answer = attack.ask(ExchangeType::INFORMATIONAL, &deletes);
    assert_eq!(answer, [Raw::delete(&[ours[0], ours[1]])]);
    assert_eq!(attack.pair.right.children().len(), 0);
    attack.check_alive();
}

#[test]
fn locally_closing_child_sas_are_not_named_in_the_response() {
    let mut attack = Attack::established();
    let (now, up) = (attack.pair.now, attack.pair.right.children()[0].clone());
    attack
        .pair
        .right
        .with_context(now, |ike, host, context| ike.terminate_child(up.id, DownReason::Local, host, context));
    attack.pair.right.sent.clear();
    // RFC 7296 section 1.4.1.
    assert_eq!(attack.ask(ExchangeType::INFORMATIONAL, &[Raw::delete(&[up.outbound.spi.get()])]), []);
    assert_eq!(attack.pair.right.children().len(), 0);
    // The response to our request is still accepted, and closes nothing a second time.
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, 0, true);
    let message = attack.forger.seal(&header, &[]);
    assert!(attack.give(&message).is_empty());
    attack.check_alive();
}

#[test]
fn an_invalid_syntax_response_closes_the_ike_sa() {
    let mut attack = Attack::established();
    let (id, now) = (attack.pair.right.children()[0].id, attack.pair.now);
    attack.pair.right.with_context(now, |ike, host, context| ike.rekey_child(id, host, context));
    attack.pair.right.sent.clear();
    let header = attack.forger.header(ExchangeType::CREATE_CHILD_SA, 0, true);
    let message = attack.forger.seal(&header, &[Raw::notify(NotifyType::INVALID_SYNTAX, &[])]);
    // RFC 7296 section 2.21.3: without a Delete payload.
    assert!(attack.give(&message).is_empty());
    assert_eq!(attack.pair.right.down_reasons(), [DownReason::Refused(NotifyType::INVALID_SYNTAX)]);
    attack.check_gone();
}

#[test]
fn responses_that_choose_unoffered_proposals_are_rejected() {
    type Alter = fn(&mut Vec<Raw>);
    let alter: [(Alter, StateFault); 5] = [
        (|a| *a = altered(a, PayloadType::SA, |sa| sa[4] = 9), StateFault::NotOffered),
        (|a| *a = altered(a, PayloadType::TS_I, |ts| ts[12] = 9), StateFault::TsNotOffered),
        (|a| a.push(Raw::notify(NotifyType::USE_TRANSPORT_MODE, &[])), StateFault::NotOffered),
        (|a| *a = without(a, PayloadType::NONCE), StateFault::PayloadMissing),
        (|a| *a = altered(a, PayloadType::SA, |sa| sa[8..12].fill(0)), StateFault::ZeroSpi),
    ];
    for (alter, fault) in alter {
        let mut attack = Attack::established();
        let (id, now) = (attack.pair.right.children()[0].id, attack.pair.now);
        attack.pair.right.with_context(now, |ike, host, context| ike.rekey_child(id, host, context));
        attack.pair.right.sent.clear();
        let mut answer = child_request(0x77);
        // For the right side, TSi is its own.
        answer[2] = Raw::new(PayloadType::TS_I, &answer[3].body);
        answer[3] = Raw::new(PayloadType::TS_R, &child_request(1)[2].body);
        alter(&mut answer);
        let header = attack.forger.header(ExchangeType::CREATE_CHILD_SA, 0, true);
        let message = attack.forger.seal(&header, &answer);
        // Only closing the IKE SA removes the Child SA from the peer.
        let sent = attack.give(&message);
        let (_, last) = attack.forger.open(&sent[0]);
        assert_eq!(last, [Raw::new(PayloadType::DELETE, &[1, 0, 0, 0])], "{fault}");
        let header = attack.forger.header(ExchangeType::INFORMATIONAL, 1, true);
        let message = attack.forger.seal(&header, &[]);
        attack.give(&message);
        assert_eq!(attack.pair.right.down_reasons(), [DownReason::Fault(PeerFault::State(fault))]);
        attack.check_gone();
    }
}
