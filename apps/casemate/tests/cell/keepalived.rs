//! keepalived assigns the addresses of a cell to its owner.

use crate::gateways::Addresses;
use crate::net::{CellNet, NODES};
use crate::other_programs::{Disruption, Logs, ROUNDS, disrupt, manual_block, start_script};
use crate::testbed::Testbed;
use casemate_test_support::{Process, eventually, skip};
use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;
use std::thread;
use std::time::Duration;

const PROGRAM: &str = "/usr/sbin/keepalived";
/// The IPv6 address in the configuration of the manual.
const V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The configuration of the manual, with the interfaces of the network and the program of the tests.
fn configuration() -> String {
    let text = manual_block("global_defs {");
    let program = format!("{} cell status", env!("CARGO_BIN_EXE_casemate"));
    text.replace("eth0", "out0").replace("eth1", "in0").replace("/usr/bin/casemate cell status", &program)
}

/// Starts keepalived on all gateways. Reports the skipped test and returns `None` if it is not installed.
fn start_all(net: &CellNet) -> Option<[Process; NODES]> {
    if !Path::new(PROGRAM).is_file() {
        skip("keepalived (Debian package keepalived)");
        return None;
    }
    let start = |index: usize| {
        let host = &net.gateways[index];
        let path = host.file("keepalived.conf");
        fs::write(&path, configuration()).unwrap();
        let script = format!(
            "{PROGRAM} --vrrp --dont-fork --log-console --log-detail --use-file={} --pid={} --vrrp_pid={}",
            path.display(),
            host.file("keepalived.pid").display(),
            host.file("vrrp.pid").display(),
        );
        start_script(host, "keepalived", &script)
    };
    Some([0, 1, 2].map(start))
}

fn addresses_follow_the_owner(test: &str, rounds: usize) {
    let Some(net) = CellNet::build(test) else { return };
    let Some(keepalived) = start_all(&net) else { return };
    let Some(mut testbed) = Testbed::cell_with_addresses(&net, Addresses::OtherProgram) else { return };
    let _logs = Logs(&keepalived);
    for (disruption, limit) in [
        (Disruption::Kill, Duration::from_secs(5)),
        (Disruption::Stop, Duration::from_secs(3)),
        (Disruption::PowerOff, Duration::from_secs(5)),
        (Disruption::CutServers, Duration::from_secs(5)),
        (Disruption::Suspend, Duration::from_secs(6)),
    ] {
        disrupt(&net, &mut testbed, disruption, rounds, limit);
        let owner = testbed.gateways.wait_for_owner(None);
        eventually("the owner has the IPv6 address", || (net.holders(V6) == [owner]).then_some(()));
    }
    testbed.finish();
}

#[test]
fn keepalived_moves_the_addresses() {
    addresses_follow_the_owner("keepalived_moves_the_addresses", 1);
}

#[test]
#[ignore = "takes minutes: cargo xtask cell"]
fn keepalived_moves_the_addresses_many_times() {
    addresses_follow_the_owner("keepalived_moves_the_addresses_many_times", ROUNDS);
}

/// The owner keeps the addresses while it cannot renew its lease.
#[test]
fn keepalived_leaves_the_addresses_without_servers() {
    let Some(net) = CellNet::build("keepalived_leaves_the_addresses_without_servers") else { return };
    let Some(keepalived) = start_all(&net) else { return };
    let Some(mut testbed) = Testbed::cell_with_addresses(&net, Addresses::OtherProgram) else { return };
    let _logs = Logs(&keepalived);
    let ((), deliveries) = testbed.during(|testbed| {
        let owner = testbed.gateways.wait_for_owner(None);
        testbed.servers.as_mut().unwrap().kill_all();
        testbed.gateways.wait_for_role(owner, "fenced");
        thread::sleep(Duration::from_secs(5));
        testbed.servers.as_mut().unwrap().start_all();
        assert_eq!(testbed.gateways.wait_for_owner(None), owner);
        thread::sleep(Duration::from_secs(2));
    });
    testbed.check_uninterrupted(&deliveries);
    testbed.finish();
}
