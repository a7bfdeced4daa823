//! Owners that are killed one after the other, each while it takes over, and while peers rekey all SAs.

use crate::failover::{IS_ALONE, TAKEOVER};
use crate::gateways::child_spis;
use crate::many::{TUNNELS, check_owner_has_all, longest_gap, rate};
use crate::net::{CellNet, NODES};
use crate::partitions::spis_of_peer;
use crate::testbed::Testbed;
use casemate_test_support::{TestRng, eventually};
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// Time after its claim at which a new owner is killed.
const KILLED_AFTER: [u64; 4] = [300, 0, 100, 0];
const MANY_KILLED_AFTER: [u64; 6] = [0, 100, 300, 700, 1_200, 2_000];
/// Longest time until the owner is killed, for each tunnel that is rekeyed.
const MOST_WAIT: Duration = Duration::from_millis(5);
/// Threads that rekey IKE SAs.
const THREADS: usize = 4;

/// Waits until a gateway has claimed the SAs; it may have no address yet.
fn wait_for_claim(testbed: &Testbed<'_>) -> usize {
    let is_owner = |index: &usize| testbed.gateways.role(*index).as_deref() == Some("owner");
    eventually("a gateway has claimed the SAs", || (0..NODES).find(is_owner))
}

/// Kills each new owner soon after its claim. Gateways that were killed are started again.
fn kill_new_owners(test: &str, delays: &[u64]) {
    let Some(net) = CellNet::build(test) else { return };
    let Some(mut testbed) = Testbed::cell_with_tunnels(&net, TUNNELS) else { return };
    let flows = testbed.many_flows(rate(TUNNELS));
    let ((), deliveries) = testbed.during_flows(&flows, |testbed| {
        testbed.gateways.wait_for_owner(None);
        thread::sleep(2 * SECOND);
        for delay in delays {
            let owner = wait_for_claim(testbed);
            thread::sleep(Duration::from_millis(*delay));
            testbed.gateways.kill(owner);
            testbed.gateways.start(owner);
            println!("  gw{} killed {delay} ms after its claim", owner + 1);
        }
        testbed.gateways.wait_for_owner(None);
        thread::sleep(3 * SECOND);
    });
    let takeovers = delays.len() as u32;
    let last: u64 = delays.iter().sum();
    testbed.check(&deliveries, longest_gap(TUNNELS) + takeovers * TAKEOVER + Duration::from_millis(last));
    check_owner_has_all(&testbed);
    testbed.finish();
}

#[test]
fn owners_that_are_killed_while_they_take_over_lose_no_tunnel() {
    kill_new_owners("owners_that_are_killed_while_they_take_over_lose_no_tunnel", &KILLED_AFTER);
}

#[test]
#[ignore = "takes minutes: cargo xtask cell"]
fn many_owners_that_are_killed_while_they_take_over_lose_no_tunnel() {
    let delays = [MANY_KILLED_AFTER; 4].concat();
    kill_new_owners("many_owners_that_are_killed_while_they_take_over_lose_no_tunnel", &delays);
}

/// Starts the rekeying of all Child SAs of the peer.
pub(crate) fn start_rekeying_all(testbed: &Testbed<'_>) {
    let output = testbed.net.peer.casemate(&["rekey", "net"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Rekeys all Child SAs of the peer, so that all its records are written.
pub(crate) fn rekey_all(testbed: &Testbed<'_>) {
    let before = spis_of_peer(testbed.net);
    start_rekeying_all(testbed);
    let is_rekeyed = || spis_of_peer(testbed.net).is_disjoint(&before).then_some(());
    eventually("all Child SAs are rekeyed", is_rekeyed);
}

/// Rekeys IKE SAs of the peer in threads, while `work` runs.
fn during_ike_rekeyings(net: &CellNet, tunnels: u16, work: impl FnOnce()) {
    thread::scope(|scope| {
        for first in 0..THREADS {
            let peer = &net.peer;
            scope.spawn(move || {
                for number in (first..usize::from(tunnels)).step_by(THREADS) {
                    // An IKE SA that is being rekeyed cannot be rekeyed.
                    peer.casemate(&["rekey", "--ike", &format!("c{number}")]);
                }
            });
        }
        work();
    });
}

/// The owner is killed while the peer rekeys all SAs.
fn kill_during_rekeyings(test: &str, tunnels: u16, repetitions: u32) {
    let Some(net) = CellNet::build(test) else { return };
    let Some(mut testbed) = Testbed::cell_with_tunnels(&net, tunnels) else { return };
    let mut rng = TestRng::new(u64::from(repetitions));
    let flows = testbed.many_flows(rate(tunnels));
    for _ in 0..repetitions {
        let ((), deliveries) = testbed.during_rekeyings(&flows, |testbed| {
            let owner = testbed.gateways.wait_for_owner(None);
            let wait = rng.time(Duration::ZERO, MOST_WAIT * u32::from(tunnels));
            start_rekeying_all(testbed);
            let start = Instant::now();
            during_ike_rekeyings(&net, tunnels, || {
                thread::sleep(wait);
                testbed.gateways.kill(owner);
            });
            testbed.gateways.wait_for_owner(None);
            println!("  killed after {wait:?}, owned after {:?}", start.elapsed());
            thread::sleep(3 * SECOND);
            testbed.gateways.rejoin(owner);
        });
        testbed.check(&deliveries, 2 * longest_gap(tunnels));
        eventually("no IKE SA has two Child SAs", || is_settled(&testbed).then_some(()));
        check_owner_has_all(&testbed);
        let live: BTreeSet<u32> = child_spis(&net.peer.status()).into_iter().collect();
        testbed.wire.look(|oracle| oracle.forget_esp_except(|spi| live.contains(&spi)));
    }
    testbed.finish();
}

/// Whether each IKE SA of the peer has one Child SA, or none because it is being closed.
fn is_settled(testbed: &Testbed<'_>) -> bool {
    let status = testbed.net.peer.status();
    let mut sas = status["ike_sas"].as_array().unwrap().iter();
    sas.all(|sa| sa["children"].as_array().unwrap().len() <= 1)
}

#[test]
fn owner_that_is_killed_while_all_sas_are_rekeyed_loses_no_tunnel() {
    let tunnels = if IS_ALONE { 200 } else { 50 };
    kill_during_rekeyings("owner_that_is_killed_while_all_sas_are_rekeyed_loses_no_tunnel", tunnels, 1);
}

#[test]
#[ignore = "takes minutes: cargo xtask cell"]
fn owners_that_are_killed_while_all_sas_are_rekeyed_lose_no_tunnel() {
    kill_during_rekeyings("owners_that_are_killed_while_all_sas_are_rekeyed_lose_no_tunnel", 200, 10);
}
