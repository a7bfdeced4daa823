//! Refused rekeying (RFC 7296 sections 1.3.2 and 1.3.3): events and explanations on the side that has
//! refused, and on the side that was refused.

use crate::first_request::{GCM128, RawTransform, X25519, proposal, sa_of, transform};
use crate::forge::{Attack, Raw, notifies};
use casemate_ike::diagnosis::Explanation;
use casemate_ike::{DownReason, Event, PeerFault, StateFault};
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};

/// PRF_HMAC_SHA1, which no connection of these tests allows.
const SHA1_PRF: RawTransform = transform(2, 2, &[]);

/// The payloads with which a peer proposes a successor, or accepts one.
fn successor(prf: RawTransform) -> Vec<Raw> {
    vec![
        Raw::new(PayloadType::SA, &sa_of(&[proposal(1, 1, &[1; 8], &[GCM128, prf, X25519])])),
        Raw::new(PayloadType::NONCE, &[7; 32]),
        Raw::new(PayloadType::KE, &[&[0, 31, 0, 0][..], &[9; 32]].concat()),
    ]
}

/// An attack on an engine that explains faults.
fn explained_attack() -> Attack {
    let mut attack = Attack::established();
    attack.pair.right.ike.explain_faults();
    attack
}

/// The last explained fault.
fn last_explanation(attack: &Attack) -> (StateFault, Explanation) {
    let found = attack.pair.right.events.iter().rev().find_map(|event| match event {
        Event::Fault { fault: PeerFault::State(fault), explanation: Some(why), connection, .. } => {
            assert!(connection.is_some());
            Some((*fault, (**why).clone()))
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no explanation: {:?}", attack.pair.right.events))
}

/// Lets the right side request a successor, and responds with these payloads.
fn respond_to_rekeying(attack: &mut Attack, payloads: &[Raw]) {
    let (ike, now) = (attack.pair.right.ike.status().next().unwrap().id, attack.pair.now);
    assert!(attack.pair.right.with_context(now, |ikes, host, context| ikes.rekey(ike, host, context)));
    attack.pair.right.sent.clear();
    let header = attack.forger.header(ExchangeType::CREATE_CHILD_SA, 0, true);
    let response = attack.forger.seal(&header, payloads);
    attack.give(&response);
}

/// The reasons for which successors were refused.
fn refusals(attack: &Attack) -> Vec<DownReason> {
    let refusal = |event: &Event| match event {
        Event::IkeRekeyFailed { connection, reason, .. } => {
            assert_eq!(connection.name, "right");
            Some(*reason)
        }
        _ => None,
    };
    attack.pair.right.events.iter().filter_map(refusal).collect()
}

#[test]
fn the_proposals_of_a_refused_request_are_explained() {
    let mut attack = explained_attack();
    let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &successor(SHA1_PRF));
    assert_eq!(notifies(&answer), [(NotifyType::NO_PROPOSAL_CHOSEN, vec![])]);
    let (fault, explanation) = last_explanation(&attack);
    let Explanation::RekeyRequest { offered } = explanation else { panic!("{explanation:?}") };
    assert_eq!((fault, offered.len()), (StateFault::NoProposalChosen, 1));
    assert_eq!(offered[0].algorithms.len(), 3);
    attack.check_alive();
}

#[test]
fn a_choice_that_was_not_offered_is_explained() {
    let mut attack = explained_attack();
    respond_to_rekeying(&mut attack, &successor(SHA1_PRF));
    let (fault, explanation) = last_explanation(&attack);
    assert!(matches!(explanation, Explanation::Choice { .. }), "{explanation:?}");
    assert_eq!(fault, StateFault::NotOffered);
    // The fault is the event: there is no second one.
    assert_eq!(refusals(&attack), []);
}

#[test]
fn a_refusal_by_the_peer_is_reported() {
    for (kind, data, reported) in [
        (NotifyType::NO_PROPOSAL_CHOSEN, &[][..], true),
        (NotifyType::NO_ADDITIONAL_SAS, &[], true),
        // A group that was not offered.
        (NotifyType::INVALID_KE_PAYLOAD, &[0, 99], true),
        // The peer is busy: the request is repeated soon.
        (NotifyType::TEMPORARY_FAILURE, &[], false),
    ] {
        let mut attack = explained_attack();
        respond_to_rekeying(&mut attack, &[Raw::notify(kind, data)]);
        let expected: Vec<DownReason> = reported.then_some(DownReason::Refused(kind)).into_iter().collect();
        assert_eq!(refusals(&attack), expected, "{kind}");
        assert_eq!(attack.pair.right.down_reasons(), []);
    }
}

#[test]
fn the_failure_of_a_child_sa_names_the_one_that_stays() {
    let mut attack = explained_attack();
    let (old, now) = (attack.pair.right.children()[0].id, attack.pair.now);
    assert!(attack.pair.right.with_context(now, |ike, host, context| ike.rekey_child(old, host, context)));
    attack.pair.right.sent.clear();
    let header = attack.forger.header(ExchangeType::CREATE_CHILD_SA, 0, true);
    let refusal = attack.forger.seal(&header, &[Raw::notify(NotifyType::NO_PROPOSAL_CHOSEN, &[])]);
    attack.give(&refusal);
    let failed = attack.pair.right.events.iter().find_map(|event| match event {
        Event::ChildFailed { replaces, reason, .. } => Some((*replaces, *reason)),
        _ => None,
    });
    assert_eq!(failed, Some((Some(old), DownReason::Refused(NotifyType::NO_PROPOSAL_CHOSEN))));
    assert_eq!(attack.pair.right.children().len(), 1);
}
