//! The owner of a cell ends in order: packets move there until the next owner has restored the SAs.

use crate::failover::{DRAIN, IS_ALONE, TAKEOVER};
use crate::net::{CellNet, NODES};
use crate::testbed::Testbed;
use std::thread;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// How long an owner waits for the next one, and longest time until its process has ended then.
const PATIENCE: Duration = Duration::from_secs(5);
const END: Duration = Duration::from_secs(if IS_ALONE { 7 } else { 15 });

/// Each node has written nothing when it hands over.
#[test]
fn owners_that_end_one_after_the_other_say_that_they_are_ready() {
    let Some(net) = CellNet::build("owners_that_end_one_after_the_other_say_that_they_are_ready") else {
        return;
    };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    for _ in 0..2 {
        let ((), deliveries) = testbed.during(|testbed| {
            let first = testbed.gateways.wait_for_owner(None);
            testbed.gateways.stop(first);
            let second = testbed.gateways.wait_for_owner(None);
            testbed.gateways.stop(second);
            let third = testbed.gateways.wait_for_owner(None);
            thread::sleep(SECOND);
            [first, second].into_iter().for_each(|index| testbed.gateways.rejoin(index));
            assert_eq!(testbed.gateways.role(third).as_deref(), Some("owner"));
        });
        // Only a handover writes this entry, which ends with its node.
        let servers = testbed.servers.as_ref().unwrap();
        assert_eq!(servers.count("casemate/test/ready/"), 1, "{}", testbed.logs());
        assert_eq!(servers.count("casemate/test/sas/000/handover"), 0);
        testbed.check(&deliveries, DRAIN);
    }
    testbed.finish();
}

#[test]
fn nodes_that_all_end_at_once_continue_when_they_are_started_again() {
    let Some(net) = CellNet::build("nodes_that_all_end_at_once_continue_when_they_are_started_again") else {
        return;
    };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let ((), deliveries) = testbed.during(|testbed| {
        testbed.gateways.wait_for_owner(None);
        (0..NODES).for_each(|index| testbed.gateways.signal(index, "TERM"));
        (0..NODES).for_each(|index| testbed.gateways.start_again(index));
        testbed.gateways.wait_for_owner(None);
        thread::sleep(2 * SECOND);
    });
    // The nodes may hand over to each other before the last one ends.
    testbed.check(&deliveries, TAKEOVER + 3 * END);
    testbed.finish();
}

/// The nodes that stand by are stopped. They are not forgotten yet when the owner ends.
#[test]
fn an_owner_does_not_wait_long_for_nodes_that_hang() {
    let Some(net) = CellNet::build("an_owner_does_not_wait_long_for_nodes_that_hang") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let (owner, deliveries) = testbed.during(|testbed| {
        let owner = testbed.gateways.wait_for_owner(None);
        let others = [1, 2].map(|more| (owner + more) % NODES);
        others.into_iter().for_each(|index| testbed.gateways.wait_until_standby(index));
        // Nodes read the names of the others every two seconds.
        thread::sleep(3 * SECOND);
        others.into_iter().for_each(|index| testbed.gateways.signal(index, "STOP"));
        let start = Instant::now();
        testbed.gateways.stop(owner);
        let took = start.elapsed();
        assert!((PATIENCE..END).contains(&took), "{took:?}: {}", testbed.logs());
        others.into_iter().for_each(|index| testbed.gateways.signal(index, "CONT"));
        let next = testbed.gateways.wait_for_owner(None);
        assert_ne!(next, owner);
        thread::sleep(2 * SECOND);
        owner
    });
    // Packets have moved while the owner waited.
    testbed.check(&deliveries, TAKEOVER);
    testbed.gateways.rejoin(owner);
    testbed.finish();
}
