//! Every exchange in every state, as request and as response, in clear text and under the keys.

use crate::forge::{Attack, Forger, Raw, count, give_left, give_right, notifies, plain};
use crate::pair::Pair;
use casemate_ike::Down;
use casemate_wire::ike::{ExchangeType, Header, NotifyType, PayloadType};

/// Exchange types of RFC 7296, of later ones, and of nobody.
const EXCHANGES: [u8; 11] = [0, 2, 33, 34, 35, 36, 37, 38, 43, 44, 255];

/// A state, made anew for each message: with a forger who speaks against the right or the left side.
fn states() -> [(&'static str, Pair, Forger, bool); 4] {
    let (half, _) = Attack::half_open(Pair::usual());
    let full = Attack::established();
    let mut waits = Pair::usual();
    waits.left.ike.tell_keys(true);
    waits.left.initiate(waits.now);
    waits.right_takes_all();
    waits.left_takes_all();
    waits.left.sent.clear();
    let waits_forger = Forger::against(&waits.left);
    let mut ours = Pair::usual();
    ours.left.ike.tell_keys(true);
    ours.left.initiate(ours.now);
    ours.run();
    let ours_forger = Forger::against(&ours.left);
    [
        ("half-open", half.pair, half.forger, true),
        ("responder", full.pair, full.forger, true),
        ("auth sent", waits, waits_forger, false),
        ("initiator", ours, ours_forger, false),
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
    for (state, mut pair, forger, to_right) in states() {
        let side = |pair: &Pair| {
            let side = if to_right { &pair.right } else { &pair.left };
            (side.ike.status().collect::<Vec<_>>(), side.host.reserved.clone(), side.ike.due())
        };
        let before = side(&pair);
        for exchange in EXCHANGES {
            for (response, id) in [(false, 0), (false, 1), (false, 2), (true, 0), (true, 1), (true, 2)] {
                for content in &contents {
                    let header = forger.header(ExchangeType(exchange), id, response);
                    // A first request, or response, from somewhere is another matter: it never finds this IKE SA.
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
    for (state, mut pair, mut forger, to_right) in states() {
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
        assert_eq!((side.ike.status().count(), side.downs()), (1, vec![]), "{state}");
        assert!(count(side, "unknown-spi") == 0, "the messages found their IKE SA");
    }
}

#[test]
fn under_the_keys_a_half_open_ike_sa_takes_only_ike_auth() {
    for exchange in EXCHANGES.into_iter().filter(|exchange| ![34, 35].contains(exchange)) {
        let (mut attack, auth) = Attack::half_open(Pair::usual());
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
fn under_the_keys_an_established_ike_sa_takes_two_exchanges() {
    for exchange in EXCHANGES.into_iter().filter(|exchange| ![34, 36, 37].contains(exchange)) {
        let mut attack = Attack::established();
        let header = attack.forger.header(ExchangeType(exchange), 2, false);
        let message = attack.forger.seal(&header, &[]);
        let answers = attack.give(&message);
        let (_, payloads) = attack.forger.open(&answers[0]);
        assert_eq!(notifies(&payloads), [(NotifyType::INVALID_SYNTAX, vec![])], "{exchange}");
        assert_eq!(attack.count("wrong-exchange"), 1);
        // RFC 7296 section 2.21.3: it is fatal in both peers.
        assert!(matches!(attack.pair.right.downs()[..], [Down::Fault(_)]));
        attack.check_gone();
    }
}

#[test]
fn responses_that_nobody_waits_for() {
    let mut attack = Attack::established();
    for exchange in EXCHANGES {
        for id in [0, 1, 2, u32::MAX] {
            let header = attack.forger.header(ExchangeType(exchange), id, true);
            let message = attack.forger.seal(&header, &[Raw::new(PayloadType::DELETE, &[1, 0, 0, 0])]);
            assert!(attack.give(&message).is_empty(), "{exchange}");
        }
    }
    // IKE_SA_INIT is never a response with a number above 0.
    assert_eq!(attack.count("stray-response"), 4 * EXCHANGES.len() as u64 - 3);
    assert_eq!(attack.count("wrong-exchange"), 3);
    attack.check_alive();
}

#[test]
fn numbers_of_requests() {
    let mut attack = Attack::established();
    attack.check_alive();
    attack.check_alive();
    // Answered are 2 and 3: the last one again is repeated, others are not looked at.
    for id in [0, 1, 2, 5, 6, 0x7fff_ffff, u32::MAX] {
        let header = attack.forger.header(ExchangeType::INFORMATIONAL, id, false);
        let message = attack.forger.seal(&header, &[Raw::new(PayloadType::DELETE, &[1, 0, 0, 0])]);
        assert!(attack.give(&message).is_empty(), "{id}");
    }
    assert_eq!(attack.count("message-id"), 7);
    // The number of the last one with other contents has the old answer, and does nothing.
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, 3, false);
    let message = attack.forger.seal(&header, &[Raw::new(PayloadType::DELETE, &[1, 0, 0, 0])]);
    let answers = attack.give(&message);
    assert_eq!(attack.forger.open(&answers[0]).1, []);
    attack.check_alive();
    assert_eq!(attack.pair.right.downs(), []);
}

#[test]
fn flags_and_spis_of_others() {
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
        assert!(attack.give(&message).is_empty(), "{header:?}");
    }
    assert_eq!(attack.count("unknown-spi"), 4, "the SPI is looked up by the flag");
    // Both SPIs the same way round, with the flag of the other end: reflected to the one who made it.
    let mut pair = Pair::usual();
    pair.left.ike.tell_keys(true);
    pair.left.initiate(pair.now);
    pair.run();
    let mut forger = Forger::against(&pair.left);
    forger.initiator = true;
    let reflected = forger.seal(&forger.header(ExchangeType::INFORMATIONAL, 0, false), &[]);
    assert!(give_left(&mut pair, &reflected).is_empty());
    attack.check_alive();
}

#[test]
fn an_answer_of_another_exchange_is_none() {
    for exchange in EXCHANGES.into_iter().filter(|exchange| ![34, 37].contains(exchange)) {
        let mut attack = Attack::established();
        let child = attack.pair.right.children()[0].id;
        let now = attack.pair.now;
        attack.pair.right.with_env(now, |ike, env| ike.terminate_child(child, Down::Local, env));
        assert_eq!(attack.pair.right.sent.drain(..).count(), 1);
        let header = attack.forger.header(ExchangeType(exchange), 0, true);
        let message = attack.forger.seal(&header, &[]);
        attack.give(&message);
        assert_eq!(attack.count("wrong-exchange"), 1, "{exchange}");
        attack.check_alive();
        assert_eq!(attack.pair.right.children().len(), 1, "{exchange}: still being closed");
    }
}
