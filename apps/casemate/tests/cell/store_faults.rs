//! Servers that compact their data, restart and change their leader, while SAs are rekeyed under traffic.

use crate::failover::TAKEOVER;
use crate::net::{CellNet, GATEWAYS, NODES};
use crate::partitions::rekey;
use crate::repeated_kills::{rekey_all, start_rekeying_all};
use crate::testbed::Testbed;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Number of further tunnels.
const TUNNELS: u16 = 20;

/// Restarts one server after the other, so that all streams of watches begin again.
fn restart_servers(testbed: &mut Testbed<'_>) {
    for index in 0..NODES {
        testbed.servers.as_mut().unwrap().kill(index);
        rekey(testbed);
        testbed.servers.as_mut().unwrap().start_all();
    }
}

/// The history that the watch of the node needs is removed while the node is stopped, and with it that of the
/// data keys.
#[test]
fn node_whose_watch_is_behind_a_compaction_takes_over() {
    let Some(net) = CellNet::build("node_whose_watch_is_behind_a_compaction_takes_over") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let owner = testbed.gateways.wait_for_owner(None);
    let [standby, other] = [1, 2].map(|more| (owner + more) % NODES);
    testbed.gateways.wait_until_standby(standby);
    testbed.gateways.stop(other);
    let ((), deliveries) = testbed.during(|testbed| {
        testbed.gateways.signal(standby, "STOP");
        restart_servers(testbed);
        let servers = testbed.servers.as_ref().unwrap();
        let last_key = servers.last_change("casemate/test/data-keys/");
        servers.compact_to(last_key + 1);
        rekey(testbed);
        servers.compact();
        testbed.gateways.signal(standby, "CONT");
        testbed.gateways.wait_until_standby(standby);
        thread::sleep(2 * SECOND);
        assert_eq!(testbed.gateways.role(owner).as_deref(), Some("owner"), "{}", testbed.logs());
    });
    testbed.check_uninterrupted(&deliveries);
    let ((), deliveries) = testbed.during(|testbed| {
        testbed.gateways.kill(owner);
        assert_eq!(testbed.gateways.wait_for_owner(None), standby);
        thread::sleep(2 * SECOND);
    });
    testbed.check(&deliveries, TAKEOVER);
    testbed.finish();
}

/// What happens to the servers while all Child SAs are rekeyed.
fn under_load(test: &str, rounds: usize, disturb: impl Fn(&mut Testbed<'_>, usize)) {
    let Some(net) = CellNet::build(test) else { return };
    let Some(mut testbed) = Testbed::cell_with_tunnels(&net, TUNNELS) else { return };
    let mut flows = testbed.flows();
    flows.extend(testbed.many_flows(200));
    let owner = testbed.gateways.wait_for_owner(None);
    let ((), deliveries) = testbed.during_flows(&flows, |testbed| {
        for round in 0..rounds {
            disturb(testbed, round);
        }
        testbed.servers.as_mut().unwrap().start_all();
        rekey_all(testbed);
        thread::sleep(SECOND);
    });
    assert_eq!(testbed.gateways.wait_for_owner(None), owner, "{}", testbed.logs());
    for other in (0..NODES).filter(|index| *index != owner) {
        assert_eq!(testbed.wire.look(|oracle| oracle.esp_packets(GATEWAYS[other])), 0, "{}", testbed.logs());
    }
    testbed.check_uninterrupted(&deliveries);
    testbed.finish();
}

/// Compacts once, and returns the memory to the disk every second time.
fn compact(testbed: &mut Testbed<'_>, round: usize) {
    rekey_all(testbed);
    let servers = testbed.servers.as_ref().unwrap();
    servers.compact_to(servers.revision());
    if round % 2 == 1 {
        servers.defragment();
    }
}

/// Moves the leader, or kills it every third time, while Child SAs are rekeyed.
fn change_leader(testbed: &mut Testbed<'_>, round: usize) {
    if round % 3 == 2 {
        let servers = testbed.servers.as_mut().unwrap();
        let leader = servers.wait_for_leader();
        servers.kill(leader);
        rekey_all(testbed);
        testbed.servers.as_mut().unwrap().start_all();
    } else {
        start_rekeying_all(testbed);
        if testbed.servers.as_ref().unwrap().move_leader().is_none() {
            println!("  the leader was not moved");
        }
        rekey_all(testbed);
    }
}

#[test]
fn compactions_under_load_lose_no_packet() {
    under_load("compactions_under_load_lose_no_packet", 6, compact);
}

#[test]
fn changes_of_the_leader_under_load_lose_no_packet() {
    under_load("changes_of_the_leader_under_load_lose_no_packet", 6, change_leader);
}

#[test]
#[ignore = "takes minutes: cargo xtask cell"]
fn many_changes_of_the_leader_and_compactions_lose_no_packet() {
    under_load("many_changes_of_the_leader_and_compactions_lose_no_packet", 30, |testbed, round| {
        change_leader(testbed, round);
        compact(testbed, round);
    });
}
