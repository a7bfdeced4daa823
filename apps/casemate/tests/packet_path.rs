//! `casemate run` between two hosts: datagrams longer than a packet, and fragments from other senders.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod attacker;
mod mss;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use attacker::{AttackNet, Destination, Ports, UDP, udp};
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::{FrameInjector, Netns};
use casemate_sa::AddrPair;
use mss::{TcpEnd, received_mss};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testnet::{Host, SetOnDrop, Side, TestNet, WIRE, retry_interrupted};

const PORT: u16 = 9_000;

/// Selectors of the policies of both directions, in addition to the addresses.
#[derive(Clone, Copy)]
struct Selectors<'s> {
    from_left: &'s str,
    from_right: &'s str,
}

impl Selectors<'static> {
    const ALL: Self = Self { from_left: "", from_right: "" };
    /// UDP datagrams from the left host to [`PORT`], and the replies.
    const PORT: Self = Self { from_left: "proto udp dport 9000", from_right: "proto udp sport 9000" };
}

/// A tunnel in each direction, and policies with these selectors.
fn tunnel(side: Side, v4: bool, before: &str, selectors: Selectors<'_>) -> String {
    let mut text = String::new();
    for (from, spi) in [(Side::Left, 0x1001), (Side::Right, 0x1002)] {
        let (src, dst) = (from.outer(v4), from.other().outer(v4));
        let key = format!("{:02x}", spi & 0xff).repeat(20);
        text += &format!(
            "xfrm state add src {src} dst {dst} proto esp spi {spi:#x} mode tunnel replay-window 128 \
             aead 'rfc4106(gcm(aes))' 0x{key} 128\n"
        );
        let dir = if from == side { "out" } else { "in" };
        let selector = if from == Side::Left { selectors.from_left } else { selectors.from_right };
        text += &before.replace("DIR", dir);
        text += &format!(
            "xfrm policy add src {} dst {} {selector} dir {dir} priority 10 tmpl src {src} dst {dst} proto esp mode tunnel\n",
            from.inner(v4),
            from.other().inner(v4)
        );
    }
    text
}

/// Exchanges datagrams of all lengths in both directions.
#[track_caller]
fn exchange(net: &TestNet, v4: bool) {
    exchange_again(net, v4, 1);
}

/// Like [`exchange`], with up to `times` attempts for each datagram.
#[track_caller]
fn exchange_again(net: &TestNet, v4: bool, times: usize) {
    let bind = |host: &Host| host.run(|| UdpSocket::bind((host.side.inner(v4), PORT))).unwrap();
    let (left, right) = (bind(&net.left), bind(&net.right));
    let there = SocketAddr::new(Side::Right.inner(v4), PORT);
    for socket in [&left, &right] {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    let mut buffer = vec![0; 65_535];
    for len in [100, 1_472, 3_000, 20_000] {
        let sent: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let mut send = || {
            left.send_to(&sent, there).unwrap();
            retry_interrupted(|| right.recv_from(&mut buffer))
        };
        let received = (1..times).fold(send(), |received, _| received.or_else(|_| send()));
        let status = || format!("{:#} {:#}", net.left.status()["drops"], net.right.status()["drops"]);
        let (count, from) =
            received.unwrap_or_else(|error| panic!("{len} bytes there: {error} {}", status()));
        assert_eq!(buffer[..count], sent);
        let mut send = || {
            right.send_to(&sent, from).unwrap();
            retry_interrupted(|| left.recv_from(&mut buffer))
        };
        let received = (1..times).fold(send(), |received, _| received.or_else(|_| send()));
        let (count, _) = received.unwrap_or_else(|error| panic!("{len} bytes back: {error} {}", status()));
        assert_eq!(buffer[..count], sent);
    }
}

#[test]
fn tunnels_for_ports_carry_long_datagrams() {
    let Some(net) = TestNet::build("tunnels_for_ports_carry_long_datagrams") else { return };
    for v4 in [true, false] {
        let any = if v4 { "0.0.0.0/0" } else { "::/0" };
        // A policy for a port with higher precedence than a tunnel for all traffic: none, pass, or block.
        let before = |action| {
            format!("xfrm policy add src {any} dst {any} proto udp dport 500 dir DIR priority 1 {action}\n")
        };
        for (before, selectors) in [
            (String::new(), Selectors::PORT),
            (before(""), Selectors::ALL),
            (before("action block"), Selectors::ALL),
        ] {
            let start = |host: &Host| host.run_xfrm(&tunnel(host.side, v4, &before, selectors));
            let (left, right) = (start(&net.left), start(&net.right));
            exchange(&net, v4);
            assert!(left.stop().success() && right.stop().success());
        }
    }
}

/// Sends a datagram of each of these lengths from the left host to another one; `status` describes the state
/// if one does not arrive.
#[track_caller]
fn one_way(left: &Host, right: &Netns, addrs: AddrPair, lens: &[usize], status: impl Fn() -> String) {
    let to = addrs.dst;
    let receiver = right.run(|| UdpSocket::bind((to, PORT))).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let sender = left.run(|| UdpSocket::bind((addrs.src, 0))).unwrap();
    let mut buffer = vec![0; 65_535];
    for len in lens {
        let sent: Vec<u8> = (0..*len).map(|at| (at % 251) as u8).collect();
        sender.send_to(&sent, (to, PORT)).unwrap();
        let received = retry_interrupted(|| receiver.recv(&mut buffer));
        let count = received.unwrap_or_else(|e| panic!("{len} bytes: {e} {}", status()));
        assert_eq!(buffer[..count], sent);
    }
}

/// Datagrams that the left gateway reassembled arrive at a host behind the right gateway, over a link of
/// 1,500 bytes.
#[test]
fn long_datagrams_reach_a_host_behind_the_other_gateway() {
    let Some(attack_net) = AttackNet::build("long_datagrams_reach_a_host_behind_the_other_gateway") else {
        return;
    };
    let net = &attack_net.net;
    for v4 in [true, false] {
        let (from, to) = (Side::Left.inner(v4), Destination::Lan.addr(v4));
        let start = |host: &Host| {
            let text = tunnel(host.side, v4, "", Selectors::PORT);
            host.run_xfrm(&text.replace(&Side::Right.inner(v4).to_string(), &to.to_string()))
        };
        let (left, right) = (start(&net.left), start(&net.right));
        let status = || format!("{:#} {:#}", net.left.status()["drops"], net.right.status()["drops"]);
        let addrs = AddrPair { src: from, dst: to };
        one_way(&net.left, &attack_net.lan, addrs, &[100, 1_400, 3_000, 20_000], status);
        assert!(left.stop().success() && right.stop().success());
    }
}

/// A policy passes datagrams of a port in clear over a link with a smaller MTU than those of the SAs.
#[test]
fn long_clear_datagrams_fit_their_link() {
    let Some(net) = TestNet::build("long_clear_datagrams_fit_their_link") else { return };
    for v4 in [true, false] {
        let (from, to) = (Side::Left.inner(v4), Side::Right.inner(v4));
        let set_mtu = |mtu: usize| {
            for host in [&net.left, &net.right] {
                let set = || {
                    let mut netlink = Netlink::open()?;
                    let wire = netlink.link(WIRE)?.index;
                    netlink.set_up(wire, mtu)
                };
                host.run(set).unwrap();
            }
        };
        let family = if v4 { "-4" } else { "-6" };
        for (host, to) in [(&net.left, to), (&net.right, from)] {
            let via = host.side.other().outer(v4).to_string();
            host.stdout_of("ip", &[family, "route", "add", &to.to_string(), "via", &via]);
        }
        let any = if v4 { "0.0.0.0/0" } else { "::/0" };
        let before =
            format!("xfrm policy add src {any} dst {any} proto udp dport {PORT} dir DIR priority 1\n");
        let left = net.left.run_xfrm(&tunnel(Side::Left, v4, &before, Selectors::ALL));
        set_mtu(1_300);
        // All except the first exceed the MTU of the TUN interface, so the kernel fragments them first.
        let status = || format!("{:#} {}", net.left.status()["drops"], left.log());
        let addrs = AddrPair { src: from, dst: to };
        one_way(&net.left, &net.right.netns, addrs, &[100, 1_450, 3_000, 20_000], status);
        set_mtu(1_500);
        assert!(left.stop().success());
    }
}

/// TCP in clear has DF set in IPv4 and is never fragmented in IPv6, so its sender must learn of a link
/// MTU below that of the TUN interface.
#[test]
fn clear_tcp_learns_a_small_link_mtu() {
    let Some(net) = TestNet::build("clear_tcp_learns_a_small_link_mtu") else { return };
    for v4 in [true, false] {
        let (from, to) = (Side::Left.inner(v4), Side::Right.inner(v4));
        let family = if v4 { "-4" } else { "-6" };
        let via = |side: Side| side.other().outer(v4).to_string();
        net.left.stdout_of("ip", &[family, "route", "add", &to.to_string(), "via", &via(Side::Left)]);
        // The other host sends segments that fit the cable, and announces a larger MSS.
        let narrow = ["mtu", "1300", "advmss", "1440"];
        let (back, gateway) = (from.to_string(), via(Side::Right));
        let route = [family, "route", "add", &back, "via", &gateway];
        net.right.stdout_of("ip", &[&route[..], &narrow].concat());
        let any = if v4 { "0.0.0.0/0" } else { "::/0" };
        let before = format!("xfrm policy add src {any} dst {any} proto tcp dir DIR priority 1\n");
        let left = net.left.run_xfrm(&tunnel(Side::Left, v4, &before, Selectors::ALL));
        net.left.stdout_of("ip", &["link", "set", WIRE, "mtu", "1300"]);
        assert!(
            net.left.tcp_round_trip(&net.right, to, 100_000),
            "{:#} {}",
            net.left.status()["drops"],
            left.log()
        );
        assert!(net.left.status()["drops"]["too-big"].as_u64() > Some(0), "no packet was too long");
        net.left.stdout_of("ip", &["link", "set", WIRE, "mtu", "1500"]);
        assert!(left.stop().success());
    }
}

/// Interface of the cable to the attacker.
const FORGER: &str = "wire1";

/// The first fragment of a forged ESP packet.
fn forged(src: Ipv4Addr, dst: Ipv4Addr, ident: u16) -> Vec<u8> {
    use casemate_wire::ip::Ipv4;
    let mut packet = vec![0; 36];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&36u16.to_be_bytes());
    let mut ip = Ipv4::parse(&mut packet[..]).unwrap();
    ip.set_ident(ident);
    ip.set_fragment(0, true);
    ip.set_ttl(64);
    ip.set_protocol(50);
    ip.set_src(src);
    ip.set_dst(dst);
    ip.fill_checksum();
    packet
}

/// A third host on a separate cable to the left host that sends forged fragments.
struct FragmentForger {
    inject: FrameInjector,
    frames: Vec<Vec<u8>>,
}

impl FragmentForger {
    fn new(net: &TestNet, third: &Netns) -> Self {
        net.left.run(|| Netlink::open()?.add_veth(FORGER, FORGER, third.as_fd())).unwrap();
        let set_up = || {
            let mut netlink = Netlink::open()?;
            let wire = netlink.link(FORGER)?.index;
            netlink.set_up(wire, 1_500).map(|()| wire)
        };
        net.left.run(set_up).unwrap();
        let inject = third.run(|| FrameInjector::open(set_up()?)).unwrap().unwrap();
        let link = net.left.stdout_of("ip", &["-o", "link", "show", FORGER]);
        let text = link.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
        let mac: Vec<u8> = text.split(':').map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect();
        let IpAddr::V4(us) = Side::Left.outer(true) else { panic!("IPv4") };
        // Each source address is used once, so each holds as few slots as a peer.
        let frame = |n: u16| {
            let [high, low] = n.to_be_bytes();
            [&mac[..], &[2, 0, 0, 0, 0, 9, 8, 0], &forged(Ipv4Addr::new(198, 18, high, low), us, n)].concat()
        };
        Self { inject, frames: (0..4_096).map(frame).collect() }
    }

    /// Sends more fragments per millisecond than there are slots, until `is_over`.
    fn flood(&self, is_over: &AtomicBool) {
        for burst in self.frames.chunks(128).cycle() {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            burst.iter().for_each(|frame| drop(self.inject.send(frame)));
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// ESP packets arrive in fragments over a slow link during a flood of forged fragments.
#[test]
fn forged_fragments_do_not_displace_those_of_peers() {
    let Some(net) = TestNet::build("forged_fragments_do_not_displace_those_of_peers") else { return };
    let limit =
        ["qdisc", "add", "dev", WIRE, "root", "tbf", "rate", "20mbit", "burst", "2kb", "latency", "1s"];
    let shaped = net.right.output("tc", &limit);
    if !shaped.status.success() {
        return casemate_test_support::skip(format!(
            "tc {limit:?}: {}",
            String::from_utf8_lossy(&shaped.stderr)
        ));
    }
    let start = |host: &Host| host.run_xfrm(&tunnel(host.side, true, "", Selectors::PORT));
    let _running = (start(&net.left), start(&net.right));
    let third = net.add_host();
    let forger = FragmentForger::new(&net, &third.netns);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = SetOnDrop(&is_over);
        scope.spawn(|| forger.flood(&is_over));
        net.left.wait_until(|status| status["drops"]["fragment-table-full"].as_u64() > Some(1_000));
        // A receiver that is not scheduled for a while may lose any fragment.
        exchange_again(&net, true, 3);
    });
}

/// The second fragment of a datagram for the gateway itself arrives through another SA than the first:
/// the gateway's own IP stack must not reassemble them.
#[test]
fn fragments_are_reassembled_only_within_one_sa() {
    let Some(attack_net) = AttackNet::build("fragments_for_the_gateway") else { return };
    let net = &attack_net.net;
    for v4 in [true, false] {
        let with_other =
            |text: &str| text.replace("spi 0x1001", "spi 0x1003").replace(&"01".repeat(20), &"03".repeat(20));
        let [one, receiving] = [Side::Left, Side::Right].map(|side| tunnel(side, v4, "", Selectors::ALL));
        let more: String = with_other(&receiving).lines().filter(|line| line.contains("0x1003")).collect();
        let right = net.right.run_xfrm(&format!("{receiving}{more}\n"));
        let addrs = AddrPair { src: Side::Left.inner(v4), dst: Side::Right.inner(v4) };
        let datagram = udp(addrs, Ports { src: 1, dst: 7_000 }, &[b'a'; 120]);
        let parts = |ident| attacker::fragments(addrs, UDP, &datagram, 64, ident);
        let socket = attack_net.receiver(Destination::Gateway, v4, 7_000);
        let left = net.left.run_xfrm(&one);
        attack_net.send_from_left(&parts(1));
        assert_eq!(attack_net.received_before(&socket, v4, b"last"), [vec![b'a'; 120]], "IPv4 {v4}");
        let [first, later] = parts(2);
        attack_net.send_from_left(&[first]);
        assert_eq!(attack_net.received_before(&socket, v4, b"between"), [[0; 0]; 0], "IPv4 {v4}");
        assert!(left.stop().success());
        let left = net.left.run_xfrm(&with_other(&one));
        attack_net.send_from_left(&[later]);
        assert_eq!(attack_net.received_before(&socket, v4, b"last"), [[0; 0]; 0], "IPv4 {v4}");
        assert!(left.stop().success() && right.stop().success());
    }
}

/// Whether segments of this MSS fit exactly into 1,500 bytes in a tunnel with AES-GCM, which adds 34 to
/// 37 bytes and the outer header.
fn fits(received_mss: usize, v4: bool) -> bool {
    let (header, max_len) = if v4 { (20, 1_500 - 20 - 34) } else { (40, 1_500 - 40 - 34) };
    let payload = received_mss + header + 20;
    payload <= max_len && payload > max_len - 8
}

/// Hosts behind a gateway do not know its SAs, so the gateway lowers the MSS in their SYN segments.
#[test]
fn tcp_through_a_tunnel_announces_an_mss_that_fits() {
    let Some(net) = TestNet::build("tcp_through_a_tunnel_announces_an_mss_that_fits") else { return };
    for v4 in [true, false] {
        let start = |host: &Host| host.run_xfrm(&tunnel(host.side, v4, "", Selectors::ALL));
        let _running = (start(&net.left), start(&net.right));
        let (here, there) = (Side::Left.inner(v4), Side::Right.inner(v4));
        let received_mss = received_mss(
            TcpEnd { netns: &net.left.netns, addr: here },
            TcpEnd { netns: &net.right.netns, addr: there },
        );
        assert!(fits(received_mss, v4), "IPv4 {v4}: {received_mss}");
    }
}

/// The same for forwarded connections, from and to a host behind the gateway.
#[test]
fn forwarded_tcp_announces_an_mss_that_fits() {
    let Some(attack_net) = AttackNet::build("forwarded_connections") else { return };
    let net = &attack_net.net;
    for v4 in [true, false] {
        let (here, there) = (Side::Left.inner(v4), Destination::Lan.addr(v4));
        let start = |host: &Host| {
            let text = tunnel(host.side, v4, "", Selectors::ALL);
            host.run_xfrm(&text.replace(&Side::Right.inner(v4).to_string(), &there.to_string()))
        };
        let (left, right) = (start(&net.left), start(&net.right));
        let left_end = TcpEnd { netns: &net.left.netns, addr: here };
        let lan_end = TcpEnd { netns: &attack_net.lan, addr: there };
        for received_mss in [received_mss(left_end, lan_end), received_mss(lan_end, left_end)] {
            assert!(fits(received_mss, v4), "IPv4 {v4}: {received_mss}");
        }
        assert!(left.stop().success() && right.stop().success());
    }
}
