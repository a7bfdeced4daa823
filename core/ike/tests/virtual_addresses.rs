//! Virtual addresses of a peer that reauthenticates or returns: the peer keeps its addresses, and no other
//! peer gets them meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{AddrPattern, CloseAction, Connection, Unique};
use casemate_ike::{DownReason, Event, StateFault};
use pair::{IkePeer, Pair, with_pool};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Virtual addresses of all IKE SAs.
fn held(side: &IkePeer) -> Vec<IpAddr> {
    side.ike.status().flat_map(|ike| ike.virtual_addrs).collect()
}

fn unassigned(side: &IkePeer) -> usize {
    side.events.iter().filter(|event| matches!(event, Event::AddrsReleased { .. })).count()
}

/// Starts an IKE SA one second later.
fn begin(pair: &mut Pair) {
    pair.now = pair.now.after(SECOND);
    pair.left.initiate(pair.now);
    pair.run();
}

#[test]
fn reauthentication_keeps_the_address_and_never_leaves_a_gap() {
    // With one address in the pool, no other address could be leased.
    for last in ["10.9.0.1", "10.9.0.9"] {
        let (left, right, pool) = with_pool(last, &["0.0.0.0"]);
        let left = Connection { reauth: Some(Duration::from_secs(60)), ..left };
        let mut pair = Pair::new(left, right);
        pair.right.add_pool(&pool);
        begin(&mut pair);
        for second in 0..600 {
            pair.advance(SECOND);
            for side in [&pair.left, &pair.right] {
                assert!(side.children().iter().any(|child| child.active), "{last}: none after {second} s");
                let addrs = held(side);
                assert!(!addrs.is_empty() && addrs.iter().all(|held| *held == addr("10.9.0.1")), "{addrs:?}");
            }
        }
        let ups = pair.left.events.iter().filter(|event| matches!(event, Event::IkeUp { .. })).count();
        assert!(ups >= 9, "{ups}");
        assert_eq!((pair.left.ike.status().count(), pair.right.ike.status().count()), (1, 1));
        assert_eq!(unassigned(&pair.left), 0);
        // When the last IKE SA has ended, the host has removed the address, and the pool has it back.
        let ike = pair.left.ike.status().next().unwrap().id;
        pair.left.with_context(pair.now, |engine, host, context| {
            engine.terminate(ike, DownReason::Local, host, context)
        });
        pair.run();
        assert_eq!(unassigned(&pair.left), 1);
        let mut other = (*pair.left.ike.connections()[0]).clone();
        other.local.id = Some(casemate_ike::config::Identity::Fqdn("other".into()));
        let mut any = (*pair.right.ike.connections()[0]).clone();
        any.remote.id = casemate_ike::config::IdPattern::Any;
        pair.left = IkePeer::new(pair::LEFT, 9, other);
        pair.right.ike.configure(vec![any.into()], &[pool]);
        begin(&mut pair);
        let expected = if last == "10.9.0.1" { "10.9.0.1" } else { "10.9.0.2" };
        assert_eq!(held(&pair.left), [addr(expected)]);
    }
}

/// Another host with the same identity, key and requested address: two hosts cannot share an address.
#[test]
fn a_second_host_with_the_same_identity_gets_another_address() {
    for (from, expected) in [("192.0.2.77", "10.9.0.2"), (pair::LEFT, "10.9.0.1")] {
        let (left, right, pool) = with_pool("10.9.0.9", &["10.9.0.1"]);
        let any = vec![AddrPattern::Any];
        // Neither sends INITIAL_CONTACT.
        let left = Connection { unique: Unique::Never, local_addrs: any.clone(), ..left };
        let mut pair = Pair::new(left.clone(), Connection { remote_addrs: any, ..right });
        pair.right.add_pool(&pool);
        pair.left.routes.source = Some(addr(pair::LEFT));
        begin(&mut pair);
        pair.left = IkePeer::new(from, 7, left);
        pair.left.routes.source = Some(addr(from));
        begin(&mut pair);
        assert_eq!(held(&pair.left), [addr(expected)], "{from}");
        assert_eq!(held(&pair.right), [addr("10.9.0.1"), addr(expected)]);
    }
}

/// A pool gives an IKE SA one address of each IP version, however many the client requests.
#[test]
fn a_restarted_peer_gets_its_one_address_again() {
    let (left, right, pool) = with_pool("10.9.0.9", &["0.0.0.0", "0.0.0.0"]);
    let mut pair = Pair::new(left.clone(), right);
    pair.right.add_pool(&pool);
    begin(&mut pair);
    assert_eq!(held(&pair.left), [addr("10.9.0.1")]);
    pair.left = IkePeer::new(pair::LEFT, 5, left);
    begin(&mut pair);
    assert_eq!(
        (pair.right.down_reasons(), held(&pair.left)),
        (vec![DownReason::InitialContact], vec![addr("10.9.0.1")])
    );
}

/// Number of Child SAs that the left side has not set up because it takes none of the assigned addresses.
fn refused_children(pair: &Pair) -> usize {
    let fault = DownReason::Fault(StateFault::AddressRefused.into());
    let is_refused = |event: &&Event| matches!(event, Event::ChildFailed { reason, .. } if *reason == fault);
    pair.left.events.iter().filter(is_refused).count()
}

/// Otherwise the IKE SA would be up with a Child SA whose address this host does not have.
#[test]
fn an_ike_sa_whose_addresses_this_host_refuses_is_closed() {
    let (left, right, pool) = with_pool("10.9.0.9", &["0.0.0.0", "::"]);
    let mut pair = Pair::new(left, right);
    pair.right.add_pool(&pool);
    pair.left.routes.own = Some(addr("10.9.0.1"));
    begin(&mut pair);
    assert_eq!(refused_children(&pair), 1, "{:?}", pair.left.events);
    let fault = StateFault::AddressRefused.into();
    assert_eq!(pair.left.down_reasons(), [DownReason::Fault(fault)]);
    assert!(
        pair.left
            .events
            .iter()
            .any(|event| matches!(event, Event::Fault { fault: why, .. } if *why == fault))
    );
    pair.check_children(0);
    assert_eq!((pair.left.ike.status().count(), pair.right.ike.status().count()), (0, 0));
    assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
    pair.left.routes.own = None;
    begin(&mut pair);
    assert_eq!(held(&pair.left), [addr("10.9.0.1")]);
    pair.check_children(1);
}

/// The connection was up before, and demands its children.
#[test]
fn an_ike_sa_without_an_address_is_tried_again_with_all_its_children() {
    let (mut left, mut right, pool) = with_pool("10.9.0.9", &["0.0.0.0"]);
    left.keeps_trying = true;
    Arc::make_mut(&mut left.children[0]).close_action = CloseAction::Restart;
    for connection in [&mut left, &mut right] {
        let mut second = (*connection.children[0]).clone();
        second.name = "second".into();
        connection.children.push(second.into());
    }
    let mut pair = Pair::new(left, right);
    pair.right.add_pool(&pool);
    let children = pair.left.ike.connections()[0].children.clone();
    let connection = pair.left.ike.connections()[0].clone();
    for child in &children {
        pair.left.with_context(pair.now, |ike, host, context| {
            ike.initiate(&connection, Some(child), None, host, context).unwrap();
        });
    }
    pair.run();
    // An IKE SA that ends soon counts as an attempt that failed.
    pair.advance(100 * SECOND);
    pair.check_children(2);
    pair.left.routes.own = Some(addr("10.9.0.1"));
    let ike = pair.right.ike.status().next().unwrap().id;
    pair.right.with_context(pair.now, |engine, host, context| {
        engine.terminate(ike, DownReason::Local, host, context)
    });
    pair.run();
    pair.advance(200 * SECOND);
    assert!((2..=3).contains(&refused_children(&pair)), "{:?}", pair.left.down_reasons());
    pair.check_children(0);
    pair.left.routes.own = None;
    pair.advance(300 * SECOND);
    assert_eq!(held(&pair.left), [addr("10.9.0.1")]);
    pair.check_children(2);
}
