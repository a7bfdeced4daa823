//! The owner of a cell is killed, drained, restarted and stopped for a while. The others continue its SAs.

use crate::net::{CellNet, GATEWAYS, NODES, OUTSIDE_VIRTUAL};
use crate::testbed::Testbed;
use casemate_test_support::eventually;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Whether the program is optimized, as for `cargo xtask cell`. The ordinary tests run beside others, on
/// processors that all gateways and servers share.
pub(crate) const IS_ALONE: bool = !cfg!(debug_assertions);
/// Longest gap after the end of an owner that could not release the cell: its lease of 2 s, half a second
/// until etcd notices that, and the takeover.
pub(crate) const TAKEOVER: Duration = Duration::from_millis(if IS_ALONE { 3_500 } else { 20_000 });
/// Longest gap of a drain.
pub(crate) const DRAIN: Duration = Duration::from_millis(if IS_ALONE { 50 } else { 3_000 });

#[test]
fn killed_owner_is_replaced_without_negotiation() {
    let Some(net) = CellNet::build("killed_owner_is_replaced_without_negotiation") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    // The second owner has taken the SAs over itself.
    for _ in 0..2 {
        let ((owner, next), deliveries) = testbed.during(|testbed| {
            let owner = testbed.gateways.wait_for_owner(None);
            thread::sleep(SECOND);
            testbed.gateways.kill(owner);
            let next = testbed.gateways.wait_for_owner(None);
            thread::sleep(2 * SECOND);
            (owner, next)
        });
        assert_ne!(owner, next);
        testbed.check(&deliveries, TAKEOVER);
        assert!(testbed.wire.look(|oracle| oracle.esp_packets(GATEWAYS[next])) > 0, "{}", testbed.logs());
        // The killed gateway joins the cell again, and the addresses that it had are gone.
        testbed.gateways.rejoin(owner);
        assert_eq!(net.holders(OUTSIDE_VIRTUAL), [next]);
    }
    // Each owner has a data key of its own. Those of former owners are deleted when all records are written.
    let servers = testbed.servers.as_ref().unwrap();
    let is_one = || (servers.count("casemate/test/data-keys/") == 1).then_some(());
    eventually("the store has one data key", is_one);
    assert_eq!(servers.count("casemate/test/wrapping-key"), 1);
    testbed.finish();
}

#[test]
fn drained_owner_hands_over_at_once() {
    let Some(net) = CellNet::build("drained_owner_hands_over_at_once") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    // SIGUSR1 and SIGTERM, in turn.
    for is_restart in [true, false, true] {
        let ((owner, next), deliveries) = testbed.during(|testbed| {
            let owner = testbed.gateways.wait_for_owner(None);
            thread::sleep(SECOND);
            if is_restart {
                testbed.gateways.drain(owner);
            } else {
                testbed.gateways.stop(owner);
            }
            let next = testbed.gateways.wait_for_owner(None);
            thread::sleep(SECOND);
            (owner, next)
        });
        assert_ne!(owner, next);
        testbed.check(&deliveries, DRAIN);
        assert_eq!(net.holders(OUTSIDE_VIRTUAL), [next]);
        testbed.gateways.rejoin(owner);
    }
    testbed.finish();
}

/// `casemate cell drain` outlasts the process. The node owns nothing until `casemate cell join`, also if
/// there is no other node.
#[test]
fn node_that_was_drained_by_command_waits_until_it_joins() {
    let Some(net) = CellNet::build("node_that_was_drained_by_command_waits_until_it_joins") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let ((drained, next), deliveries) = testbed.during(|testbed| {
        let drained = testbed.gateways.wait_for_owner(None);
        thread::sleep(SECOND);
        testbed.gateways.cell(drained, "drain");
        testbed.gateways.start_again(drained);
        let next = testbed.gateways.wait_for_owner(None);
        thread::sleep(SECOND);
        (drained, next)
    });
    assert_ne!(drained, next);
    testbed.check(&deliveries, DRAIN);
    let gateways = &mut testbed.gateways;
    gateways.wait_for_role(drained, "drained");
    for index in (0..NODES).filter(|index| *index != drained) {
        gateways.stop(index);
    }
    thread::sleep(3 * SECOND);
    let name = GATEWAYS[drained];
    let expected = format!("Node {name} of the cell test is drained, and no node owns the SAs.");
    let shown = gateways.cell(drained, "status");
    assert!(shown.starts_with(&expected), "{shown}");
    assert!(net.holders(OUTSIDE_VIRTUAL).is_empty());
    gateways.cell(drained, "join");
    assert_eq!(gateways.wait_for_owner(None), drained);
    testbed.finish();
}

#[test]
fn restart_of_each_node_in_turn_costs_no_tunnel() {
    let Some(net) = CellNet::build("restart_of_each_node_in_turn_costs_no_tunnel") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let ((), deliveries) = testbed.during(|testbed| {
        for index in 0..NODES {
            testbed.gateways.drain(index);
            testbed.gateways.start(index);
            testbed.gateways.wait_for_owner(None);
            thread::sleep(SECOND);
        }
    });
    testbed.check(&deliveries, DRAIN);
    testbed.finish();
}

/// A process that is stopped for longer than its lease believes that it owns the cell when it continues.
#[test]
fn stopped_owner_that_continues_sends_and_accepts_nothing_twice() {
    let Some(net) = CellNet::build("stopped_owner_that_continues_sends_and_accepts_nothing_twice") else {
        return;
    };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let ((owner, continued), deliveries) = testbed.during(|testbed| {
        let owner = testbed.gateways.wait_for_owner(None);
        thread::sleep(SECOND);
        testbed.gateways.signal(owner, "STOP");
        let stopped = testbed.wire.now();
        let next = testbed.gateways.wait_for_owner(Some(owner));
        thread::sleep((stopped + 6 * SECOND).saturating_sub(testbed.wire.now()));
        testbed.gateways.signal(owner, "CONT");
        let continued = testbed.wire.now();
        testbed.gateways.rejoin(owner);
        let is_alone = || (net.holders(OUTSIDE_VIRTUAL) == [next]).then_some(());
        eventually("the former owner has no virtual address", is_alone);
        thread::sleep(2 * SECOND);
        (owner, continued)
    });
    testbed.check(&deliveries, TAKEOVER);
    let last = testbed.wire.look(|oracle| oracle.last_esp(GATEWAYS[owner]));
    assert!(last.is_some_and(|last| last < continued + SECOND), "{last:?} {continued:?}: {}", testbed.logs());
    testbed.finish();
}
