//! Additional key exchanges (RFC 9370) between two engines, with ML-KEM among them: IKE_INTERMEDIATE before
//! IKE_AUTH, and IKE_FOLLOWUP_KE after CREATE_CHILD_SA, with lost messages and exchanges of both sides at
//! once.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_crypto::KexMethod;
use casemate_ike::config::{AdditionalKex, AdditionalKexes, AddrPattern, Connection, KexRound};
use casemate_ike::{ChildId, DownReason, Event, IkeSaId, IkeSettings, StateFault};
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, Header};
use pair::{IkePeer, Pair, connection};
use std::sync::Arc;
use std::time::Duration;

/// Rounds with these methods; with `optional`, the peer may leave them out.
fn rounds(methods: &[(u8, KexMethod)], optional: bool) -> AdditionalKexes {
    let kex = |method: &KexMethod| AdditionalKex { methods: vec![*method], optional };
    methods.iter().map(|(round, method)| (KexRound::new(*round).unwrap(), kex(method))).collect()
}

const TWO: [(u8, KexMethod); 2] = [(1, KexMethod::MlKem512), (3, KexMethod::EcpP256)];

/// Requires these rounds for the IKE SA and for Child SAs.
fn require(connection: &mut Connection, additional: &AdditionalKexes) {
    for proposal in &mut connection.proposals {
        proposal.kex = vec![KexMethod::X25519];
        proposal.additional = additional.clone();
    }
    let child = Arc::make_mut(&mut connection.children[0]);
    for proposal in &mut child.proposals {
        proposal.kex = vec![KexMethod::X25519];
        proposal.additional = additional.clone();
    }
}

fn pair_with(seed: u64, left: &AdditionalKexes, right: &AdditionalKexes) -> Pair {
    let (mut of_left, mut of_right) = (connection("left", "right"), connection("right", "left"));
    require(&mut of_left, left);
    require(&mut of_right, right);
    Pair {
        left: IkePeer::new(pair::LEFT, 2 * seed, of_left),
        right: IkePeer::new(pair::RIGHT, 2 * seed + 1, of_right),
        now: Instant::from_secs(1_000),
    }
}

fn established(seed: u64) -> Pair {
    let mut pair = pair_with(seed, &rounds(&TWO, false), &rounds(&TWO, false));
    pair.left.initiate(pair.now);
    pair.run();
    pair.check_children(1);
    pair
}

fn ike(side: &IkePeer) -> IkeSaId {
    side.ike.status().next().unwrap().id
}

fn child(side: &IkePeer) -> ChildId {
    side.children().last().unwrap().id
}

/// What a side does.
#[derive(Debug, Clone, Copy)]
enum Act {
    RekeyIke,
    RekeyChild,
    NewChild,
}

const ACTS: [Act; 3] = [Act::RekeyIke, Act::RekeyChild, Act::NewChild];

fn act(side: &mut IkePeer, what: Act, now: Instant) {
    match what {
        Act::RekeyIke => {
            let id = ike(side);
            assert!(side.with_context(now, |engine, host, context| engine.rekey(id, host, context)));
        }
        Act::RekeyChild => {
            let id = child(side);
            assert!(side.with_context(now, |engine, host, context| engine.rekey_child(id, host, context)));
        }
        Act::NewChild => side.initiate(now),
    }
}

/// Methods of the additional key exchanges of the IKE SA.
fn agreed(side: &IkePeer) -> Vec<KexMethod> {
    let suite = side.ike.status().next().unwrap().suite.unwrap();
    suite.additional.iter().map(|(_, method)| method).collect()
}

/// Exchange types of messages.
fn exchanges(side: &IkePeer) -> Vec<ExchangeType> {
    side.sent.iter().map(|sent| Header::parse(&sent.message).unwrap().exchange).collect()
}

/// Delivers messages in turn and drops those whose numbers are in `lost`, until no message is on the way.
/// Then time passes, so that everything is repeated that was lost.
fn run_losing(pair: &mut Pair, lost: &[usize]) {
    let mut number = 0;
    for _ in 0..200 {
        for is_left in [true, false] {
            let from = if is_left { &mut pair.left } else { &mut pair.right };
            let Some(message) = from.sent.pop_front() else { continue };
            let to = if is_left { &mut pair.right } else { &mut pair.left };
            if !lost.contains(&number) {
                pair::deliver(to, message, pair.now);
            }
            number += 1;
        }
    }
    for _ in 0..200 {
        pair.advance(Duration::from_secs(1));
    }
}

/// Checks that both sides agree on everything, and that nothing is left behind.
fn check(pair: &Pair, children: usize, what: &str) {
    for side in [&pair.left, &pair.right] {
        let ikes: Vec<_> = side.ike.status().collect();
        assert_eq!((ikes.len(), ikes[0].children.len()), (1, children), "{what}: {ikes:?}");
        assert_eq!(side.leaked_spis(), [], "{what}");
        assert!(side.children().iter().all(|child| child.active), "{what}");
        assert_eq!(agreed(side), [KexMethod::MlKem512, KexMethod::EcpP256], "{what}");
    }
    pair.check_children(children);
}

#[test]
fn additional_key_exchanges_come_before_ike_auth() {
    let mut pair = pair_with(1, &rounds(&TWO, false), &rounds(&TWO, false));
    pair.left.initiate(pair.now);
    let (init, intermediate) = (ExchangeType::IKE_SA_INIT, ExchangeType::IKE_INTERMEDIATE);
    for exchange in [init, intermediate, intermediate, ExchangeType::IKE_AUTH] {
        assert_eq!(exchanges(&pair.left), [exchange]);
        pair.deliver_to_right();
        assert_eq!(exchanges(&pair.right), [exchange]);
        pair.deliver_to_left();
    }
    check(&pair, 1, "established");
    // The first Child SA has no key exchange of its own.
    assert!(pair.left.children()[0].suite.additional.is_empty());
}

#[test]
fn rekeying_repeats_the_key_exchanges() {
    for what in ACTS {
        let mut pair = established(1);
        act(&mut pair.left, what, pair.now);
        let followup = ExchangeType::IKE_FOLLOWUP_KE;
        for exchange in [ExchangeType::CREATE_CHILD_SA, followup, followup] {
            assert_eq!(exchanges(&pair.left), [exchange], "{what:?}");
            pair.deliver_to_right();
            assert_eq!(exchanges(&pair.right), [exchange], "{what:?}");
            pair.deliver_to_left();
        }
        pair.run();
        let children = if matches!(what, Act::NewChild) { 2 } else { 1 };
        check(&pair, children, "rekeyed");
        if !matches!(what, Act::RekeyIke) {
            let suite = pair.right.children().last().unwrap().suite;
            assert_eq!(suite.additional.count(), 2);
        }
    }
}

/// Any two messages of the establishment are lost, with fragments or without.
#[test]
fn lost_messages_do_not_prevent_the_establishment() {
    for max_fragment_bytes in [180, 1_280] {
        for first in 0..10 {
            for second in first..10 {
                let settings = IkeSettings { max_fragment_bytes, ..IkeSettings::SERVER };
                let mut pair = pair_with(3, &rounds(&TWO, false), &rounds(&TWO, false));
                let of = |side: &IkePeer| (*side.ike.connections()[0]).clone();
                pair.left = IkePeer::with(settings, pair::LEFT, 6, of(&pair.left));
                pair.right = IkePeer::with(settings, pair::RIGHT, 7, of(&pair.right));
                pair.left.initiate(pair.now);
                run_losing(&mut pair, &[first, second]);
                check(&pair, 1, &format!("{first} and {second} are lost"));
            }
        }
    }
}

/// One side rekeys, and any two messages are lost.
#[test]
fn lost_messages_do_not_prevent_a_rekeying() {
    for what in ACTS {
        for first in 0..10 {
            for second in first..10 {
                let mut pair = established(4);
                act(&mut pair.right, what, pair.now);
                run_losing(&mut pair, &[first, second]);
                let children = if matches!(what, Act::NewChild) { 2 } else { 1 };
                check(&pair, children, &format!("{what:?}: {first} and {second} are lost"));
            }
        }
    }
}

/// Both sides act at the same time, and any message is lost.
#[test]
fn simultaneous_exchanges_with_a_lost_message_leave_one_result() {
    for of_left in ACTS {
        for of_right in ACTS {
            for lost in 0..14 {
                for seed in 1..6 {
                    let mut pair = established(seed);
                    act(&mut pair.left, of_left, pair.now);
                    act(&mut pair.right, of_right, pair.now);
                    run_losing(&mut pair, &[lost]);
                    let new = [of_left, of_right].into_iter().filter(|what| matches!(what, Act::NewChild));
                    let what = format!("{of_left:?} and {of_right:?}, {lost} lost, seed {seed}");
                    check(&pair, 1 + new.count(), &what);
                }
            }
        }
    }
}

/// The responder forgets a series after 20 s, and the initiator begins again.
#[test]
fn a_forgotten_series_is_begun_again() {
    for what in ACTS {
        let mut pair = established(5);
        act(&mut pair.left, what, pair.now);
        pair.deliver_to_right();
        pair.deliver_to_left();
        let late: Vec<_> = pair.left.sent.drain(..).collect();
        for _ in 0..21 {
            pair.now = pair.now.after(Duration::from_secs(1));
            pair.right.handle_timeouts(pair.now);
        }
        late.into_iter().for_each(|message| pair::deliver(&mut pair.right, message, pair.now));
        let unknown = |event: &Event| matches!(event, Event::Fault { fault, .. } if *fault == StateFault::NoKexSeries.into());
        assert!(pair.right.events.iter().any(unknown), "{what:?}: {:?}", pair.right.events);
        run_losing(&mut pair, &[]);
        let children = if matches!(what, Act::NewChild) { 2 } else { 1 };
        check(&pair, children, &format!("{what:?}"));
    }
}

/// A peer that requires no additional key exchange, or another one, is refused; one that has a choice takes
/// what both have.
#[test]
fn both_sides_decide_which_key_exchanges_take_place() {
    let outcome = |left: &AdditionalKexes, right: &AdditionalKexes| {
        let mut pair = pair_with(6, left, right);
        pair.left.initiate(pair.now);
        pair.run();
        pair.advance(Duration::from_secs(2));
        let up = pair.left.children().len() == 1;
        up.then(|| {
            assert_eq!(agreed(&pair.left), agreed(&pair.right));
            agreed(&pair.left)
        })
    };
    let (p256, p384) = (KexMethod::EcpP256, KexMethod::EcpP384);
    let (none, one) = (AdditionalKexes::new(), rounds(&[(2, p256)], false));
    let optional = rounds(&[(2, p256)], true);
    assert_eq!(outcome(&one, &one), Some(vec![p256]));
    assert_eq!(outcome(&one, &none), None);
    assert_eq!(outcome(&none, &one), None);
    assert_eq!(outcome(&optional, &none), Some(vec![]));
    assert_eq!(outcome(&none, &optional), Some(vec![]));
    assert_eq!(outcome(&optional, &one), Some(vec![p256]));
    assert_eq!(outcome(&one, &optional), Some(vec![p256]));
    assert_eq!(outcome(&rounds(&[(2, p384)], true), &one), None);
    assert_eq!(outcome(&rounds(&[(3, p256)], false), &one), None, "another number");
    // No method takes place twice (RFC 9370 section 2.2.1).
    let both = AdditionalKex { methods: vec![p256, p384], optional: false };
    let twice: AdditionalKexes = [
        (KexRound::new(1).unwrap(), both),
        (KexRound::new(2).unwrap(), one.values().next().unwrap().clone()),
    ]
    .into();
    assert_eq!(outcome(&twice, &twice), Some(vec![p384, p256]));
    assert_eq!(outcome(&rounds(&[(1, p256), (2, p256)], false), &twice), None);
}

/// Both sides rekey at the same time: only the exchange without the lowest nonce goes on. If the peer does
/// not go on with it, this host begins again.
#[test]
fn one_of_two_simultaneous_series_goes_on() {
    for what in [Act::RekeyIke, Act::RekeyChild] {
        for seed in 1..9 {
            let mut pair = established(seed);
            act(&mut pair.left, what, pair.now);
            act(&mut pair.right, what, pair.now);
            for _ in 0..2 {
                let (left, right): (Vec<_>, Vec<_>) =
                    (pair.left.sent.drain(..).collect(), pair.right.sent.drain(..).collect());
                left.into_iter().for_each(|message| pair::deliver(&mut pair.right, message, pair.now));
                right.into_iter().for_each(|message| pair::deliver(&mut pair.left, message, pair.now));
            }
            let (winner, loser) = match exchanges(&pair.left).as_slice() {
                [] => (&mut pair.right, &mut pair.left),
                _ => (&mut pair.left, &mut pair.right),
            };
            assert_eq!(exchanges(winner), [ExchangeType::IKE_FOLLOWUP_KE], "{what:?}, seed {seed}");
            assert_eq!(exchanges(loser), [], "{what:?}, seed {seed}");
            // No other request comes between the key exchanges of the peer.
            act(loser, Act::NewChild, pair.now);
            assert_eq!(exchanges(loser), [], "{what:?}, seed {seed}");
            for _ in 0..40 {
                pair.now = pair.now.after(Duration::from_secs(1));
                loser.handle_timeouts(pair.now);
            }
            assert_eq!(exchanges(loser).first(), Some(&ExchangeType::CREATE_CHILD_SA), "{what:?}, {seed}");
            run_losing(&mut pair, &[]);
            check(&pair, 2, &format!("{what:?}, seed {seed}"));
        }
    }
}

/// The peer begins key exchanges and is silent then. Timers that are due wait, so that the host is not called
/// without pause, and run once the series is forgotten.
#[test]
fn timers_wait_for_the_key_exchanges_of_the_peer() {
    let (mut of_left, mut of_right) = (connection("left", "right"), connection("right", "left"));
    require(&mut of_left, &rounds(&TWO, false));
    require(&mut of_right, &rounds(&TWO, false));
    of_left.dpd_delay = Some(Duration::from_secs(3));
    let mut pair = Pair::new(of_left, of_right);
    pair.left.initiate(pair.now);
    pair.run();
    act(&mut pair.right, Act::RekeyIke, pair.now);
    pair.deliver_to_left();
    pair.left.sent.clear();
    for second in 1..20 {
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left.handle_timeouts(pair.now);
        assert!(pair.left.ike.next_timeout().unwrap() > pair.now, "after {second} s");
        assert_eq!(exchanges(&pair.left), [], "after {second} s");
    }
    // The first call ends the wait.
    pair.now = pair.now.after(Duration::from_secs(2));
    pair.left.handle_timeouts(pair.now);
    pair.left.handle_timeouts(pair.now);
    assert_eq!(exchanges(&pair.left), [ExchangeType::INFORMATIONAL]);
}

/// A client moves between the key exchanges of its gateway, whose next request goes to the old address.
#[test]
fn a_move_does_not_wait_for_key_exchanges() {
    let additional = rounds(&TWO, false);
    let mut pair = pair_with(10, &additional, &additional);
    let moved: std::net::IpAddr = "198.51.100.7".parse().unwrap();
    for side in [&mut pair.left, &mut pair.right] {
        let mut connection = (*side.ike.connections()[0]).clone();
        connection.mobike = true;
        connection.local_addrs = vec![AddrPattern::Any];
        if side.addr == pair::RIGHT.parse::<std::net::IpAddr>().unwrap() {
            connection.remote_addrs = vec![AddrPattern::Any];
        }
        side.ike.configure(vec![connection.into()], &[]);
        side.routes.source = Some(side.addr);
    }
    pair.left.initiate(pair.now);
    pair.run();
    act(&mut pair.right, Act::RekeyChild, pair.now);
    pair.deliver_to_left();
    pair.left.routes.source = Some(moved);
    pair.left.with_context(pair.now, |ike, host, context| ike.addresses_changed(host, context));
    let is_lost = |transmit: &casemate_ike::Transmit| transmit.path.remote.ip() != moved;
    for second in 1.. {
        pair.deliver_to_right();
        // The gateway's requests go to the old address.
        pair.right.sent.retain(|transmit| !is_lost(transmit));
        let at = pair.right.ike.status().next().unwrap().path.remote.ip();
        if at == moved {
            break;
        }
        assert!(second <= 3, "after {second} s");
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left.handle_timeouts(pair.now);
        pair.right.handle_timeouts(pair.now);
    }
    pair.advance(Duration::from_secs(30));
    check(&pair, 1, "moved");
}

/// The peer rekeys a Child SA, and a command closes the old one between the key exchanges.
#[test]
fn a_command_closes_what_the_peer_is_replacing() {
    let mut pair = established(9);
    let old = child(&pair.left);
    act(&mut pair.right, Act::RekeyChild, pair.now);
    pair.deliver_to_left();
    pair.left.with_context(pair.now, |ike, host, context| {
        ike.terminate_child(old, DownReason::Local, host, context)
    });
    run_losing(&mut pair, &[]);
    assert_eq!((pair.left.children().len(), pair.right.children().len()), (0, 0));
}

/// The peer's request for the same rekeying arrives while our key exchanges go on (RFC 9370 section 2.2.4).
#[test]
fn a_late_request_for_the_same_rekeying_is_refused() {
    for what in [Act::RekeyIke, Act::RekeyChild] {
        let mut pair = established(8);
        act(&mut pair.right, what, pair.now);
        let late = pair.right.sent.pop_front().unwrap();
        act(&mut pair.left, what, pair.now);
        pair.deliver_to_right();
        pair.deliver_to_left();
        pair::deliver(&mut pair.left, late, pair.now);
        let busy =
            |event: &Event| matches!(event, Event::Fault { fault, .. } if *fault == StateFault::Busy.into());
        assert!(pair.left.events.iter().any(busy), "{what:?}");
        run_losing(&mut pair, &[]);
        check(&pair, 1, &format!("{what:?}"));
    }
}

/// A command closes the only child while IKE_INTERMEDIATE is outstanding: nothing is left to set up.
#[test]
fn closing_the_only_child_ends_an_attempt_before_ike_auth() {
    for rounds_done in [0, 1] {
        let mut pair = pair_with(1, &rounds(&TWO, false), &rounds(&TWO, false));
        pair.left.initiate(pair.now);
        for _ in 0..1 + rounds_done {
            pair.deliver_to_right();
            pair.deliver_to_left();
        }
        let outstanding = Header::parse(&pair.left.sent[0].message).unwrap().exchange;
        assert_eq!(outstanding, ExchangeType::IKE_INTERMEDIATE);
        let now = pair.now;
        assert!(
            pair.left
                .with_context(now, |ike, host, context| { ike.cancel("left", Some("net"), host, context) })
        );
        pair.run();
        assert_eq!(pair.left.ike.status().count(), 0, "after {rounds_done} rounds");
        assert!(pair.left.leaked_spis().is_empty());
    }
}
