//! Sessions with loss, delay, silence, refusals and simultaneous exchanges (RFC 7296 sections 2.1, 2.2, 2.4,
//! 2.8 and 2.25).

use crate::forge::{Attack, MessageForger, Raw, give_right, reports_unknown_spi};
use crate::pair::{IkePeer, Pair, connection};
use casemate_ike::config::{CloseAction, Connection, Lifespan};
use casemate_ike::{DownReason, IkeState};
use casemate_wire::ike::{ExchangeType, Header, NotifyType};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn established(left: Connection, right: Connection) -> Pair {
    let mut pair = Pair::new(left, right);
    pair.left.initiate(pair.now);
    pair.run();
    pair
}

pub(crate) fn default_pair() -> Pair {
    established(connection("left", "right"), connection("right", "left"))
}

/// Advances the time for the left side only. Returns the seconds in which it sent something.
pub(crate) fn alone(pair: &mut Pair, seconds: u64) -> Vec<u64> {
    let mut sent = Vec::new();
    for second in 1..=seconds {
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left.handle_timeouts(pair.now);
        if pair.left.sent.drain(..).count() > 0 {
            sent.push(second);
        }
    }
    sent
}

#[test]
fn a_first_request_is_repeated_with_longer_waits_until_the_peer_is_dead() {
    let mut pair = Pair::with_defaults();
    pair.left.initiate(pair.now);
    let request = pair.left.sent.pop_front().unwrap();
    // Pauses of 1, 2, 4, 8, 16, 32 seconds, and another 60.
    assert_eq!(alone(&mut pair, 122), [1, 3, 7, 15, 31, 63]);
    assert_eq!(pair.left.down_reasons(), []);
    assert!(alone(&mut pair, 1).is_empty());
    assert_eq!(pair.left.down_reasons(), [DownReason::DeadPeer]);
    assert_eq!((pair.left.ike.next_timeout(), pair.left.leaked_spis()), (None, vec![]));
    assert!(!request.message.is_empty());
}

#[test]
fn protected_requests_are_retransmitted_unchanged() {
    let mut pair = default_pair();
    let id = pair.left.children()[0].id;
    pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(id, host, context));
    let first: Vec<_> = pair.left.sent.drain(..).collect();
    pair.now = pair.now.after(Duration::from_secs(1));
    pair.left.handle_timeouts(pair.now);
    assert_eq!(pair.left.sent, first);
    pair.left.sent.clear();
    assert_eq!(alone(&mut pair, 121), [2, 6, 14, 30, 62]);
    assert!(alone(&mut pair, 1).is_empty());
    assert_eq!(pair.left.down_reasons(), [DownReason::DeadPeer]);
    assert!(pair.left.children().is_empty() && pair.left.leaked_spis().is_empty());
}

#[test]
fn any_single_lost_message_is_recovered() {
    // Message number `lost` of a complete session never arrives; its retransmission does.
    for lost in 0..14 {
        let mut pair = Pair::with_defaults();
        let mut number = 0;
        pair.left.initiate(pair.now);
        lose(&mut pair, &mut number, lost);
        let id = pair.left.children()[0].id;
        pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(id, host, context));
        lose(&mut pair, &mut number, lost);
        let id = pair.right.ike.status().next().unwrap().id;
        pair.right.with_context(pair.now, |ike, host, context| ike.rekey(id, host, context));
        lose(&mut pair, &mut number, lost);
        pair.check_children(1);
        let open =
            |side: &IkePeer| side.ike.status().filter(|ike| ike.state == IkeState::Established).count();
        assert_eq!([open(&pair.left), open(&pair.right)], [1, 1], "message {lost}");
        let id = pair.left.ike.status().next().unwrap().id;
        pair.left
            .with_context(pair.now, |ike, host, context| ike.terminate(id, DownReason::Local, host, context));
        lose(&mut pair, &mut number, lost);
        assert!(number > lost, "there are {number} messages");
        // An IKE SA whose Delete got no response ends in time.
        pair.advance(Duration::from_secs(130));
        pair.check_children(0);
        assert_eq!((pair.left.ike.next_timeout(), pair.right.ike.next_timeout()), (None, None));
        let why = [pair.left.down_reasons(), pair.right.down_reasons()].concat();
        assert!(!why.contains(&DownReason::DeadPeer), "message {lost}: {why:?}");
    }
}

/// Delivers all messages for ten seconds, except for one.
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
        pair.left.handle_timeouts(pair.now);
        pair.right.handle_timeouts(pair.now);
    }
}

/// Both sides start at once, and a request or response of one is late by some time. In the end there is one
/// SA of each kind.
#[test]
fn collisions_with_late_messages() {
    for ike in [false, true] {
        for late in 0..8 {
            let mut pair = default_pair();
            for side in [&mut pair.left, &mut pair.right] {
                let (child, sa) = (side.children()[0].id, side.ike.status().next().unwrap().id);
                side.with_context(pair.now, |all, host, context| {
                    if ike { all.rekey(sa, host, context) } else { all.rekey_child(child, host, context) }
                });
            }
            lose(&mut pair, &mut 0, late);
            pair.advance(Duration::from_secs(200));
            pair.check_children(1);
            for side in [&pair.left, &pair.right] {
                let status: Vec<_> = side.ike.status().collect();
                assert_eq!((status.len(), status[0].state), (1, IkeState::Established), "{late}: {status:?}");
                assert!(side.leaked_spis().is_empty() && side.children()[0].active, "{late}");
            }
        }
    }
}

#[test]
fn the_liveness_of_a_silent_peer_is_checked() {
    let with = |own, peer| Connection { dpd_delay: Some(Duration::from_secs(10)), ..connection(own, peer) };
    let mut pair = established(with("left", "right"), connection("right", "left"));
    // While the peer responds, every ten seconds and not more often.
    pair.advance(Duration::from_secs(60));
    assert_eq!((pair.left.down_reasons(), pair.left.ike.status().count()), (vec![], 1));
    // When the peer does not respond, until it counts as dead.
    assert_eq!(alone(&mut pair, 30).first(), Some(&10));
    alone(&mut pair, 200);
    assert_eq!(pair.left.down_reasons(), [DownReason::DeadPeer]);
    assert!(pair.left.children().is_empty());
    assert_eq!(pair.right.ike.status().count(), 1, "the other side does not check liveness");
}

#[test]
fn a_locally_closed_ike_sa_is_not_restarted_by_a_dead_peer() {
    let mut left = connection("left", "right");
    let mut net = (*left.children[0]).clone();
    (net.dpd_action, net.close_action) = (CloseAction::Restart, CloseAction::Restart);
    left.children = vec![Arc::new(net)];
    let mut pair = established(left, connection("right", "left"));
    let id = pair.left.ike.status().next().unwrap().id;
    pair.left
        .with_context(pair.now, |ike, host, context| ike.terminate(id, DownReason::Local, host, context));
    alone(&mut pair, 200);
    assert_eq!(pair.left.down_reasons(), [DownReason::Local]);
    assert_eq!((pair.left.ike.status().count(), pair.left.children().len()), (0, 0));
}

#[test]
fn message_ids_restart_after_rekeying() {
    let mut pair = default_pair();
    pair.left.ike.report_keys(true);
    pair.right.ike.report_keys(true);
    let sa = pair.left.ike.status().next().unwrap().id;
    pair.left.with_context(pair.now, |all, host, context| all.rekey(sa, host, context));
    pair.run();
    let mut attack = Attack { forger: MessageForger::against(&pair.right), pair, next: 0 };
    for id in [1, 2, 3] {
        let header = attack.forger.header(ExchangeType::INFORMATIONAL, id, false);
        let message = attack.forger.seal(&header, &[]);
        assert!(attack.give(&message).is_empty());
    }
    assert_eq!(attack.count("message-id"), 3);
    attack.check_alive();
}

/// The response to the deletion of an IKE SA is lost. The keys are gone, but the repeated request is answered
/// (RFC 7296 section 2.1).
#[test]
fn a_lost_response_to_an_ike_delete_is_repeated() {
    let mut pair = default_pair();
    let ike = pair.left.ike.status().next().unwrap().id;
    pair.left.with_context(pair.now, |engine, host, context| {
        engine.terminate(ike, DownReason::Local, host, context)
    });
    let request = pair.left.sent.pop_front().unwrap().message;
    let answer = give_right(&mut pair, &request);
    assert_eq!((answer.len(), pair.right.ike.status().count()), (1, 0));
    assert_eq!(pair.right.down_reasons(), [DownReason::Peer]);
    // Not with another ICV, as another message, or as a response.
    for (at, bit) in [(request.len() - 1, 1), (23, 1), (19, 0x20), (0, 1), (8, 1)] {
        let mut other = request.clone();
        other[at] ^= bit;
        let answer = give_right(&mut pair, &other);
        assert!(answer.iter().all(|answer| reports_unknown_spi(answer)), "byte {at}");
    }
    // The peer repeats the request after a second and gets the response.
    pair.now = pair.now.after(Duration::from_secs(1));
    pair.left.handle_timeouts(pair.now);
    assert_eq!(pair.left.sent.front().unwrap().message, request);
    pair.run();
    assert_eq!((pair.left.down_reasons(), pair.left.ike.status().count()), (vec![DownReason::Local], 0));
    assert_eq!(pair.right.down_reasons().len(), 1, "it ends once");
    // In the end the response is dropped.
    assert_eq!(give_right(&mut pair, &request), answer);
    pair.now = pair.now.after(Duration::from_secs(200));
    assert!(give_right(&mut pair, &request).iter().all(|answer| reports_unknown_spi(answer)));
}

/// A late or forged IKE_SA_INIT request does not keep the peer from learning that its IKE SA is unknown.
#[test]
fn a_half_open_ike_sa_does_not_suppress_reports() {
    let mut pair = Pair::with_defaults();
    pair.left.initiate(pair.now);
    let first = pair.left.sent.front().unwrap().message.clone();
    pair.run();
    let ike = pair.left.ike.status().next().unwrap().id;
    pair.left.with_context(pair.now, |engine, host, context| {
        engine.terminate(ike, DownReason::Local, host, context)
    });
    let mut unknown = pair.left.sent.pop_front().unwrap().message;
    unknown[8] ^= 1;
    assert!(reports_unknown_spi(&give_right(&mut pair, &unknown)[0]));
    assert_eq!((give_right(&mut pair, &first).len(), pair.right.ike.half_open_count()), (1, 1));
    assert!(reports_unknown_spi(&give_right(&mut pair, &unknown)[0]));
}

#[test]
fn the_oldest_final_responses_are_dropped_first() {
    let mut requests = Vec::new();
    let mut pair = Pair::with_defaults();
    for _ in 0..70 {
        pair.left.initiate(pair.now);
        pair.run();
        let ike = pair.left.ike.status().next().unwrap().id;
        pair.left.with_context(pair.now, |engine, host, context| {
            engine.terminate(ike, DownReason::Local, host, context)
        });
        requests.push(pair.left.sent.front().unwrap().message.clone());
        pair.run();
    }
    let mut is_answered = |request: &Vec<u8>| !reports_unknown_spi(&give_right(&mut pair, request)[0]);
    let answered: Vec<bool> = requests.iter().map(&mut is_answered).collect();
    assert_eq!(answered, [[false; 6].as_slice(), &[true; 64]].concat());
}

const REKEYED: Lifespan = Lifespan {
    rekey: Some(Duration::from_secs(100)),
    jitter: Duration::ZERO,
    hard: Some(Duration::from_secs(400)),
};

/// Seconds at which the right side requests a rekeying within `time`. Each request is rejected with
/// `refusal`.
fn asked_at(right: Connection, refusal: &Raw, time: u64) -> (Vec<u64>, IkePeer) {
    let mut attack = Attack::on(Pair::new(connection("left", "right"), right));
    let mut asked = Vec::new();
    for second in 1..time {
        attack.pair.now = attack.pair.now.after(Duration::from_secs(1));
        attack.pair.right.handle_timeouts(attack.pair.now);
        let sent: Vec<_> = attack.pair.right.sent.drain(..).collect();
        for request in sent {
            let header = Header::parse(&request.message).unwrap();
            assert!(!header.flags.response && header.exchange == ExchangeType::CREATE_CHILD_SA);
            asked.push(second);
            let header = attack.forger.header(header.exchange, header.message_id, true);
            let answer = attack.forger.seal(&header, core::slice::from_ref(refusal));
            assert!(attack.give(&answer).is_empty());
        }
    }
    (asked, attack.pair.right)
}

#[test]
fn a_refused_rekeying_is_requested_again() {
    for kind in [NotifyType::NO_ADDITIONAL_SAS, NotifyType::NO_PROPOSAL_CHOSEN, NotifyType::TEMPORARY_FAILURE]
    {
        for of_child in [true, false] {
            let mut right = connection("right", "left");
            match of_child {
                true => Arc::make_mut(&mut right.children[0]).lifespan = REKEYED,
                false => right.lifespan = REKEYED,
            }
            let (asked, right) = asked_at(right, &Raw::notify(kind, &[]), 399);
            assert_eq!(asked[0], 100);
            // Pauses of 2, 4, 8, 16, 32 and 64 seconds, and up to twice as long.
            assert!(asked.len() >= 6, "{kind} {of_child}: {asked:?}");
            let pauses: Vec<u64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(pauses.iter().all(|pause| (2..=129).contains(pause)), "{pauses:?}");
            if kind != NotifyType::TEMPORARY_FAILURE {
                assert!(asked.len() <= 9 && pauses[4] >= 32, "{pauses:?}");
            }
            assert_eq!((right.down_reasons(), right.children().len()), (Vec::<DownReason>::new(), 1));
            assert!(right.leaked_spis().is_empty());
        }
    }
}
