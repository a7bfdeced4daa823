//! `%unique`: each Child SA has an interface of its own, so that clients with the same traffic work side by
//! side.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod charon;
#[allow(dead_code, reason = "other tests use the rest")]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{TempDir, write_program};
use charon::Charon;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use testnet::{Host, Side, TestNet, eventually};

const SECRETS: &str = "secrets { ike { secret = \"a secret of all\" } }\n";

/// One of the clients, which are one host with an interface for each.
fn client(name: &str, id: u32) -> String {
    format!(
        "{name} {{\n local_addrs = 192.0.2.1\n remote_addrs = 192.0.2.2\n\
         local {{ auth = psk\n id = {name} }}\n remote {{ auth = psk\n id = gateway }}\n\
         children {{ {name} {{ local_ts = 0.0.0.0/0\n remote_ts = 0.0.0.0/0\n if_id_in = {id}\n \
         if_id_out = {id} }} }} }}\n"
    )
}

fn clients() -> String {
    format!("connections {{\n {}{} }}\n{SECRETS}", client("one", 1), client("two", 2))
}

/// The gateway, with these keys of its connection and its child.
fn gateway(connection: &str, child: &str) -> String {
    format!(
        "connections {{ rw {{\n local_addrs = 192.0.2.2\n {connection}\n\
         local {{ auth = psk\n id = gateway }}\n remote {{ auth = psk }}\n\
         children {{ net {{ local_ts = 0.0.0.0/0\n remote_ts = 0.0.0.0/0\n {child} }} }} }} }}\n{SECRETS}"
    )
}

fn casemate(host: &Host, args: &[&str]) {
    let output = host.casemate(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Names of the interfaces of tunnels.
fn interfaces(host: &Host) -> Vec<String> {
    let text = host.stdout_of("ip", &["-o", "link"]);
    let names = text.lines().filter_map(|line| Some(line.split(": ").nth(1)?.to_owned()));
    names.filter(|name| name.starts_with("ipsec") || name.starts_with("vti")).collect()
}

/// The Child SA of the IKE SA with this peer identity.
fn child_of(host: &Host, peer: &str) -> Value {
    let status = host.status();
    let ikes = status["ike_sas"].as_array().unwrap();
    let of = |sa: &&Value| sa["peer"].as_str().unwrap_or_default().contains(peer);
    let sa = ikes.iter().find(of).unwrap_or_else(|| panic!("no IKE SA with {peer}: {ikes:?}"));
    sa["children"][0].clone()
}

fn packets(host: &Host, peer: &str) -> [u64; 2] {
    let child = child_of(host, peer);
    ["packets_in", "packets_out"].map(|name| child[name].as_u64().unwrap())
}

/// The second inner address of a host.
fn second(side: Side) -> IpAddr {
    [10, if side == Side::Left { 1 } else { 2 }, 0, 2].into()
}

/// Routes of the clients: each inner address of the gateway is behind one of the tunnels. Both clients have
/// the same inner address.
fn route_clients(host: &Host) {
    let own = Side::Left.inner(true).to_string();
    for (peer, interface) in [(Side::Right.inner(true), "ipsec1"), (second(Side::Right), "ipsec2")] {
        host.stdout_of("ip", &["route", "replace", &peer.to_string(), "dev", interface, "src", &own]);
    }
}

/// Routes of the gateway: what it sends from an inner address goes into an interface.
fn route_gateway(host: &Host, table: u32, from: IpAddr, interface: &str) {
    let (from, table) = (from.to_string(), table.to_string());
    host.stdout_of("ip", &["route", "replace", "10.1.0.0/16", "dev", interface, "table", &table]);
    let rules = host.stdout_of("ip", &["rule"]);
    if !rules.contains(&format!("lookup {table}")) {
        host.stdout_of("ip", &["rule", "add", "pref", "150", "from", &from, "lookup", &table]);
    }
}

/// Two clients with the same addresses and the same traffic, as behind one NAT.
#[test]
fn clients_with_the_same_traffic_work_side_by_side() {
    let Some(net) = TestNet::build("unique_clients") else { return };
    net.right.stdout_of("ip", &["addr", "add", "10.2.0.2/32", "dev", "lo"]);
    let (first, last) = (Side::Right.inner(true), second(Side::Right));
    let right = net.right.run_config(&gateway("", "if_id_in = %unique\n if_id_out = %unique"), None);
    let left = net.left.run_config(&clients(), None);
    let log = || format!("{}{}", left.log(), right.log());
    route_clients(&net.left);
    assert!(interfaces(&net.right).is_empty(), "no Child SA, no interface");
    casemate(&net.left, &["initiate", "one"]);
    casemate(&net.left, &["initiate", "two"]);
    eventually("both interfaces", || interfaces(&net.right) == ["ipsec900001", "ipsec900002"]);
    assert_eq!(child_of(&net.right, "one")["interface_in"], "ipsec900001");
    assert_eq!(child_of(&net.right, "two")["interface_out"], "ipsec900002");
    route_gateway(&net.right, 101, first, "ipsec900001");
    route_gateway(&net.right, 102, last, "ipsec900002");
    assert!(net.left.pings(first, 8) && net.left.pings(last, 8), "{}", log());
    let before = ["one", "two"].map(|peer| packets(&net.right, peer));
    for _ in 0..3 {
        assert!(net.left.pings(last, 1_200), "{}", log());
    }
    let after = ["one", "two"].map(|peer| packets(&net.right, peer));
    assert_eq!(after, [before[0], before[1].map(|count| count + 3)], "only the second client is concerned");

    // Rekeying keeps the interfaces, and routes into them.
    for name in ["one", "two"] {
        casemate(&net.left, &["rekey", &format!("{name}/{name}")]);
        casemate(&net.right, &["rekey", "rw", "--ike"]);
    }
    assert!(net.left.pings(first, 8) && net.left.pings(last, 8), "{}", log());
    assert_eq!(interfaces(&net.right), ["ipsec900001", "ipsec900002"]);

    // The first client disconnects, and its interface is removed. Packets routed there reach no client.
    casemate(&net.left, &["terminate", "one"]);
    eventually("the first interface is gone", || interfaces(&net.right) == ["ipsec900002"]);
    let before = packets(&net.right, "two");
    assert!(!net.left.pings_at_once(first, 8), "{}", log());
    assert_eq!(packets(&net.right, "two"), before);
    assert!(net.left.pings(last, 8), "{}", log());

    // It comes back with another number.
    casemate(&net.left, &["initiate", "one"]);
    eventually("a new interface", || interfaces(&net.right) == ["ipsec900002", "ipsec900003"]);
    route_gateway(&net.right, 101, first, "ipsec900003");
    assert!(net.left.pings(first, 8) && net.left.pings(last, 8), "{}", log());

    // A crash leaves nothing, and the next run begins anew.
    right.crash();
    assert!(interfaces(&net.right).is_empty());
    let right = net.right.run_config(&gateway("", "if_id_in = %unique\n if_id_out = %unique"), None);
    assert!(interfaces(&net.right).is_empty());
    assert!(left.stop().success() && right.stop().success());
}

/// At the connection, the numbers belong to an IKE SA: its Child SAs share the interfaces. swanctl shows
/// them.
#[test]
fn child_sas_share_the_interfaces_of_their_connection() {
    let Some(net) = TestNet::build("unique_connection") else { return };
    let Some(swanctl) = swanctl::Swanctl::new(
        &net.right,
        &gateway(
            "if_id_in = %unique-dir\n if_id_out = \
        %unique-dir",
            "",
        ),
    ) else {
        return;
    };
    let right = net.right.run_vici(&[]);
    swanctl.output(&["--load-all", "--noprompt"]);
    let left = net.left.run_config(&clients(), None);
    route_clients(&net.left);
    casemate(&net.left, &["initiate", "one"]);
    eventually("both interfaces", || interfaces(&net.right) == ["ipsec900001", "ipsec900002"]);
    let raw = swanctl.output(&["--list-sas", "--raw"]);
    // The section of the IKE SA has them, and that of the Child SA.
    assert!(raw.contains("if-id-in=000dbba2 if-id-out=000dbba1"), "{raw}");
    assert_eq!(raw.matches("if-id-in=").count(), 2, "{raw}");
    net.right.stdout_of("ip", &["route", "add", "10.1.0.1", "dev", "ipsec900001", "src", "10.2.0.1"]);
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}{}", left.log(), right.log());
    casemate(&net.left, &["initiate", "two"]);
    eventually("two for each client", || interfaces(&net.right).len() == 4);
    casemate(&net.left, &["terminate", "one"]);
    eventually("those of the first are gone", || interfaces(&net.right) == ["ipsec900003", "ipsec900004"]);
    assert!(left.stop().success() && right.stop().success());
    assert!(interfaces(&net.right).is_empty());
}

/// With marks, the updown script learns the mark and lets the packets of its client have it. A Child SA whose
/// interface cannot be made is closed.
#[test]
fn scripts_learn_marks() {
    let Some(net) = TestNet::build("unique_marks") else { return };
    // The script runs as another user.
    let directory = TempDir::new("unique-script").unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let (script, log) = (directory.file("script"), directory.file("environment"));
    let text = format!(
        "#!/bin/sh\necho \"$PLUTO_VERB $PLUTO_INTERFACE $PLUTO_MARK_IN $PLUTO_MARK_OUT\" >> {}\n",
        log.display()
    );
    write_program(&script, text.as_bytes());
    let child = format!("mark_in = %unique\n mark_out = %unique\n updown = {}", script.display());
    net.right.stdout_of("ip", &["tuntap", "add", "dev", "vti900002", "mode", "tun"]);
    let right = net.right.run_config(&gateway("", &child), None);
    let left = net.left.run_config(&clients(), None);
    let both = || format!("{}{}", left.log(), right.log());
    route_clients(&net.left);
    casemate(&net.left, &["initiate", "one"]);
    let lines = || fs::read_to_string(&log).unwrap_or_default();
    let mark = "900001/0xffffffff";
    let up = format!("up-client vti900001 {mark} {mark}\n");
    eventually("the script runs", || lines() == up);
    let rules = || net.right.stdout_of("ip", &["rule"]);
    assert!(rules().contains("fwmark 0xdbba1"), "{}", rules());
    let nft = "add table inet m; add chain inet m out { type route hook output priority -150; }; \
               add rule inet m out ip saddr 10.2.0.1 meta mark set 900001";
    net.right.stdout_of("nft", &[nft]);
    // The route before the mark is set.
    net.right.stdout_of("ip", &["route", "add", "10.1.0.0/16", "via", "192.0.2.1"]);
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}", both());

    // Another program has the next name.
    let failed = net.left.casemate(&["initiate", "two"]);
    eventually("the Child SA is refused", || right.log().contains("vti900002"));
    eventually("the Child SA is closed", || {
        net.right.status()["ike_sas"].as_array().unwrap().iter().all(|sa| {
            sa["peer"].as_str().unwrap_or_default().contains("one") || sa["children"] == Value::Array(vec![])
        })
    });
    assert!(right.log().contains("there is no interface for its `%unique`"), "{failed:?} {}", both());
    assert_eq!(lines(), up, "no script runs for it");
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}", both());

    casemate(&net.left, &["terminate", "one"]);
    eventually("the script runs again", || lines().ends_with(&up.replace("up-", "down-")));
    eventually("the rules are gone", || !rules().contains("fwmark 0xdbba1"));
    assert!(left.stop().success() && right.stop().success());
}

/// strongSwan as a client.
#[test]
fn charon_is_a_client() {
    let Some(net) = TestNet::build("unique_charon") else { return };
    let child = "if_id_in = %unique\n if_id_out = %unique";
    let left = net.left.run_config(&gateway("", child).replace("192.0.2.2", "192.0.2.1"), None);
    let peer = client("one", 0).replace("local_addrs = 192.0.2.1", "local_addrs = 192.0.2.2");
    let peer = peer.replace("remote_addrs = 192.0.2.2", "remote_addrs = 192.0.2.1");
    // charon routes what its selectors name into its tunnel, so they do not contain its peer.
    let peer = peer.replace("remote_ts = 0.0.0.0/0", "remote_ts = 10.1.0.0/16");
    let Some(charon) = Charon::start(&net.right, &format!("connections {{ {peer} }}\n{SECRETS}")) else {
        return;
    };
    charon.swanctl.output(&["--initiate", "--child", "one"]);
    eventually("the interface", || interfaces(&net.left) == ["ipsec900001"]);
    let (here, there) = (Side::Left.inner(true).to_string(), Side::Right.inner(true));
    net.left.stdout_of("ip", &["route", "add", &there.to_string(), "dev", "ipsec900001", "src", &here]);
    assert!(net.left.pings(there, 8), "{}{}", left.log(), charon.log());
    assert!(net.left.tcp_round_trip(&net.right, there, 100_000), "{}{}", left.log(), charon.log());
    charon.swanctl.output(&["--rekey", "--child", "one"]);
    assert!(net.left.pings(there, 8), "{}{}", left.log(), charon.log());
    charon.swanctl.output(&["--terminate", "--ike", "one"]);
    eventually("it is gone", || interfaces(&net.left).is_empty());
    assert!(left.stop().success());
}
