//! Tests of the test network itself, with one gateway that shares nothing, and with servers alone.

use crate::etcd::Servers;
use crate::net::{CellNet, Cut, NODES, OUTSIDE_PORTS, OUTSIDE_VIRTUAL, PEER};
use crate::testbed::Testbed;
use crate::wire::Wire;
use crate::{oracle_tests, traffic};
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::FrameInjector;
use casemate_test_support::eventually;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Number of further tunnels.
const MANY: u16 = 20;

#[test]
fn a_single_gateway_carries_numbered_datagrams() {
    let Some(net) = CellNet::build("a_single_gateway_carries_numbered_datagrams") else { return };
    let mut testbed = Testbed::single(&net, MANY);
    let identities = testbed.identities();
    let initial = testbed.wire.look(|oracle| oracle.initial_requests());
    let ((), deliveries) = traffic::during(&testbed.many_flows(200), || thread::sleep(SECOND));
    testbed.check_nothing_lost(&deliveries);
    let flows = testbed.flows();
    let ((), deliveries) = traffic::during(&flows, || thread::sleep(SECOND));
    testbed.check_nothing_lost(&deliveries);
    let (ike, sas, sent) = testbed.wire.look(|oracle| {
        (
            oracle.ike_encrypted(),
            oracle.esp_sas(),
            ["gw1", "gw2", "peer"].map(|port| oracle.esp_packets(port)),
        )
    });
    assert!(ike >= 2 && sas == flows.len() + 2 * usize::from(MANY), "{ike} {sas}");
    assert!(sent[0] > 100 && sent[1] == 0 && sent[2] > 100, "{sent:?}");

    // A link that is cut is a gap, in every flow and as long as the link is cut.
    for how in [Cut::Silent, Cut::Carrier] {
        let ((), deliveries) = traffic::during(&flows, || {
            thread::sleep(SECOND / 2);
            net.outside.cut("gw1", how);
            thread::sleep(SECOND);
            net.outside.restore("gw1");
            thread::sleep(2 * SECOND);
        });
        for delivery in &deliveries {
            assert!(delivery.longest_gap() >= SECOND - SECOND / 10, "{how:?}: {delivery}");
            assert!(delivery.lost() > 0 && delivery.repeated().is_empty(), "{how:?}: {delivery}");
        }
    }
    assert_eq!(testbed.identities(), identities);

    // Without a store, a crash ends the IKE SAs, and the oracle counts those that follow.
    testbed.gateways.kill(0);
    assert!(!testbed.gateways.is_running(0));
    testbed.gateways.start(0);
    let initiated = net.gateways[0].casemate(&["initiate", "peer"]);
    assert!(initiated.status.success(), "{}", testbed.logs());
    assert_ne!(testbed.identities(), identities);
    assert!(testbed.wire.look(|oracle| oracle.initial_requests()) > initial);
    testbed.finish();
}

/// The path from an interface of a node to the oracle: a number that is used twice is found at the port of
/// the sender, and not at the ports that the packet leaves the bridge by.
#[test]
fn numbers_that_a_node_uses_twice_are_found() {
    let Some(net) = CellNet::build("numbers_that_a_node_uses_twice_are_found") else { return };
    let wire = Wire::start(&net.outside, &OUTSIDE_PORTS);
    let open = || FrameInjector::open(Netlink::open()?.link("out0")?.index);
    let injector = net.gateways[1].run(open).unwrap();
    let count = || wire.look(|oracle| (oracle.esp_packets("gw2"), oracle.findings().to_vec()));
    for (sent, expected) in [(1, 0), (2, 2), (3, 4)] {
        let packet = oracle_tests::esp_with(sent as u8, 1, 1, 1);
        injector.send(&oracle_tests::frame(50, OUTSIDE_VIRTUAL, PEER, &packet)).unwrap();
        let (_, findings) = eventually("the frame is captured", || Some(count()).filter(|(n, _)| *n == sent));
        assert_eq!(findings.len(), expected, "{findings:?}");
        assert!(findings.iter().all(|finding| finding.starts_with("gw2 at ")), "{findings:?}");
    }
    assert_eq!(OUTSIDE_PORTS.map(|port| wire.look(|oracle| oracle.esp_packets(port))), [0, 3, 0, 0, 0]);
}

#[test]
fn servers_elect_leaders_and_compact() {
    let Some(net) = CellNet::build("servers_elect_leaders_and_compact") else { return };
    let Some(mut servers) = Servers::start(&net) else { return };
    let first = servers.wait_for_leader();
    servers.compact();
    assert_eq!(servers.count("any"), 0);
    servers.kill(first);
    assert_ne!(servers.wait_for_leader(), first);
    servers.compact();
    servers.kill_all();
    servers.start_all();
    assert!(servers.wait_for_leader() < NODES, "{}", servers.logs());
}
