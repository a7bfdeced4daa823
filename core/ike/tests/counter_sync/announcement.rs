//! The announcement of support in IKE_AUTH (RFC 6311 section 5).

use super::*;
use crate::pair::connection;

/// Which support a message announces, without data (sections 6.1 and 6.2).
fn announced(payloads: &[Raw]) -> Vec<NotifyType> {
    let all = notifies(payloads).into_iter();
    let supports = all.filter(|(kind, _)| [SUPPORTS_IDS, SUPPORTS_NUMBERS].contains(kind));
    supports.inspect(|(_, data)| assert!(data.is_empty())).map(|(kind, _)| kind).collect()
}

#[test]
fn both_peers_announce_both() {
    let (mut attack, payloads) = Attack::half_open(Pair::with_defaults());
    assert_eq!(announced(&payloads), [SUPPORTS_IDS, SUPPORTS_NUMBERS]);
    let response = attack.ask(ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(announced(&response), [SUPPORTS_IDS, SUPPORTS_NUMBERS]);
}

/// "The responder MUST NOT assert support of a capability unless such support was asserted by the initiator."
#[test]
fn a_responder_announces_what_the_initiator_has_announced() {
    for wanted in [&[SUPPORTS_IDS][..], &[SUPPORTS_NUMBERS], &[]] {
        let (mut attack, payloads) = Attack::half_open(Pair::with_defaults());
        let mut request = without(&payloads, casemate_wire::ike::PayloadType::NOTIFY);
        request.extend(wanted.iter().map(|kind| Raw::notify(*kind, &[])));
        assert_eq!(announced(&attack.ask(ExchangeType::IKE_AUTH, &request)), wanted);
    }
}

/// "Only a capability whose support was asserted by both parties can be used during the lifetime of the SA."
#[test]
fn what_only_one_peer_has_announced_is_not_used() {
    let sync = [&[1; 4][..], &9_u32.to_be_bytes(), &0_u32.to_be_bytes()].concat();
    let pair = || Pair::new(connection("left", "right"), connection("right", "left"));
    let mut attack = announcing(pair(), |_| false);
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, 0, false);
    let request = attack.forger.seal(&header, &[Raw::notify(IDS, &sync)]);
    assert!(attack.give(&request).is_empty());
    assert_eq!(attack.count("message-id"), 1);
    // Without support, the notification has no meaning and is ignored (RFC 7296 section 3.10.1).
    for data in [&[0, 0, 0, 9][..], &[0, 0, 9]] {
        assert_eq!(attack.ask(ExchangeType::INFORMATIONAL, &[Raw::notify(NUMBERS, data)]), []);
    }
    assert!(skipped(&attack.pair.right).is_empty());

    // Message IDs, but not numbers.
    let mut attack = announcing(pair(), |kind| kind == SUPPORTS_IDS);
    let inside = [Raw::notify(IDS, &sync), Raw::notify(NUMBERS, &[0, 0, 0, 9])];
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, 0, false);
    let request = attack.forger.seal(&header, &inside);
    assert_eq!(attack.give(&request).len(), 1);
    assert!(skipped(&attack.pair.right).is_empty());
}

#[test]
fn a_successor_of_the_ike_sa_has_the_same_support() {
    let mut pair = established(Pair::with_defaults());
    pair.right.ike.report_keys(true);
    let id = ids(&pair.left)[0];
    assert!(pair.left.with_context(pair.now, |ike, host, context| ike.rekey(id, host, context)));
    pair.advance(2 * SECOND);
    let forger = MessageForger::against(&pair.right);
    let mut attack = Attack { pair, forger, next: 0 };
    let inside = Raw::notify(NUMBERS, &[0, 0, 0, 9]);
    assert_eq!(attack.ask(ExchangeType::INFORMATIONAL, &[inside]), []);
    assert_eq!(skipped(&attack.pair.right), [9]);
}
