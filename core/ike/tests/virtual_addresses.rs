//! Virtual addresses of a peer that is authenticated anew or comes back: it keeps them, and no other peer has
//! them meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{AddrPattern, Connection, Unique};
use casemate_ike::{Down, Event};
use pair::{Pair, Side, with_pool};
use std::net::IpAddr;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The virtual addresses of all IKE SAs.
fn held(side: &Side) -> Vec<IpAddr> {
    side.ike.status().flat_map(|ike| ike.virtual_addrs).collect()
}

fn unassigned(side: &Side) -> usize {
    side.events.iter().filter(|event| matches!(event, Event::Unassigned { .. })).count()
}

/// Begins a second later.
fn begin(pair: &mut Pair) {
    pair.now = pair.now.after(SECOND);
    pair.left.initiate(pair.now);
    pair.run();
}

#[test]
fn reauthentication_keeps_the_address_and_never_leaves_a_gap() {
    // A pool with one address has no other to give.
    for last in ["10.9.0.1", "10.9.0.9"] {
        let (left, right, pool) = with_pool(last, &["0.0.0.0"]);
        let left = Connection { reauth: Some(Duration::from_secs(60)), ..left };
        let mut pair = Pair::new(left, right);
        pair.right.lend(&pool);
        begin(&mut pair);
        for second in 0..600 {
            pair.pass(SECOND);
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
        // Once the last IKE SA is gone, so is the address, and the pool has it.
        let ike = pair.left.ike.status().next().unwrap().id;
        pair.left.with_env(pair.now, |engine, env| engine.terminate(ike, Down::Local, env));
        pair.run();
        assert_eq!(unassigned(&pair.left), 1);
        let mut other = (*pair.left.ike.connections()[0]).clone();
        other.local.id = Some(casemate_ike::config::Identity::Fqdn("other".into()));
        let mut any = (*pair.right.ike.connections()[0]).clone();
        any.remote.id = casemate_ike::config::IdPattern::Any;
        pair.left = Side::new(pair::LEFT, 9, other);
        pair.right.ike.configure(vec![any.into()], &[pool]);
        begin(&mut pair);
        let expected = if last == "10.9.0.1" { "10.9.0.1" } else { "10.9.0.2" };
        assert_eq!(held(&pair.left), [addr(expected)]);
    }
}

/// With the same identity, the same key and the same wish, but another host: the peers cannot share an
/// address.
#[test]
fn a_second_host_with_the_same_identity_gets_another_address() {
    for (from, expected) in [("192.0.2.77", "10.9.0.2"), (pair::LEFT, "10.9.0.1")] {
        let (left, right, pool) = with_pool("10.9.0.9", &["10.9.0.1"]);
        let any = vec![AddrPattern::Any];
        // Neither says that it is the only one.
        let left = Connection { unique: Unique::Never, local_addrs: any.clone(), ..left };
        let mut pair = Pair::new(left.clone(), Connection { remote_addrs: any, ..right });
        pair.right.lend(&pool);
        pair.left.host.source = Some(addr(pair::LEFT));
        begin(&mut pair);
        pair.left = Side::new(from, 7, left);
        pair.left.host.source = Some(addr(from));
        begin(&mut pair);
        assert_eq!(held(&pair.left), [addr(expected)], "{from}");
        assert_eq!(held(&pair.right), [addr("10.9.0.1"), addr(expected)]);
    }
}

#[test]
fn a_peer_that_begins_anew_gets_each_of_its_addresses_back_once() {
    let (left, right, pool) = with_pool("10.9.0.9", &["0.0.0.0", "0.0.0.0"]);
    let mut pair = Pair::new(left.clone(), right);
    pair.right.lend(&pool);
    begin(&mut pair);
    let both = [addr("10.9.0.1"), addr("10.9.0.2")];
    assert_eq!(held(&pair.left), both);
    pair.left = Side::new(pair::LEFT, 5, left);
    begin(&mut pair);
    assert_eq!((pair.right.downs(), held(&pair.left)), (vec![Down::NotUnique], both.to_vec()));
}
