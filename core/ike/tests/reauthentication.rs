//! Reauthentication (RFC 7296 section 2.8.3) that overlaps with other exchanges: one IKE SA remains, and an
//! IKE SA that is not reauthenticated in time ends.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{Connection, IdPattern, Identity, Lifespan, Unique};
use casemate_ike::{DownReason, Event, IkeSettings, IkeState, IkeStatus, Transmit};
use casemate_wire::ike::{ExchangeType, Header};
use pair::{IkePeer, Pair, connection, deliver};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A connection that is reauthenticated after a minute, or closed six seconds later.
fn reauthenticating(own: &str, peer: &str) -> Connection {
    let lifespan = Lifespan { rekey: None, jitter: Duration::ZERO, hard: Some(Duration::from_secs(66)) };
    Connection { reauth: Some(Duration::from_secs(60)), lifespan, ..connection(own, peer) }
}

fn established(left: Connection, right: Connection) -> Pair {
    let mut pair = Pair::new(left, right);
    pair.left.initiate(pair.now);
    pair.run();
    pair.check_children(1);
    pair
}

fn states(side: &IkePeer) -> Vec<IkeState> {
    side.ike.status().map(|ike| ike.state).collect()
}

/// The right side rekeys its IKE SA.
fn rekey_from_right(pair: &mut Pair) {
    let ike = pair.right.ike.status().find(|ike| ike.state == IkeState::Established).unwrap().id;
    assert!(pair.right.with_context(pair.now, |engine, host, context| engine.rekey(ike, host, context)));
}

#[test]
fn an_ike_sa_rekeyed_during_reauthentication_is_closed() {
    let mut pair = established(reauthenticating("left", "right"), connection("right", "left"));
    pair.advance(Duration::from_secs(59));
    pair.now = pair.now.after(SECOND);
    pair.left.handle_timeouts(pair.now);
    // The first message of the reauthentication is slow; the peer's rekeying is not.
    let first = pair.left.sent.pop_front().unwrap();
    rekey_from_right(&mut pair);
    pair.run();
    pair.left.sent.push_back(first);
    pair.run();
    pair.advance(Duration::from_secs(3));
    assert_eq!(
        (states(&pair.left), states(&pair.right)),
        (vec![IkeState::Established], vec![IkeState::Established])
    );
    pair.check_children(1);
    assert!(pair.left.down_reasons().contains(&DownReason::Reauth), "{:?}", pair.left.down_reasons());
    assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
}

#[test]
fn rekeying_by_the_peer_does_not_postpone_reauthentication() {
    let mut pair = established(reauthenticating("left", "right"), connection("right", "left"));
    let mut seconds = 0;
    while pair.left.children().len() == 1 && seconds < 120 {
        seconds += 1;
        pair.now = pair.now.after(SECOND);
        pair.left.handle_timeouts(pair.now);
        pair.right.handle_timeouts(pair.now);
        if seconds % 3 == 0 {
            rekey_from_right(&mut pair);
        }
        let is_first = |message: &[u8]| Header::parse(message).unwrap().exchange == ExchangeType::IKE_SA_INIT;
        pair.left.sent.retain(|sent| !is_first(&sent.message));
        pair.run();
        let begun = states(&pair.left).iter().filter(|state| **state == IkeState::Connecting).count();
        assert!(begun <= 1, "{seconds} s: {:?}", states(&pair.left));
    }
    assert!((60..=70).contains(&seconds), "{seconds} s");
    assert!(pair.left.down_reasons().contains(&DownReason::Expired), "{:?}", pair.left.down_reasons());
}

/// Two IKE SAs exist because both sides started one at the same time. Each side reauthenticates the one that
/// it started.
#[test]
fn one_of_two_simultaneous_ike_sas_remains_after_reauthentication() {
    for seed in 0..4 {
        let mut pair = Pair::new(reauthenticating("left", "right"), reauthenticating("right", "left"));
        (pair.left.rng, pair.right.rng) =
            (pair::RecordingRng::new(seed), pair::RecordingRng::new(seed + 100));
        pair.left.initiate(pair.now);
        pair.right.initiate(pair.now);
        pair.run();
        assert_eq!((states(&pair.left).len(), states(&pair.right).len()), (2, 2));
        pair.advance(Duration::from_secs(330));
        assert_eq!(
            (states(&pair.left), states(&pair.right)),
            (vec![IkeState::Established], vec![IkeState::Established])
        );
        pair.check_children(1);
    }
}

/// As above, but the left side rekeys the redundant IKE SA when it begins to close it, and its Delete payload
/// is late. The new SPIs do not change the choice of the right side: otherwise both IKE SAs would be closed.
#[test]
fn rekeying_does_not_change_which_of_two_simultaneous_ike_sas_remains() {
    let mut runs = 0;
    for seed in 0..32 {
        let right = Connection { reauth: Some(Duration::from_secs(61)), ..reauthenticating("right", "left") };
        let mut pair = Pair::new(reauthenticating("left", "right"), right);
        (pair.left.rng, pair.right.rng) =
            (pair::RecordingRng::new(seed), pair::RecordingRng::new(seed + 100));
        pair.left.initiate(pair.now);
        pair.right.initiate(pair.now);
        pair.run();
        let [redundant, remaining] = [true, false]
            .map(|initiator| pair.left.ike.status().find(|ike| ike.initiator == initiator).unwrap());
        if redundant.spis > remaining.spis {
            continue;
        }
        runs += 1;
        pair.advance(Duration::from_secs(59));
        pair.left.with_context(pair.now, |ike, host, context| ike.rekey(redundant.id, host, context));
        pair.now = pair.now.after(SECOND);
        pair.left.handle_timeouts(pair.now);
        pair.deliver_to_right();
        pair.deliver_to_left();
        let late = core::mem::take(&mut pair.left.sent);
        assert!(!late.is_empty());
        pair.now = pair.now.after(SECOND);
        pair.right.handle_timeouts(pair.now);
        let is_in_use = |ike: IkeStatus| !ike.children.is_empty();
        assert!(pair.right.ike.status().any(is_in_use), "seed {seed}");
        pair.left.sent.extend(late);
        pair.run();
        for side in [&pair.left, &pair.right] {
            assert!(side.ike.status().any(is_in_use), "seed {seed}");
        }
        pair.advance(Duration::from_secs(3));
        assert_eq!((states(&pair.left).len(), states(&pair.right).len()), (1, 1), "seed {seed}");
        pair.check_children(1);
    }
    assert!(runs > 8, "{runs}");
}

/// A host without the key answers first and refuses. The old IKE SA stays, and the next attempt succeeds.
#[test]
fn a_refusal_of_an_unknown_host_closes_nothing() {
    let mut pair = established(reauthenticating("left", "right"), connection("right", "left"));
    let mut other = connection("right", "left");
    other.remote.id = IdPattern::Exact(Identity::Fqdn("another".into()));
    let mut impostor = IkePeer::new(pair::RIGHT, 5, other);
    let begins = |transmit: &Transmit| {
        let exchange = Header::parse(&transmit.message).unwrap().exchange;
        [ExchangeType::IKE_SA_INIT, ExchangeType::IKE_AUTH].contains(&exchange)
    };
    pair.advance(Duration::from_secs(59));
    pair.now = pair.now.after(SECOND);
    pair.left.handle_timeouts(pair.now);
    for _ in 0..2 {
        let sent: Vec<Transmit> = pair.left.sent.drain(..).collect();
        assert!(!sent.is_empty() && sent.iter().all(begins));
        sent.into_iter().for_each(|transmit| deliver(&mut impostor, transmit, pair.now));
        let answers: Vec<Transmit> = impostor.sent.drain(..).collect();
        answers.into_iter().for_each(|transmit| deliver(&mut pair.left, transmit, pair.now));
    }
    let refused = DownReason::Refused(casemate_wire::ike::NotifyType::AUTHENTICATION_FAILED);
    assert_eq!(pair.left.down_reasons(), [refused]);
    pair.run();
    pair.check_children(1);
    pair.advance(Duration::from_secs(5));
    assert_eq!(pair.left.down_reasons(), [refused, DownReason::Reauth]);
    pair.check_children(1);
}

/// If each attempt is refused, the old IKE SA ends a tenth of `reauth_time`, 6 s here, after the first one.
/// It carries no more traffic then, also if the peer does not answer the Delete.
#[test]
fn a_refused_ike_sa_has_a_tenth_of_its_time_left() {
    for is_answered in [true, false] {
        let mut pair = established(reauthenticating_at_leisure("left", "right"), connection("right", "left"));
        let mut refusing = connection("right", "left");
        refusing.remote.id = IdPattern::Exact(Identity::Fqdn("another".into()));
        pair.right.ike.configure(vec![Arc::new(refusing)], &[]);
        pair.advance(Duration::from_secs(60));
        let end = pair.now.after(Duration::from_secs(6));
        // Only at the times that the engine names.
        while let Some(at) = pair.left.ike.next_timeout().filter(|at| *at <= end) {
            assert!(pair.left.down_reasons().iter().all(|why| matches!(why, DownReason::Refused(_))));
            pair.check_children(1);
            pair.now = at;
            pair.left.handle_timeouts(at);
            if is_answered || at < end {
                pair.run();
            }
        }
        assert_eq!(pair.now, end);
        assert!(pair.left.children().is_empty(), "{is_answered}");
        assert_eq!(pair.left.down_reasons().contains(&DownReason::Reauth), is_answered);
    }
}

/// The old IKE SA is closed while the refusal of the last attempt is on its way. Its Child SA is set up anew.
#[test]
fn a_late_refusal_does_not_leave_the_host_without_an_ike_sa() {
    let right = Connection { unique: Unique::Keep, ..connection("right", "left") };
    let mut pair = established(reauthenticating("left", "right"), right);
    pair.advance(Duration::from_secs(61));
    assert_eq!(states(&pair.left), [IkeState::Established], "the first attempt was refused");
    let mut held = Vec::new();
    let is_refusal =
        |transmit: &Transmit| Header::parse(&transmit.message).unwrap().exchange == ExchangeType::IKE_AUTH;
    let closed = |pair: &Pair| pair.left.down_reasons().contains(&DownReason::Reauth);
    for _ in 0..20 {
        pair.now = pair.now.after(SECOND);
        let now = pair.now;
        pair.left.handle_timeouts(now);
        for _ in 0..4 {
            pair.deliver_to_right();
            if !closed(&pair) {
                held.extend(pair.right.sent.iter().filter(|sent| is_refusal(sent)).cloned());
                pair.right.sent.retain(|sent| !is_refusal(sent));
            }
            pair.deliver_to_left();
        }
        if closed(&pair) {
            break;
        }
    }
    assert!(closed(&pair) && !held.is_empty(), "{:?}", pair.left.down_reasons());
    held.into_iter().for_each(|transmit| deliver(&mut pair.left, transmit, pair.now));
    pair.advance(Duration::from_secs(5));
    pair.check_children(1);
}

/// The refusal arrives while the Delete of the old IKE SA is on its way. Another attempt would be refused as
/// well: the new IKE SA is set up when the old one has ended.
#[test]
fn a_refusal_during_the_delete_begins_no_other_attempt() {
    let right = Connection { unique: Unique::Keep, ..connection("right", "left") };
    let mut pair = established(reauthenticating("left", "right"), right);
    pair.advance(Duration::from_secs(61));
    let of = |transmit: &Transmit| Header::parse(&transmit.message).unwrap().exchange;
    let mut held = Vec::new();
    for _ in 0..20 {
        pair.now = pair.now.after(SECOND);
        pair.left.handle_timeouts(pair.now);
        if states(&pair.left).contains(&IkeState::Closing) {
            break;
        }
        for _ in 0..4 {
            pair.deliver_to_right();
            held.extend(pair.right.sent.iter().filter(|sent| of(sent) == ExchangeType::IKE_AUTH).cloned());
            pair.right.sent.retain(|sent| of(sent) != ExchangeType::IKE_AUTH);
            pair.deliver_to_left();
        }
    }
    assert!(!held.is_empty() && states(&pair.left).contains(&IkeState::Closing), "{:?}", states(&pair.left));
    pair.left.sent.retain(|sent| of(sent) == ExchangeType::INFORMATIONAL);
    held.into_iter().for_each(|transmit| deliver(&mut pair.left, transmit, pair.now));
    pair.left.handle_timeouts(pair.now);
    assert!(pair.left.sent.iter().all(|sent| of(sent) == ExchangeType::INFORMATIONAL), "only the Delete");
    pair.run();
    pair.advance(Duration::from_secs(5));
    pair.check_children(1);
}

#[test]
fn a_full_table_does_not_keep_an_ike_sa_from_being_reauthenticated() {
    let mut pair = established(reauthenticating("left", "right"), connection("right", "left"));
    let settings = IkeSettings { max_ike_sas: 1, ..IkeSettings::SERVER };
    pair.left = IkePeer::with(settings, pair::LEFT, 3, reauthenticating("left", "right"));
    pair.now = pair.now.after(SECOND);
    pair.left.initiate(pair.now);
    pair.run();
    pair.advance(Duration::from_secs(330));
    assert_eq!(states(&pair.left), [IkeState::Established]);
    assert!(!pair.left.down_reasons().contains(&DownReason::Expired), "{:?}", pair.left.down_reasons());
    let not_begun = |event: &&Event| matches!(event, Event::InitiateFailed { .. });
    assert_eq!(pair.left.events.iter().filter(not_begun).count(), 0);
}

/// The peer rekeys the new IKE SA and therefore postpones the second Child SA that is to move there. Until
/// the peer accepts it, the old IKE SA carries its traffic.
#[test]
fn the_old_ike_sa_stays_until_a_postponed_child_sa_is_requested() {
    let two = |own: &str, peer: &str| {
        let mut connection = reauthenticating(own, peer);
        let mut second = (*connection.children[0]).clone();
        second.name = "second".into();
        connection.children.push(second.into());
        connection
    };
    let right = Connection { reauth: None, lifespan: Lifespan::FOREVER, ..two("right", "left") };
    let mut pair = established(two("left", "right"), right);
    let connection = pair.left.ike.connections()[0].clone();
    let child = connection.children[1].clone();
    pair.left
        .with_context(pair.now, |ike, host, context| {
            ike.initiate(&connection, Some(&child), None, host, context)
        })
        .unwrap();
    pair.run();
    pair.check_children(2);
    pair.advance(Duration::from_secs(59));
    pair.now = pair.now.after(SECOND);
    pair.left.handle_timeouts(pair.now);
    // IKE_SA_INIT, and the request of IKE_AUTH.
    pair.deliver_to_right();
    pair.deliver_to_left();
    pair.deliver_to_right();
    let new = pair.right.ike.status().last().unwrap();
    assert_eq!((new.state, pair.right.ike.status().count()), (IkeState::Established, 2));
    assert!(pair.right.with_context(pair.now, |engine, host, context| engine.rekey(new.id, host, context)));
    // The response, then the request to rekey.
    let rekeying = pair.right.sent.pop_back().unwrap();
    pair.deliver_to_left();
    pair.right.sent.push_back(rekeying);
    pair.run();
    for second in 0..30 {
        for side in [&pair.left, &pair.right] {
            let has = |name: &str| side.children().iter().any(|up| up.active && up.child.name == name);
            assert!(has("net") && has("second"), "{second} s: {:?}", side.events);
        }
        pair.advance(SECOND);
    }
    assert_eq!(
        (states(&pair.left), states(&pair.right)),
        (vec![IkeState::Established], vec![IkeState::Established])
    );
    pair.check_children(2);
}

/// A connection that both sides reauthenticate after a minute: the left side first, the right side three
/// seconds later.
fn reauthenticating_at_leisure(own: &str, peer: &str) -> Connection {
    let lifespan = Lifespan { rekey: None, jitter: Duration::ZERO, hard: Some(Duration::from_secs(180)) };
    Connection { lifespan, ..reauthenticating(own, peer) }
}

/// Advances the time by one second. Drops each message for which `is_lost` is true.
fn advance_dropping(pair: &mut Pair, is_lost: impl Fn(&Header) -> bool) {
    pair.now = pair.now.after(SECOND);
    pair.left.handle_timeouts(pair.now);
    pair.right.handle_timeouts(pair.now);
    let lose = |side: &mut IkePeer| side.sent.retain(|sent| !is_lost(&Header::parse(&sent.message).unwrap()));
    for _ in 0..20 {
        lose(&mut pair.left);
        pair.deliver_to_right();
        lose(&mut pair.right);
        pair.deliver_to_left();
    }
}

/// The IKE_AUTH response is in transit for seven seconds: the left side has only the old IKE SA. The right
/// side, which is due to reauthenticate it, keeps it for ten seconds.
#[test]
fn the_old_ike_sa_stays_while_the_ike_auth_response_is_in_transit() {
    let mut pair = established(
        reauthenticating_at_leisure("left", "right"),
        reauthenticating_at_leisure("right", "left"),
    );
    let old = pair.right.ike.status().next().unwrap().id;
    pair.advance(Duration::from_secs(59));
    for second in 60..67 {
        advance_dropping(&mut pair, |header| {
            header.exchange == ExchangeType::IKE_AUTH && header.flags.response
        });
        assert_eq!(
            (states(&pair.right), pair.left.children().len()),
            (vec![IkeState::Established; 2], 1),
            "{second} s"
        );
    }
    for second in 67..90 {
        pair.advance(SECOND);
        assert!(!pair.left.children().is_empty(), "{second} s");
    }
    assert_eq!(
        (states(&pair.left), states(&pair.right)),
        (vec![IkeState::Established], vec![IkeState::Established])
    );
    assert!(pair.right.ike.status().all(|ike| ike.id != old));
    pair.check_children(1);
}

/// The peer never closes the old IKE SA, so the right side does after ten seconds.
#[test]
fn an_old_ike_sa_that_the_peer_leaves_open_is_closed_locally() {
    let mut pair = established(
        reauthenticating_at_leisure("left", "right"),
        reauthenticating_at_leisure("right", "left"),
    );
    pair.advance(Duration::from_secs(59));
    let mut closes = None;
    for second in 60..90 {
        let is_delete = |header: &Header| header.exchange == ExchangeType::INFORMATIONAL;
        advance_dropping(&mut pair, is_delete);
        if states(&pair.right).contains(&IkeState::Closing) && closes.is_none() {
            closes = Some(second);
        }
    }
    assert!(closes.is_some_and(|second| (70..80).contains(&second)), "{closes:?}");
}
