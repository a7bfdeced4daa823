//! Networks that do not carry the packets of a tunnel.

use crate::testnet::{Host, Side, TestNet, WIRE};
use crate::tunnel::{BrokenTunnel, set};
use std::fs;
use std::time::Duration;

/// The second repetition of a request, with its hint, follows after three seconds.
const SECOND_REPETITION: Duration = Duration::from_secs(4);
const AT_ONCE: Duration = Duration::from_secs(1);

/// A packet filter in front of the right host that drops these packets.
fn drop_before_right(net: &TestNet, packets: &str) {
    for rule in [
        "add table inet way".to_owned(),
        "add chain inet way in { type filter hook prerouting priority -400; }".to_owned(),
        format!("add rule inet way in iifname {WIRE} {packets} drop"),
    ] {
        let words: Vec<&str> = rule.split(' ').collect();
        net.right.stdout_of("nft", &words);
    }
}

#[test]
fn the_peer_is_down() {
    let Some(net) = TestNet::build("the_peer_is_down") else { return };
    let tunnel = BrokenTunnel::start_left_on(net, |_| {});
    let sent = "IKE_SA_INIT request to 192.0.2.2:500 from 192.0.2.1:500: sent again, 2 of 6";
    let hint = "no response at all: the peer is down, the address is wrong, a route is missing, or UDP port 500 \
                is blocked on the way";
    tunnel.log_names(Side::Left, &[sent, hint], SECOND_REPETITION);
    let status = tunnel.net.left.status();
    let connection = &status["connections"][0];
    assert_eq!([&connection["name"], &connection["state"]], ["gw", "connecting"], "{connection}");
    assert!(connection["last_error"]["text"].as_str().unwrap().contains("sent again"), "{connection}");
    assert!(connection["next_attempt_seconds"].as_f64().unwrap() <= 60.0, "{connection}");
    let shown = tunnel.net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["status"]);
    assert!(shown.contains("\nConnections\n") && shown.contains("  gw  connecting  192.0.2.2 "), "{shown}");
    let unknown = tunnel.net.left.casemate(&["why", "nothing"]);
    let error = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(error, "casemate: nothing: no connection, no child and no peer has this name\n");
    tunnel.why_names(
        Side::Left,
        &["gw: connecting", "the peer has never responded", hint, "192.0.2.2: on wire0"],
    );
}

#[test]
fn an_interface_has_no_carrier() {
    let Some(net) = TestNet::build("an_interface_has_no_carrier") else { return };
    let tunnel = BrokenTunnel::start_on(net, |_, _| {});
    tunnel.net.left.wait_until(|status| status["connections"][0]["state"] == "up");
    tunnel.net.right.stdout_of("ip", &["link", "set", WIRE, "down"]);
    let first = format!("\nFindings:\n  {WIRE}, on the route to the peer, has no carrier");
    tunnel.why_names_eventually(Side::Left, &first);
    tunnel.why_names(Side::Left, &[&format!("Try:\n  - plug in the cable of {WIRE}")]);
}

#[test]
fn there_is_no_route_to_the_peer() {
    let Some(net) = TestNet::build("there_is_no_route_to_the_peer") else { return };
    let tunnel = BrokenTunnel::start_on(net, |_, _| {});
    tunnel.net.left.wait_until(|status| status["connections"][0]["state"] == "up");
    tunnel.net.left.stdout_of("ip", &["address", "flush", "dev", WIRE, "scope", "global"]);
    tunnel.why_names_eventually(Side::Left, "\nFindings:\n  there is no route to the peer: 192.0.2.2\n");
    tunnel.why_names(Side::Left, &["Try:\n  - add a route to the peer or a default route"]);
}

#[test]
fn a_peer_is_heard_when_its_packets_arrive() {
    let Some(net) = TestNet::build("a_peer_is_heard_when_its_packets_arrive") else { return };
    let tunnel = BrokenTunnel::start_on(net, |_, _| {});
    let heard = || tunnel.net.left.status()["connections"][0]["last_heard_seconds"].as_f64();
    tunnel.net.left.wait_until(|status| status["connections"][0]["last_heard_seconds"].as_f64() > Some(3.0));
    assert!(tunnel.net.left.pings(Side::Right.inner(true), 8));
    assert!(heard() < Some(3.0), "{:?}", heard());
}

#[test]
fn udp_port_500_is_blocked() {
    let Some(net) = TestNet::build("udp_port_500_is_blocked") else { return };
    drop_before_right(&net, "udp dport 500");
    let tunnel = BrokenTunnel::start_on(net, |_, _| {});
    tunnel.log_names(Side::Left, &["UDP port 500 is blocked on the way"], SECOND_REPETITION);
    tunnel.why_names(Side::Left, &["UDP port 500", "tcpdump udp port 500"]);
    tunnel.why_names(Side::Right, &["no event of this connection since the start"]);
}

#[test]
fn udp_port_4500_is_blocked() {
    let Some(net) = TestNet::build("udp_port_4500_is_blocked") else { return };
    drop_before_right(&net, "udp dport 4500");
    let tunnel = BrokenTunnel::start_on(net, |left, right| {
        // As behind a NAT.
        set(&mut left.connection, "encap", "yes");
        set(&mut right.connection, "encap", "yes");
        // With ML-KEM, the first request on this port is not IKE_AUTH.
        set(&mut left.connection, "proposals", "default");
        set(&mut right.connection, "proposals", "default");
    });
    let hint = "the peer responded on the IKE port before: UDP port 4500 is blocked on the way";
    tunnel.log_names(Side::Left, &["IKE_INTERMEDIATE request to 192.0.2.2:4500", hint], SECOND_REPETITION);
    tunnel.why_names(Side::Left, &[hint, "let UDP port 4500 pass"]);
}

#[test]
fn esp_is_dropped_on_the_way() {
    let Some(net) = TestNet::build("esp_is_dropped_on_the_way") else { return };
    // On the wire: packet sockets receive ESP before the packet filter of the host.
    let filter = format!(
        "table netdev way {{ chain out {{ type filter hook egress device {WIRE} priority 0; ip protocol esp drop; }}; }}"
    );
    net.left.stdout_of("nft", &[&filter]);
    let tunnel = BrokenTunnel::start_on(net, |_, _| {});
    tunnel.log_names(Side::Left, &["gw/net{1}: esp aes128gcm16 tunnel"], AT_ONCE);
    // Algorithms are written as in the configuration, with the crypto provider.
    let status = tunnel.net.left.status();
    let sa = &status["ike_sas"][0];
    assert_eq!(
        [&sa["proposal"], &sa["children"][0]["proposal"]],
        ["aes128gcm16-prfsha256-x25519", "aes128gcm16"]
    );
    assert_eq!([&status["sas"][0]["suite"], &status["connections"][0]["state"]], ["aes128gcm16", "up"]);
    for sa in status["sas"].as_array().unwrap() {
        assert!(sa["provider"].as_str().is_some_and(|name| name != "none"), "{sa}");
    }
    assert!(!tunnel.net.left.pings_at_once(Side::Right.inner(true), 8));
    let cause = "left and none has arrived: ESP (IP protocol 50) is blocked on the way";
    tunnel.why_names_eventually(Side::Left, cause);
    tunnel.why_names(Side::Left, &["gw: up", cause, "encap = yes sends ESP in UDP"]);
}

#[test]
fn this_host_does_not_forward() {
    let Some(net) = TestNet::build("this_host_does_not_forward") else { return };
    let set_forwarding = |host: &Host, value: &str| {
        host.run(|| fs::write("/proc/sys/net/ipv4/ip_forward", value)).unwrap();
    };
    [&net.left, &net.right].into_iter().for_each(|host| set_forwarding(host, "0"));
    let tunnel = BrokenTunnel::start_on(net, |left, right| {
        set(&mut left.child, "local_ts", "10.1.0.0/16");
        set(&mut right.child, "remote_ts", "10.1.0.0/16");
    });
    tunnel.log_names(Side::Left, &["gw/net{1}: esp aes128gcm16 tunnel"], AT_ONCE);
    let fact = "net.ipv4.ip_forward = 0: this host forwards no packets, and local_ts = 10.1.0.0/16 has more addresses \
                than its own";
    tunnel.why_names(Side::Left, &[fact, "`sysctl -w net.ipv4.ip_forward=1`"]);
    // The traffic of the right host is its own.
    assert!(!tunnel.why(Side::Right).contains("ip_forward"), "{}", tunnel.why(Side::Right));
    set_forwarding(&tunnel.net.left, "1");
    assert!(!tunnel.why(Side::Left).contains("ip_forward = 0"), "{}", tunnel.why(Side::Left));
}

#[test]
fn this_host_has_no_route_to_the_peer() {
    let tunnel = BrokenTunnel::start("this_host_has_no_route_to_the_peer", |left, _| {
        left.connection.retain(|(name, _)| *name != "local_addrs");
        set(&mut left.connection, "remote_addrs", "198.51.100.7");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "there is no route to the peer";
    tunnel.log_names(Side::Left, &[cause, "remote_addrs = 198.51.100.7"], AT_ONCE);
    tunnel.why_names(Side::Left, &[cause, "198.51.100.7: no route", "add a route to 198.51.100.7"]);
}

#[test]
fn this_host_does_not_have_its_local_address() {
    let tunnel = BrokenTunnel::start("this_host_does_not_have_its_local_address", |left, _| {
        set(&mut left.connection, "local_addrs", "192.0.2.77");
    });
    let Some(tunnel) = tunnel else { return };
    tunnel.log_names(
        Side::Left,
        &["connection gw: local_addrs = 192.0.2.77 is not an address of this host"],
        AT_ONCE,
    );
    tunnel.log_names(
        Side::Left,
        &["an interface with 192.0.2.77 and a route to 192.0.2.2 were expected"],
        AT_ONCE,
    );
    tunnel.why_names(Side::Left, &["local_addrs = 192.0.2.77 is not an address of this host"]);
}
