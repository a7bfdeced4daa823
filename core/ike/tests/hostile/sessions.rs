//! Sessions on a bad wire: loss, delay, silence, and both sides at once (RFC 7296 sections 2.1, 2.2, 2.4, 2.8 and 2.25).

use crate::forge::{Attack, Forger, give_right};
use crate::pair::{Pair, Side, connection};
use casemate_ike::Down;
use casemate_ike::config::{Connection, OnClose};
use casemate_wire::ike::ExchangeType;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn established(left: Connection, right: Connection) -> Pair {
    let mut pair = Pair::new(left, right);
    pair.left.initiate(pair.now);
    pair.run();
    pair
}

pub(crate) fn usual() -> Pair {
    established(connection("left", "right"), connection("right", "left"))
}

/// Lets seconds pass for the left side only; answers in which of them it sent something.
pub(crate) fn alone(pair: &mut Pair, seconds: u64) -> Vec<u64> {
    let mut sent = Vec::new();
    for second in 1..=seconds {
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left.tick(pair.now);
        if pair.left.sent.drain(..).count() > 0 {
            sent.push(second);
        }
    }
    sent
}

#[test]
fn a_first_request_is_repeated_with_longer_waits_until_the_peer_is_dead() {
    let mut pair = Pair::usual();
    pair.left.initiate(pair.now);
    let request = pair.left.sent.pop_front().unwrap();
    // 1, 2, 4, 8, 16, 32 seconds between them, and another 60.
    assert_eq!(alone(&mut pair, 122), [1, 3, 7, 15, 31, 63]);
    assert_eq!(pair.left.downs(), []);
    assert_eq!(alone(&mut pair, 1), []);
    assert_eq!(pair.left.downs(), [Down::Dead]);
    assert_eq!((pair.left.ike.due(), pair.left.leaked()), (None, vec![]));
    assert!(!request.message.is_empty());
}

#[test]
fn ike_auth_and_later_requests_are_repeated_bit_by_bit() {
    let mut pair = usual();
    let id = pair.left.children()[0].id;
    pair.left.with_env(pair.now, |ike, env| ike.rekey_child(id, env));
    let first: Vec<_> = pair.left.sent.drain(..).collect();
    pair.now = pair.now.after(Duration::from_secs(1));
    pair.left.tick(pair.now);
    assert_eq!(pair.left.sent, first);
    pair.left.sent.clear();
    assert_eq!(alone(&mut pair, 121), [2, 6, 14, 30, 62]);
    assert_eq!(alone(&mut pair, 1), []);
    assert_eq!(pair.left.downs(), [Down::Dead]);
    assert!(pair.left.children().is_empty() && pair.left.leaked().is_empty());
}

#[test]
fn every_single_loss_is_overcome() {
    // Message number `lost` of a whole life never arrives; its repetition does.
    for lost in 0..14 {
        let mut pair = Pair::usual();
        let mut number = 0;
        pair.left.initiate(pair.now);
        lose(&mut pair, &mut number, lost);
        let id = pair.left.children()[0].id;
        pair.left.with_env(pair.now, |ike, env| ike.rekey_child(id, env));
        lose(&mut pair, &mut number, lost);
        let id = pair.right.ike.status().next().unwrap().id;
        pair.right.with_env(pair.now, |ike, env| ike.rekey(id, env));
        lose(&mut pair, &mut number, lost);
        pair.check_children(1);
        let open = |side: &Side| side.ike.status().filter(|ike| ike.state == "established").count();
        assert_eq!([open(&pair.left), open(&pair.right)], [1, 1], "message {lost}");
        let id = pair.left.ike.status().next().unwrap().id;
        pair.left.with_env(pair.now, |ike, env| ike.terminate(id, Down::Local, env));
        lose(&mut pair, &mut number, lost);
        assert!(number > lost, "there are {number} messages");
        // One whose end was answered in vain is given up in time.
        pair.pass(Duration::from_secs(130));
        pair.check_children(0);
        assert_eq!((pair.left.ike.due(), pair.right.ike.due()), (None, None));
        let why = [pair.left.downs(), pair.right.downs()].concat();
        assert!(!why.contains(&Down::Dead), "message {lost}: {why:?}");
    }
}

/// Delivers everything for ten seconds, but for one message.
fn lose(pair: &mut Pair, number: &mut usize, lost: usize) {
    for _ in 0..20 {
        for _ in 0..100 {
            let left = !pair.left.sent.is_empty();
            let from = if left { &mut pair.left } else { &mut pair.right };
            let Some(transmit) = from.sent.pop_front() else { break };
            let is_lost = *number == lost;
            *number += 1;
            if is_lost {
                continue;
            }
            let to = if left { &mut pair.right } else { &mut pair.left };
            crate::pair::deliver(to, transmit, pair.now);
        }
        pair.now = pair.now.after(Duration::from_millis(500));
        pair.left.tick(pair.now);
        pair.right.tick(pair.now);
    }
}

/// Both sides begin at once; one's request, or answer, is late by some time. In the end there is one of each.
#[test]
fn collisions_with_late_messages() {
    for ike in [false, true] {
        for late in 0..8 {
            let mut pair = usual();
            for side in [&mut pair.left, &mut pair.right] {
                let (child, sa) = (side.children()[0].id, side.ike.status().next().unwrap().id);
                side.with_env(
                    pair.now,
                    |all, env| if ike { all.rekey(sa, env) } else { all.rekey_child(child, env) },
                );
            }
            lose(&mut pair, &mut 0, late);
            pair.pass(Duration::from_secs(200));
            pair.check_children(1);
            for side in [&pair.left, &pair.right] {
                let status: Vec<_> = side.ike.status().collect();
                assert_eq!((status.len(), status[0].state), (1, "established"), "{late}: {status:?}");
                assert!(side.leaked().is_empty() && side.children()[0].active, "{late}");
            }
        }
    }
}

#[test]
fn a_silent_peer_is_asked_whether_it_lives() {
    let with = |own, peer| Connection { dpd_delay: Some(Duration::from_secs(10)), ..connection(own, peer) };
    let mut pair = established(with("left", "right"), connection("right", "left"));
    // While it answers, every ten seconds and not more often.
    pair.pass(Duration::from_secs(60));
    assert_eq!((pair.left.downs(), pair.left.ike.status().count()), (vec![], 1));
    // When it does not, until it counts as dead.
    assert_eq!(alone(&mut pair, 30).first(), Some(&10));
    alone(&mut pair, 200);
    assert_eq!(pair.left.downs(), [Down::Dead]);
    assert!(pair.left.children().is_empty());
    assert_eq!(pair.right.ike.status().count(), 1, "the other side does not ask");
}

#[test]
fn what_is_closed_here_does_not_come_back_because_the_peer_is_dead() {
    let mut left = connection("left", "right");
    let mut net = (*left.children[0]).clone();
    (net.on_dead_peer, net.on_close) = (OnClose::Restart, OnClose::Restart);
    left.children = vec![Arc::new(net)];
    let mut pair = established(left, connection("right", "left"));
    let id = pair.left.ike.status().next().unwrap().id;
    pair.left.with_env(pair.now, |ike, env| ike.terminate(id, Down::Local, env));
    alone(&mut pair, 200);
    assert_eq!(pair.left.downs(), [Down::Local]);
    assert_eq!((pair.left.ike.status().count(), pair.left.children().len()), (0, 0));
}

#[test]
fn message_numbers_begin_anew_after_an_ike_rekey() {
    let mut pair = usual();
    pair.left.ike.tell_keys(true);
    pair.right.ike.tell_keys(true);
    let sa = pair.left.ike.status().next().unwrap().id;
    pair.left.with_env(pair.now, |all, env| all.rekey(sa, env));
    pair.run();
    let mut attack = Attack { forger: Forger::against(&pair.right), pair, next: 0 };
    for id in [1, 2, 3] {
        let header = attack.forger.header(ExchangeType::INFORMATIONAL, id, false);
        let message = attack.forger.seal(&header, &[]);
        assert!(attack.give(&message).is_empty());
    }
    assert_eq!(attack.count("message-id"), 3);
    attack.check_alive();
}

/// The answer to the end of an IKE SA is lost. The keys are gone, and still the repeated request is answered (RFC 7296 section 2.1).
#[test]
fn a_lost_answer_to_the_end_is_given_again() {
    let mut pair = usual();
    let ike = pair.left.ike.status().next().unwrap().id;
    pair.left.with_env(pair.now, |engine, env| engine.terminate(ike, Down::Local, env));
    let request = pair.left.sent.pop_front().unwrap().message;
    let answer = give_right(&mut pair, &request);
    assert_eq!((answer.len(), pair.right.ike.status().count()), (1, 0));
    assert_eq!(pair.right.downs(), [Down::Peer]);
    // Neither with another ICV, nor as another message, nor as a response.
    for (at, bit) in [(request.len() - 1, 1), (23, 1), (19, 0x20), (0, 1), (8, 1)] {
        let mut other = request.clone();
        other[at] ^= bit;
        assert!(give_right(&mut pair, &other).is_empty(), "byte {at}");
    }
    // The peer repeats it after a second, and is content.
    pair.now = pair.now.after(Duration::from_secs(1));
    pair.left.tick(pair.now);
    assert_eq!(pair.left.sent.front().unwrap().message, request);
    pair.run();
    assert_eq!((pair.left.downs(), pair.left.ike.status().count()), (vec![Down::Local], 0));
    assert_eq!(pair.right.downs().len(), 1, "it ends once");
    // In the end it is forgotten.
    assert_eq!(give_right(&mut pair, &request), answer);
    pair.now = pair.now.after(Duration::from_secs(200));
    assert!(give_right(&mut pair, &request).is_empty());
}

#[test]
fn of_many_last_answers_the_oldest_are_forgotten() {
    let mut requests = Vec::new();
    let mut pair = Pair::usual();
    for _ in 0..70 {
        pair.left.initiate(pair.now);
        pair.run();
        let ike = pair.left.ike.status().next().unwrap().id;
        pair.left.with_env(pair.now, |engine, env| engine.terminate(ike, Down::Local, env));
        requests.push(pair.left.sent.front().unwrap().message.clone());
        pair.run();
    }
    let answered: Vec<bool> =
        requests.iter().map(|request| !give_right(&mut pair, request).is_empty()).collect();
    assert_eq!(answered, [[false; 6].as_slice(), &[true; 64]].concat());
}
