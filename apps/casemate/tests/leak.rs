//! No cleartext on the wire while `casemate run` is killed, restarts, fails, or waits for a peer or for
//! `nft`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail"
)]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_linux::netlink::Netlink;
use casemate_linux::netns::{FrameCapture, FrameInjector};
use serde_json::Value;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testnet::{Host, Running, SetOnDrop, Side, TUN, TestNet, WIRE, eventually};

const MARK: &[u8] = b"never to be seen in clear";
const TIMEOUT: Duration = Duration::from_secs(20);
/// EtherType for local experiments (IEEE 802), used by marker frames that show how far the capture has
/// progressed.
const TICKS: [u8; 2] = [0x88, 0xb5];

/// A thousand packets per second from the left host to the right host's address on the cable, half of
/// them from a socket that is bound to the cable and bypasses all routes, unless all are `routed`.
struct Traffic<'l> {
    net: &'l TestNet,
    routed: bool,
    /// Mark of all packets.
    mark: u32,
    src: IpAddr,
    dst: IpAddr,
    sent: AtomicU64,
    /// Packets seen in clear on the cable.
    clear: AtomicU64,
    /// Number of marker frames sent, and the last marker seen.
    ticks: AtomicU64,
    ticked: AtomicU64,
    over: AtomicBool,
}

impl Traffic<'_> {
    /// Runs `work` while there is traffic.
    fn during(net: &TestNet, v4: bool, work: impl FnOnce(&Traffic<'_>)) {
        Self::between(net, Side::Left.outer(v4), Side::Right.outer(v4), work);
    }

    /// Like [`between`](Self::between), but all packets follow the routes of the host.
    fn routed(net: &TestNet, src: IpAddr, dst: IpAddr, work: impl FnOnce(&Traffic<'_>)) {
        Self::run(net, (true, 0), [src, dst], work);
    }

    /// Like [`routed`](Self::routed), with a mark.
    fn marked(net: &TestNet, mark: u32, src: IpAddr, dst: IpAddr, work: impl FnOnce(&Traffic<'_>)) {
        Self::run(net, (true, mark), [src, dst], work);
    }

    /// Like [`during`](Self::during), with other addresses of the hosts.
    fn between(net: &TestNet, src: IpAddr, dst: IpAddr, work: impl FnOnce(&Traffic<'_>)) {
        Self::run(net, (false, 0), [src, dst], work);
    }

    fn run(
        net: &TestNet,
        (routed, mark): (bool, u32),
        [src, dst]: [IpAddr; 2],
        work: impl FnOnce(&Traffic<'_>),
    ) {
        let (sent, clear, ticks, ticked, over) = Default::default();
        let traffic = Traffic { net, routed, mark, src, dst, sent, clear, ticks, ticked, over };
        thread::scope(|scope| {
            let _end = SetOnDrop(&traffic.over);
            scope.spawn(|| traffic.send());
            let capture = net.right.run(|| FrameCapture::open(Netlink::open()?.link(WIRE)?.index)).unwrap();
            let traffic = &traffic;
            scope.spawn(move || traffic.watch(&capture));
            work(traffic);
        });
    }

    fn send(&self) {
        let (src, dst) = (self.src, self.dst);
        let open = || UdpSocket::bind((src, 0));
        let sockets = [(); 2].map(|()| self.net.left.run(open).unwrap());
        if self.mark != 0 {
            let set =
                || sockets.iter().try_for_each(|socket| socket2::SockRef::from(socket).set_mark(self.mark));
            self.net.left.run(set).unwrap();
        }
        if !self.routed {
            let bind = || socket2::SockRef::from(&sockets[1]).bind_device(Some(WIRE.as_bytes()));
            self.net.left.run(bind).unwrap();
        }
        while !self.over.load(Ordering::Relaxed) {
            // A refused packet does not leave.
            sockets.iter().for_each(|socket| drop(socket.send_to(MARK, (dst, 9))));
            self.sent.fetch_add(2, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn clear(&self) -> u64 {
        // All packets sent so far have passed the cable after 20 more.
        self.wait_for(20);
        // And the capture has examined them when it has seen a later marker.
        let tick = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
        let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &TICKS, &tick.to_be_bytes()].concat();
        let open = || FrameInjector::open(Netlink::open()?.link(WIRE)?.index);
        self.net.left.run(open).unwrap().send(&frame).unwrap();
        eventually("the cable is watched", || self.ticked.load(Ordering::Relaxed) >= tick);
        self.clear.load(Ordering::Relaxed)
    }

    /// Waits until `count` more packets are sent.
    fn wait_for(&self, count: u64) {
        let until = self.sent.load(Ordering::Relaxed) + count;
        eventually("packets are sent", || self.sent.load(Ordering::Relaxed) >= until);
    }

    fn watch(&self, capture: &FrameCapture) {
        let mut frame = [0; 2_000];
        while !self.over.load(Ordering::Relaxed) {
            let Some(len) = capture.next(&mut frame, Duration::from_millis(20)).unwrap() else { continue };
            if frame[..len].windows(MARK.len()).any(|window| window == MARK) {
                self.clear.fetch_add(1, Ordering::Relaxed);
            } else if frame[12..14] == TICKS {
                let tick = u64::from_be_bytes(*frame[14..].first_chunk().unwrap());
                self.ticked.store(tick, Ordering::Relaxed);
            }
        }
        assert_eq!(capture.lost().unwrap(), 0, "some frames were not looked at");
    }
}

/// Manual keys between the addresses on the cable.
fn manual(side: Side, v4: bool) -> String {
    let ends = [(Side::Left, 1), (Side::Right, 2)];
    let mut text = String::new();
    for (from, spi) in ends {
        let (src, dst) = (from.outer(v4), from.other().outer(v4));
        let dir = if from == side { "out" } else { "in" };
        let key = format!("{spi:02x}").repeat(20);
        text += &format!(
            "xfrm state add src {src} dst {dst} proto esp spi {spi:#x}000 mode transport aead 'rfc4106(gcm(aes))' 0x{key} 128\n\
             xfrm policy add src {src} dst {dst} dir {dir} tmpl src {src} dst {dst} proto esp mode transport\n"
        );
    }
    text
}

fn negotiated(side: Side, v4: bool, action: &str) -> String {
    format!(
        "connections {{ t {{\n remote_addrs = {}\n local_addrs = {}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n\
         children {{ c {{\n mode = transport\n start_action = {action}\n }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
        side.other().outer(v4),
        side.outer(v4)
    )
}

/// Waits until the packets of the left host are protected.
fn wait_until_up(net: &TestNet, v4: bool, hosts: &[&Running]) {
    let start = Instant::now();
    let carries = |sa: &Value| sa["packets"].as_u64() > Some(0);
    let is_up =
        || net.left.status()["sas"].as_array().is_some_and(|sas| sas.len() >= 2 && sas.iter().all(carries));
    while !(net.left.pings_at_once(Side::Right.outer(v4), 8) && is_up()) {
        let logs: Vec<String> = hosts.iter().map(|host| host.log()).collect();
        assert!(start.elapsed() < TIMEOUT, "no SA: {logs:#?} {:#}", net.left.status());
    }
}

#[test]
fn no_cleartext_while_killed_and_restarted() {
    let Some(net) = TestNet::build("no_cleartext_while_killed_and_restarted") else { return };
    for v4 in [true, false] {
        let left = net.left.run_xfrm(&manual(Side::Left, v4));
        Traffic::during(&net, v4, |traffic| {
            traffic.wait_for(100);
            left.crash();
            traffic.wait_for(200);
            let left = net.left.run_xfrm(&manual(Side::Left, v4));
            assert!(left.log().contains("took over"), "{}", left.log());
            traffic.wait_for(200);
            net.left.wait_until(|status| status["sas"][0]["packets"].as_u64() > Some(50));
            assert_eq!(traffic.clear(), 0, "v4 {v4}");
            assert!(left.end_for_restart().success());
            traffic.wait_for(200);
            let left = net.left.run_xfrm(&manual(Side::Left, v4));
            traffic.wait_for(200);
            assert_eq!(traffic.clear(), 0, "v4 {v4}");
            assert!(left.stop().success());
            eventually("cleartext after an orderly end", || traffic.clear() > 0);
        });
    }
}

#[test]
fn no_cleartext_while_a_start_waits_for_an_absent_peer() {
    let Some(net) = TestNet::build("no_cleartext_while_a_start_waits_for_an_absent_peer") else { return };
    // In the second round the peer is the initiator.
    for (v4, here, there) in [(true, "start", "none"), (false, "none", "start")] {
        let start_left = || net.left.run_config(&negotiated(Side::Left, v4, here), None);
        let start_right = || net.right.run_config(&negotiated(Side::Right, v4, there), None);
        // The initiator is started last.
        let (left, right) = if here == "none" {
            let left = start_left();
            (left, start_right())
        } else {
            let right = start_right();
            (start_left(), right)
        };
        wait_until_up(&net, v4, &[&left, &right]);
        Traffic::during(&net, v4, |traffic| {
            traffic.wait_for(100);
            left.crash();
            assert!(right.stop().success());
            let left = net.left.run_config(&negotiated(Side::Left, v4, here), None);
            traffic.wait_for(1_000);
            assert_eq!(traffic.clear(), 0, "v4 {v4}: {}", left.log());
            // Once more, without an SA in between.
            left.crash();
            traffic.wait_for(100);
            let left = net.left.run_config(&negotiated(Side::Left, v4, here), None);
            traffic.wait_for(100);
            assert_eq!(traffic.clear(), 0, "v4 {v4}: {}", left.log());
            std::fs::write(net.left.file("conf"), "connections {\n}\n").unwrap();
            assert!(net.left.casemate(&["reload"]).status.success());
            eventually("cleartext after the policy was removed", || traffic.clear() > 0);
            assert!(left.stop().success());
        });
    }
}

/// Routing rules outlive the process, so the next start finds them.
#[test]
fn restart_after_a_crash_with_leftover_rules() {
    let test = "restart_after_a_crash_with_leftover_rules";
    let Some(net) = TestNet::build(test) else { return };
    for (v4, action) in [(true, "trap"), (false, "trap"), (true, "start"), (false, "start")] {
        let right = net.right.run_config(&negotiated(Side::Right, v4, "none"), None);
        let start = || net.left.run_config(&negotiated(Side::Left, v4, action), None);
        let rules = || net.left.stdout_of("ip", &[if v4 { "-4" } else { "-6" }, "rule"]);
        let before = rules();
        let left = start();
        wait_until_up(&net, v4, &[&left, &right]);
        left.crash();
        assert_ne!(rules(), before, "v4 {v4}, {action}: the rule remains after the crash");
        let left = start();
        // With `trap`, a packet initiates the SA. The peer may still use the SA of the previous run.
        let _ = net.left.pings_at_once(Side::Right.outer(v4), 8);
        net.left.wait_until(|status| status["sas"].as_array().is_some_and(|sas| sas.len() >= 2));
        let log = left.log();
        assert!(!log.contains("does not follow"), "v4 {v4}, {action}: {log}");
        assert!(left.stop().success() && right.stop().success());
        assert_eq!(rules(), before, "v4 {v4}, {action}");
    }
}

/// A failed start must keep what the guard of a previous run protects.
#[test]
fn failed_start_without_nft_keeps_traffic_blocked() {
    let Some(net) = TestNet::build("failed_start_without_nft_keeps_traffic_blocked") else { return };
    let nft = net.left.fake_nft("echo it is broken >&2; exit 1");
    let conf = negotiated(Side::Left, true, "start");
    let right = net.right.run_config(&negotiated(Side::Right, true, "none"), None);
    let left = net.left.run_config(&conf, None);
    wait_until_up(&net, true, &[&left, &right]);
    Traffic::during(&net, true, |traffic| {
        left.crash();
        assert!(right.stop().success());
        let stderr = net.left.run_config_fails(&conf, &nft);
        assert!(stderr.contains("it is broken"), "{stderr}");
        let left = net.left.run_config(&conf, None);
        traffic.wait_for(200);
        assert_eq!(traffic.clear(), 0, "{}", left.log());
        assert!(left.stop().success());
    });
}

/// A tunnel with these children, from 10.1.0.0/24 and 10.3.0.0/24 to one remote network.
fn children_of_one_network(side: Side, children: &[u8], action: &str) -> String {
    let child = |n: &u8| {
        let (here, there) = (format!("10.{n}.0.0/24"), "10.2.0.0/16".to_owned());
        let (local, remote) = if side == Side::Left { (here, there) } else { (there, here) };
        format!("c{n} {{\n local_ts = {local}\n remote_ts = {remote}\n start_action = {action}\n }}\n")
    };
    let children: String = children.iter().map(child).collect();
    format!(
        "connections {{ t {{\n remote_addrs = {}\n local_addrs = {}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n\
         children {{ {children} }} }} }}\nsecrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
        side.other().outer(true),
        side.outer(true)
    )
}

/// The route of an installed child also leads packets of a missing child into the data path.
#[test]
fn no_cleartext_by_the_route_of_another_child() {
    let Some(net) = TestNet::build("no_cleartext_by_the_route_of_another_child") else { return };
    net.left.stdout_of("ip", &["address", "add", "10.3.0.5/32", "dev", "lo"]);
    net.left.stdout_of("ip", &["route", "add", "10.2.0.0/16", "via", "192.0.2.2", "dev", WIRE]);
    let conf = children_of_one_network(Side::Left, &[1, 3], "start");
    let right = net.right.run_config(&children_of_one_network(Side::Right, &[1, 3], "none"), None);
    let left = net.left.run_config(&conf, None);
    let has_sas = |count| {
        move |status: &Value| status["sas"].as_array().is_some_and(|sas: &Vec<Value>| sas.len() >= count)
    };
    net.left.wait_until(has_sas(4));
    let (src, dst): (IpAddr, IpAddr) = ([10, 3, 0, 5].into(), Side::Right.inner(true));
    Traffic::between(&net, src, dst, |traffic| {
        left.crash();
        assert!(right.stop().success());
        let right = net.right.run_config(&children_of_one_network(Side::Right, &[1], "none"), None);
        let left = net.left.run_config(&conf, None);
        net.left.wait_until(has_sas(2));
        eventually("the route of the child that is up", || {
            net.left.stdout_of("ip", &["route", "show", "table", "50510"]).contains("10.2.0.0/16")
        });
        traffic.wait_for(200);
        assert_eq!(traffic.clear(), 0, "{}", left.log());
        assert!(net.left.pings(dst, 8), "the installed child works: {}", left.log());
        std::fs::write(net.left.file("conf"), children_of_one_network(Side::Left, &[1], "start")).unwrap();
        assert!(net.left.casemate(&["reload"]).status.success());
        eventually("cleartext after the policy was removed", || traffic.clear() > 0);
        assert!(left.stop().success() && right.stop().success());
    });
}

/// A child that had an interface becomes policy-based. The route into the interface leads packets past the
/// guard until the interface is removed.
#[test]
fn no_cleartext_while_a_child_loses_its_interface() {
    let Some(net) = TestNet::build("no_cleartext_while_a_child_loses_its_interface") else { return };
    net.left
        .stdout_of("ip", &["route", "add", "10.2.0.0/16", "via", "192.0.2.2", "dev", WIRE, "metric", "9"]);
    let policy_based = children_of_one_network(Side::Left, &[1], "trap");
    let route_based = policy_based.replace("start_action", "if_id_in = 5\n if_id_out = 5\n start_action");
    let change = |conf: &str| {
        std::fs::write(net.left.file("conf"), conf).unwrap();
        assert!(net.left.casemate(&["reload"]).status.success());
    };
    let route = || net.left.stdout_of("ip", &["route", "add", "10.2.0.0/16", "dev", "ipsec5"]);
    let left = net.left.run_config(&route_based, None);
    route();
    Traffic::routed(&net, Side::Left.inner(true), Side::Right.inner(true), |traffic| {
        for _ in 0..4 {
            let before = traffic.clear();
            traffic.wait_for(100);
            change(&policy_based);
            assert!(!net.left.output("ip", &["link", "show", "dev", "ipsec5"]).status.success());
            traffic.wait_for(100);
            assert_eq!(traffic.clear(), before, "{}", left.log());
            // Here, packets leave in clear until there is a route again.
            change(&route_based);
            route();
        }
        let before = traffic.clear();
        left.crash();
        let left = net.left.run_config(&policy_based, None);
        assert!(!net.left.output("ip", &["link", "show", "dev", "ipsec5"]).status.success());
        traffic.wait_for(100);
        assert_eq!(traffic.clear(), before, "{}", left.log());
        assert!(left.stop().success());
    });
}

/// A client whose reload removes `vips` keeps its virtual address until the gateway has confirmed the end of
/// the IKE SA. Its gateway does not answer, and a program goes on using the address.
#[test]
fn no_cleartext_from_a_virtual_address_without_policies() {
    let Some(net) = TestNet::build("no_cleartext_from_a_virtual_address_without_policies") else { return };
    net.left
        .stdout_of("ip", &["route", "add", "10.2.0.0/16", "via", "192.0.2.2", "dev", WIRE, "metric", "9"]);
    let inner = Side::Right.inner(true);
    let conf = |side: Side, keys: &str, child: &str| {
        let (own, peer) = (side.outer(true), side.other().outer(true));
        format!(
            "connections {{ t {{\n local_addrs = {own}\n remote_addrs = {peer}\n local {{ auth = psk }}\n \
             remote {{ auth = psk }}\n {keys}\n children {{ c {{\n {child}\n }} }} }} }}\n\
             secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n"
        )
    };
    let gateway = conf(Side::Right, "pools = p", &format!("local_ts = {inner}"))
        + "pools { p { addrs = 10.66.0.1/32 } }\n";
    let right = net.right.run_config(&gateway, None);
    let child = format!("remote_ts = {inner}\n start_action = trap|start");
    let left = net.left.run_config(&conf(Side::Left, "vips = 0.0.0.0", &child), None);
    assert!(net.left.pings(inner, 8), "{}", left.log());
    Traffic::routed(&net, [10, 66, 0, 1].into(), inner, |traffic| {
        traffic.wait_for(50);
        right.crash();
        std::fs::write(net.left.file("conf"), conf(Side::Left, "", &child)).unwrap();
        assert!(net.left.casemate(&["reload"]).status.success());
        traffic.wait_for(300);
        let shown = net.left.stdout_of("ip", &["address", "show", "dev", TUN]);
        assert!(shown.contains("10.66.0.1"), "{shown}");
        assert_eq!(traffic.clear(), 0, "{}", left.log());
        assert!(left.stop().success());
    });
}

/// Packets wait for a tunnel whose trap a reload removes, and another tunnel comes up.
#[test]
fn no_cleartext_of_packets_whose_trap_has_gone() {
    let Some(net) = TestNet::build("no_cleartext_of_packets_whose_trap_has_gone") else { return };
    net.left
        .stdout_of("ip", &["route", "add", "10.2.0.0/16", "via", "192.0.2.2", "dev", WIRE, "metric", "9"]);
    let connection = |name: &str, side: Side, peer: &str, inner: [&str; 2], action: &str| {
        let (own, [here, there]) = (side.outer(true), inner);
        format!(
            "{name} {{\n local_addrs = {own}\n remote_addrs = {peer}\n local {{ auth = psk }}\n \
             remote {{ auth = psk }}\n children {{ {name} {{\n local_ts = {here}\n remote_ts = {there}\n \
             start_action = {action}\n }} }} }}\n"
        )
    };
    let conf = |connections: &[String]| {
        let secret = "secrets { ike { secret = \"a secret of the two\" } }\n";
        format!("connections {{ {} }}\n{secret}", connections.concat())
    };
    let [outer, peer] = [Side::Left, Side::Right].map(|side| side.outer(true).to_string());
    let [here, there] = [Side::Left, Side::Right].map(|side| side.inner(true).to_string());
    let works = |side, peer: &str| connection("works", side, peer, ["10.8.0.0/24", "10.8.0.0/24"], "none");
    let absent = connection("absent", Side::Left, "192.0.2.99", [&here, &there], "trap");
    let right = net.right.run_config(&conf(&[works(Side::Right, &outer)]), None);
    let left = net.left.run_config(&conf(&[works(Side::Left, &peer), absent]), None);
    let capture = net.right.run(|| FrameCapture::open(Netlink::open()?.link(WIRE)?.index)).unwrap();
    let socket = net.left.run(|| UdpSocket::bind((Side::Left.inner(true), 0))).unwrap();
    for _ in 0..5 {
        socket.send_to(MARK, (Side::Right.inner(true), 9)).unwrap();
    }
    eventually("a packet asks for the SA", || left.log().contains("no SA for packets"));
    std::fs::write(net.left.file("conf"), conf(&[works(Side::Left, &peer)])).unwrap();
    assert!(net.left.casemate(&["reload"]).status.success());
    assert!(net.left.casemate(&["initiate", "works"]).status.success(), "{}", left.log());
    let (mut frame, mut seen) = ([0; 2_000], 0);
    while let Some(len) = capture.next(&mut frame, Duration::from_millis(300)).unwrap() {
        let is_clear = frame[..len].windows(MARK.len()).any(|window| window == MARK);
        assert!(!is_clear, "{}", left.log());
        seen += 1;
    }
    assert!(seen > 0, "no frame of IKE was captured");
    assert!(left.stop().success() && right.stop().success());
}

/// A child that had an interface of its own becomes policy-based.
#[test]
fn no_cleartext_while_a_child_loses_its_own_interface() {
    let Some(net) = TestNet::build("no_cleartext_while_a_child_loses_its_own_interface") else { return };
    net.left
        .stdout_of("ip", &["route", "add", "10.2.0.0/16", "via", "192.0.2.2", "dev", WIRE, "metric", "9"]);
    let policy_based = children_of_one_network(Side::Left, &[1], "trap|start");
    let unique = policy_based.replace("trap|start", "start\n if_id_in = %unique\n if_id_out = %unique");
    let right = net.right.run_config(&children_of_one_network(Side::Right, &[1], "none"), None);
    let left = net.left.run_config(&unique, None);
    let interface = || {
        let links = net.left.stdout_of("ip", &["-o", "link"]);
        let names = links.lines().filter_map(|line| line.split(": ").nth(1));
        names.map(str::to_owned).find(|name| name.starts_with("ipsec9"))
    };
    let route = || {
        let name = casemate_test_support::eventually("the interface is there", interface);
        net.left.stdout_of("ip", &["route", "add", "10.2.0.0/16", "dev", &name]);
    };
    route();
    Traffic::routed(&net, Side::Left.inner(true), Side::Right.inner(true), |traffic| {
        for _ in 0..4 {
            let before = traffic.clear();
            traffic.wait_for(100);
            std::fs::write(net.left.file("conf"), &policy_based).unwrap();
            assert!(net.left.casemate(&["reload"]).status.success());
            traffic.wait_for(100);
            assert_eq!(traffic.clear(), before, "{}", left.log());
            assert_eq!(interface(), None);
            // Here, packets leave in clear until there is a route again.
            std::fs::write(net.left.file("conf"), &unique).unwrap();
            assert!(net.left.casemate(&["reload"]).status.success());
            route();
        }
        assert!(left.stop().success() && right.stop().success());
    });
}

/// A policy-based child gets a mark, and loses it again: packets with the mark are protected all the time.
#[test]
fn no_cleartext_while_a_child_gets_a_mark() {
    let Some(net) = TestNet::build("no_cleartext_while_a_child_gets_a_mark") else { return };
    net.left
        .stdout_of("ip", &["route", "add", "10.2.0.0/16", "via", "192.0.2.2", "dev", WIRE, "metric", "9"]);
    let without = children_of_one_network(Side::Left, &[1], "trap");
    let with = without.replace("start_action", "mark_in = 7\n mark_out = 7\n start_action");
    let left = net.left.run_config(&without, None);
    Traffic::marked(&net, 7, Side::Left.inner(true), Side::Right.inner(true), |traffic| {
        for conf in [&with, &without].repeat(4) {
            traffic.wait_for(100);
            std::fs::write(net.left.file("conf"), conf).unwrap();
            assert!(net.left.casemate(&["reload"]).status.success());
            traffic.wait_for(100);
            assert_eq!(traffic.clear(), 0, "{}", left.log());
        }
        assert!(left.stop().success());
    });
}

#[test]
fn no_cleartext_after_an_error_until_cleanup() {
    let Some(net) = TestNet::build("no_cleartext_after_an_error_until_cleanup") else { return };
    let before = net.left.stdout_of("ip", &["rule"]);
    let mut left = net.left.run_xfrm(&manual(Side::Left, true));
    Traffic::during(&net, true, |traffic| {
        traffic.wait_for(100);
        let refused = net.left.casemate(&["cleanup"]);
        assert_eq!(refused.status.code(), Some(1), "the instance is running");
        net.left.stdout_of("ip", &["link", "delete", TUN]);
        let status = left.wait();
        assert_eq!(status.code(), Some(1));
        assert!(left.log().contains("casemate cleanup"), "{}", left.log());
        let cause = format!("TUN interface {TUN}: another program has removed the interface");
        assert!(left.log().contains(&cause), "{}", left.log());
        traffic.wait_for(500);
        assert_eq!(traffic.clear(), 0);
        let cleaned = net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
        assert!(cleaned.contains("removed: guard casemate0"), "{cleaned}");
        eventually("cleartext after cleanup", || traffic.clear() > 0);
    });
    assert_eq!(net.left.stdout_of("ip", &["rule"]), before);
    assert_eq!(net.left.stdout_of("nft", &["list", "ruleset"]), "");
}

/// The guard is restored at intervals, but immediately at the end.
#[test]
fn removed_guard_is_restored_after_an_error() {
    let Some(net) = TestNet::build("removed_guard_is_restored_after_an_error") else { return };
    let mut left = net.left.run_xfrm(&manual(Side::Left, true));
    let guard = || net.left.filter();
    let before = guard();
    let accident = format!("nft flush ruleset; sleep 0.05; nft flush ruleset; ip link delete {TUN}");
    net.left.stdout_of("sh", &["-c", &accident]);
    assert_eq!(left.wait().code(), Some(1));
    assert!(left.log().contains("stays blocked until"), "{}", left.log());
    assert_eq!(guard(), before);
    net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    assert_eq!(guard(), "");
}

/// As a restart of the nftables service does, and similar accidents.
#[test]
fn guard_is_restored_after_another_program_changes_it() {
    let test = "guard_is_restored_after_another_program_changes_it";
    let Some(net) = TestNet::build(test) else { return };
    let left = net.left.run_xfrm(&manual(Side::Left, true));
    let guard = || net.left.filter();
    let before = guard();
    let table = format!("casemate_{TUN}");
    let commands: [&[&str]; 3] = [
        &["flush", "ruleset"],
        &["delete", "table", "inet", &table],
        &["flush", "chain", "inet", &table, "sent"],
    ];
    Traffic::during(&net, true, |traffic| {
        traffic.wait_for(100);
        assert_eq!(traffic.clear(), 0);
        for (command, count) in commands.iter().zip(1..) {
            net.left.stdout_of("nft", command);
            let start = Instant::now();
            eventually("the guard is restored", || guard() == before);
            // Usually a fraction of a second; a busy machine takes longer.
            assert!(start.elapsed() < Duration::from_secs(5), "{command:?}: {:?}", start.elapsed());
            net.left.wait_until(|status| status["guard"]["restored"] == count);
            assert_eq!(net.left.status()["guard"]["stands"], true);
            let clear = traffic.clear();
            traffic.wait_for(200);
            assert_eq!(traffic.clear(), clear, "{command:?}: {}", left.log());
            assert!(
                net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["status"]).contains("it was restored")
            );
        }
        let log = left.log();
        assert_eq!(
            log.matches("the guard was changed or removed by another program (nft)").count(),
            3,
            "{log}"
        );
        assert_eq!(log.matches("the guard was restored").count(), 3, "{log}");
    });
    assert!(left.stop().success());
    assert_eq!(guard(), "");
}

/// As systemd-networkd does when it starts, and scripts that switch IPv6 or an interface off and on.
#[test]
fn routes_and_rules_come_back_after_another_program_removes_them() {
    let test = "routes_and_rules_come_back_after_another_program_removes_them";
    let Some(net) = TestNet::build(test) else { return };
    let right = net.right.run_xfrm(&manual(Side::Right, true));
    let left = net.left.run_xfrm(&manual(Side::Left, true));
    let system = || {
        let rules = net.left.stdout_of("ip", &["rule"]);
        rules + &net.left.stdout_of("ip", &["route", "show", "table", "all", "dev", TUN])
    };
    let before = system();
    let to = Side::Right.outer(true);
    assert!(net.left.pings(to, 8));
    let reports = || left.log().matches("had been removed").count();
    for removal in [
        "ip rule del pref 220".to_owned(),
        "ip route flush table 50510".to_owned(),
        format!("ip link set {TUN} down && sleep 0.3 && ip link set {TUN} up"),
    ] {
        let reported = reports();
        net.left.stdout_of("sh", &["-c", &removal]);
        let start = Instant::now();
        eventually("routes and rules are back", || system() == before);
        assert!(start.elapsed() < Duration::from_secs(5), "{removal}: {:?}", start.elapsed());
        assert!(net.left.pings(to, 8), "{removal}: {}", left.log());
        assert!(reports() > reported, "{removal}: {}", left.log());
    }
    assert!(left.log().contains("Network is down"), "{}", left.log());
    assert!(left.log().contains("the system follows the policies again"), "{}", left.log());
    assert!(left.stop().success() && right.stop().success());
}

/// Another program that flushes continuously must not keep Casemate busy.
#[test]
fn guard_is_restored_at_a_bounded_rate() {
    let test = "guard_is_restored_at_a_bounded_rate";
    let Some(net) = TestNet::build(test) else { return };
    let left = net.left.run_xfrm(&manual(Side::Left, true));
    let start = Instant::now();
    for _ in 0..100 {
        net.left.stdout_of("nft", &["flush", "ruleset"]);
    }
    let most = start.elapsed().as_millis() / 100 + 2;
    let table = || net.left.stdout_of("nft", &["list", "ruleset"]).contains("casemate_");
    eventually("the guard is installed", || net.left.status()["guard"]["stands"] == true && table());
    let restored = net.left.status()["guard"]["restored"].as_u64().unwrap();
    assert!((1..=most).contains(&u128::from(restored)), "{restored} times, expected at most {most}");
    assert!(table(), "{}", left.log());
    assert!(left.stop().success());
}

/// A terminal that closes sends SIGHUP.
#[test]
fn sighup_does_not_end_an_instance_with_manual_keys() {
    let Some(net) = TestNet::build("sighup_does_not_end_an_instance_with_manual_keys") else { return };
    let mut left = net.left.run_xfrm(&manual(Side::Left, true));
    Traffic::during(&net, true, |traffic| {
        traffic.wait_for(100);
        net.left.stdout_of("kill", &["-HUP", &left.pid().to_string()]);
        eventually("SIGHUP is logged", || left.log().contains("SIGHUP"));
        traffic.wait_for(200);
        assert_eq!(traffic.clear(), 0, "{}", left.log());
    });
    assert!(!left.has_ended(), "the instance ended: {}", left.log());
    assert!(left.stop().success());
}

#[test]
fn start_fails_without_a_guard() {
    let Some(net) = TestNet::build("start_fails_without_a_guard") else { return };
    let nft = net.left.fake_nft("echo it is broken >&2; exit 1");
    let clean = |host: &Host| (host.stdout_of("ip", &["rule"]), host.stdout_of("nft", &["list", "ruleset"]));
    let before = clean(&net.left);
    let stderr = net.left.run_xfrm_fails(&manual(Side::Left, true), &nft);
    assert!(stderr.contains("guard against cleartext") && stderr.contains("it is broken"), "{stderr}");
    assert_eq!(clean(&net.left), before);
    assert!(net.left.pings(Side::Right.outer(true), 8), "the system is unchanged");
    assert!(!stderr.contains("casemate cleanup"), "traffic is not blocked: {stderr}");
    // An existing guard stays.
    let left = net.left.run_xfrm(&manual(Side::Left, true));
    left.crash();
    let left_behind = clean(&net.left);
    let stderr = net.left.run_xfrm_fails(&manual(Side::Left, true), &nft);
    assert!(stderr.contains("casemate cleanup"), "{stderr}");
    assert_eq!(clean(&net.left), left_behind);
    assert!(!net.left.pings_at_once(Side::Right.outer(true), 8));
    net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    assert_eq!(clean(&net.left), before);
}

#[test]
fn packets_flow_while_nft_is_slow() {
    let Some(net) = TestNet::build("packets_flow_while_nft_is_slow") else { return };
    let (slow, seen) = (net.left.file("slow"), net.left.file("seen"));
    let script =
        format!("if [ -e {} ]; then touch {}; sleep 6; fi\nexec $NFT \"$@\"", slow.display(), seen.display());
    let nft = net.left.fake_nft(&script);
    let right = net.right.run_config(&negotiated(Side::Right, true, "none"), None);
    let left = net.left.run_config_with_nft(&negotiated(Side::Left, true, "start"), &nft);
    wait_until_up(&net, true, &[&left, &right]);
    std::fs::write(&slow, "").unwrap();
    // A policy of another kind requires a run of `nft`.
    let more = negotiated(Side::Left, true, "start").replace(
        "children {",
        "children {\n more {\n mode = pass\n local_ts = 10.0.0.0/8\n remote_ts = 10.99.0.0/16\n start_action = trap\n }",
    );
    std::fs::write(net.left.file("conf"), more).unwrap();
    let dst: IpAddr = Side::Right.outer(true);
    thread::scope(|scope| {
        let reload = scope.spawn(|| net.left.casemate(&["reload"]));
        eventually("nft runs", || seen.exists());
        let start = Instant::now();
        let (mut answers, mut longest) = (0, Duration::ZERO);
        while !reload.is_finished() {
            let asked = Instant::now();
            assert!(net.left.pings_first_time(dst, 8), "{}", left.log());
            (answers, longest) = (answers + 1, longest.max(asked.elapsed()));
        }
        let (took, output) = (start.elapsed(), reload.join().unwrap());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // The reload is reported after the guard has changed, not before.
        assert!(took > Duration::from_secs(5), "{took:?}");
        assert!(answers > 3 && longest < Duration::from_secs(4), "{answers} answers, longest {longest:?}");
    });
    assert!(net.left.stdout_of("nft", &["list", "ruleset"]).contains("10.99.0.0/16"));
    std::fs::remove_file(&slow).unwrap();
    assert!(left.stop().success() && right.stop().success());
}

/// Fails closed: neither routes nor IKE proceed until the guard is installed. Existing SAs keep working.
#[test]
fn guard_update_is_retried_before_other_changes() {
    let test = "guard_update_is_retried_before_other_changes";
    let Some(net) = TestNet::build(test) else { return };
    let broken = net.left.file("broken");
    let nft =
        net.left.fake_nft(&format!("if [ -e {} ]; then exit 1; fi\nexec $NFT \"$@\"", broken.display()));
    let right = net.right.run_config(&negotiated(Side::Right, true, "none"), None);
    let left = net.left.run_config_with_nft(&negotiated(Side::Left, true, "start"), &nft);
    wait_until_up(&net, true, &[&left, &right]);
    std::fs::write(&broken, "").unwrap();
    let more = negotiated(Side::Left, true, "start").replace(
        "children {",
        "children {\n more {\n local_ts = 10.0.0.0/8\n remote_ts = 10.99.0.0/16\n start_action = trap\n }",
    );
    std::fs::write(net.left.file("conf"), more).unwrap();
    let routes = || net.left.stdout_of("ip", &["route", "show", "table", "50510"]);
    thread::scope(|scope| {
        let reload = scope.spawn(|| net.left.casemate(&["reload"]));
        eventually("a second attempt", || left.log().matches("does not follow the policies").count() > 1);
        assert!(!reload.is_finished() && !routes().contains("10.99"), "{}", left.log());
        assert!(net.left.pings_first_time(Side::Right.outer(true), 8), "{}", left.log());
        std::fs::remove_file(&broken).unwrap();
        assert!(reload.join().unwrap().status.success());
    });
    assert!(routes().contains("10.99"));
    assert!(net.left.stdout_of("nft", &["list", "ruleset"]).contains("10.99.0.0"));
    assert!(left.stop().success() && right.stop().success());
}

/// A user who sets PATH must not control which program runs as root.
#[test]
fn nft_is_not_searched_in_path() {
    let Some(net) = TestNet::build("nft_is_not_searched_in_path") else { return };
    let (directory, seen) = (net.left.file("bin"), net.left.file("seen"));
    std::fs::create_dir(&directory).unwrap();
    let fake = directory.join("nft");
    casemate_test_support::write_program(&fake, format!("#!/bin/sh\ntouch {}\n", seen.display()).as_bytes());
    let path = directory.display().to_string();
    let left = net.left.run_config(&negotiated(Side::Left, true, "trap"), Some(("PATH", &path)));
    assert!(!net.left.pings_at_once(Side::Right.outer(true), 8));
    assert!(left.stop().success());
    assert!(!seen.exists());
}
