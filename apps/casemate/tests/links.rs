//! `casemate run` with links of different speed and MTU: a flood to a slow link does not affect peers
//! behind other links, and each peer gets packets that fit its link.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail"
)]

mod mss;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_linux::Error;
use casemate_linux::netlink::Netlink;
use mss::{TcpEnd, received_mss};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testnet::{Host, SetOnDrop, TUN, TestNet, WIRE, retry_interrupted};

/// Interface of the cable to the third host.
const FAST: &str = "wire1";
/// Packets sent before the measurement: more than a socket can queue.
const FLOOD_AHEAD: u32 = 12_000;
/// Packets per millisecond during the measurement: four times the rate of the link.
const FLOOD_EACH: u32 = 2;
/// Packets to the peer on the other link, one per millisecond.
const MEASURED: u32 = 1_000;

/// The SAs of the left host. Traffic to 10.2.0.1 or fd02::1 uses the slow link, traffic to 10.3.0.1 or
/// fd03::1 the fast one.
#[derive(Debug, Clone, Copy)]
struct LinkPlan {
    v4: bool,
    encap: bool,
}

impl LinkPlan {
    fn outer(self, network: u16, host: u16) -> IpAddr {
        match self.v4 {
            true => [192, 0, network as u8, host as u8].into(),
            false => [0x2001, 0xdb8, if network == 2 { 0 } else { network }, 0, 0, 0, 0, host].into(),
        }
    }

    fn inner(self, host: u16) -> IpAddr {
        if self.v4 { [10, host as u8, 0, 1].into() } else { [0xfd00 | host, 0, 0, 0, 0, 0, 0, 1].into() }
    }

    /// The SA from the left host to a host on this network; `dir` is that of the sender or the receiver.
    fn tunnel(self, network: u16, dir: &str) -> String {
        let (src, dst) = (self.outer(network, 1), self.outer(network, 2));
        let encap = if self.encap { " encap espinudp 4500 4500 0.0.0.0" } else { "" };
        format!(
            "xfrm state add src {src} dst {dst} proto esp spi 0x200{network} mode tunnel replay-window 128{encap} \
             aead 'rfc4106(gcm(aes))' 0x{} 128\n\
             xfrm policy add src {} dst {} dir {dir} tmpl src {src} dst {dst} proto esp mode tunnel\n",
            format!("{network:02x}").repeat(20),
            self.inner(1),
            self.inner(network),
        )
    }
}

/// Adds a third host on a separate cable.
fn third_host(net: &TestNet) -> Host {
    let third = net.add_host();
    net.left.run(|| Netlink::open()?.add_veth(FAST, FAST, third.netns.as_fd())).unwrap();
    let number = |host| {
        move || {
            let mut netlink = Netlink::open()?;
            let wire = netlink.link(FAST)?.index;
            netlink.set_up(wire, 1500)?;
            for v4 in [true, false] {
                let plan = LinkPlan { v4, encap: false };
                netlink.add_address(wire, plan.outer(3, host), if v4 { 24 } else { 64 })?;
                if host == 2 {
                    let lo = netlink.link("lo")?.index;
                    netlink.add_address(lo, plan.inner(3), if v4 { 32 } else { 128 })?;
                }
            }
            Ok::<(), Error>(())
        }
    };
    net.left.run(number(1)).unwrap();
    third.run(number(2)).unwrap();
    third
}

/// Sends datagrams until `is_over`: a burst first, then a few per millisecond.
fn flood(socket: &UdpSocket, ahead: &AtomicBool, is_over: &AtomicBool) {
    (0..FLOOD_AHEAD).for_each(|_| drop(socket.send(&[0x55; 1_200])));
    ahead.store(true, Ordering::Relaxed);
    while !is_over.load(Ordering::Relaxed) {
        (0..FLOOD_EACH).for_each(|_| drop(socket.send(&[0x55; 1_200])));
        thread::sleep(Duration::from_millis(1));
    }
}

/// Number of datagrams that arrive at the third host while the slow link is flooded.
fn arrived_beside_a_flood(net: &TestNet, third: &Host, plan: LinkPlan) -> usize {
    let bind = |addr| move || UdpSocket::bind((addr, 9_000));
    let to = third.run(bind(plan.inner(3))).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // Datagrams arrive in bursts; the receive buffer must not overflow.
    socket2::SockRef::from(&to).set_recv_buffer_size(1 << 20).unwrap();
    let [flooding, measured] = [2, 3].map(|network| {
        let from = net.left.run(|| UdpSocket::bind((plan.inner(1), 0))).unwrap();
        from.connect((plan.inner(network), 9_000)).unwrap();
        from
    });
    let (ahead, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| flood(&flooding, &ahead, &is_over));
        let _end = SetOnDrop(&is_over);
        while !ahead.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        let receiver = scope.spawn(|| {
            let mut seen = vec![false; MEASURED as usize];
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut datagram = [0; 100];
            while seen.contains(&false) && Instant::now() < deadline {
                let Ok(len) = retry_interrupted(|| to.recv(&mut datagram)) else { break };
                assert_eq!(len, 100);
                seen[u32::from_be_bytes(*datagram.first_chunk().unwrap()) as usize] = true;
            }
            seen.into_iter().filter(|seen| *seen).count()
        });
        for number in 0..MEASURED {
            let mut datagram = [0; 100];
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            measured.send(&datagram).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        receiver.join().unwrap()
    })
}

/// The kernel refuses to look up a route of type `prohibit`.
#[test]
fn unknown_mtu_of_a_route_is_reported() {
    let Some(net) = TestNet::build("unknown_mtu_of_a_route_is_reported") else { return };
    net.left.stdout_of("ip", &["route", "add", "prohibit", "198.51.100.1"]);
    let file = net.left.file("prohibit.xfrm");
    let key = "0x000102030405060708090a0b0c0d0e0f10111213";
    let state = format!(
        "ip xfrm state add src 192.0.2.1 dst 198.51.100.1 proto esp spi 0x1001 mode tunnel \
         aead 'rfc4106(gcm(aes))' {key} 128\n"
    );
    std::fs::write(&file, state).unwrap();
    let counters = net.left.file("counters");
    let arguments =
        ["run", "--dry-run", "--xfrm", file.to_str().unwrap(), "--counters", counters.to_str().unwrap()];
    let output = net.left.casemate(&arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{error}");
    let warning = "casemate: warning: route to 198.51.100.1: Permission denied (os error 13): a link MTU of 1500 bytes is assumed";
    assert!(error.lines().any(|line| line.ends_with(warning)), "{error}");
}

#[test]
fn flood_to_a_slow_link_does_not_affect_other_peers() {
    let Some(net) = TestNet::build("flood_to_a_slow_link_does_not_affect_other_peers") else { return };
    let third = third_host(&net);
    // The queue is so long that the sockets fill up first.
    let limit =
        ["qdisc", "add", "dev", WIRE, "root", "tbf", "rate", "5mbit", "burst", "32kb", "limit", "256mb"];
    let shaped = net.left.output("tc", &limit);
    if !shaped.status.success() {
        return casemate_test_support::skip(format!(
            "tc {limit:?}: {}",
            String::from_utf8_lossy(&shaped.stderr)
        ));
    }
    for plan in [(true, false), (true, true), (false, false)].map(|(v4, encap)| LinkPlan { v4, encap }) {
        let left = net.left.run_xfrm(&(plan.tunnel(2, "out") + &plan.tunnel(3, "out")));
        net.left.stdout_of("ip", &["link", "set", TUN, "txqueuelen", "20000"]);
        let receives = third.run_xfrm(&plan.tunnel(3, "in"));
        let arrived = arrived_beside_a_flood(&net, &third, plan);
        let drops = net.left.status()["drops"].clone();
        assert!(arrived * 100 > MEASURED as usize * 99, "{plan:?}: {arrived} of {MEASURED} arrived: {drops}");
        let dropped = drops.as_object().unwrap().iter().filter(|(_, count)| count.as_u64() != Some(0));
        let reasons: Vec<&String> = dropped.map(|(reason, _)| reason).collect();
        assert_eq!(reasons, ["link-full"], "{plan:?}");
        assert!(left.log().contains(&plan.outer(2, 2).to_string()), "{}", left.log());
        assert!(left.stop().success() && receives.stop().success());
    }
}

/// Addresses of one end of a tunnel.
#[derive(Clone, Copy)]
struct TunnelEnd {
    inner: IpAddr,
    outer: IpAddr,
}

/// The configuration of one end of an IKE tunnel.
fn negotiated(own: TunnelEnd, peer: TunnelEnd, action: &str) -> String {
    let name = peer.outer.to_string().replace(['.', ':'], "-");
    format!(
        "connections {{ {name} {{\n local_addrs = {}\n remote_addrs = {}\n\
         local {{ auth = psk }}\n remote {{ auth = psk }}\n\
         children {{ c {{ local_ts = {}\n remote_ts = {}\n start_action = {action} }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
        own.outer, peer.outer, own.inner, peer.inner
    )
}

/// The link to one peer has a small MTU, that to the other a large one. Only the announcement of the left
/// host is relevant, because the links of the peers are wide.
#[test]
fn each_peer_gets_the_mss_of_its_link() {
    let Some(net) = TestNet::build("each_peer_gets_the_mss_of_its_link") else { return };
    let third = third_host(&net);
    let set_mtu = |host: &Host, name: &str, mtu| {
        let set = || {
            let mut netlink = Netlink::open()?;
            let index = netlink.link(name)?.index;
            netlink.set_up(index, mtu)
        };
        host.run(set).unwrap();
    };
    for (host, name, mtu) in [(&net.left, WIRE, 9_000), (&net.right, WIRE, 9_000)] {
        set_mtu(host, name, mtu);
    }
    for (host, name, mtu) in [(&net.left, FAST, 1_300), (&third, FAST, 9_000)] {
        set_mtu(host, name, mtu);
    }
    for v4 in [true, false] {
        let plan = LinkPlan { v4, encap: false };
        // The left host, and the peer on a network.
        let left_end = |network| TunnelEnd { inner: plan.inner(1), outer: plan.outer(network, 1) };
        let peer_end = |network| TunnelEnd { inner: plan.inner(network), outer: plan.outer(network, 2) };
        let peers = [(2, &net.right), (3, &third)];
        let started = peers.map(|(network, host)| {
            host.run_config(&negotiated(peer_end(network), left_end(network), "none"), None)
        });
        let conf = peers.map(|(network, _)| negotiated(left_end(network), peer_end(network), "start"));
        let left = net.left.run_config(&conf.concat(), None);
        net.left.wait_until(|status| status["sas"].as_array().is_some_and(|sas| sas.len() == 4));
        for (network, host, mtu) in [(2, &net.right, 9_000), (3, &third, 1_300)] {
            let left_end = TcpEnd { netns: &net.left.netns, addr: plan.inner(1) };
            let peer_end = TcpEnd { netns: &host.netns, addr: plan.inner(network) };
            // The MSS of the peer is lowered on arrival.
            for received_mss in [received_mss(left_end, peer_end), received_mss(peer_end, left_end)] {
                // AES-GCM in a tunnel adds 34 to 37 bytes and the outer header.
                let header = if v4 { 20 } else { 40 };
                let (packet, most) = (received_mss + header + 20, mtu - header - 34);
                assert!(
                    packet <= most && packet > most - 24,
                    "IPv4 {v4}, {mtu}: {received_mss} {}",
                    left.log()
                );
            }
        }
        assert!(left.stop().success());
        started.into_iter().for_each(|peer| assert!(peer.stop().success()));
    }
}
