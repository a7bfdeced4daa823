//! Every exchange in every state, as request and as response, in clear text and under the keys.

use crate::forge::{
    Attack, MessageForger, Raw, count, give_left, give_right, notifies, plain, reports_unknown_spi,
};
use crate::pair::Pair;
use casemate_ike::DownReason;
use casemate_wire::ike::{ExchangeType, Header, NotifyType, PayloadType};
use std::time::Duration;

/// Whether an exchange begins an IKE SA: IKE_SA_INIT and, with tickets, IKE_SESSION_RESUME.
const fn begins_ike_sa(exchange: u8) -> bool {
    exchange == 34 || cfg!(feature = "resumption") && exchange == 38
}

/// Exchange types of RFC 7296, of later RFCs, and unassigned ones.
const EXCHANGES: [u8; 11] = [0, 2, 33, 34, 35, 36, 37, 38, 43, 44, 255];

/// A pair with one host in a certain state, and a forger who attacks that host.
struct Attacked {
    state: &'static str,
    pair: Pair,
    forger: MessageForger,
    /// Whether the right side is attacked.
    to_right: bool,
}

/// A host in each state.
fn states() -> [Attacked; 4] {
    let (half, _) = Attack::half_open(Pair::with_defaults());
    let full = Attack::established();
    let mut waits = Pair::with_defaults();
    waits.left.ike.report_keys(true);
    waits.left.initiate(waits.now);
    waits.deliver_to_right();
    waits.deliver_to_left();
    waits.left.sent.clear();
    let waits_forger = MessageForger::against(&waits.left);
    let mut ours = Pair::with_defaults();
    ours.left.ike.report_keys(true);
    ours.left.initiate(ours.now);
    ours.run();
    let ours_forger = MessageForger::against(&ours.left);
    [
        Attacked { state: "half-open", pair: half.pair, forger: half.forger, to_right: true },
        Attacked { state: "responder", pair: full.pair, forger: full.forger, to_right: true },
        Attacked { state: "auth sent", pair: waits, forger: waits_forger, to_right: false },
        Attacked { state: "initiator", pair: ours, forger: ours_forger, to_right: false },
    ]
}

fn give(pair: &mut Pair, to_right: bool, message: &[u8]) -> Vec<Vec<u8>> {
    if to_right { give_right(pair, message) } else { give_left(pair, message) }
}

#[test]
fn cve_2019_12312_in_clear_text_nothing_moves() {
    let contents = [
        vec![],
        vec![Raw::delete(&[1])],
        vec![Raw::new(PayloadType::DELETE, &[1, 0, 0, 0])],
        vec![Raw::notify(NotifyType::AUTHENTICATION_FAILED, &[])],
        vec![Raw::critical(200)],
    ];
    for Attacked { state, mut pair, forger, to_right } in states() {
        let side = |pair: &Pair| {
            let side = if to_right { &pair.right } else { &pair.left };
            (side.ike.status().collect::<Vec<_>>(), side.host.reserved.clone(), side.ike.next_timeout())
        };
        let before = side(&pair);
        for exchange in EXCHANGES {
            for (response, id) in [(false, 0), (false, 1), (false, 2), (true, 0), (true, 1), (true, 2)] {
                for content in &contents {
                    let header = forger.header(ExchangeType(exchange), id, response);
                    // A first request or response never finds this IKE SA.
                    let answers = give(&mut pair, to_right, &plain(&header, content));
                    assert!(answers.is_empty(), "{state}: exchange {exchange}, {response}, {id}");
                }
            }
        }
        assert_eq!(side(&pair), before, "{state}");
    }
}

#[test]
fn cve_2019_10155_a_wrong_icv_is_silence_in_every_exchange() {
    for Attacked { state, mut pair, mut forger, to_right } in states() {
        for exchange in EXCHANGES {
            for (id, response) in [(0, false), (1, false), (2, false), (1, true)] {
                let header = forger.header(ExchangeType(exchange), id, response);
                let mut message = forger.seal(&header, &[Raw::new(PayloadType::DELETE, &[1, 0, 0, 0])]);
                *message.last_mut().unwrap() ^= 1;
                let answers = give(&mut pair, to_right, &message);
                assert!(answers.is_empty(), "{state}: exchange {exchange}, {id}");
            }
        }
        let side = if to_right { &pair.right } else { &pair.left };
        assert!(count(side, "icv-mismatch") >= 9, "{state}: {}", count(side, "icv-mismatch"));
        assert_eq!((side.ike.status().count(), side.down_reasons()), (1, vec![]), "{state}");
        assert!(count(side, "unknown-spi") == 0, "every message is dispatched to its IKE SA");
    }
}

#[test]
fn an_encrypted_message_other_than_ike_auth_closes_a_half_open_ike_sa() {
    for exchange in EXCHANGES.into_iter().filter(|exchange| !begins_ike_sa(*exchange) && *exchange != 35) {
        let (mut attack, auth) = Attack::half_open(Pair::with_defaults());
        let header = attack.forger.header(ExchangeType(exchange), 1, false);
        let message = attack.forger.seal(&header, &auth);
        let answers = attack.give(&message);
        let (answer, payloads) = attack.forger.open(&answers[0]);
        assert_eq!(answer.exchange, ExchangeType(exchange));
        assert_eq!(notifies(&payloads), [(NotifyType::INVALID_SYNTAX, vec![])], "{exchange}");
        assert_eq!(attack.count("wrong-exchange"), 1);
        attack.check_gone();
    }
}

#[test]
fn an_established_ike_sa_accepts_few_exchanges() {
    let accepted =
        |exchange: u8| [36, 37].contains(&exchange) || (cfg!(feature = "multiple-kex") && exchange == 44);
    for exchange in EXCHANGES.into_iter().filter(|exchange| !begins_ike_sa(*exchange) && !accepted(*exchange))
    {
        let mut attack = Attack::established();
        let header = attack.forger.header(ExchangeType(exchange), 2, false);
        let message = attack.forger.seal(&header, &[]);
        let answers = attack.give(&message);
        let (_, payloads) = attack.forger.open(&answers[0]);
        assert_eq!(notifies(&payloads), [(NotifyType::INVALID_SYNTAX, vec![])], "{exchange}");
        assert_eq!(attack.count("wrong-exchange"), 1);
        // RFC 7296 section 2.21.3: this closes the IKE SA at both peers.
        assert!(matches!(attack.pair.right.down_reasons()[..], [DownReason::Fault(_)]));
        attack.check_gone();
    }
}

#[test]
fn unexpected_responses_are_ignored() {
    let mut attack = Attack::established();
    for exchange in EXCHANGES {
        for id in [0, 1, 2, u32::MAX] {
            let header = attack.forger.header(ExchangeType(exchange), id, true);
            let message = attack.forger.seal(&header, &[Raw::new(PayloadType::DELETE, &[1, 0, 0, 0])]);
            assert!(attack.give(&message).is_empty(), "{exchange}");
        }
    }
    // A response that begins an IKE SA always has message ID 0.
    let first = EXCHANGES.into_iter().filter(|exchange| begins_ike_sa(*exchange)).count() as u64;
    assert_eq!(attack.count("stray-response"), 4 * EXCHANGES.len() as u64 - 3 * first);
    assert_eq!(attack.count("wrong-exchange"), 3 * first);
    attack.check_alive();
}

#[test]
fn message_ids_of_requests() {
    let mut attack = Attack::established();
    attack.check_alive();
    attack.check_alive();
    // IDs 2 and 3 are answered: the last request again. Others are ignored.
    for id in [0, 1, 2, 5, 6, 0x7fff_ffff, u32::MAX] {
        let header = attack.forger.header(ExchangeType::INFORMATIONAL, id, false);
        let message = attack.forger.seal(&header, &[Raw::new(PayloadType::DELETE, &[1, 0, 0, 0])]);
        assert!(attack.give(&message).is_empty(), "{id}");
    }
    assert_eq!(attack.count("message-id"), 7);
    // The last message ID with other contents gets the old response and has no effect.
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, 3, false);
    let message = attack.forger.seal(&header, &[Raw::new(PayloadType::DELETE, &[1, 0, 0, 0])]);
    let answers = attack.give(&message);
    assert_eq!(attack.forger.open(&answers[0]).1, []);
    attack.check_alive();
    assert_eq!(attack.pair.right.down_reasons(), []);
}

#[test]
fn wrong_flags_and_spis_are_rejected() {
    let mut attack = Attack::established();
    let right = attack.forger.header(ExchangeType::INFORMATIONAL, 2, false);
    let mut wrong_role = right;
    wrong_role.flags.initiator = false;
    let other = casemate_wire::ike::IkeSpi(right.spi_i.0 ^ 1);
    let strange = [
        wrong_role,
        Header { spi_i: other, ..right },
        Header { spi_r: other, ..right },
        Header { spi_i: right.spi_r, spi_r: right.spi_i, ..right },
    ];
    for header in strange {
        let message = attack.forger.seal(&header, &[Raw::new(PayloadType::DELETE, &[1, 0, 0, 0])]);
        let is_unknown = header.spi_r == other;
        let answers = attack.give(&message);
        assert_eq!(answers.len(), usize::from(is_unknown), "{header:?}");
        assert!(answers.iter().all(|answer| reports_unknown_spi(answer)), "{header:?}");
    }
    assert_eq!(attack.count("unknown-spi"), 4, "the Initiator flag selects the SPI for the lookup");
    // Both SPIs in the same order, with the flag of the other end: a message reflected to its sender.
    let mut pair = Pair::with_defaults();
    pair.left.ike.report_keys(true);
    pair.left.initiate(pair.now);
    pair.run();
    let mut forger = MessageForger::against(&pair.left);
    forger.initiator = true;
    let reflected = forger.seal(&forger.header(ExchangeType::INFORMATIONAL, 0, false), &[]);
    assert!(give_left(&mut pair, &reflected).is_empty());
    attack.check_alive();
}

#[test]
fn a_response_of_another_exchange_is_ignored() {
    for exchange in EXCHANGES.into_iter().filter(|exchange| !begins_ike_sa(*exchange) && *exchange != 37) {
        let mut attack = Attack::established();
        let child = attack.pair.right.children()[0].id;
        let now = attack.pair.now;
        attack.pair.right.with_context(now, |ike, host, context| {
            ike.terminate_child(child, DownReason::Local, host, context)
        });
        assert_eq!(attack.pair.right.sent.drain(..).count(), 1);
        let header = attack.forger.header(ExchangeType(exchange), 0, true);
        let message = attack.forger.seal(&header, &[]);
        attack.give(&message);
        assert_eq!(attack.count("wrong-exchange"), 1, "{exchange}");
        attack.check_alive();
        assert_eq!(attack.pair.right.children().len(), 0, "{exchange}");
        attack.pair.now = now.after(Duration::from_secs(2));
        attack.pair.right.handle_timeouts(attack.pair.now);
        assert_eq!(attack.pair.right.sent.len(), 1, "{exchange}: the Delete payload is sent again");
    }
}
