//! Route-based tunnels: interfaces with an ID, and routes that decide which packets enter which tunnel.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod charon;
#[allow(dead_code, reason = "other tests use the rest")]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_linux::netlink::Netlink;
use charon::Charon;
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;
use swanctl::Swanctl;
use testnet::{Host, Side, TestNet, WIRE, eventually};

const SECRETS: &str = "secrets { ike { secret = \"a secret of the two\" } }\n";

/// A tunnel for all IPv4 traffic, with a connection of this name and these keys of its child.
fn tunnel(side: Side, name: &str, child: &str) -> String {
    format!(
        "{name} {{\n local_addrs = {}\n remote_addrs = {}\n local {{ auth = psk\n id = {side:?}-{name} }}\n\
         remote {{ auth = psk\n id = {:?}-{name} }}\n\
         children {{ {name} {{ local_ts = 0.0.0.0/0\n remote_ts = 0.0.0.0/0\n {child} }} }} }}\n",
        side.outer(true),
        side.other().outer(true),
        side.other(),
    )
}

fn conf(connections: &[String]) -> String {
    format!("connections {{\n{} }}\n{SECRETS}", connections.concat())
}

fn reload(host: &Host, conf: &str) {
    std::fs::write(host.file("conf"), conf).unwrap();
    let output = host.casemate(&["reload"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn initiate(host: &Host, connection: &str) {
    let output = host.casemate(&["initiate", connection]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Packets that the Child SA of this connection has sent.
fn sent(host: &Host, connection: &str) -> u64 {
    let status = host.status();
    let mut of = status["ike_sas"].as_array().unwrap().iter().filter(|sa| sa["name"] == connection);
    of.next().unwrap()["children"][0]["packets_out"].as_u64().unwrap()
}

/// The second inner address of a host.
fn second(side: Side) -> IpAddr {
    [10, if side == Side::Left { 1 } else { 2 }, 0, 2].into()
}

/// Routes the peer's two inner addresses into one interface each.
fn route(host: &Host, first: &str, last: &str) {
    let own = host.side.inner(true).to_string();
    let peers = [(host.side.other().inner(true), first), (second(host.side.other()), last)];
    for (peer, interface) in peers {
        let peer = peer.to_string();
        host.stdout_of("ip", &["route", "replace", &peer, "dev", interface, "src", &own]);
    }
}

fn has_interface(host: &Host, name: &str) -> bool {
    host.output("ip", &["link", "show", "dev", name]).status.success()
}

fn drops(host: &Host, reason: &str) -> u64 {
    host.status()["drops"][reason].as_u64().unwrap()
}

/// Two tunnels with the same selectors: routes decide, and a tunnel that is down leaks nothing.
#[test]
fn routes_decide_between_tunnels() {
    let Some(net) = TestNet::build("routes_decide_between_tunnels") else { return };
    for host in [&net.left, &net.right] {
        host.stdout_of("ip", &["addr", "add", &format!("{}/32", second(host.side)), "dev", "lo"]);
        // Where the packets would go in clear.
        let peer = host.side.other();
        for inner in [peer.inner(true), second(peer)] {
            let via = peer.outer(true).to_string();
            host.stdout_of("ip", &["route", "add", &inner.to_string(), "via", &via, "metric", "9"]);
        }
    }
    let (first, last) = (Side::Right.inner(true), second(Side::Right));
    assert!(net.left.pings(first, 8) && net.left.pings(last, 8), "in clear, before");
    let of = |side| {
        let one = tunnel(side, "one", "if_id_in = 1\n if_id_out = 1");
        conf(&[one, tunnel(side, "two", "if_id_in = 0x2\n if_id_out = 2\n interface = blue")])
    };
    let right = net.right.run_config(&of(Side::Right), None);
    let left = net.left.run_config(&of(Side::Left), None);
    assert!(net.left.pings(first, 8), "no route leads into a tunnel");
    route(&net.left, "ipsec1", "blue");
    route(&net.right, "ipsec1", "blue");
    assert!(!net.left.pings_at_once(first, 8), "without an SA: {}", left.log());
    assert!(drops(&net.left, "no-policy") > 0);
    initiate(&net.left, "one");
    assert!(net.left.pings(first, 8), "{}{}", left.log(), right.log());
    assert!(!net.left.pings_at_once(last, 8), "the other tunnel is down");
    initiate(&net.left, "two");
    let before = sent(&net.left, "one");
    for _ in 0..3 {
        assert!(net.left.pings(last, 1_200), "{}{}", left.log(), right.log());
    }
    assert_eq!((sent(&net.left, "one"), sent(&net.left, "two")), (before, 3));
    // Routes change while both tunnels are up. The answers still come through the other tunnel.
    route(&net.left, "blue", "ipsec1");
    assert!(net.left.pings(first, 8), "{}{}", left.log(), right.log());
    assert_eq!((sent(&net.left, "one"), sent(&net.left, "two")), (before, 4));
    route(&net.right, "blue", "ipsec1");
    assert!(net.left.tcp_round_trip(&net.right, first, 300_000), "{}", left.log());
    assert!(left.stop().success() && right.stop().success());
    assert!(!has_interface(&net.left, "ipsec1") && !has_interface(&net.left, "blue"));
}

/// The first packet that is routed into an interface with a trap sets the tunnel up and waits for it.
#[test]
fn a_trap_at_an_interface_sets_the_tunnel_up() {
    let Some(net) = TestNet::build("a_trap_at_an_interface") else { return };
    let ids = "if_id_in = 7\n if_id_out = 7";
    let right = net.right.run_config(&conf(&[tunnel(Side::Right, "t", ids)]), None);
    let trap = tunnel(Side::Left, "t", &format!("{ids}\n start_action = trap"));
    let left = net.left.run_config(&conf(&[trap]), None);
    assert!(net.left.pings(Side::Right.outer(true), 8), "no policy concerns other traffic");
    let (here, there) = (Side::Left.inner(true).to_string(), Side::Right.inner(true).to_string());
    net.left.stdout_of("ip", &["route", "add", &there, "dev", "ipsec7", "src", &here]);
    net.right.stdout_of("ip", &["route", "add", &here, "dev", "ipsec7"]);
    assert!(net.left.pings_first_time(Side::Right.inner(true), 8), "{}{}", left.log(), right.log());
    assert!(left.stop().success() && right.stop().success());
}

/// A reload adds and removes interfaces; those of other tunnels, and routes into them, stay.
#[test]
fn a_reload_adds_and_removes_interfaces() {
    let Some(net) = TestNet::build("a_reload_adds_and_removes_interfaces") else { return };
    let one = |side| tunnel(side, "one", "if_id_in = 1\n if_id_out = 1");
    let two = |side| tunnel(side, "two", "if_id_in = 2\n if_id_out = 3");
    let right = net.right.run_config(&conf(&[one(Side::Right), two(Side::Right)]), None);
    let left = net.left.run_config(&conf(&[one(Side::Left)]), None);
    let index = || net.left.stdout_of("ip", &["-o", "link", "show", "dev", "ipsec1"]);
    let before = index();
    route(&net.left, "ipsec1", WIRE);
    let here = Side::Left.inner(true).to_string();
    net.right.stdout_of("ip", &["route", "add", &here, "dev", "ipsec1"]);
    initiate(&net.left, "one");
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}", left.log());
    reload(&net.left, &conf(&[one(Side::Left), two(Side::Left)]));
    assert!(has_interface(&net.left, "ipsec2") && has_interface(&net.left, "ipsec3"));
    assert!(net.left.pings_at_once(Side::Right.inner(true), 8), "{}", left.log());
    // One interface for each direction.
    initiate(&net.left, "two");
    route(&net.left, "ipsec3", WIRE);
    net.right.stdout_of("ip", &["route", "replace", &here, "dev", "ipsec3"]);
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}{}", left.log(), right.log());
    route(&net.left, "ipsec1", WIRE);
    net.right.stdout_of("ip", &["route", "replace", &here, "dev", "ipsec1"]);
    reload(&net.left, &conf(&[one(Side::Left)]));
    assert!(!has_interface(&net.left, "ipsec2") && !has_interface(&net.left, "ipsec3"));
    assert!(!left.log().contains("is not removed"), "{}", left.log());
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}", left.log());
    assert_eq!(index(), before);
    // A name that another interface has is refused, and nothing changes.
    let taken = tunnel(Side::Left, "two", &format!("if_id_in = 2\n if_id_out = 2\n interface = {WIRE}"));
    std::fs::write(net.left.file("conf"), conf(&[one(Side::Left), taken])).unwrap();
    let output = net.left.casemate(&["reload"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains(WIRE), "{text}");
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}", left.log());
    assert!(left.stop().success() && right.stop().success());
}

/// The interface outlives the process with its address and the routes into it, so that nothing leaves in
/// clear before the next run has set the tunnel up again.
#[test]
fn nothing_leaves_in_clear_after_a_crash_and_during_a_restart() {
    let test = "nothing_leaves_in_clear_after_a_crash_and_during_a_restart";
    let Some(net) = TestNet::build(test) else { return };
    for host in [&net.left, &net.right] {
        // Where the packets would go in clear.
        let (inner, via) =
            (host.side.other().inner(true).to_string(), host.side.other().outer(true).to_string());
        host.stdout_of("ip", &["route", "add", &inner, "via", &via, "metric", "9"]);
    }
    let ids = "if_id_in = 7\n if_id_out = 7";
    let right = net.right.run_config(&conf(&[tunnel(Side::Right, "t", ids)]), None);
    let of = |id: u8| {
        let ids = format!("if_id_in = {id}\n if_id_out = {id}\n start_action = start");
        conf(&[tunnel(Side::Left, "t", &ids)])
    };
    let mut left = net.left.run_config(&of(7), None);
    let (here, there) = (Side::Left.inner(true).to_string(), Side::Right.inner(true));
    net.left.stdout_of("ip", &["address", "add", "10.255.7.1/30", "dev", "ipsec7"]);
    net.left.stdout_of("ip", &["route", "add", &there.to_string(), "dev", "ipsec7", "src", &here]);
    net.right.stdout_of("ip", &["route", "add", &here, "dev", "ipsec7"]);
    assert!(net.left.pings(there, 8), "{}{}", left.log(), right.log());
    let index = || net.left.run(|| Netlink::open()?.link("ipsec7")).unwrap().index;
    let before = index();
    for crashes in [true, false, true] {
        if crashes {
            left.crash();
        } else {
            assert!(left.end_for_restart().success());
        }
        for _ in 0..2 {
            assert!(!net.left.pings_at_once(there, 8), "in clear, {crashes}");
        }
        left = net.left.run_config(&of(7), None);
        assert!(net.left.pings(there, 8), "{}{}", left.log(), right.log());
        assert!(sent(&net.left, "t") > 0);
        assert_eq!(index(), before);
    }
    assert!(net.left.stdout_of("ip", &["address", "show", "dev", "ipsec7"]).contains("10.255.7.1/30"));
    // The next configuration does not have it any more.
    left.crash();
    let left = net.left.run_config(&of(8), None);
    assert!(has_interface(&net.left, "ipsec8") && !has_interface(&net.left, "ipsec7"));
    assert!(net.left.pings(there, 8), "no route leads into a tunnel");
    left.crash();
    let cleaned = net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    assert!(cleaned.contains("removed: tunnel ipsec8 ") && !has_interface(&net.left, "ipsec8"), "{cleaned}");
    // An interface of another program that only has its name stays.
    net.left.run_config(&of(7), None).crash();
    net.left.stdout_of("ip", &["link", "delete", "ipsec7"]);
    net.left.stdout_of("ip", &["tuntap", "add", "dev", "ipsec7", "mode", "tun"]);
    net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    assert!(has_interface(&net.left, "ipsec7"));
    net.left.stdout_of("ip", &["link", "delete", "ipsec7"]);
    let left = net.left.run_config(&of(7), None);
    assert!(left.stop().success() && right.stop().success());
    assert!(!has_interface(&net.left, "ipsec7"), "an orderly end removes it");
    let rules = net.left.stdout_of("ip", &["rule"]);
    assert_eq!(rules.lines().count(), 3, "{rules}");
}

/// A client of vici loads the configuration after the start; until then, the interface stays as it is.
#[test]
fn an_interface_waits_for_the_client_of_vici() {
    let Some(net) = TestNet::build("an_interface_waits_for_the_client_of_vici") else { return };
    let ids = "if_id_in = 7\n if_id_out = 7";
    let loaded = conf(&[tunnel(Side::Left, "t", &format!("{ids}\n start_action = trap"))]);
    let Some(swanctl) = Swanctl::new(&net.left, &loaded) else { return };
    let right = net.right.run_config(&conf(&[tunnel(Side::Right, "t", ids)]), None);
    let (here, there) = (Side::Left.inner(true).to_string(), Side::Right.inner(true));
    let index = || net.left.run(|| Netlink::open()?.link("ipsec7")).unwrap().index;
    let left = net.left.run_vici(&[]);
    swanctl.output(&["--load-all", "--noprompt"]);
    net.left.stdout_of("ip", &["route", "add", &there.to_string(), "dev", "ipsec7", "src", &here]);
    net.right.stdout_of("ip", &["route", "add", &here, "dev", "ipsec7"]);
    assert!(net.left.pings(there, 8), "{}{}", left.log(), right.log());
    let before = index();
    left.crash();
    let left = net.left.run_vici(&[]);
    assert!(!net.left.pings_at_once(there, 8), "{}", left.log());
    assert_eq!(index(), before);
    swanctl.output(&["--load-all", "--noprompt"]);
    assert!(net.left.pings(there, 8), "{}{}", left.log(), right.log());
    assert_eq!(index(), before);
    left.crash();
    let left = net.left.run_vici(&[]);
    assert!(left.stop().success() && right.stop().success());
    assert!(!has_interface(&net.left, "ipsec7"), "an orderly end removes it");
}

/// `mark_out` selects packets by their mark and the selectors, and `set_mark_in` marks what was decrypted.
#[test]
fn marks_select_packets() {
    let Some(net) = TestNet::build("marks_select_packets") else { return };
    let (here, there) = (Side::Left.inner(true), Side::Right.inner(true));
    let child = |side: Side, marks: &str| {
        let ts = format!("local_ts = {}\n remote_ts = {}", side.inner(true), side.other().inner(true));
        let text = tunnel(side, "t", marks);
        conf(&[text.replace("local_ts = 0.0.0.0/0\n remote_ts = 0.0.0.0/0", &ts)])
    };
    for (host, peer) in [(&net.left, there), (&net.right, here)] {
        let (via, own) = (host.side.other().outer(true).to_string(), host.side.inner(true).to_string());
        host.stdout_of("ip", &["route", "add", &peer.to_string(), "via", &via, "src", &own]);
    }
    let marks = |more: &str| {
        let keys = "mark_in = 0xa/0xffffffff\n mark_out = 10\n set_mark_in = %same\n start_action = trap";
        child(Side::Left, &format!("{keys}\n {more}"))
    };
    let left = net.left.run_config(&marks(""), None);
    let nft = |rules: &str| net.left.stdout_of("nft", &[rules]);
    nft("add table inet m; add chain inet m out { type route hook output priority -150; }; \
         add chain inet m in { type filter hook input priority 0; }; add rule inet m in meta mark 10 \
         counter");
    assert!(net.left.pings(there, 8), "without the mark, packets go in clear: {}", left.log());
    nft("add rule inet m out ip protocol icmp meta mark set 10");
    assert!(!net.left.pings_at_once(there, 8), "a trap holds packets with the mark: {}", left.log());
    assert!(net.left.pings(Side::Right.outer(true), 8), "packets outside of the selectors go in clear");
    let right = net.right.run_config(&child(Side::Right, ""), None);
    assert!(net.left.pings(there, 8), "{}{}", left.log(), right.log());
    assert!(sent(&net.left, "t") > 0);
    let counted = net.left.stdout_of("nft", &["list", "table", "inet", "m"]);
    assert!(!counted.contains("counter packets 0"), "{counted}");
    let rules = |host: &Host| host.stdout_of("ip", &["rule"]);
    assert!(rules(&net.left).contains("from all to 10.2.0.1 fwmark 0xa lookup"), "{}", rules(&net.left));
    left.crash();
    assert!(right.stop().success());
    assert!(!net.left.pings_at_once(there, 8), "a crash leaves a route that drops them");
    let left = net.left.run_config(&marks("interface = marked"), None);
    assert!(has_interface(&net.left, "marked") && !has_interface(&net.left, "vti10"));
    assert!(!net.left.pings_at_once(there, 8), "{}", left.log());
    // Without the child, nothing is left of it.
    reload(&net.left, &conf(&[tunnel(Side::Left, "u", "if_id_in = 1\n if_id_out = 1")]));
    assert!(!rules(&net.left).contains("fwmark 0xa"), "{}", rules(&net.left));
    assert!(net.left.pings(there, 8), "{}", left.log());
    reload(&net.left, &marks(""));
    assert!(rules(&net.left).contains("fwmark 0xa"), "{}", rules(&net.left));
    assert!(left.stop().success());
    assert_eq!(rules(&net.left).lines().count(), 3, "{}", rules(&net.left));
    assert!(!net.left.filter().contains("casemate-marks"), "{}", net.left.filter());
    assert!(net.left.pings(there, 8), "nothing of the tunnel is left");
}

/// Instead of `set_mark_out`: a rule with the mark of the instance and the address of the peer leads
/// protected packets to another link. Other packets to the peer stay where they were.
#[test]
fn a_rule_leads_protected_packets_to_another_link() {
    let Some(net) = TestNet::build("a_rule_leads_protected_packets") else { return };
    let link = "second";
    net.left.run(|| Netlink::open()?.add_veth(link, link, net.right.netns.as_fd())).unwrap();
    for (host, addr) in [(&net.left, "10.9.0.1/24"), (&net.right, "10.9.0.2/24")] {
        host.stdout_of("ip", &["addr", "add", addr, "dev", link]);
        host.stdout_of("ip", &["link", "set", link, "up"]);
    }
    let conf = |side: Side| side.connection("");
    let right = net.right.run_config(&conf(Side::Right), None);
    let left = net.left.run_config(&conf(Side::Left), None);
    let (inner, outer) = (Side::Right.inner(true), Side::Right.outer(true));
    assert!(net.left.pings(inner, 8), "{}{}", left.log(), right.log());
    let rules = net.left.stdout_of("ip", &["rule"]);
    let mark = rules.split_once("fwmark ").unwrap().1.split_whitespace().next().unwrap();
    let sent = || {
        let links: Value = serde_json::from_str(&net.left.stdout_of("ip", &["-s", "-j", "link"])).unwrap();
        let of_link = links.as_array().unwrap().iter().find(|one| one["ifname"] == link).unwrap();
        of_link["stats64"]["tx"]["packets"].as_u64().unwrap()
    };
    let peer = outer.to_string();
    net.left.stdout_of("ip", &["route", "add", &peer, "via", "10.9.0.2", "dev", link, "table", "100"]);
    let rule = ["rule", "add", "pref", "100", "fwmark", mark, "to", &peer, "lookup", "100"];
    net.left.stdout_of("ip", &rule);
    let ping = |dst: IpAddr| (0..20).for_each(|_| assert!(net.left.pings(dst, 8), "{}", left.log()));
    eventually("the rule applies", || {
        let before = sent();
        ping(inner);
        sent() >= before + 20
    });
    let before = sent();
    ping(outer);
    assert!(sent() < before + 20, "packets that are not protected");
    assert!(left.stop().success() && right.stop().success());
}

/// Of several tunnels at one interface, the selectors decide.
#[test]
fn tunnels_share_an_interface() {
    let Some(net) = TestNet::build("tunnels_share_an_interface") else { return };
    for host in [&net.left, &net.right] {
        host.stdout_of("ip", &["addr", "add", &format!("{}/32", second(host.side)), "dev", "lo"]);
    }
    let of = |side: Side, name: &str, peers: [IpAddr; 2]| {
        let [own, peer] = if side == Side::Left { peers } else { [peers[1], peers[0]] };
        let child = tunnel(side, name, "if_id_in = 5\n if_id_out = 5");
        let ts = format!("local_ts = {own}\n remote_ts = {peer}");
        child.replace("local_ts = 0.0.0.0/0\n remote_ts = 0.0.0.0/0", &ts)
    };
    let all = |side| {
        let here = Side::Left.inner(true);
        conf(&[
            of(side, "one", [here, Side::Right.inner(true)]),
            of(side, "two", [here, second(Side::Right)]),
        ])
    };
    let right = net.right.run_config(&all(Side::Right), None);
    let left = net.left.run_config(&all(Side::Left), None);
    route(&net.left, "ipsec5", "ipsec5");
    route(&net.right, "ipsec5", "ipsec5");
    initiate(&net.left, "one");
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}{}", left.log(), right.log());
    assert!(!net.left.pings_at_once(second(Side::Right), 8), "no SA has these selectors");
    initiate(&net.left, "two");
    let before = sent(&net.left, "one");
    assert!(net.left.pings(second(Side::Right), 8), "{}{}", left.log(), right.log());
    assert_eq!((sent(&net.left, "one"), sent(&net.left, "two")), (before, 1));
    assert!(left.stop().success() && right.stop().success());
}

/// Multicast of routing protocols passes the tunnel.
#[test]
fn multicast_passes_a_tunnel() {
    let Some(net) = TestNet::build("multicast_passes_a_tunnel") else { return };
    let ids = "if_id_in = 7\n if_id_out = 7\n start_action = trap";
    let right = net.right.run_config(&conf(&[tunnel(Side::Right, "t", ids)]), None);
    let left = net.left.run_config(&conf(&[tunnel(Side::Left, "t", ids)]), None);
    let (group, own) = (Ipv4Addr::new(224, 0, 0, 5), |n| Ipv4Addr::new(169, 254, 7, n));
    for (host, n) in [(&net.left, 1), (&net.right, 2)] {
        host.stdout_of("ip", &["addr", "add", &format!("{}/30", own(n)), "dev", "ipsec7"]);
    }
    let receiver = net.right.run(|| UdpSocket::bind((group, 5_005))).unwrap();
    receiver.join_multicast_v4(&group, &own(2)).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let sender = net.left.run(|| UdpSocket::bind((own(1), 0))).unwrap();
    net.left.stdout_of("ip", &["route", "add", "224.0.0.0/24", "dev", "ipsec7"]);
    let mut buffer = [0; 16];
    let received = (0..40).find_map(|_| {
        sender.send_to(b"hello", (group, 5_005)).unwrap();
        receiver.recv_from(&mut buffer).ok()
    });
    let Some((len, from)) = received else { panic!("no packet: {}{}", left.log(), right.log()) };
    assert_eq!((&buffer[..len], from.ip()), (&b"hello"[..], IpAddr::from(own(1))));
    assert!(net.left.pings(own(2).into(), 8), "{}{}", left.log(), right.log());
    assert!(left.stop().success() && right.stop().success());
}

/// strongSwan at the other end of a tunnel for all traffic.
#[test]
fn charon_at_the_other_end() {
    let Some(net) = TestNet::build("charon_at_the_other_end") else { return };
    // charon routes what its selectors name into its tunnel, so they do not contain its peer.
    let peer = tunnel(Side::Right, "t", "").replace("remote_ts = 0.0.0.0/0", "remote_ts = 10.1.0.0/16");
    let Some(charon) = Charon::start(&net.right, &conf(&[peer])) else { return };
    let ids = "if_id_in = 7\n if_id_out = 7\n start_action = trap";
    let left = net.left.run_config(&conf(&[tunnel(Side::Left, "t", ids)]), None);
    let (here, there) = (Side::Left.inner(true).to_string(), Side::Right.inner(true));
    net.left.stdout_of("ip", &["route", "add", &there.to_string(), "dev", "ipsec7", "src", &here]);
    assert!(net.left.pings(there, 8), "{}{}", left.log(), charon.log());
    assert!(net.left.tcp_round_trip(&net.right, there, 100_000), "{}{}", left.log(), charon.log());
    assert!(left.stop().success());
}

/// What `--dry-run` shows.
#[test]
fn a_dry_run_shows_the_interfaces() {
    let Some(net) = TestNet::build("a_dry_run_shows_the_interfaces") else { return };
    let two =
        tunnel(Side::Left, "two", "if_id_in = 2\n if_id_out = 3\n interface = blue\n start_action = trap");
    std::fs::write(net.left.file("conf"), conf(&[two])).unwrap();
    let path = net.left.file("conf");
    let text = net.left.casemate(&["run", "--dry-run", "--config", path.to_str().unwrap()]);
    let text = String::from_utf8(text.stdout).unwrap();
    for line in [
        "ip tuntap add dev blue mode tun",
        "ip link set dev ipsec2 mtu 1400 up",
        "# blocked until an SA is up: 0.0.0.0/0 -> 0.0.0.0/0 (interface blue)",
        "#     interfaces: blue outbound, ipsec2 inbound",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
    }
    assert!(!text.contains("ip -4 route add 0.0.0.0/0"), "routes are the administrator's: {text}");
}
