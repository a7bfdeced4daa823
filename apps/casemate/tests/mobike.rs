//! `casemate run` on a host that moves (MOBIKE, RFC 4555): a client to another address, from IPv4 to IPv6,
//! and behind a NAT, and a gateway to another link. A flow of echo requests through the tunnel runs on, and
//! its longest interruption is measured.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_linux::Error;
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::Ping;
use serde_json::Value;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testnet::{Host, Running, SetOnDrop, TestNet, WIRE, eventually};

/// The longest interruption that a move may cause.
const LONGEST_GAP: Duration = Duration::from_secs(1);
/// Number of replies that must arrive before a move, and after it.
const REPLIES: usize = 20;
/// Time after which an unanswered echo request is given up.
const PATIENCE: Duration = Duration::from_millis(40);
const PAUSE: Duration = Duration::from_millis(10);

const HOME: [IpAddr; 2] = [v4(192, 0, 2, 1), v4(192, 0, 2, 77)];
const GATEWAY: IpAddr = v4(192, 0, 2, 2);
const INNER: IpAddr = v4(10, 2, 0, 1);
/// Behind the NAT: the client, and the router.
const HIDDEN: [IpAddr; 2] = [v4(10, 9, 0, 2), v4(10, 9, 0, 1)];
/// Outside of the NAT: the gateway, and the router.
const OUTSIDE: [IpAddr; 2] = [v4(198, 51, 100, 2), v4(198, 51, 100, 1)];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(a, b, c, d))
}

/// The addresses of the gateway that the client knows.
const V4_ONLY: &str = "192.0.2.2";
const BOTH: &str = "192.0.2.2, 2001:db8::2";

/// Configurations of the client, which may have any address, and of the gateway.
fn confs(gateway: &str, more: &str) -> [String; 2] {
    let conf = |own: &str, peer: &str, remote: &str, [local_ts, remote_ts]: [&str; 2], action: &str| {
        format!(
            "connections {{ t {{\n remote_addrs = {remote}\n {more}\n\
             local {{ auth = psk\n id = {own} }}\n remote {{ auth = psk\n id = {peer} }}\n\
             children {{ c {{ local_ts = {local_ts}\n remote_ts = {remote_ts}\n start_action = {action} }} }}\n\
             }} }}\nsecrets {{ ike {{ secret = \"a secret of the two\" }} }}\n"
        )
    };
    [
        conf("client", "gateway", gateway, ["10.1.0.1", "10.2.0.1"], "start"),
        conf("gateway", "client", "%any", ["10.2.0.1", "10.1.0.1"], "none"),
    ]
}

/// A client and a gateway with a tunnel between them.
struct Tunnel {
    net: TestNet,
    client: Running,
    gateway: Running,
}

impl Tunnel {
    /// Sets up the tunnel to the gateway at these addresses, with more keys of both connections.
    fn set_up(test: &str, addrs: &str, more: &str) -> Option<Self> {
        Self::start(test, confs(addrs, more))
    }

    fn start(test: &str, [client, gateway]: [String; 2]) -> Option<Self> {
        let net = TestNet::build(test)?;
        let gateway = net.right.run_config(&gateway, None);
        let client = net.left.run_config(&client, None);
        net.left.wait_until(|status| sas(status).len() == 2 && net.left.pings_at_once(INNER, 8));
        Some(Self { net, client, gateway })
    }

    /// Moves a host while echo requests pass through the tunnel. Returns the longest time between two
    /// replies.
    fn move_host(&self, change: impl FnOnce(&TestNet)) -> Duration {
        let (net, before) = (&self.net, sas(&self.net.left.status()));
        let (is_over, replies) = (AtomicBool::new(false), AtomicUsize::new(0));
        let gap = thread::scope(|scope| {
            let end = SetOnDrop(&is_over);
            let flow = scope.spawn(|| longest_gap(&net.left, &is_over, &replies));
            let wait = |count| eventually("replies arrive", || replies.load(Ordering::Relaxed) >= count);
            wait(REPLIES);
            change(net);
            let moved = replies.load(Ordering::Relaxed);
            wait(moved + 3 * REPLIES);
            drop(end);
            flow.join().unwrap()
        });
        let after = sas(&net.left.status());
        assert_eq!(spis(&before), spis(&after), "the SAs are the same: {}", self.client.log());
        for (before, after) in before.iter().zip(&after) {
            let count = |sa: &Value| sa["packets"].as_u64().unwrap();
            assert!(count(after) > count(before), "counters go on: {before:#} {after:#}");
        }
        gap
    }

    fn check(self, gap: Duration) {
        let logs = format!("client: {}\ngateway: {}", self.client.log(), self.gateway.log());
        println!("longest interruption: {gap:?}");
        assert!(gap <= LONGEST_GAP, "{gap:?}\n{logs}");
        for host in [&self.net.left, &self.net.right] {
            let drops = host.status()["drops"].clone();
            let replays = drops["replay"].as_u64();
            assert!(matches!(replays, None | Some(0)), "{drops:#}");
        }
        assert!(self.client.stop().success() && self.gateway.stop().success());
    }

    /// Waits until each host shows these addresses of both ends of its SAs.
    fn wait_for_path(&self, client: IpAddr, seen: IpAddr, gateway: IpAddr) {
        let ends = |host: &Host, own: IpAddr, peer: IpAddr| {
            host.wait_until(|status| {
                sas(status).iter().all(|sa| {
                    let (own, peer) = (own.to_string(), peer.to_string());
                    let ends = [sa["src"].as_str(), sa["dst"].as_str()];
                    ends.contains(&Some(&own)) && ends.contains(&Some(&peer))
                })
            });
        };
        ends(&self.net.left, client, gateway);
        ends(&self.net.right, gateway, seen);
    }
}

fn sas(status: &Value) -> Vec<Value> {
    status["sas"].as_array().cloned().unwrap_or_default()
}

fn spis(sas: &[Value]) -> Vec<String> {
    sas.iter().map(|sa| sa["spi"].to_string()).collect()
}

/// Sends echo requests until the end. Returns the longest time between two replies.
fn longest_gap(host: &Host, is_over: &AtomicBool, replies: &AtomicUsize) -> Duration {
    let measure = || {
        let (mut last, mut gap) = (Instant::now(), Duration::ZERO);
        // The address of the tunnel is on the loopback interface, and stays.
        let mut ping = Ping::open(INNER)?;
        while !is_over.load(Ordering::Relaxed) {
            if ping.send(b"flow", PATIENCE).is_ok() {
                gap = gap.max(last.elapsed());
                last = Instant::now();
                replies.fetch_add(1, Ordering::Relaxed);
            }
            thread::sleep(PAUSE);
        }
        Ok::<Duration, Error>(gap)
    };
    host.run(measure).unwrap()
}

fn add_address(link: &str, addr: IpAddr) -> Result<(), Error> {
    let mut netlink = Netlink::open()?;
    let index = netlink.link(link)?.index;
    netlink.set_up(index, 1_500)?;
    netlink.add_address(index, addr, 24)
}

fn remove_address(link: &str, addr: IpAddr) -> Result<(), Error> {
    let mut netlink = Netlink::open()?;
    let index = netlink.link(link)?.index;
    netlink.remove_address(index, addr, 24)
}

#[test]
fn a_flow_runs_on_when_the_client_has_another_address() {
    let Some(tunnel) = Tunnel::set_up("a_flow_runs_on_when_the_client_has_another_address", V4_ONLY, "")
    else {
        return;
    };
    let gap = tunnel.move_host(|net| {
        net.left.run(|| remove_address(WIRE, HOME[0])).unwrap();
        net.left.run(|| add_address(WIRE, HOME[1])).unwrap();
    });
    tunnel.wait_for_path(HOME[1], HOME[1], GATEWAY);
    tunnel.check(gap);
}

/// As in strongSwan's scenarios, both sides name the first address of the client.
#[test]
fn a_flow_runs_on_when_the_configured_address_is_gone() {
    let [client, gateway] = confs(V4_ONLY, "");
    let client = client.replace("remote_addrs", &format!("local_addrs = {}\n remote_addrs", HOME[0]));
    let gateway = gateway.replace("%any", &HOME[0].to_string());
    let Some(tunnel) = Tunnel::start("mobike_configured_address", [client, gateway]) else { return };
    let gap = tunnel.move_host(|net| {
        net.left.run(|| remove_address(WIRE, HOME[0])).unwrap();
        net.left.run(|| add_address(WIRE, HOME[1])).unwrap();
    });
    tunnel.wait_for_path(HOME[1], HOME[1], GATEWAY);
    tunnel.check(gap);
}

#[test]
fn a_flow_runs_on_when_only_ipv6_remains() {
    let Some(tunnel) = Tunnel::set_up("a_flow_runs_on_when_only_ipv6_remains", BOTH, "") else { return };
    let gap = tunnel.move_host(|net| net.left.run(|| remove_address(WIRE, HOME[0])).unwrap());
    let [client, gateway] = [&tunnel.net.left, &tunnel.net.right].map(|host| host.side.outer(false));
    tunnel.wait_for_path(client, client, gateway);
    tunnel.check(gap);
}

#[test]
fn a_flow_runs_on_behind_a_new_nat_and_back() {
    let Some(tunnel) = Tunnel::set_up("a_flow_runs_on_behind_a_new_nat_and_back", V4_ONLY, "") else {
        return;
    };
    let _router = add_nat(&tunnel.net);
    let gap = tunnel.move_host(|net| {
        net.left.run(|| remove_address(WIRE, HOME[0])).unwrap();
        let route = ["route", "add", "default", "via", &HIDDEN[1].to_string()].map(String::from);
        net.left.stdout_of("ip", &route.each_ref().map(String::as_str));
    });
    tunnel.wait_for_path(HIDDEN[0], OUTSIDE[1], GATEWAY);
    let encapsulated = |is: bool| {
        for host in [&tunnel.net.left, &tunnel.net.right] {
            assert!(sas(&host.status()).iter().all(|sa| sa["udp_encapsulated"] == is), "{:#}", host.status());
        }
    };
    encapsulated(true);
    let back = tunnel.move_host(|net| net.left.run(|| add_address(WIRE, HOME[1])).unwrap());
    tunnel.wait_for_path(HOME[1], HOME[1], GATEWAY);
    encapsulated(false);
    tunnel.check(gap.max(back));
}

/// The gateway has a second link, and loses the one that is in use with its address. It tells the client,
/// which moves.
#[test]
fn a_flow_runs_on_when_the_gateway_loses_its_address() {
    for (test, local) in [("mobike_gateway_any", "%any"), ("mobike_gateway_two", "192.0.2.2, 10.9.0.1")] {
        let [client, gateway] = confs(V4_ONLY, "");
        let gateway = gateway.replace("remote_addrs", &format!("local_addrs = {local}\n remote_addrs"));
        let Some(tunnel) = Tunnel::start(test, [client, gateway]) else { return };
        let gap = tunnel.move_host(lose_gateway_address);
        // The client uses its address on that link, too.
        tunnel.wait_for_path(HIDDEN[0], HIDDEN[0], HIDDEN[1]);
        tunnel.check(gap);
    }
}

/// A gateway without MOBIKE does not move.
#[test]
fn a_flow_ends_when_a_gateway_without_mobike_loses_its_address() {
    let Some(tunnel) = Tunnel::set_up("mobike_gateway_no", V4_ONLY, "mobike = no") else { return };
    lose_gateway_address(&tunnel.net);
    assert!(!tunnel.net.left.pings_at_once(INNER, 8));
}

/// Adds a second link between client and gateway, and ends the first one at the gateway.
fn lose_gateway_address(net: &TestNet) {
    let link = "second";
    net.left.run(|| Netlink::open()?.add_veth(link, link, net.right.netns.as_fd())).unwrap();
    net.left.run(|| add_address(link, HIDDEN[0])).unwrap();
    net.right.run(|| add_address(link, HIDDEN[1])).unwrap();
    net.right.stdout_of("ip", &["link", "set", WIRE, "down"]);
    net.right.stdout_of("ip", &["route", "add", &HOME[0].to_string(), "via", &HIDDEN[0].to_string()]);
}

/// Without MOBIKE the tunnel stays where it was, and nothing arrives.
#[test]
fn a_flow_ends_without_mobike() {
    let Some(tunnel) = Tunnel::set_up("a_flow_ends_without_mobike", BOTH, "mobike = no") else { return };
    tunnel.net.left.run(|| add_address(WIRE, HOME[1])).unwrap();
    tunnel.net.left.run(|| remove_address(WIRE, HOME[0])).unwrap();
    assert!(!tunnel.net.left.pings_at_once(INNER, 8));
}

/// Adds a router with a NAT between client and gateway, as a second way beside the cable.
fn add_nat(net: &TestNet) -> Host {
    let router = net.add_host();
    for (host, [own, theirs], link) in [(&net.left, HIDDEN, "inside"), (&net.right, OUTSIDE, "outside")] {
        host.run(|| Netlink::open()?.add_veth(link, link, router.netns.as_fd())).unwrap();
        host.run(|| add_address(link, own)).unwrap();
        router.run(|| add_address(link, theirs)).unwrap();
    }
    router.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
    let route = ["route", "add", &GATEWAY.to_string(), "via", &OUTSIDE[0].to_string()].map(String::from);
    router.stdout_of("ip", &route.each_ref().map(String::as_str));
    let rules = "table ip nat { chain out { type nat hook postrouting priority 100; \
                 oifname outside ip protocol udp masquerade to :20000-20099; }; }";
    router.stdout_of("nft", &[rules]);
    router
}
