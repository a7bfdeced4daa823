//! Forged and wrong responses to IKE_SA_INIT (RFC 7296 sections 2.6, 2.7 and 2.21.1).

use crate::first_request::{GCM128, PRF, X25519, proposal, sa, sa_of, transform};
use crate::forge::{Raw, altered, count, first_request, give_left, give_right, plain, read_plain, without};
use crate::pair::Pair;
use casemate_ike::{DownReason, StateFault};
use casemate_wire::ike::{Header, IkeSpi, NotifyType, PayloadType, Version};
use std::time::Duration;

/// The left side has sent its first request. Returns the request and the authentic response.
fn init_sent() -> (Pair, Vec<u8>, Vec<u8>) {
    let mut pair = Pair::with_defaults();
    let request = first_request(&mut pair);
    let answer = give_right(&mut pair, &request).remove(0);
    (pair, request, answer)
}

/// A refusal forged by a host that has seen the request.
fn refusal(request: &[u8], notify: Raw) -> Vec<u8> {
    let (mut header, _) = read_plain(request);
    header.flags.response = true;
    header.flags.initiator = false;
    plain(&header, &[notify])
}

/// Delivers a forged response first. The authentic one still succeeds.
fn check_true_one_wins(forged: &[u8], fault: Option<&str>) {
    let (mut pair, _, answer) = init_sent();
    assert!(give_left(&mut pair, forged).is_empty());
    if let Some(fault) = fault {
        assert_eq!(count(&pair.left, fault), 1, "{fault}: {:?}", pair.left.events);
    }
    pair.advance(Duration::from_millis(900));
    let auth = give_left(&mut pair, &answer);
    assert_eq!(auth.len(), 1, "{fault:?}");
    let auth = give_right(&mut pair, &auth[0]);
    assert!(give_left(&mut pair, &auth[0]).is_empty());
    pair.check_children(1);
}

#[test]
fn the_authentic_response_wins_over_forged_ones() {
    let (_, request, answer) = init_sent();
    for kind in [
        NotifyType::NO_PROPOSAL_CHOSEN,
        NotifyType::INVALID_SYNTAX,
        FAILED,
        NotifyType::INVALID_MAJOR_VERSION,
    ] {
        check_true_one_wins(&refusal(&request, Raw::notify(kind, &[])), None);
    }
    let (header, payloads) = read_plain(&answer);
    let changed = |alter: &dyn Fn(&mut Header, &mut Vec<Raw>)| {
        let (mut header, mut payloads) = (header, payloads.clone());
        alter(&mut header, &mut payloads);
        plain(&header, &payloads)
    };
    check_true_one_wins(&changed(&|h, _| h.spi_r = IkeSpi::NONE), Some("zero-spi"));
    check_true_one_wins(&changed(&|h, _| h.message_id = 1), Some("wrong-exchange"));
    check_true_one_wins(&changed(&|h, _| h.version = Version(0x30)), Some("higher-major-version"));
    check_true_one_wins(&changed(&|h, _| h.flags.initiator = true), Some("unknown-spi"));
    check_true_one_wins(&changed(&|h, _| h.flags.response = false), Some("wrong-exchange"));
    check_true_one_wins(&changed(&|h, _| h.spi_i.0 ^= 1), Some("unknown-spi"));
    for kind in [PayloadType::SA, PayloadType::KE, PayloadType::NONCE] {
        check_true_one_wins(&changed(&|_, p| *p = without(p, kind)), Some("payload-missing"));
    }
    check_true_one_wins(&changed(&|_, p| p.push(p[0].clone())), Some("payload-twice"));
    check_true_one_wins(&changed(&|_, p| p.push(Raw::critical(99))), Some("unsupported-critical-payload"));
    let sealed = || Raw::new(PayloadType::SK, &[0; 64]);
    check_true_one_wins(&changed(&|_, p| p.push(sealed())), Some("encrypted-in-init"));
    check_true_one_wins(
        &changed(&|_, p| *p = altered(p, PayloadType::KE, |ke| ke.truncate(20))),
        Some("ke-length"),
    );
    let p256 = |ke: &mut Vec<u8>| *ke = [&[0, 19, 0, 0][..], &[7; 64]].concat();
    check_true_one_wins(&changed(&|_, p| *p = altered(p, PayloadType::KE, p256)), Some("ke-method"));
}

const FAILED: NotifyType = NotifyType::AUTHENTICATION_FAILED;

#[test]
fn unoffered_choices_are_rejected() {
    let (_, _, answer) = init_sent();
    let (header, payloads) = read_plain(&answer);
    let (gcm, prf, x25519) = (GCM128, PRF, X25519);
    let two = sa_of(&[proposal(1, 1, &[], &[gcm, prf, x25519]), proposal(2, 1, &[], &[gcm, prf, x25519])]);
    let choices = [
        two,
        sa(0, &[gcm, prf, x25519]),
        sa(3, &[gcm, prf, x25519]),
        // Number of the other proposal.
        sa(2, &[gcm, prf, x25519]),
        // CVE-2024-3652: no key length, and a key length of zero.
        sa(1, &[transform(1, 20, &[]), prf, x25519]),
        sa(1, &[transform(1, 20, &[0x80, 14, 0, 0]), prf, x25519]),
        sa(1, &[transform(1, 20, &[0x80, 14, 0, 192]), prf, x25519]),
        sa(1, &[gcm, transform(2, 2, &[]), x25519]),
        sa(1, &[gcm, prf, transform(4, 2, &[])]),
        sa(1, &[gcm, prf]),
        sa(1, &[gcm, x25519]),
        // Two transforms of one type leave the choice open.
        sa(1, &[gcm, transform(1, 20, &[0x80, 14, 1, 0]), prf, x25519]),
        sa(1, &[gcm, prf, x25519, transform(9, 9, &[])]),
        sa(1, &[transform(1, 20, &[0x80, 14, 0, 128, 0x80, 99, 0, 1]), prf, x25519]),
    ];
    for choice in choices {
        let wrong = altered(&payloads, PayloadType::SA, |sa| sa.clone_from(&choice));
        check_true_one_wins(&plain(&header, &wrong), Some("not-offered"));
    }
}

#[test]
fn a_refusal_takes_effect_if_no_better_response_arrives() {
    let (mut pair, request, answer) = init_sent();
    give_left(&mut pair, &refusal(&request, Raw::notify(NotifyType::NO_PROPOSAL_CHOSEN, &[])));
    pair.advance(Duration::from_secs(1));
    assert_eq!(pair.left.ike.status().count(), 1);
    pair.advance(Duration::from_secs(1));
    assert_eq!(pair.left.down_reasons(), [DownReason::Refused(NotifyType::NO_PROPOSAL_CHOSEN)]);
    assert!(give_left(&mut pair, &answer).is_empty());
    assert_eq!(count(&pair.left, "unknown-spi"), 1);
    assert!(pair.left.leaked_spis().is_empty());
}

#[test]
fn a_cookie_after_a_forged_refusal_does_not_shorten_the_wait() {
    let (mut pair, request, _) = init_sent();
    give_left(&mut pair, &refusal(&request, Raw::notify(NotifyType::NO_PROPOSAL_CHOSEN, &[])));
    let again = give_left(&mut pair, &refusal(&request, Raw::notify(NotifyType::COOKIE, b"true")));
    assert_eq!(again.len(), 1);
    pair.now = pair.now.after(Duration::from_millis(1_900));
    let now = pair.now;
    pair.left.with_context(now, |ike, host, context| ike.handle_timeouts(host, context));
    assert_eq!(pair.left.down_reasons(), []);
}

#[test]
fn responses_from_another_address_are_ignored() {
    let (mut pair, _, answer) = init_sent();
    let path =
        casemate_ike::Path { local: (pair.left.addr, 500).into(), remote: "192.0.2.66:500".parse().unwrap() };
    let mut bytes = answer.clone();
    pair.left.with_context(pair.now, |ike, host, context| ike.receive(&mut bytes, path, host, context));
    assert_eq!((count(&pair.left, "stray-response"), pair.left.sent.len()), (1, 0));
    assert_eq!(give_left(&mut pair, &answer).len(), 1);
}

#[test]
fn vpp_336eac8_a_second_answer_changes_nothing() {
    let (mut pair, _, answer) = init_sent();
    let auth = give_left(&mut pair, &answer);
    assert!(give_left(&mut pair, &answer).is_empty());
    let (header, payloads) = read_plain(&answer);
    let other = plain(&Header { spi_r: IkeSpi(9), ..header }, &payloads);
    assert!(give_left(&mut pair, &other).is_empty());
    assert_eq!((count(&pair.left, "stray-response"), count(&pair.left, "unknown-spi")), (1, 1));
    let done = give_right(&mut pair, &auth[0]);
    give_left(&mut pair, &done[0]);
    assert!(give_left(&mut pair, &answer).is_empty());
    pair.check_children(1);
}

#[test]
fn a_cookie_is_returned_first_and_the_rest_of_the_request_is_unchanged() {
    let (mut pair, request, _) = init_sent();
    let again = give_left(&mut pair, &refusal(&request, Raw::notify(NotifyType::COOKIE, &[5; 64])));
    let (header, payloads) = read_plain(&again[0]);
    assert_eq!(payloads[0], Raw::notify(NotifyType::COOKIE, &[5; 64]));
    // RFC 7296 section 2.6.
    assert_eq!((header.message_id, &payloads[1..]), (0, &read_plain(&request).1[..]));
}

#[test]
fn repeated_cookie_requests_are_bounded() {
    let (mut pair, request, _) = init_sent();
    for round in 0..8u8 {
        let forged = refusal(&request, Raw::notify(NotifyType::COOKIE, &[round; 8]));
        assert_eq!(give_left(&mut pair, &forged).len(), 1, "{round}");
    }
    for _ in 0..20 {
        let forged = refusal(&request, Raw::notify(NotifyType::COOKIE, &[99; 8]));
        assert!(give_left(&mut pair, &forged).is_empty());
    }
    assert_eq!(count(&pair.left, "too-many-retries"), 20);
    pair.advance(Duration::from_secs(2));
    assert_eq!(pair.left.down_reasons(), [DownReason::Fault(StateFault::TooManyRetries.into())]);
}

#[test]
fn a_requested_group_must_have_been_offered() {
    let ask = |pair: &mut Pair, request: &[u8], group: &[u8]| {
        give_left(pair, &refusal(request, Raw::notify(NotifyType::INVALID_KE_PAYLOAD, group)))
    };
    let (mut pair, request, _) = init_sent();
    // MODP-1024 and an unknown group: no request follows, and the attempt waits.
    assert!(ask(&mut pair, &request, &[0, 2]).is_empty());
    assert!(ask(&mut pair, &request, &[255, 255]).is_empty());
    assert_eq!(count(&pair.left, "not-offered"), 2);
    let again = ask(&mut pair, &request, &[0, 19]);
    let (_, payloads) = read_plain(&again[0]);
    let ke = payloads.iter().find(|payload| payload.kind == PayloadType::KE).unwrap();
    assert_eq!((&ke.body[..4], ke.body.len()), (&[0, 19, 0, 0][..], 68));
    // Repeated changes of the group are limited.
    for round in 0..20u8 {
        ask(&mut pair, &request, &[0, [31, 19][usize::from(round % 2)]]);
    }
    assert!(count(&pair.left, "too-many-retries") >= 6);
    pair.advance(Duration::from_secs(3));
    assert_eq!(pair.left.ike.status().count(), 0);
}

/// A repeated response asks for what the last request already had (RFC 7296 section 2.1: responses are
/// repeated with requests).
#[test]
fn a_repeated_request_for_the_same_group_or_cookie_is_ignored() {
    for notify in
        [Raw::notify(NotifyType::INVALID_KE_PAYLOAD, &[0, 19]), Raw::notify(NotifyType::COOKIE, &[5; 8])]
    {
        let mut pair = Pair::with_defaults();
        let request = first_request(&mut pair);
        let forged = refusal(&request, notify);
        let again = give_left(&mut pair, &forged);
        assert_eq!(again.len(), 1);
        for _ in 0..20 {
            assert!(give_left(&mut pair, &forged).is_empty());
        }
        assert_eq!([count(&pair.left, "not-offered"), count(&pair.left, "too-many-retries")], [0, 0]);
        // The attempt continues: nothing was refused.
        let answer = give_right(&mut pair, &again[0]);
        pair.now = pair.now.after(Duration::from_secs(3));
        pair.left.handle_timeouts(pair.now);
        pair.left.sent.clear();
        let auth = give_left(&mut pair, &answer[0]);
        assert_eq!(auth.len(), 1);
        let done = give_right(&mut pair, &auth[0]);
        give_left(&mut pair, &done[0]);
        pair.check_children(1);
    }
}
