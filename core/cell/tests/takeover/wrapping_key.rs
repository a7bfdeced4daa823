//! The change of the wrapping key: 1 is the former key, 2 the new one.

use crate::cell::{Cell, LEASE, MILLISECOND};
use crate::gateway::{self, Host};
use crate::{SECOND, established, traffic};
use casemate_cell::{Keeper, StartError, Started, Tenure};
use casemate_store::{Link, MemoryHub, MemoryStore};
use std::time::Duration;

type Keys = (u8, Option<u8>);

const FORMER: Keys = (1, None);
const PREPARED: Keys = (1, Some(2));
const CHANGING: Keys = (2, Some(1));
const NEW: Keys = (2, None);

const NO_ANSWERS: Link = Link {
    delivers_requests: true,
    delivers_answers: false,
    request_delay: Duration::ZERO,
    answer_delay: Duration::ZERO,
    deadline: SECOND,
};
const NO_REQUESTS: Link = Link { delivers_requests: false, ..NO_ANSWERS };

fn node(hub: &MemoryHub, keys: Keys, name: &[u8]) -> Keeper<MemoryStore> {
    Host::keeper_with(hub, keys, (name, Tenure::Cell { lease: LEASE }))
}

/// Number of owners so far.
fn owners(hub: &MemoryHub) -> u64 {
    let count = hub.entries().into_iter().find(|entry| entry.key.starts_with(b"test/takeovers/")).unwrap();
    u64::from_be_bytes(count.value.try_into().unwrap())
}

/// Runs the standby until it is refused, or takes over.
fn refusal(cell: &mut Cell, time: Duration) -> Option<StartError> {
    (0..time.as_millis()).find_map(|_| {
        cell.sim.hub.advance(MILLISECOND);
        cell.sim.peer.now = cell.sim.peer.now.after(MILLISECOND);
        gateway::step(&mut cell.standby, cell.sim.peer.now).err()
    })
}

/// A process with two wrapping keys ends at any moment of the change. A process with both keys, in any order,
/// continues the SAs, and so does a process with the key that encrypts all data keys. A process with another
/// key alone is refused, and no record is lost.
#[test]
fn a_single_machine_may_crash_during_the_change() {
    for (link, expected) in
        [(Link::default(), [false, true]), (NO_ANSWERS, [false, true]), (NO_REQUESTS, [true, false])]
    {
        for half_seconds in [0, 1, 2, 5, 20] {
            for next in [FORMER, PREPARED, CHANGING, NEW] {
                let mut sim = established();
                sim.crash_to(CHANGING, link).unwrap();
                sim.advance(half_seconds * SECOND / 2);
                let case = format!("{link:?}, {half_seconds}, {next:?}");
                let is_expected = match next {
                    FORMER => expected[0],
                    NEW => expected[1],
                    _ => true,
                };
                let refused = (!is_expected).then_some(StartError::WrappingKey);
                let before = owners(&sim.hub);
                assert_eq!(sim.crash_to(next, Link::default()).err(), refused, "{case}");
                if refused.is_some() {
                    assert_eq!(owners(&sim.hub), before, "it claims nothing");
                    sim.crash_to(CHANGING, Link::default()).unwrap();
                }
                assert_eq!(sim.gateway.ikes(), 1, "{case}");
                sim.advance(5 * SECOND);
                assert_eq!(traffic(&mut sim, 10), (10, 10), "{case}");
            }
        }
    }
}

#[test]
fn a_change_that_waited_for_the_store_is_completed() {
    for link in [NO_ANSWERS, NO_REQUESTS] {
        let mut sim = established();
        sim.crash_to(CHANGING, link).unwrap();
        sim.advance(20 * SECOND);
        assert!(sim.status().needs_second_key && sim.status().problem.is_some());
        sim.link(Link::default());
        sim.advance(5 * SECOND);
        assert!(!sim.status().needs_second_key && sim.status().problem.is_none());
        sim.crash_to(NEW, Link::default()).unwrap();
        sim.advance(5 * SECOND);
        assert_eq!(traffic(&mut sim, 10), (10, 10));
    }
}

/// An orderly end waits for the change.
#[test]
fn a_process_that_ends_at_once_changes_the_key() {
    let mut sim = established();
    let slow = Link { request_delay: 5 * MILLISECOND, answer_delay: 5 * MILLISECOND, ..Link::default() };
    sim.crash_to(CHANGING, slow).unwrap();
    assert!(sim.status().needs_second_key);
    sim.gateway.finish();
    sim.crash_to(NEW, Link::default()).unwrap();
    sim.advance(5 * SECOND);
    assert_eq!(traffic(&mut sim, 10), (10, 10));
}

/// The steps of the manual: each node gets the second key, then the keys change places, then the former one
/// goes. Each time both nodes restart, the owner in order or by a crash.
#[test]
fn a_rolling_change_loses_no_tunnel() {
    for is_crash in [false, true] {
        let mut cell = Cell::new();
        let mut names = [&b"gw1"[..], b"gw2"];
        for keys in [PREPARED, CHANGING, NEW] {
            cell.standby = node(&cell.sim.hub, keys, names[1]);
            assert_eq!(cell.run(2 * LEASE), None);
            if !is_crash {
                cell.sim.gateway.finish();
            }
            let (records, _) = cell.wait(2 * LEASE).unwrap();
            assert_eq!(records.len(), 1);
            drop(cell.take_over(records, names[0]));
            cell.standby = node(&cell.sim.hub, keys, names[0]);
            names.reverse();
            cell.check_tunnel();
            assert_eq!(cell.run(2 * LEASE), None);
            assert!(!cell.sim.status().needs_second_key, "{keys:?}");
        }
        cell.standby = node(&cell.sim.hub, FORMER, b"gw3");
        assert_eq!(refusal(&mut cell, SECOND), Some(StartError::WrappingKey));
        cell.standby = node(&cell.sim.hub, NEW, names[1]);
        cell.check_tunnel();
    }
}

/// The owner crashes so many milliseconds after its claim, with a slow store. A node with both keys goes on.
/// One with one key goes on, too, or is refused before it owns anything.
#[test]
fn an_owner_may_crash_during_the_change() {
    for milliseconds in 0..40 {
        for (first, next) in [(FORMER, CHANGING), (NEW, PREPARED), (CHANGING, NEW), (PREPARED, FORMER)] {
            let mut cell = Cell::new();
            cell.standby = node(&cell.sim.hub, CHANGING, b"gw3");
            let (records, _) = cell.wait(2 * LEASE).unwrap();
            let slow =
                Link { request_delay: 5 * MILLISECOND, answer_delay: 5 * MILLISECOND, ..Link::default() };
            cell.standby.store().set_link(slow);
            drop(cell.take_over(records, b"unused"));
            for _ in 0..milliseconds {
                cell.sim.gateway.work();
                cell.sim.deliver_to_peer();
            }
            let case = format!("{milliseconds}, {first:?}");
            let before = owners(&cell.sim.hub);
            cell.standby = node(&cell.sim.hub, first, b"gw1");
            let refused = (0..2 * LEASE.as_millis()).find_map(|_| {
                cell.sim.hub.advance(MILLISECOND);
                cell.sim.peer.now = cell.sim.peer.now.after(MILLISECOND);
                match gateway::step(&mut cell.standby, cell.sim.peer.now) {
                    Ok(Started::Waiting) => None,
                    Ok(Started::Records { records, unreadable }) => {
                        assert_eq!((records.len(), unreadable), (1, 0), "{case}");
                        Some(Ok(records))
                    }
                    Err(error) => Some(Err(error)),
                }
            });
            match refused.unwrap() {
                Ok(records) => drop(cell.take_over(records, b"unused")),
                Err(error) => {
                    assert_eq!((error, owners(&cell.sim.hub)), (StartError::WrappingKey, before), "{case}");
                    assert!(first.1.is_none(), "{case}");
                    cell.standby = node(&cell.sim.hub, next, b"gw2");
                    let (records, _) = cell.wait(2 * LEASE).unwrap();
                    assert_eq!(records.len(), 1, "{case}");
                    drop(cell.take_over(records, b"unused"));
                }
            }
            cell.standby = node(&cell.sim.hub, CHANGING, b"gw4");
            cell.check_tunnel();
        }
    }
}

/// It stands by since before the change, and has not looked at the store since.
#[test]
fn a_standby_with_the_former_key_never_owns_what_it_cannot_read() {
    for (is_orderly, is_able) in [(true, true), (false, true), (false, false)] {
        let mut cell = Cell::new();
        let mut former = std::mem::replace(&mut cell.standby, node(&cell.sim.hub, CHANGING, b"gw3"));
        // A node that may not take over notices it, too.
        former.allow_takeover(is_able, cell.sim.peer.now);
        // It renews its lease until shortly before the owner's lease ends.
        for _ in 0..(LEASE - SECOND).as_millis() {
            assert_eq!(cell.wait(MILLISECOND), None);
            assert!(matches!(gateway::step(&mut former, cell.sim.peer.now), Ok(Started::Waiting)));
        }
        let (records, _) = cell.wait(2 * SECOND).unwrap();
        drop(cell.take_over(records, b"gw4"));
        assert!(!cell.sim.status().needs_second_key);
        if is_orderly {
            cell.sim.gateway.finish();
        }
        cell.standby = former;
        let before = owners(&cell.sim.hub);
        // Also while the lease of the owner has not ended.
        assert_eq!(refusal(&mut cell, 3 * SECOND / 2), Some(StartError::WrappingKey));
        assert_eq!(owners(&cell.sim.hub), before, "it has not become the owner");
        cell.standby = node(&cell.sim.hub, NEW, b"gw2");
        let (records, _) = cell.wait(2 * LEASE).unwrap();
        assert_eq!(records.len(), 1);
        drop(cell.take_over(records, b"gw1"));
        cell.standby = node(&cell.sim.hub, NEW, b"gw1");
        cell.check_tunnel();
    }
}
