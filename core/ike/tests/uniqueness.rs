//! Several IKE SAs between two hosts: which ones a new IKE SA replaces (RFC 7296 section 2.4).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{Connection, IdPattern, Identity, Unique};
use casemate_ike::{IkeSettings, IkeState, IkeStatus};
use pair::{Pair, connection, deliver};
use std::sync::Arc;
use std::time::Duration;

fn named(name: &str) -> Identity {
    Identity::Fqdn(name.into())
}

/// Address and identity of one side; the identity may be empty for any.
#[derive(Clone, Copy)]
struct NamedHost {
    addr: &'static str,
    id: &'static str,
}

const fn host(addr: &'static str, id: &'static str) -> NamedHost {
    NamedHost { addr, id }
}

/// A connection with this name, addresses and identities, without `%any`.
fn between(name: &str, own: NamedHost, peer: NamedHost) -> Connection {
    let mut connection = connection(own.addr, peer.addr);
    connection.name = name.into();
    connection.local.id = Some(named(own.id));
    connection.remote.id = if peer.id.is_empty() { IdPattern::Any } else { IdPattern::Exact(named(peer.id)) };
    connection
}

/// Both sides have two connections, which the left one starts in turn.
fn two(left: [Connection; 2], right: [Connection; 2]) -> Pair {
    let mut pair = Pair::new(left[0].clone(), right[0].clone());
    pair.left.ike.configure(left.map(Arc::new).into(), &[]);
    pair.right.ike.configure(right.map(Arc::new).into(), &[]);
    for connection in pair.left.ike.connections().to_vec() {
        // INITIAL_CONTACT applies to IKE SAs that were established before.
        pair.now = pair.now.after(std::time::Duration::from_secs(1));
        let child = connection.children[0].clone();
        let now = pair.now;
        pair.left
            .with_context(now, |ike, host, context| {
                ike.initiate(&connection, Some(&child), None, host, context)
            })
            .unwrap();
        pair.run();
    }
    pair
}

fn count(pair: &Pair) -> (usize, usize) {
    (pair.left.ike.status().count(), pair.right.ike.status().count())
}

#[test]
fn a_second_pair_of_identities_does_not_replace_the_first() {
    let (one, other) = (host("right", "one"), host("right", "other"));
    let left = host("left", "left");
    let pair = two(
        [between("a", left, one), between("b", left, other)],
        [between("a", one, left), between("b", other, left)],
    );
    assert_eq!(count(&pair), (2, 2), "{:?}", pair.right.down_reasons());
    // The reverse: two identities of this host.
    let (left, right) = (host("left", "left"), host("right", "right"));
    let second = host("left", "second");
    let pair = two(
        [between("a", left, right), between("b", second, right)],
        [between("a", right, host("left", "")), between("b", right, host("left", ""))],
    );
    assert_eq!(count(&pair), (2, 2), "{:?}", pair.right.down_reasons());
}

#[test]
fn initial_contact_requires_a_known_identity() {
    let (left, right) = (host("left", "left"), host("right", "right"));
    let pair = two(
        [between("a", left, right), between("b", left, host("right", ""))],
        [between("a", right, left), between("b", right, left)],
    );
    assert_eq!(count(&pair), (2, 2), "{:?}", pair.right.down_reasons());
}

/// A restarted peer sends INITIAL_CONTACT, in whatever case it writes its name.
#[test]
fn a_restarted_peer_replaces_its_old_ike_sa() {
    for name in ["left", "LEFT"] {
        let mut pair = Pair::with_defaults();
        pair.left.initiate(pair.now);
        pair.run();
        let mut again = connection("left", "right");
        again.local.id = Some(named(name));
        let mut restarted = pair::IkePeer::new(pair::LEFT, 77, again);
        std::mem::swap(&mut pair.left, &mut restarted);
        pair.now = pair.now.after(std::time::Duration::from_secs(1));
        pair.left.initiate(pair.now);
        pair.run();
        assert_eq!(count(&pair), (1, 1), "{name}");
        assert_eq!(pair.right.down_reasons(), [casemate_ike::DownReason::InitialContact], "{name}");
    }
}

/// `unique` applies to one connection: IKE SAs of another connection with the same peer stay, as in
/// strongSwan.
#[test]
fn a_unique_connection_replaces_only_its_own_ike_sas() {
    for unique in [Unique::Replace, Unique::Keep] {
        let (left, right) = (host("left", "left"), host("right", "right"));
        let with = |connection: Connection, second: u8| {
            let mut child = (*connection.children[0]).clone();
            let far = |name: u8| casemate_sa::AddrRange::prefix([10, name, 0, 0].into(), 16).unwrap();
            child.local_ts[0].addrs = Some(far(10 + second));
            child.remote_ts[0].addrs = Some(far(10 + second));
            Connection { unique, children: vec![Arc::new(child)], ..connection }
        };
        // The algorithms select the second connection of the right side.
        let mut second = casemate_ike::config::ike_proposals();
        let first = vec![second.remove(0)];
        let tell_apart = |mut pair: [Connection; 2]| {
            pair[0].proposals = first.clone();
            pair[1].proposals = second.clone();
            pair
        };
        let pair = two(
            tell_apart([with(between("a", left, right), 1), with(between("b", left, right), 2)]),
            tell_apart([with(between("a", right, left), 1), with(between("b", right, left), 2)]),
        );
        assert_eq!(count(&pair), (2, 2), "{unique:?}: {:?}", pair.right.down_reasons());
    }
}

/// A peer that sets up several IKE SAs at the same time has one in the end, too, also if this host rekeys
/// each of them before the next one is established.
#[test]
fn ike_sas_of_a_peer_begun_at_the_same_time_are_unique() {
    for (unique, rekeys) in
        [Unique::Replace, Unique::Keep, Unique::No].map(|unique| [(unique, false), (unique, true)]).concat()
    {
        let (left, right) = (host("left", "left"), host("right", "right"));
        let of_right = Connection { unique, ..between("a", right, left) };
        let mut pair = Pair::new(between("a", left, right), of_right);
        let of_left = ["a", "b", "c", "d"].map(|name| Arc::new(between(name, left, right)));
        pair.left.ike.configure(of_left.to_vec(), &[]);
        for own in &of_left {
            let begin = |ike: &mut casemate_ike::Ike,
                         host: &mut dyn casemate_ike::Host,
                         context: &mut casemate_ike::Context<'_>| {
                ike.initiate(own, own.children.first(), None, host, context)
            };
            pair.left.with_context(pair.now, begin).unwrap();
        }
        pair.deliver_to_right();
        pair.deliver_to_left();
        for auth in core::mem::take(&mut pair.left.sent) {
            pair.now = pair.now.after(Duration::from_secs(1));
            deliver(&mut pair.right, auth, pair.now);
            pair.run();
            let is_up = |sa: &IkeStatus| sa.state == IkeState::Established;
            let newest = pair.right.ike.status().filter(is_up).last().filter(|_| rekeys).map(|sa| sa.id);
            if let Some(ike) = newest {
                let now = pair.now;
                assert!(
                    pair.right.with_context(now, |engine, host, context| engine.rekey(ike, host, context))
                );
                pair.run();
            }
        }
        let expected = if unique == Unique::No { 4 } else { 1 };
        assert_eq!(pair.right.ike.status().count(), expected, "{unique:?}, {rekeys}");
    }
}

/// The response to the first IKE_AUTH is lost, so only the peer has established the first IKE SA when the
/// second is started.
#[test]
fn a_second_ike_sa_begun_meanwhile_claims_no_first_contact() {
    let (left, right) = (host("left", "left"), host("right", "right"));
    let second = Duration::from_secs(1);
    let mut pair = Pair::new(between("a", left, right), between("a", right, left));
    pair.left.ike.configure([between("a", left, right), between("b", left, right)].map(Arc::new).into(), &[]);
    pair.left.initiate(pair.now);
    pair.deliver_to_right();
    pair.deliver_to_left();
    pair.deliver_to_right();
    pair.right.sent.clear();
    pair.now = pair.now.after(second);
    let other = pair.left.ike.connections()[1].clone();
    let begun = |ike: &mut casemate_ike::Ike,
                 host: &mut dyn casemate_ike::Host,
                 context: &mut casemate_ike::Context<'_>| {
        ike.initiate(&other, other.children.first(), None, host, context)
    };
    pair.left.with_context(pair.now, begun).unwrap();
    pair.run();
    pair.advance(Duration::from_secs(200));
    assert_eq!((count(&pair), pair.left.down_reasons(), pair.right.down_reasons()), ((2, 2), vec![], vec![]));
}

/// The peer's identity is `%any`, so the left side sends no INITIAL_CONTACT, and its old IKE SAs still exist.
#[test]
fn a_peer_that_restarts_often_without_first_contact_is_not_locked_out() {
    let mut pair = Pair::with_defaults();
    let settings = IkeSettings::DEVICE;
    pair.right = pair::IkePeer::with(settings, pair::RIGHT, 2, connection("right", "left"));
    for seed in 0..10 {
        let unnamed = between("a", host("left", "left"), host("right", ""));
        pair.left = pair::IkePeer::new(pair::LEFT, 10 + seed, unnamed);
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left.initiate(pair.now);
        pair.run();
        let state = pair.left.ike.status().next().map(|ike| ike.state);
        assert_eq!(state, Some(IkeState::Established), "{seed}: {:?}", pair.left.down_reasons());
        assert!(count(&pair).1 <= settings.max_ike_sas_per_peer, "{seed}");
    }
}

/// A rekeyed IKE SA is still being closed when its successor ends and the peer starts another one.
#[test]
fn a_rekeyed_ike_sa_does_not_block_new_ones() {
    let unique = |own, peer| Connection { unique: Unique::Keep, ..connection(own, peer) };
    let mut pair = Pair::new(unique("left", "right"), unique("right", "left"));
    pair.left.initiate(pair.now);
    pair.run();
    let rekeyed = pair.right.ike.status().next().unwrap().id;
    pair.right.with_context(pair.now, |ike, host, context| ike.rekey(rekeyed, host, context));
    pair.deliver_to_left();
    pair.deliver_to_right();
    // The Delete of the old IKE SA is lost.
    assert_eq!(pair.right.sent.len(), 1);
    pair.right.sent.clear();
    pair.now = pair.now.after(Duration::from_millis(100));
    let successor = pair.left.ike.status().last().unwrap().id;
    pair.left.with_context(pair.now, |ike, host, context| {
        ike.terminate(successor, casemate_ike::DownReason::Local, host, context)
    });
    pair.run();
    pair.left.initiate(pair.now);
    pair.run();
    let states: Vec<_> = pair.left.ike.status().map(|ike| ike.state).collect();
    assert!(states.contains(&IkeState::Established), "{states:?}: {:?}", pair.left.down_reasons());
}
