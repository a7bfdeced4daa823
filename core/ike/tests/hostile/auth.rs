//! IKE_AUTH of peers with false identities or proofs, at both ends (RFC 7296 sections 2.15, 2.16 and 2.21.2).

use crate::first_request::{proposal, transform};
use crate::forge::{Attack, MessageForger, Raw, altered, count, give_left, notifies, without};
use crate::pair::{IkePeer, LEFT, Pair, RIGHT, connection, key};
use casemate_ike::config::{Childless, IdPattern, Identity};
use casemate_ike::{DownReason, Event, IkeSettings, IkeState, PeerFault, SharedKeys, StateFault};
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};

const FAILED: NotifyType = NotifyType::AUTHENTICATION_FAILED;

/// Sends a changed IKE_AUTH request to the right side. Checks the notification and that no state is left.
fn check_refused(alter: impl FnOnce(&mut Vec<Raw>), notify: NotifyType, fault: &str) {
    let (mut attack, mut auth) = Attack::half_open(Pair::with_defaults());
    alter(&mut auth);
    refused_at(&mut attack, &auth, notify, fault);
}

fn refused_at(attack: &mut Attack, auth: &[Raw], notify: NotifyType, fault: &str) {
    let header = attack.forger.header(ExchangeType::IKE_AUTH, 1, false);
    let message = attack.forger.seal(&header, auth);
    let answers = attack.give(&message);
    assert_eq!(answers.len(), 1, "{fault}");
    let (_, answer) = attack.forger.open(&answers[0]);
    assert_eq!(answer.len(), 1, "{fault}: nothing but the refusal");
    assert_eq!(notifies(&answer)[0].0, notify, "{fault}");
    assert_eq!(attack.count(fault), 1, "{fault}: {:?}", attack.pair.right.events);
    assert!(
        !attack
            .pair
            .right
            .events
            .iter()
            .any(|event| matches!(event, Event::IkeUp { .. } | Event::ChildUp(_)))
    );
    assert!(matches!(attack.pair.right.down_reasons()[..], [DownReason::Fault(_)]));
    attack.check_gone();
    // CVE-2024-2357: also not for a repetition. RFC 7296 section 2.1: it gets the same response.
    assert_eq!(attack.give(&message), answers);
    attack.check_gone();
    assert_eq!(attack.count("unknown-spi"), 0);
    assert_eq!(attack.pair.right.ike.next_timeout(), None);
}

/// The payloads of a response without those that announce RFC 6311, which not every build has.
fn without_support(payloads: &[Raw]) -> Vec<Raw> {
    let announces = |raw: &Raw| raw.body.ends_with(&[0x40, 0x24]) || raw.body.ends_with(&[0x40, 0x25]);
    let is_announcement = |raw: &&Raw| raw.kind == PayloadType::NOTIFY && announces(raw);
    payloads.iter().filter(|raw| !is_announcement(raw)).cloned().collect()
}

#[test]
fn the_authentic_response_is_accepted() {
    let (mut attack, auth) = Attack::half_open(Pair::with_defaults());
    let answer = without_support(&attack.ask(ExchangeType::IKE_AUTH, &auth));
    let kinds: Vec<_> = answer.iter().map(|payload| payload.kind).collect();
    use PayloadType as P;
    assert_eq!(kinds, [P::ID_R, P::AUTH, P::SA, P::TS_I, P::TS_R]);
    attack.check_alive();
    assert_eq!(attack.pair.right.children().len(), 1);
}

#[test]
fn missing_and_duplicate_payloads_are_rejected() {
    let syntax = NotifyType::INVALID_SYNTAX;
    for kind in [PayloadType::ID_I, PayloadType::SA, PayloadType::TS_I, PayloadType::TS_R] {
        check_refused(|auth| *auth = without(auth, kind), syntax, "payload-missing");
    }
    let single = [
        PayloadType::ID_I,
        PayloadType::ID_R,
        PayloadType::AUTH,
        PayloadType::SA,
        PayloadType::TS_I,
        PayloadType::TS_R,
    ];
    for kind in single {
        let double = |auth: &mut Vec<Raw>| {
            let again = auth.iter().find(|payload| payload.kind == kind).unwrap().clone();
            auth.push(again);
        };
        check_refused(double, syntax, "payload-twice");
    }
    // The request need not name the responder.
    let (mut attack, auth) = Attack::half_open(Pair::with_defaults());
    assert_eq!(
        attack.ask(ExchangeType::IKE_AUTH, &without(&auth, PayloadType::ID_R))[0].kind,
        PayloadType::ID_R
    );
}

#[test]
fn an_unknown_critical_payload() {
    check_refused(
        |auth| auth.push(Raw::critical(99)),
        NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD,
        "unsupported-critical-payload",
    );
}

#[test]
fn cve_2021_45079_without_auth_there_is_no_ike_sa() {
    check_refused(|auth| *auth = without(auth, PayloadType::AUTH), FAILED, "auth-method");
    // An EAP-Success by the initiator, without any proof.
    let eap = |auth: &mut Vec<Raw>| {
        *auth = without(auth, PayloadType::AUTH);
        auth.push(Raw::new(PayloadType::EAP, &[3, 1, 0, 4]));
    };
    check_refused(eap, FAILED, "auth-method");
}

#[test]
fn invalid_proofs_are_rejected() {
    let auth = |alter: fn(&mut Vec<u8>), fault| {
        check_refused(|auth| *auth = altered(auth, PayloadType::AUTH, alter), FAILED, fault);
    };
    auth(|body| *body.last_mut().unwrap() ^= 1, "auth-mismatch");
    auth(|body| body.truncate(body.len() - 1), "auth-mismatch");
    auth(|body| body.push(0), "auth-mismatch");
    auth(|body| body.truncate(5), "auth-mismatch");
    for method in [0, 1, 3, 9, 14, 255] {
        let other = |auth: &mut Vec<Raw>| {
            *auth = altered(auth, PayloadType::AUTH, |body| {
                *body = [&[method, 0, 0, 0][..], &[1, 7, 7, 7, 7]].concat();
            });
        };
        check_refused(other, FAILED, "auth-method");
    }
}

#[test]
fn a_proof_of_another_session_is_rejected() {
    let (_, old) = Attack::half_open(Pair::with_defaults());
    let mut pair = Pair::with_defaults();
    pair.left = IkePeer::new(LEFT, 77, connection("left", "right"));
    let (mut attack, auth) = Attack::half_open(pair);
    let old = old.into_iter().find(|payload| payload.kind == PayloadType::AUTH).unwrap();
    let replayed = altered(&auth, PayloadType::AUTH, |body| body.clone_from(&old.body));
    assert_ne!(replayed, auth);
    refused_at(&mut attack, &replayed, FAILED, "auth-mismatch");
}

#[test]
fn cve_2024_2357_no_secret_leaves_nothing_behind() {
    let (mut attack, auth) = Attack::half_open(Pair::with_defaults());
    attack.pair.right.keys = Box::new(SharedKeys::new());
    refused_at(&mut attack, &auth, FAILED, "no-shared-key");
    let (mut attack, auth) = Attack::half_open(Pair::with_defaults());
    attack.pair.right.keys = Box::new(key(b"another key"));
    refused_at(&mut attack, &auth, FAILED, "auth-mismatch");
}

#[test]
fn unexpected_identities_are_rejected() {
    let id = |kind, body: &[u8]| {
        let body = body.to_vec();
        move |auth: &mut Vec<Raw>| *auth = altered(auth, kind, |id| id.clone_from(&body))
    };
    check_refused(id(PayloadType::ID_I, b"\x02\0\0\0leftt"), FAILED, "no-peer");
    check_refused(id(PayloadType::ID_I, b"\x0b\0\0\0left"), FAILED, "no-peer");
    check_refused(id(PayloadType::ID_R, b"\x02\0\0\0somebody"), FAILED, "no-peer");
    check_refused(id(PayloadType::ID_R, b"\xc9\0\0\0somebody"), FAILED, "identity-type");
    // The same name in another case: the connection is found, but AUTH covers the bytes.
    check_refused(id(PayloadType::ID_I, b"\x02\0\0\0LEFT"), FAILED, "auth-mismatch");
    check_refused(id(PayloadType::ID_I, b"\x02\0\0\x01left"), FAILED, "auth-mismatch");
}

#[test]
fn cve_2023_38711_identities_of_every_type() {
    for kind in 0..=255 {
        for name in [&b"left"[..], &[0; 16], b"\x30\x00", b""] {
            let (mut attack, auth) = Attack::half_open(Pair::with_defaults());
            let auth = altered(&auth, PayloadType::ID_I, |id| *id = [&[kind, 0, 0, 0], name].concat());
            if kind == 2 && name == b"left" {
                continue;
            }
            let header = attack.forger.header(ExchangeType::IKE_AUTH, 1, false);
            let message = attack.forger.seal(&header, &auth);
            let answers = attack.give(&message);
            let (_, answer) = attack.forger.open(&answers[0]);
            let refusal = notifies(&answer)[0].0;
            assert!([FAILED, NotifyType::INVALID_SYNTAX].contains(&refusal), "{kind}: {refusal}");
            attack.check_gone();
        }
    }
}

#[test]
fn a_rejected_child_sa_leaves_the_ike_sa_established() {
    let refuse = |kind, alter: fn(&mut Vec<u8>), notify, fault| {
        let (mut attack, auth) = Attack::half_open(Pair::with_defaults());
        let answer = without_support(&attack.ask(ExchangeType::IKE_AUTH, &altered(&auth, kind, alter)));
        let kinds: Vec<_> = answer.iter().map(|payload| payload.kind).collect();
        assert_eq!(kinds, [PayloadType::ID_R, PayloadType::AUTH, PayloadType::NOTIFY]);
        assert_eq!(notifies(&answer), [(notify, vec![])]);
        assert_eq!((attack.count(fault), attack.pair.right.children().len()), (1, 0));
        assert!(attack.pair.right.host.reserved.is_empty());
        attack.check_alive();
    };
    let ts = |body: &mut Vec<u8>| body[12..20].fill(9);
    refuse(PayloadType::TS_I, ts, NotifyType::TS_UNACCEPTABLE, "ts-unacceptable");
    refuse(PayloadType::TS_R, ts, NotifyType::TS_UNACCEPTABLE, "ts-unacceptable");
    let ah = |body: &mut Vec<u8>| {
        *body = proposal(1, 2, &[0, 0, 0, 7], &[transform(3, 12, &[]), transform(5, 0, &[])]);
    };
    refuse(PayloadType::SA, ah, NotifyType::NO_PROPOSAL_CHOSEN, "no-proposal-chosen");
}

#[test]
fn childless_ike_sas_follow_the_policy() {
    let bare = |auth: &[Raw]| {
        without(&without(&without(auth, PayloadType::SA), PayloadType::TS_I), PayloadType::TS_R)
    };
    for (childless, taken) in [(Childless::Never, false), (Childless::Allow, true), (Childless::Force, true)]
    {
        let mut right = connection("right", "left");
        right.childless = childless;
        let (mut attack, auth) = Attack::half_open(Pair::new(connection("left", "right"), right));
        if taken {
            assert_eq!(without_support(&attack.ask(ExchangeType::IKE_AUTH, &bare(&auth))).len(), 2);
            attack.check_alive();
        } else {
            refused_at(&mut attack, &bare(&auth), NotifyType::INVALID_SYNTAX, "childless-refused");
        }
    }
    let mut right = connection("right", "left");
    right.childless = Childless::Force;
    let (mut attack, auth) = Attack::half_open(Pair::new(connection("left", "right"), right));
    refused_at(&mut attack, &auth, NotifyType::INVALID_SYNTAX, "childless-refused");
}

#[test]
fn a_response_longer_than_the_limit_leaks_nothing() {
    let mut failed = 0;
    // With this name the IKE_AUTH response is longer than the IKE_SA_INIT response.
    let name = Identity::Fqdn("r".repeat(200));
    for message_bytes in 250..450 {
        let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
        left.remote.id = IdPattern::Exact(name.clone());
        right.local.id = Some(name.clone());
        let mut pair = Pair::new(left, right.clone());
        let settings = IkeSettings { max_message_bytes: message_bytes, ..IkeSettings::SERVER };
        pair.right = IkePeer::with(settings, RIGHT, 2, right);
        pair.left.initiate(pair.now);
        pair.run();
        assert!(pair.right.leaked_spis().is_empty(), "{message_bytes}");
        failed += usize::from(pair.right.down_reasons().len() == 1);
    }
    assert!(failed > 10, "IKE_AUTH fails if the response is too long: {failed}");
}

/// The left side waits for the IKE_AUTH response. Returns the authentic response, decrypted, and a forger
/// with the keys.
fn auth_sent() -> (Pair, MessageForger, Vec<Raw>) {
    let mut pair = Pair::with_defaults();
    pair.left.ike.report_keys(true);
    pair.left.initiate(pair.now);
    pair.deliver_to_right();
    pair.deliver_to_left();
    pair.deliver_to_right();
    let forger = MessageForger::against(&pair.left);
    let answer = pair.right.sent.pop_front().unwrap();
    let (_, payloads) = forger.open(&answer.message);
    (pair, forger, payloads)
}

/// A changed response ends the attempt, and the peer is told so (RFC 7296 section 2.21.2).
fn check_rejected(alter: impl FnOnce(&mut Vec<Raw>), fault: StateFault) {
    let (mut pair, mut forger, mut answer) = auth_sent();
    alter(&mut answer);
    let message = forger.seal(&forger.header(ExchangeType::IKE_AUTH, 1, true), &answer);
    let sent = give_left(&mut pair, &message);
    assert_eq!(sent.len(), 1, "{fault}");
    let (header, last) = forger.open(&sent[0]);
    assert_eq!(
        (header.exchange, header.message_id, header.flags.response),
        (ExchangeType::INFORMATIONAL, 2, false)
    );
    assert_eq!(notifies(&last), [(FAILED, vec![])]);
    assert_eq!(pair.left.down_reasons(), [DownReason::Fault(PeerFault::State(fault))]);
    assert_eq!((count(&pair.left, fault.name()), pair.left.ike.status().count()), (1, 0));
    assert!(pair.left.leaked_spis().is_empty() && pair.left.children().is_empty());
    assert!(!pair.left.events.iter().any(|event| matches!(event, Event::IkeUp { .. })));
    // The right side considered itself authenticated, and deletes the IKE SA.
    crate::forge::give_right(&mut pair, &sent[0]);
    assert_eq!(pair.right.down_reasons(), [DownReason::Refused(FAILED)]);
    assert_eq!(pair.right.children().len(), 0);
}

#[test]
fn responders_without_valid_proof_are_rejected() {
    use StateFault as S;
    check_rejected(|answer| *answer = without(answer, PayloadType::ID_R), S::PayloadMissing);
    check_rejected(|answer| *answer = without(answer, PayloadType::AUTH), S::PayloadMissing);
    check_rejected(|answer| answer.clear(), S::PayloadMissing);
    let alter = |kind, alter: fn(&mut Vec<u8>), fault| {
        check_rejected(|answer| *answer = altered(answer, kind, alter), fault);
    };
    alter(PayloadType::ID_R, |id| id[4] = b'x', S::WrongIdentity);
    alter(PayloadType::ID_R, |id| id[0] = 3, S::WrongIdentity);
    alter(PayloadType::ID_R, |id| id[0] = 200, S::IdentityType);
    alter(PayloadType::AUTH, |auth| auth[9] ^= 1, S::AuthMismatch);
    alter(PayloadType::AUTH, |auth| auth[0] = 1, S::AuthMethod);
    // RFC 7296 section 2.16: EAP was not requested, and EAP-Success is not a proof.
    let eap = |answer: &mut Vec<Raw>| {
        *answer = without(answer, PayloadType::AUTH);
        answer.push(Raw::new(PayloadType::EAP, &[3, 1, 0, 4]));
    };
    check_rejected(eap, S::PayloadMissing);
}

#[test]
fn a_reflected_proof_is_rejected() {
    let mut pair = Pair::with_defaults();
    pair.left.ike.report_keys(true);
    pair.left.initiate(pair.now);
    pair.deliver_to_right();
    pair.deliver_to_left();
    let mut forger = MessageForger::against(&pair.left);
    let ours = forger.open(&pair.left.sent.pop_front().unwrap().message).1;
    let reflected = altered(&ours, PayloadType::ID_R, |_| {});
    let reflected = without(&reflected, PayloadType::ID_I);
    let message = forger.seal(&forger.header(ExchangeType::IKE_AUTH, 1, true), &reflected);
    give_left(&mut pair, &message);
    assert_eq!(pair.left.down_reasons(), [DownReason::Fault(StateFault::AuthMismatch.into())]);
}

#[test]
fn a_refusal_by_the_peer_closes_silently() {
    for kind in [FAILED, NotifyType::INVALID_SYNTAX, NotifyType::NO_PROPOSAL_CHOSEN] {
        let (mut pair, mut forger, _) = auth_sent();
        let header = forger.header(ExchangeType::IKE_AUTH, 1, true);
        let message = forger.seal(&header, &[Raw::notify(kind, &[])]);
        assert!(give_left(&mut pair, &message).is_empty());
        assert_eq!(pair.left.down_reasons(), [DownReason::Refused(kind)]);
        assert!(pair.left.leaked_spis().is_empty());
    }
}

#[test]
fn a_child_sa_refused_by_the_peer_leaves_the_ike_sa_established() {
    let (mut pair, mut forger, answer) = auth_sent();
    let mut refusal =
        without(&without(&without(&answer, PayloadType::SA), PayloadType::TS_I), PayloadType::TS_R);
    refusal.push(Raw::notify(NotifyType::TS_UNACCEPTABLE, &[]));
    let message = forger.seal(&forger.header(ExchangeType::IKE_AUTH, 1, true), &refusal);
    assert!(give_left(&mut pair, &message).is_empty());
    assert_eq!(pair.left.ike.status().next().unwrap().state, IkeState::Established);
    let failed = |event: &Event| {
        matches!(event, Event::ChildFailed { reason: DownReason::Refused(NotifyType::TS_UNACCEPTABLE), .. })
    };
    assert!(pair.left.events.iter().any(failed));
    assert!(pair.left.host.reserved.is_empty());
}

#[test]
fn an_unrequested_child_sa_closes_the_ike_sa() {
    type Alter = fn(&mut Vec<u8>);
    let alter: [(PayloadType, Alter, StateFault); 4] = [
        (PayloadType::TS_I, |ts| ts[13] = 0, StateFault::TsNotOffered),
        (PayloadType::TS_R, |ts| ts[17] = 255, StateFault::TsNotOffered),
        (PayloadType::SA, |sa| sa[4] = 7, StateFault::NotOffered),
        (PayloadType::SA, |sa| sa[8..12].fill(0), StateFault::ZeroSpi),
    ];
    for (kind, alter, fault) in alter {
        let (mut pair, mut forger, answer) = auth_sent();
        let answer = altered(&answer, kind, alter);
        let message = forger.seal(&forger.header(ExchangeType::IKE_AUTH, 1, true), &answer);
        let sent = give_left(&mut pair, &message);
        assert_eq!(forger.open(&sent[0]).1, [Raw::new(PayloadType::DELETE, &[1, 0, 0, 0])], "{fault}");
        assert_eq!((count(&pair.left, fault.name()), pair.left.children().len()), (1, 0));
        let message = forger.seal(&forger.header(ExchangeType::INFORMATIONAL, 2, true), &[]);
        give_left(&mut pair, &message);
        assert_eq!(pair.left.down_reasons(), [DownReason::Fault(fault.into())]);
        assert!(pair.left.leaked_spis().is_empty());
    }
}
