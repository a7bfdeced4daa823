//! Requests of this host that are outstanding when the cluster synchronizes message IDs. Their responses
//! are not awaited any more (RFC 6311 section 9), and what they asked for is asked again.

use super::*;
use casemate_ike::config::Connection;
use casemate_ike::{Context, DownReason, Host, Ike};
use casemate_wire::ike::PayloadType;

const P1: u32 = 40;

/// The right side sends a request, and the cluster synchronizes. Returns the request.
fn interrupted(act: impl FnOnce(&mut Ike, &mut dyn Host, &mut Context<'_>, IkeSaId)) -> (Attack, Vec<Raw>) {
    let right = Connection { dpd_delay: Some(10 * SECOND), ..pair::connection("right", "left") };
    let mut attack = Attack::on(keeping(Pair::new(pair::connection("left", "right"), right)));
    let (id, now) = (ids(&attack.pair.right)[0], attack.pair.now.after(20 * SECOND));
    attack.pair.now = now;
    attack.pair.right.with_context(now, |ike, host, context| act(ike, host, context, id));
    let sent = attack.pair.right.sent.pop_back().unwrap().message;
    let (header, request) = attack.forger.open(&sent);
    assert_eq!(header.message_id, 0);
    let data = [7_u32.to_be_bytes(), 2_u32.to_be_bytes(), P1.to_be_bytes()].concat();
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, 0, false);
    let sync = attack.forger.seal(&header, &[Raw::notify(IDS, &data)]);
    let mut sent = attack.give(&sync);
    let requests = sent.split_off(1);
    assert_eq!(attack.forger.open(&sent[0]).0.message_id, 0);
    // A late response to the former request has no meaning.
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, 0, true);
    let late = attack.forger.seal(&header, &[]);
    assert!(attack.give(&late).is_empty());
    put_back(&mut attack, requests);
    (attack, request)
}

/// The next request of the right side.
fn next(attack: &mut Attack, message_id: u32) -> (ExchangeType, Vec<Raw>) {
    let sent = attack.pair.right.sent.pop_front().unwrap().message;
    let (header, payloads) = attack.forger.open(&sent);
    assert_eq!((header.flags.response, header.message_id), (false, message_id));
    (header.exchange, payloads)
}

/// Responds to the request with this message ID.
fn respond(attack: &mut Attack, exchange: ExchangeType, message_id: u32) {
    let header = attack.forger.header(exchange, message_id, true);
    let response = attack.forger.seal(&header, &[]);
    let sent = attack.give(&response);
    put_back(attack, sent);
}

/// Messages that the right side has sent wait for their test again.
fn put_back(attack: &mut Attack, messages: Vec<Vec<u8>>) {
    let transmits: Vec<_> = messages.into_iter().map(|message| from_right(&attack.pair, message)).collect();
    attack.pair.right.sent.extend(transmits);
}

#[test]
fn deletes_are_sent_again() {
    let (mut attack, request) = interrupted(|ike, host, context, _| {
        let child = ike.status().next().unwrap().children[0].id;
        assert!(ike.terminate_child(child, DownReason::Local, host, context));
    });
    assert_eq!(next(&mut attack, P1), (ExchangeType::INFORMATIONAL, request));
    respond(&mut attack, ExchangeType::INFORMATIONAL, P1);
    assert!(attack.pair.right.children().is_empty());
    attack.check_alive();

    let (mut attack, request) = interrupted(|ike, host, context, id| {
        assert!(ike.terminate(id, DownReason::Local, host, context));
    });
    assert_eq!(next(&mut attack, P1), (ExchangeType::INFORMATIONAL, request));
    respond(&mut attack, ExchangeType::INFORMATIONAL, P1);
    attack.check_gone();
}

/// The cluster may have created the Child SA, with which this host could not receive anything.
#[test]
fn a_rekeying_of_a_child_sa_begins_again_without_its_result() {
    let (mut attack, request) = interrupted(|ike, host, context, _| {
        let child = ike.status().next().unwrap().children[0].id;
        assert!(ike.rekey_child(child, host, context));
    });
    let sa = request.iter().find(|raw| raw.kind == PayloadType::SA).unwrap();
    let spi = u32::from_be_bytes(sa.body[8..12].try_into().unwrap());
    assert_eq!(next(&mut attack, P1), (ExchangeType::INFORMATIONAL, vec![Raw::delete(&[spi])]));
    respond(&mut attack, ExchangeType::INFORMATIONAL, P1);
    let (exchange, again) = next(&mut attack, P1 + 1);
    assert_eq!(exchange, ExchangeType::CREATE_CHILD_SA);
    assert!(notifies(&request).iter().any(|(kind, _)| *kind == NotifyType::REKEY_SA));
    // If the cluster has replaced the old Child SA, it would refuse to rekey it.
    assert!(notifies(&again).iter().all(|(kind, _)| *kind != NotifyType::REKEY_SA));
    assert_eq!(attack.pair.right.leaked_spis().len(), 1, "the new request has one, the former one has none");
}

#[test]
fn a_request_for_a_new_child_sa_is_sent_again() {
    let (mut attack, request) = interrupted(|ike, host, context, _| {
        let connection = ike.connections()[0].clone();
        ike.initiate(&connection, connection.children.first(), None, host, context).unwrap();
    });
    assert!(request.iter().any(|raw| raw.kind == PayloadType::SA));
    let (exchange, delete) = next(&mut attack, P1);
    assert_eq!((exchange, delete[0].kind), (ExchangeType::INFORMATIONAL, PayloadType::DELETE));
    respond(&mut attack, ExchangeType::INFORMATIONAL, P1);
    let (exchange, again) = next(&mut attack, P1 + 1);
    assert_eq!(exchange, ExchangeType::CREATE_CHILD_SA);
    assert_eq!(again.len(), request.len());
    assert_eq!(attack.pair.right.leaked_spis().len(), 1);
}

/// The cluster may have moved the Child SAs to an IKE SA that this host does not have.
#[test]
fn after_a_rekeying_of_the_ike_sa_the_peer_is_authenticated_again() {
    let (mut attack, _) = interrupted(|ike, host, context, id| assert!(ike.rekey(id, host, context)));
    attack.pair.advance(2 * SECOND);
    let is_new = |status: &casemate_ike::IkeStatus| status.initiator && status.children.len() == 1;
    assert!(attack.pair.right.ike.status().any(|status| is_new(&status)));
    assert!(attack.pair.left.ike.status().any(|status| !status.initiator));
}

#[test]
fn a_liveness_check_is_answered_by_the_synchronization() {
    let (attack, request) = interrupted(|ike, host, context, _| ike.handle_timeouts(host, context));
    assert!(request.is_empty());
    assert!(attack.pair.right.sent.is_empty());
}
