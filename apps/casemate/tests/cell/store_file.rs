//! Gateways that use one store file after the other: the network, the traffic and the oracle with real
//! takeovers, without servers. The test moves the addresses.

use crate::net::{CellNet, GATEWAYS};
use crate::testbed::Testbed;
use crate::traffic;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Longest gap of a takeover: the start of a gateway, and a rekeying of the Child SAs.
const LIMIT: Duration = Duration::from_secs(3);

fn copy_file(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
}

/// Kills one gateway, starts another one, and moves the addresses there. `between` runs while none runs. The
/// addresses come last: a gateway that does not run forwards packets in clear.
fn take_over(testbed: &mut Testbed<'_>, [from, to]: [usize; 2], between: impl FnOnce()) {
    testbed.gateways.kill(from);
    between();
    testbed.gateways.start(to);
    testbed.net.move_virtual_addresses(from, to);
    assert!(testbed.gateways.logs().contains("continued with"), "{}", testbed.logs());
}

#[test]
fn store_file_moves_from_gateway_to_gateway() {
    let Some(net) = CellNet::build("store_file_moves_from_gateway_to_gateway") else { return };
    let mut testbed = Testbed::with_file(&net);
    let ((), deliveries) = testbed.during(|testbed| {
        for moves in [[0, 1], [1, 2], [2, 0]] {
            thread::sleep(SECOND / 2);
            take_over(testbed, moves, || ());
            thread::sleep(2 * SECOND);
        }
    });
    testbed.check(&deliveries, LIMIT);
    for port in GATEWAYS {
        assert!(testbed.wire.look(|oracle| oracle.esp_packets(port)) > 0, "{port}");
    }
    testbed.finish();
}

/// What an administrator must never do (docs/manual/store.md). Two owners have the same takeover count, so
/// that both use the same numbers. The oracle finds them in ESP and in IKE.
#[test]
fn two_takeovers_from_one_copy_are_found() {
    let Some(net) = CellNet::build("two_takeovers_from_one_copy_are_found") else { return };
    let mut testbed = Testbed::with_file(&net);
    let (store, copy) = (net.scratch.file("store"), net.scratch.file("copy"));
    traffic::during(&testbed.flows(), || {
        take_over(&mut testbed, [0, 1], || copy_file(&store, &copy));
        // A gateway repeats the requests that it could not send before it had the address.
        thread::sleep(4 * SECOND);
        assert!(testbed.wire.look(|oracle| oracle.findings().is_empty()));
        take_over(&mut testbed, [1, 2], || copy_file(&copy, &store));
        thread::sleep(4 * SECOND);
    });
    let findings = testbed.wire.look(|oracle| oracle.findings().join("\n"));
    for expected in [
        "the sequence number was used Sending { sender: \"gw2\"",
        "the IV was used Sending { sender: \"gw2\"",
        "the IV was used for another message Sending { sender: \"gw2\"",
    ] {
        assert!(findings.contains(expected), "{expected}: {findings}\n{}", testbed.logs());
    }
}
