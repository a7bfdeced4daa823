//! `casemate run` between two hosts: datagrams longer than a packet, and fragments that somebody else made.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod attacker;
#[allow(dead_code, reason = "other tests use the rest")]
mod lab;
mod segment;

use attacker::{Site, To, UDP, udp};
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::{Inject, Netns};
use lab::{Host, Lab, Side, WIRE, uninterrupted};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const PORT: u16 = 9_000;

/// A tunnel each way, and policies with these selectors behind the addresses; those for the way back have the
/// ports exchanged.
fn tunnel(side: Side, v4: bool, before: &str, selectors: (&str, &str)) -> String {
    let mut text = String::new();
    for (from, spi) in [(Side::Left, 0x1001), (Side::Right, 0x1002)] {
        let (src, dst) = (from.outer(v4), from.other().outer(v4));
        let key = format!("{:02x}", spi & 0xff).repeat(20);
        text += &format!(
            "xfrm state add src {src} dst {dst} proto esp spi {spi:#x} mode tunnel replay-window 128 \
             aead 'rfc4106(gcm(aes))' 0x{key} 128\n"
        );
        let dir = if from == side { "out" } else { "in" };
        let selector = if from == Side::Left { selectors.0 } else { selectors.1 };
        text += &before.replace("DIR", dir);
        text += &format!(
            "xfrm policy add src {} dst {} {selector} dir {dir} priority 10 tmpl src {src} dst {dst} proto esp mode tunnel\n",
            from.inner(v4),
            from.other().inner(v4)
        );
    }
    text
}

/// Datagrams of all lengths there and back.
#[track_caller]
fn exchange(lab: &Lab, v4: bool) {
    exchange_again(lab, v4, 1);
}

/// The same, where a datagram may have to be sent so many times.
#[track_caller]
fn exchange_again(lab: &Lab, v4: bool, times: usize) {
    let bind = |host: &Host| host.run(|| UdpSocket::bind((host.side.inner(v4), PORT))).unwrap();
    let (left, right) = (bind(&lab.left), bind(&lab.right));
    let there = SocketAddr::new(Side::Right.inner(v4), PORT);
    for socket in [&left, &right] {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    let mut buffer = vec![0; 65_535];
    for len in [100, 1_472, 3_000, 20_000] {
        let sent: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let mut send = || {
            left.send_to(&sent, there).unwrap();
            uninterrupted(|| right.recv_from(&mut buffer))
        };
        let received = (1..times).fold(send(), |received, _| received.or_else(|_| send()));
        let status = || format!("{:#} {:#}", lab.left.status()["drops"], lab.right.status()["drops"]);
        let (count, from) =
            received.unwrap_or_else(|error| panic!("{len} bytes there: {error} {}", status()));
        assert_eq!(buffer[..count], sent);
        let mut send = || {
            right.send_to(&sent, from).unwrap();
            uninterrupted(|| left.recv_from(&mut buffer))
        };
        let received = (1..times).fold(send(), |received, _| received.or_else(|_| send()));
        let (count, _) = received.unwrap_or_else(|error| panic!("{len} bytes back: {error} {}", status()));
        assert_eq!(buffer[..count], sent);
    }
}

#[test]
fn tunnels_for_ports_carry_long_datagrams() {
    let Some(lab) = Lab::build("tunnels_for_ports_carry_long_datagrams") else { return };
    let ports = ("proto udp dport 9000", "proto udp sport 9000");
    for v4 in [true, false] {
        let any = if v4 { "0.0.0.0/0" } else { "::/0" };
        // Another policy for ports before a tunnel for everything: it passes, or it blocks.
        let before = |action| {
            format!("xfrm policy add src {any} dst {any} proto udp dport 500 dir DIR priority 1 {action}\n")
        };
        for (before, selectors) in
            [(String::new(), ports), (before(""), ("", "")), (before("action block"), ("", ""))]
        {
            let start = |host: &Host| host.protect(&tunnel(host.side, v4, &before, selectors));
            let (left, right) = (start(&lab.left), start(&lab.right));
            exchange(&lab, v4);
            assert!(left.stop().success() && right.stop().success());
        }
    }
}

/// Sends a datagram of each of these lengths one way; `status` says what became of one that does not arrive.
#[track_caller]
fn one_way(
    (left, right): (&Host, &Netns),
    (from, to): (IpAddr, IpAddr),
    lens: &[usize],
    status: impl Fn() -> String,
) {
    let receiver = right.run(|| UdpSocket::bind((to, PORT))).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let sender = left.run(|| UdpSocket::bind((from, 0))).unwrap();
    let mut buffer = vec![0; 65_535];
    for len in lens {
        let sent: Vec<u8> = (0..*len).map(|at| (at % 251) as u8).collect();
        sender.send_to(&sent, (to, PORT)).unwrap();
        let received = uninterrupted(|| receiver.recv(&mut buffer));
        let count = received.unwrap_or_else(|e| panic!("{len} bytes: {e} {}", status()));
        assert_eq!(buffer[..count], sent);
    }
}

/// What the left gateway put together arrives at a host behind the right one, over a link of 1,500 bytes.
#[test]
fn long_datagrams_reach_a_host_behind_the_other_gateway() {
    let Some(site) = Site::build("long_datagrams_reach_a_host_behind_the_other_gateway") else { return };
    let lab = &site.lab;
    for v4 in [true, false] {
        let (from, to) = (Side::Left.inner(v4), To::Lan.addr(v4));
        let start = |host: &Host| {
            let text = tunnel(host.side, v4, "", ("proto udp dport 9000", "proto udp sport 9000"));
            host.protect(&text.replace(&Side::Right.inner(v4).to_string(), &to.to_string()))
        };
        let (left, right) = (start(&lab.left), start(&lab.right));
        let status = || format!("{:#} {:#}", lab.left.status()["drops"], lab.right.status()["drops"]);
        one_way((&lab.left, &site.lan), (from, to), &[100, 1_400, 3_000, 20_000], status);
        assert!(left.stop().success() && right.stop().success());
    }
}

/// A policy that lets datagrams of a port pass in clear; their link is narrower than those of the SAs.
#[test]
fn long_datagrams_in_clear_fit_their_link() {
    let Some(lab) = Lab::build("long_datagrams_in_clear_fit_their_link") else { return };
    for v4 in [true, false] {
        let (from, to) = (Side::Left.inner(v4), Side::Right.inner(v4));
        let set_mtu = |mtu: usize| {
            for host in [&lab.left, &lab.right] {
                let set = || {
                    let mut netlink = Netlink::open()?;
                    let wire = netlink.link(WIRE)?.index;
                    netlink.set_up(wire, mtu)
                };
                host.run(set).unwrap();
            }
        };
        let family = if v4 { "-4" } else { "-6" };
        for (host, to) in [(&lab.left, to), (&lab.right, from)] {
            let via = host.side.other().outer(v4).to_string();
            host.says("ip", &[family, "route", "add", &to.to_string(), "via", &via]);
        }
        let any = if v4 { "0.0.0.0/0" } else { "::/0" };
        let before =
            format!("xfrm policy add src {any} dst {any} proto udp dport {PORT} dir DIR priority 1\n");
        let left = lab.left.protect(&tunnel(Side::Left, v4, &before, ("", "")));
        set_mtu(1_300);
        // All but the first are too long for the TUN interface, so the kernel cuts them before.
        let status = || format!("{:#} {}", lab.left.status()["drops"], left.said());
        one_way((&lab.left, &lab.right.netns), (from, to), &[100, 1_450, 3_000, 20_000], status);
        set_mtu(1_500);
        assert!(left.stop().success());
    }
}

/// TCP in clear sets DF in IPv4 and cannot be cut in IPv6: its sender has to hear of a link that is narrower than
/// the TUN interface.
#[test]
fn tcp_in_clear_hears_of_a_narrow_link() {
    let Some(lab) = Lab::build("tcp_in_clear_hears_of_a_narrow_link") else { return };
    for v4 in [true, false] {
        let (from, to) = (Side::Left.inner(v4), Side::Right.inner(v4));
        let family = if v4 { "-4" } else { "-6" };
        let via = |side: Side| side.other().outer(v4).to_string();
        lab.left.says("ip", &[family, "route", "add", &to.to_string(), "via", &via(Side::Left)]);
        // The other side sends what the cable takes, and announces more.
        let narrow = ["mtu", "1300", "advmss", "1440"];
        let (back, gateway) = (from.to_string(), via(Side::Right));
        let route = [family, "route", "add", &back, "via", &gateway];
        lab.right.says("ip", &[&route[..], &narrow].concat());
        let any = if v4 { "0.0.0.0/0" } else { "::/0" };
        let before = format!("xfrm policy add src {any} dst {any} proto tcp dir DIR priority 1\n");
        let left = lab.left.protect(&tunnel(Side::Left, v4, &before, ("", "")));
        lab.left.says("ip", &["link", "set", WIRE, "mtu", "1300"]);
        assert!(
            lab.left.exchanges(&lab.right, to, 100_000),
            "{:#} {}",
            lab.left.status()["drops"],
            left.said()
        );
        assert!(lab.left.status()["drops"]["too-big"].as_u64() > Some(0), "nothing was too long");
        lab.left.says("ip", &["link", "set", WIRE, "mtu", "1500"]);
        assert!(left.stop().success());
    }
}

/// The cable of a host that forges.
const FORGER: &str = "wire1";

/// The first fragment of an ESP packet, from wherever.
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

/// Frames of a third host on a cable of its own to the left one, each with a forged fragment.
struct Forger {
    inject: Inject,
    frames: Vec<Vec<u8>>,
}

impl Forger {
    fn new(lab: &Lab, third: &Netns) -> Self {
        lab.left.run(|| Netlink::open()?.add_veth(FORGER, FORGER, third.as_fd())).unwrap();
        let set_up = || {
            let mut netlink = Netlink::open()?;
            let wire = netlink.link(FORGER)?.index;
            netlink.set_up(wire, 1_500).map(|()| wire)
        };
        lab.left.run(set_up).unwrap();
        let inject = third.run(|| Inject::open(set_up()?)).unwrap().unwrap();
        let link = lab.left.says("ip", &["-o", "link", "show", FORGER]);
        let text = link.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
        let mac: Vec<u8> = text.split(':').map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect();
        let IpAddr::V4(us) = Side::Left.outer(true) else { panic!("IPv4") };
        // Strangers, each of them once: they hold as few slots as a peer.
        let frame = |n: u16| {
            let [high, low] = n.to_be_bytes();
            [&mac[..], &[2, 0, 0, 0, 0, 9, 8, 0], &forged(Ipv4Addr::new(198, 18, high, low), us, n)].concat()
        };
        Self { inject, frames: (0..4_096).map(frame).collect() }
    }

    /// More than there are slots in each millisecond, until the exchange is over.
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

/// Ends the flood, however the test ends.
struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// ESP itself comes in fragments here, slowly, while forged fragments come all the time.
#[test]
fn forged_fragments_do_not_stop_those_of_peers() {
    let Some(lab) = Lab::build("forged_fragments_do_not_stop_those_of_peers") else { return };
    let limit =
        ["qdisc", "add", "dev", WIRE, "root", "tbf", "rate", "20mbit", "burst", "2kb", "latency", "1s"];
    let shaped = lab.right.output("tc", &limit);
    if !shaped.status.success() {
        return casemate_left_out::note(format!("tc {limit:?}: {}", String::from_utf8_lossy(&shaped.stderr)));
    }
    let ports = ("proto udp dport 9000", "proto udp sport 9000");
    let start = |host: &Host| host.protect(&tunnel(host.side, true, "", ports));
    let _running = (start(&lab.left), start(&lab.right));
    let third = lab.third();
    let forger = Forger::new(&lab, &third.netns);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = End(&is_over);
        scope.spawn(|| forger.flood(&is_over));
        lab.left.waits_until(|status| status["drops"]["fragment-table-full"].as_u64() > Some(1_000));
        // A receiver without a processor for a while may lose a fragment of each, forged or not.
        exchange_again(&lab, true, 3);
    });
}

/// The later fragment of a datagram for the gateway itself comes through another SA than the first one: the
/// gateway's own stack is not the one that puts them together.
#[test]
fn fragments_for_the_gateway_make_a_datagram_with_those_of_their_sa_alone() {
    let Some(site) = Site::build("fragments_for_the_gateway") else { return };
    let lab = &site.lab;
    for v4 in [true, false] {
        let with_other =
            |text: &str| text.replace("spi 0x1001", "spi 0x1003").replace(&"01".repeat(20), &"03".repeat(20));
        let [one, receiving] = [Side::Left, Side::Right].map(|side| tunnel(side, v4, "", ("", "")));
        let more: String = with_other(&receiving).lines().filter(|line| line.contains("0x1003")).collect();
        let right = lab.right.protect(&format!("{receiving}{more}\n"));
        let ends = (Side::Left.inner(v4), Side::Right.inner(v4));
        let parts = |ident| attacker::fragments(ends, UDP, &udp(ends, (1, 7_000), &[b'a'; 120]), 64, ident);
        let socket = site.receiver(To::Gateway, v4, 7_000);
        let left = lab.left.protect(&one);
        site.send_from_left(&parts(1));
        assert_eq!(site.arrives_before(&socket, v4, b"last"), [vec![b'a'; 120]], "IPv4 {v4}");
        let [first, later] = parts(2);
        site.send_from_left(&[first]);
        assert_eq!(site.arrives_before(&socket, v4, b"between"), [[0; 0]; 0], "IPv4 {v4}");
        assert!(left.stop().success());
        let left = lab.left.protect(&with_other(&one));
        site.send_from_left(&[later]);
        assert_eq!(site.arrives_before(&socket, v4, b"last"), [[0; 0]; 0], "IPv4 {v4}");
        assert!(left.stop().success() && right.stop().success());
    }
}

/// Whether segments of this MSS just fit 1,500 bytes in a tunnel with AES-GCM, which takes 34 to 37 bytes and
/// the outer header.
fn fits(announced: usize, v4: bool) -> bool {
    let (header, most) = if v4 { (20, 1_500 - 20 - 34) } else { (40, 1_500 - 40 - 34) };
    let payload = announced + header + 20;
    payload <= most && payload > most - 8
}

/// Hosts behind a gateway know nothing of its SAs. What they announce when a connection begins is lowered to
/// what fits.
#[test]
fn connections_through_a_tunnel_announce_segments_that_fit() {
    let Some(lab) = Lab::build("connections_through_a_tunnel_announce_segments_that_fit") else { return };
    for v4 in [true, false] {
        let start = |host: &Host| host.protect(&tunnel(host.side, v4, "", ("", "")));
        let _running = (start(&lab.left), start(&lab.right));
        let (here, there) = (Side::Left.inner(v4), Side::Right.inner(v4));
        let announced = segment::announced((&lab.left.netns, here), (&lab.right.netns, there));
        assert!(fits(announced, v4), "IPv4 {v4}: {announced}");
    }
}

/// The same for connections that the gateway forwards, from and to a host behind it.
#[test]
fn forwarded_connections_announce_segments_that_fit() {
    let Some(site) = Site::build("forwarded_connections") else { return };
    let lab = &site.lab;
    for v4 in [true, false] {
        let (here, there) = (Side::Left.inner(v4), To::Lan.addr(v4));
        let start = |host: &Host| {
            let text = tunnel(host.side, v4, "", ("", ""));
            host.protect(&text.replace(&Side::Right.inner(v4).to_string(), &there.to_string()))
        };
        let (left, right) = (start(&lab.left), start(&lab.right));
        let ends = ((&lab.left.netns, here), (&site.lan, there));
        for announced in [segment::announced(ends.0, ends.1), segment::announced(ends.1, ends.0)] {
            assert!(fits(announced, v4), "IPv4 {v4}: {announced}");
        }
        assert!(left.stop().success() && right.stop().success());
    }
}
