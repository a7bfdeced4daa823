//! Links of the owner that are cut, and servers that fail or compact their data.

use crate::failover::TAKEOVER;
use crate::gateways::child_spis;
use crate::net::{CellNet, Cut, GATEWAYS, OUTSIDE_VIRTUAL};
use crate::testbed::Testbed;
use casemate_test_support::eventually;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// How long all servers are down. `cargo xtask cell` sets a minute.
const OUTAGE: Duration = Duration::from_secs(15);

/// Starts the rekeying of the Child SA of the peer, which ends when the cell responds.
pub(crate) fn start_rekeying(net: &CellNet) {
    let output = net.peer.casemate(&["rekey", "peer/net"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn spis_of_peer(net: &CellNet) -> BTreeSet<u32> {
    child_spis(&net.peer.status()).into_iter().collect()
}

#[test]
fn owner_without_its_servers_is_replaced() {
    let Some(net) = CellNet::build("owner_without_its_servers_is_replaced") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let ((), deliveries) = testbed.during(|testbed| {
        let owner = testbed.gateways.wait_for_owner(None);
        thread::sleep(SECOND);
        net.etcd.cut(GATEWAYS[owner], Cut::Silent);
        let next = testbed.gateways.wait_for_owner(Some(owner));
        thread::sleep(4 * SECOND);
        net.etcd.restore(GATEWAYS[owner]);
        testbed.gateways.rejoin(owner);
        eventually("one gateway has the address", || (net.holders(OUTSIDE_VIRTUAL) == [next]).then_some(()));
        thread::sleep(2 * SECOND);
    });
    testbed.check(&deliveries, TAKEOVER);
    testbed.finish();
}

/// The owner keeps its lease, or hands the cell over if the interface has no carrier.
#[test]
fn owner_without_its_outside_link_continues_afterwards() {
    const CUT: Duration = Duration::from_secs(5);
    let Some(net) = CellNet::build("owner_without_its_outside_link_continues_afterwards") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    for how in [Cut::Silent, Cut::Carrier] {
        let (owners, deliveries) = testbed.during(|testbed| {
            let owner = testbed.gateways.wait_for_owner(None);
            thread::sleep(SECOND);
            net.outside.cut(GATEWAYS[owner], how);
            thread::sleep(CUT);
            net.outside.restore(GATEWAYS[owner]);
            let next = testbed.gateways.wait_for_owner(None);
            thread::sleep(3 * SECOND);
            (owner, next)
        });
        println!("  {how:?}: owner before and after: {owners:?}");
        testbed.check(&deliveries, CUT + 2 * SECOND);
    }
    testbed.finish();
}

/// Traffic goes on, and nothing new is negotiated until the servers are back.
fn outage(test: &str, outage: Duration) {
    let Some(net) = CellNet::build(test) else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let ((), deliveries) = testbed.during(|testbed| {
        let owner = testbed.gateways.wait_for_owner(None);
        thread::sleep(SECOND);
        let before = spis_of_peer(&net);
        testbed.servers.as_mut().unwrap().kill_all();
        start_rekeying(&net);
        thread::sleep(outage);
        assert!(spis_of_peer(&net).is_superset(&before), "rekeyed without the store: {}", testbed.logs());
        assert_eq!(testbed.gateways.role(owner).as_deref(), Some("fenced"), "{}", testbed.logs());
        testbed.servers.as_mut().unwrap().start_all();
        let is_rekeyed = || spis_of_peer(&net).is_disjoint(&before).then_some(());
        eventually("the rekeying ends when the servers are back", is_rekeyed);
        assert_eq!(testbed.gateways.wait_for_owner(None), owner);
        thread::sleep(2 * SECOND);
    });
    testbed.check_uninterrupted(&deliveries);
    testbed.finish();
}

#[test]
fn traffic_continues_without_servers() {
    outage("traffic_continues_without_servers", OUTAGE);
}

#[test]
#[ignore = "takes minutes: cargo xtask cell"]
fn traffic_continues_without_servers_for_a_minute() {
    outage("traffic_continues_without_servers_for_a_minute", Duration::from_secs(60));
}

/// Without the servers no other node can take over. So the owner takes its addresses back, which the kernel
/// has removed meanwhile.
#[test]
fn fenced_owner_that_was_stopped_for_a_while_goes_on() {
    const STOPPED: Duration = Duration::from_secs(4);
    let Some(net) = CellNet::build("fenced_owner_that_was_stopped_for_a_while_goes_on") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let ((), deliveries) = testbed.during(|testbed| {
        let owner = testbed.gateways.wait_for_owner(None);
        thread::sleep(SECOND);
        testbed.servers.as_mut().unwrap().kill_all();
        testbed.gateways.wait_for_role(owner, "fenced");
        testbed.gateways.signal(owner, "STOP");
        thread::sleep(STOPPED);
        assert!(net.holders(OUTSIDE_VIRTUAL).is_empty(), "the kernel removes the address");
        testbed.gateways.signal(owner, "CONT");
        eventually("the owner has the address", || (net.holders(OUTSIDE_VIRTUAL) == [owner]).then_some(()));
        thread::sleep(2 * SECOND);
        testbed.servers.as_mut().unwrap().start_all();
        assert_eq!(testbed.gateways.wait_for_owner(None), owner, "{}", testbed.logs());
        thread::sleep(2 * SECOND);
    });
    testbed.check(&deliveries, STOPPED + TAKEOVER);
    testbed.finish();
}

/// Rekeying writes records, so that the store has work.
pub(crate) fn rekey(testbed: &Testbed<'_>) {
    let before = spis_of_peer(testbed.net);
    start_rekeying(testbed.net);
    eventually("the Child SA is rekeyed", || spis_of_peer(testbed.net).is_disjoint(&before).then_some(()));
}

#[test]
fn change_of_the_leader_loses_no_packet() {
    let Some(net) = CellNet::build("change_of_the_leader_loses_no_packet") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let (owners, deliveries) = testbed.during(|testbed| {
        let owner = testbed.gateways.wait_for_owner(None);
        thread::sleep(SECOND);
        let servers = testbed.servers.as_mut().unwrap();
        let leader = servers.wait_for_leader();
        servers.kill(leader);
        assert_ne!(servers.wait_for_leader(), leader);
        rekey(testbed);
        thread::sleep(5 * SECOND);
        testbed.servers.as_mut().unwrap().start_all();
        rekey(testbed);
        (owner, testbed.gateways.wait_for_owner(None))
    });
    assert_eq!(owners.0, owners.1, "{}", testbed.logs());
    testbed.check_uninterrupted(&deliveries);
    testbed.finish();
}

#[test]
fn compaction_loses_no_packet() {
    let Some(net) = CellNet::build("compaction_loses_no_packet") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let (owners, deliveries) = testbed.during(|testbed| {
        let owner = testbed.gateways.wait_for_owner(None);
        for _ in 0..5 {
            rekey(testbed);
            testbed.servers.as_ref().unwrap().compact();
            thread::sleep(SECOND);
        }
        (owner, testbed.gateways.wait_for_owner(None))
    });
    assert_eq!(owners.0, owners.1, "{}", testbed.logs());
    testbed.check_uninterrupted(&deliveries);
    // A standby that has not read for a while takes over from the compacted data.
    let ((), deliveries) = testbed.during(|testbed| {
        testbed.gateways.kill(owners.0);
        testbed.gateways.wait_for_owner(None);
        thread::sleep(2 * SECOND);
    });
    testbed.check(&deliveries, TAKEOVER);
    testbed.finish();
}
