//! Servers without space for more data: with a quota, and with a disk that is full.

use crate::disk::Space;
use crate::failover::TAKEOVER;
use crate::net::{CellNet, NODES, OUTSIDE_VIRTUAL};
use crate::partitions::{rekey, spis_of_peer, start_rekeying};
use crate::testbed::Testbed;
use casemate_test_support::eventually;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// How long there is no space.
const FULL: Duration = Duration::from_secs(6);
/// What the servers accept, and a value that takes a part of it.
const QUOTA: Space = Space::Quota(8 << 20);
const VALUE: usize = 1 << 20;
/// A server reserves space for two parts of its log, 64 MiB each.
const DISK: Space = Space::Disk(160);

/// Writes until the servers refuse it.
fn fill_quota(testbed: &Testbed<'_>) {
    let servers = testbed.servers.as_ref().unwrap();
    let is_refused = (0..100).any(|_| !servers.write(VALUE));
    assert!(is_refused && servers.has_alarm(), "{}", servers.logs());
}

/// Makes space, as the documentation of etcd says.
fn make_space(testbed: &Testbed<'_>) {
    let servers = testbed.servers.as_ref().unwrap();
    servers.compact();
    servers.disarm();
    assert!(!servers.has_alarm());
}

fn wait_for_metric(testbed: &Testbed<'_>, owner: usize, is_failing: bool) {
    let is_so = || (testbed.gateways.is_store_failing(owner) == is_failing).then_some(());
    eventually("the metric of the store", is_so);
}

/// Traffic goes on while the store does not write, and nothing new is negotiated.
fn check_without_space(testbed: &Testbed<'_>, owner: usize, role: &str) {
    let before = spis_of_peer(testbed.net);
    start_rekeying(testbed.net);
    wait_for_metric(testbed, owner, true);
    thread::sleep(FULL);
    assert!(spis_of_peer(testbed.net).is_superset(&before), "rekeyed: {}", testbed.logs());
    assert_eq!(testbed.gateways.role(owner).as_deref(), Some(role), "{}", testbed.logs());
    assert!(testbed.gateways.is_store_failing(owner));
}

#[test]
fn traffic_continues_while_the_quota_of_the_store_is_reached() {
    let Some(net) = CellNet::build("traffic_continues_while_the_quota_of_the_store_is_reached") else {
        return;
    };
    let Some(mut testbed) = Testbed::cell_with_space(&net, QUOTA) else { return };
    let ((), deliveries) = testbed.during(|testbed| {
        let owner = testbed.gateways.wait_for_owner(None);
        assert!(!testbed.gateways.is_store_failing(owner));
        fill_quota(testbed);
        // The lease goes on.
        check_without_space(testbed, owner, "owner");
        // A drain that is not recorded ends nothing.
        let refused = net.gateways[owner].casemate(&["cell", "drain"]);
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && why.contains("the store refuses the request"), "{why}");
        assert_eq!(testbed.gateways.role(owner).as_deref(), Some("owner"));
        let before = spis_of_peer(&net);
        make_space(testbed);
        let is_rekeyed = || spis_of_peer(&net).is_disjoint(&before).then_some(());
        eventually("the rekeying ends when there is space", is_rekeyed);
        wait_for_metric(testbed, owner, false);
        rekey(testbed);
        assert_eq!(testbed.gateways.wait_for_owner(None), owner);
    });
    testbed.check_uninterrupted(&deliveries);
    testbed.finish();
}

/// No node can claim the SAs until there is space.
#[test]
fn owner_that_is_killed_without_space_is_replaced_when_there_is_some() {
    let Some(net) = CellNet::build("owner_that_is_killed_without_space_is_replaced_when_there_is_some")
    else {
        return;
    };
    let Some(mut testbed) = Testbed::cell_with_space(&net, QUOTA) else { return };
    let ((), deliveries) = testbed.during(|testbed| {
        let owner = testbed.gateways.wait_for_owner(None);
        fill_quota(testbed);
        testbed.gateways.kill(owner);
        thread::sleep(FULL);
        assert!(net.holders(OUTSIDE_VIRTUAL).is_empty(), "{}", testbed.logs());
        for standby in (0..NODES).filter(|index| *index != owner) {
            assert!(testbed.gateways.is_store_failing(standby), "{}", testbed.logs());
        }
        // A node that starts meanwhile waits, too.
        testbed.gateways.start(owner);
        thread::sleep(SECOND);
        make_space(testbed);
        testbed.gateways.wait_for_owner(None);
        thread::sleep(2 * SECOND);
        rekey(testbed);
    });
    testbed.check(&deliveries, FULL + 4 * SECOND + TAKEOVER);
    for standby in 0..NODES {
        assert!(!testbed.gateways.is_store_failing(standby), "{}", testbed.logs());
    }
    testbed.finish();
}

/// A server ends when its disk is full. Its service starts it again.
#[test]
fn traffic_continues_while_the_disks_of_the_store_are_full() {
    let Some(net) = CellNet::build("traffic_continues_while_the_disks_of_the_store_are_full") else { return };
    let Some(mut testbed) = Testbed::cell_with_space(&net, DISK) else { return };
    let ((), deliveries) = testbed.during(|testbed| {
        let owner = testbed.gateways.wait_for_owner(None);
        let servers = testbed.servers.as_mut().unwrap();
        (0..NODES).for_each(|index| servers.disk(index).fill());
        // The data reaches the disk with this.
        let is_refused = (0..100).any(|_| !servers.write(VALUE));
        println!("  refused: {is_refused}, ended: {:?}", servers.ended());
        check_without_space(testbed, owner, "fenced");
        let servers = testbed.servers.as_mut().unwrap();
        println!("  ended: {:?}", servers.ended());
        (0..NODES).for_each(|index| servers.disk(index).free());
        servers.ended().into_iter().for_each(|index| servers.kill(index));
        servers.start_all();
        wait_for_metric(testbed, owner, false);
        rekey(testbed);
        assert_eq!(testbed.gateways.wait_for_owner(None), owner);
    });
    testbed.check_uninterrupted(&deliveries);
    testbed.finish();
}
