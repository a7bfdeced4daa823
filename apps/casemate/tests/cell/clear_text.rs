//! Packets from inside that reach a node without SAs. They must not leave in clear.

use crate::net::{BEHIND_PEER, CellNet, NODES, ip};
use crate::testbed::Testbed;
use std::fs;
use std::net::Ipv4Addr;

/// A connection that is never up: a child with a policy, an exception from it, and a route-based tunnel.
const MORE: &str = "connections { more {
  local_addrs = 192.0.2.1
  remote_addrs = 192.0.2.101
  version = 2
  local { auth = psk
    id = cell.test }
  remote { auth = psk
    id = more.test }
  children {
    net { local_ts = 10.1.0.0/24
      remote_ts = 10.64.0.0/16 }
    passed { local_ts = 10.1.0.0/24
      remote_ts = 10.64.0.8/32
      mode = pass
      start_action = trap }
    routed { local_ts = 0.0.0.0/0
      remote_ts = 0.0.0.0/0
      if_id_in = 5
      if_id_out = 5 } } } }
secrets { ike-more { id = more.test
  secret = \"the secret of more\" } }
";
const OF_NET: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 1);
const PASSED: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 8);
const ROUTED: Ipv4Addr = Ipv4Addr::new(10, 70, 0, 1);

/// Sends a packet from the inner host through a node. Returns the packets that have left in clear so far.
fn send_through(testbed: &Testbed<'_>, node: usize, to: Ipv4Addr) -> Vec<String> {
    let inner = &testbed.net.inner;
    ip(inner, &format!("route replace {to}/32 via 10.1.0.{}", 11 + node));
    assert!(!inner.pings_at_once(to.into(), 8), "no tunnel leads through this node");
    testbed.wire.look(|oracle| oracle.findings().to_vec())
}

/// A node that stands by, and never was the owner. A router sends it what belongs into a tunnel of the owner.
#[test]
fn node_that_stands_by_forwards_nothing_in_clear() {
    let Some(net) = CellNet::build("node_that_stands_by_forwards_nothing_in_clear") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let owner = testbed.gateways.wait_for_owner(None);
    let [first, second] = [(owner + 1) % NODES, (owner + 2) % NODES];
    for node in [first, second] {
        assert_eq!(send_through(&testbed, node, BEHIND_PEER), [""; 0]);
    }
    testbed.gateways.stop(first);
    assert_eq!(send_through(&testbed, first, BEHIND_PEER), [""; 0], "after SIGTERM");
    testbed.gateways.kill(second);
    assert_eq!(send_through(&testbed, second, BEHIND_PEER), [""; 0], "after SIGKILL");
    testbed.finish();
}

#[test]
fn reload_of_a_node_that_stands_by_changes_what_it_blocks() {
    let Some(net) = CellNet::build("reload_of_a_node_that_stands_by_changes_what_it_blocks") else { return };
    let Some(testbed) = Testbed::cell(&net) else { return };
    let node = (testbed.gateways.wait_for_owner(None) + 1) % NODES;
    let host = &net.gateways[node];
    let reload = |configuration: &str| {
        fs::write(host.file("gateway.conf"), configuration).unwrap();
        let output = host.casemate(&["reload"]);
        assert!(output.status.success(), "{output:?}");
    };
    let former = fs::read_to_string(host.file("gateway.conf")).unwrap();
    reload(&format!("{former}{MORE}"));
    assert_eq!(send_through(&testbed, node, OF_NET), [""; 0]);
    ip(host, "route add 10.70.0.0/16 dev ipsec5");
    assert_eq!(send_through(&testbed, node, ROUTED), [""; 0], "the interface of a route-based tunnel");
    let findings = send_through(&testbed, node, PASSED);
    assert!(findings.iter().any(|finding| finding.ends_with("to 10.64.0.8 in clear")), "{findings:?}");
    // What is not configured any more is not blocked.
    reload(&former);
    let findings = send_through(&testbed, node, OF_NET);
    assert!(findings.iter().any(|finding| finding.ends_with("to 10.64.0.1 in clear")), "{findings:?}");
}
