//! Clients with virtual addresses: one that reconnects at once, and one whose route to the gateway leads into
//! its own tunnel.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use serde_json::Value;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testnet::{Host, SetOnDrop, Side, TUN, TestNet, WIRE, eventually};

const SECRETS: &str = "secrets { ike { secret = \"a secret of the two\" } }\n";

fn children(status: &Value) -> usize {
    let sas = status["ike_sas"].as_array().unwrap();
    sas.iter().map(|sa| sa["children"].as_array().unwrap().len()).sum()
}

/// Sends packets to these addresses every few milliseconds until `stop` is set.
fn send_until(host: &Host, peers: [IpAddr; 2], stop: &AtomicBool) {
    let open = |peer: IpAddr| {
        let any: SocketAddr = if peer.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        host.run(|| UdpSocket::bind(any)).unwrap()
    };
    let sockets = peers.map(|peer| (open(peer), SocketAddr::new(peer, 9)));
    while !stop.load(Ordering::Relaxed) {
        for (socket, peer) in &sockets {
            let _ = socket.send_to(b"x", peer);
        }
        thread::sleep(Duration::from_millis(3));
    }
}

/// The IKE SA is closed while it requests its second Child SA, and a packet starts the next one. With two
/// round trips for that, and a slow packet filter on the gateway, which delays its responses, those to the
/// Delete request and to the IKE_AUTH request of the next IKE SA come together: the client has to take
/// addresses that it still has.
#[test]
fn a_client_that_reconnects_at_once_takes_its_addresses_again() {
    let test = "a_client_that_reconnects_at_once_takes_its_addresses_again";
    let Some(net) = TestNet::build(test) else { return };
    let inner = [true, false].map(|v4| Side::Right.inner(v4));
    let conf = |side: Side, keys: &str, children: [String; 2]| {
        let [first, second] = children;
        format!(
            "connections {{ t {{\n local_addrs = {}\n remote_addrs = {}\n local {{ auth = psk }}\n\
             remote {{ auth = psk }}\n {keys}\n\
             children {{ c {{\n {first}\n }}\n d {{\n {second}\n }} }} }} }}\n\
             {SECRETS}",
            side.outer(true),
            side.other().outer(true)
        )
    };
    let pools = "pools { p { addrs = 10.66.0.0/24 } q { addrs = fd66::/120 } }\n";
    let served = inner.map(|inner| format!("local_ts = {inner}"));
    let slow_nft = net.right.fake_nft("sleep 0.15; exec $NFT \"$@\"");
    let right =
        net.right.run_config_with_nft(&(conf(Side::Right, "pools = p, q", served) + pools), &slow_nft);
    let keys = "vips = 0.0.0.0, ::\n proposals = aes128gcm16-prfsha256-x25519";
    let wanted = inner.map(|inner| format!("remote_ts = {inner}\n start_action = trap|start"));
    let left = net.left.run_config(&conf(Side::Left, keys, wanted), None);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        scope.spawn(|| send_until(&net.left, inner, &stop));
        for _ in 0..12 {
            net.left.wait_until(|status| children(status) >= 1);
            assert!(net.left.casemate(&["terminate", "t"]).status.success(), "{}", left.log());
        }
    });
    eventually("the tunnel is up", || inner.iter().all(|inner| net.left.pings_at_once(*inner, 8)));
    let log = left.log();
    assert!(!log.contains("cannot be a virtual address") && !log.contains("address-refused"), "{log}");
    let shown = net.left.stdout_of("ip", &["address", "show", "dev", TUN]);
    assert!(shown.contains("10.66.0.") && shown.contains("fd66::"), "{shown}");
    assert!(left.stop().success() && right.stop().success());
}

/// Packets that have entered the TUN interface.
fn entered(host: &Host) -> u64 {
    let shown = host.stdout_of("ip", &["-s", "-j", "link", "show", "dev", TUN]);
    let links: Value = serde_json::from_str(&shown).unwrap();
    links[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
}

/// A route leads the packets to the peer into the TUN interface, out of which they would come again and
/// again. So would packets in clear to any address.
#[test]
fn own_packets_do_not_enter_the_tun_interface() {
    let Some(net) = TestNet::build("own_packets_do_not_enter_the_tun_interface") else { return };
    let inner = [true, false].map(|v4| Side::Right.inner(v4));
    let conf = |side: Side, child: &str| {
        let (own, peer) = (side.outer(true), side.other().outer(true));
        format!(
            "connections {{ t {{\n local_addrs = {own}\n remote_addrs = {peer}\n dpd_delay = 1\n\
             local {{ auth = psk }}\n remote {{ auth = psk }}\n children {{ c {{\n local_ts = {}, {}\n\
             remote_ts = {}, {}\n {child}\n }} }} }} }}\n{SECRETS}",
            side.inner(true),
            side.inner(false),
            side.other().inner(true),
            side.other().inner(false),
        )
    };
    let right = net.right.run_config(&conf(Side::Right, ""), None);
    let left = net.left.run_config(&conf(Side::Left, "start_action = trap|start"), None);
    let works = || inner.iter().all(|inner| net.left.pings_at_once(*inner, 8));
    eventually("the tunnel is up", works);
    let gateway = Side::Right.outer(true).to_string();
    let others = ["203.0.113.0/24", "2001:db8:99::/48"];
    for destination in [gateway.as_str()].into_iter().chain(others) {
        net.left.stdout_of("ip", &["route", "add", destination, "dev", TUN]);
    }
    let before = entered(&net.left);
    assert!(!works());
    assert!(!net.left.pings_at_once([203, 0, 113, 1].into(), 8));
    assert!(!net.left.pings_at_once("2001:db8:99::1".parse().unwrap(), 8));
    eventually("IKE is refused as well", || left.log().contains("IKE message from"));
    let count = entered(&net.left) - before;
    assert!((3..100).contains(&count), "{count} packets: {}", left.log());
    assert!(left.log().contains("or the route leads into the TUN interface"), "{}", left.log());
    net.left.stdout_of("ip", &["route", "del", &gateway, "dev", TUN]);
    eventually("the tunnel works again", works);
    assert!(left.stop().success() && right.stop().success());
}

/// The address of the gateway, behind a router.
const GATEWAY: &str = "198.51.100.1";

#[test]
fn a_client_with_all_traffic_in_the_tunnel_keeps_its_route_to_the_gateway() {
    let test = "a_client_with_all_traffic_in_the_tunnel_keeps_its_route_to_the_gateway";
    let Some(net) = TestNet::build(test) else { return };
    let inner = Side::Right.inner(true);
    let ip = |host: &Host, line: &str| host.stdout_of("ip", &line.split(' ').collect::<Vec<_>>());
    let via_router = format!("route replace default via {}", Side::Right.outer(true));
    ip(&net.right, &format!("address add {GATEWAY}/32 dev lo"));
    ip(&net.left, &via_router);
    let conf = |own: &str, peer: &str, keys: &str, child: &str| {
        format!(
            "connections {{ t {{\n {own}\n {peer}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n\
             {keys}\n children {{ c {{\n {child}\n }} }} }} }}\n{SECRETS}"
        )
    };
    let gateway = conf(&format!("local_addrs = {GATEWAY}"), "", "pools = p", "local_ts = 0.0.0.0/0, ::/0")
        + "pools { p { addrs = 10.66.0.0/24 } }\n";
    let right = net.right.run_config(&gateway, None);
    let all = "remote_ts = 0.0.0.0/0\n start_action = trap|start\n dpd_action = restart";
    let impatient = "charon { retransmit_tries = 1 }\n";
    let client = conf("", &format!("remote_addrs = {GATEWAY}"), "vips = 0.0.0.0", all) + impatient;
    let left = net.left.run_config(&client, None);
    let is_up = || eventually("the tunnel is up", || net.left.pings_at_once(inner, 8));
    is_up();
    // The kernel looks for the router, and all packets are routed into the tunnel.
    ip(&net.left, &via_router);
    let routes = ip(&net.left, "route show default");
    assert!(routes.contains(&format!("dev {WIRE}")), "{routes}");
    is_up();
    for ends in [false, true] {
        ip(&net.left, &format!("{via_router} dev {TUN} onlink"));
        let seen = "it leads into casemate0, the interface of the tunnels themselves";
        eventually("the log names the route", || left.log().contains(seen));
        let why = String::from_utf8(net.left.casemate(&["why", "t"]).stdout).unwrap();
        for expected in [
            "the route to the peer leads into the tunnel itself (casemate0)",
            "ip route replace default via ROUTER dev LINK",
        ] {
            assert!(why.contains(expected), "{expected}: {why}");
        }
        if ends {
            // With the addresses, the kernel removes the route.
            net.left.casemate(&["terminate", "t"]);
            assert!(!net.left.pings_at_once(inner, 8), "{}", left.log());
        }
        ip(&net.left, &via_router);
        is_up();
        assert!(!left.log().contains("this host at 10.66.0."), "{}", left.log());
    }
    assert!(left.stop().success() && right.stop().success());
}
