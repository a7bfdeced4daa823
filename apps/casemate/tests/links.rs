//! `casemate run` between links of different speed and MTU: a flood to a slow one costs the peers behind the
//! others nothing, and each peer gets packets as long as its link takes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail"
)]

#[allow(dead_code, reason = "other tests use the rest")]
mod lab;
mod segment;

use casemate_linux::Error;
use casemate_linux::netlink::Netlink;
use lab::{Host, Lab, TUN, WIRE, uninterrupted};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The cable to the third host.
const FAST: &str = "wire1";
/// What is in flight before anything is measured: more than a socket may have waiting.
const FLOOD_AHEAD: u32 = 12_000;
/// And what comes in each millisecond then: four times what the link takes.
const FLOOD_EACH: u32 = 2;
/// What the peer on the other link is sent, one in each millisecond.
const MEASURED: u32 = 1_000;

/// The SAs of left, whose traffic to 10.2.0.1 or fd02::1 goes over the slow link and that to 10.3.0.1 or
/// fd03::1 over the fast one.
#[derive(Debug, Clone, Copy)]
struct Plan {
    v4: bool,
    encap: bool,
}

impl Plan {
    fn outer(self, network: u16, host: u16) -> IpAddr {
        match self.v4 {
            true => [192, 0, network as u8, host as u8].into(),
            false => [0x2001, 0xdb8, if network == 2 { 0 } else { network }, 0, 0, 0, 0, host].into(),
        }
    }

    fn inner(self, host: u16) -> IpAddr {
        if self.v4 { [10, host as u8, 0, 1].into() } else { [0xfd00 | host, 0, 0, 0, 0, 0, 0, 1].into() }
    }

    /// The SA from left to a host on this network, for its sender or its receiver.
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

/// The third host, on a cable of its own.
fn third_host(lab: &Lab) -> Host {
    let third = lab.third();
    lab.left.run(|| Netlink::open()?.add_veth(FAST, FAST, third.netns.as_fd())).unwrap();
    let number = |host| {
        move || {
            let mut netlink = Netlink::open()?;
            let wire = netlink.link(FAST)?.index;
            netlink.set_up(wire, 1500)?;
            for v4 in [true, false] {
                let plan = Plan { v4, encap: false };
                netlink.add_address(wire, plan.outer(3, host), if v4 { 24 } else { 64 })?;
                if host == 2 {
                    let lo = netlink.link("lo")?.index;
                    netlink.add_address(lo, plan.inner(3), if v4 { 32 } else { 128 })?;
                }
            }
            Ok::<(), Error>(())
        }
    };
    lab.left.run(number(1)).unwrap();
    third.run(number(2)).unwrap();
    third
}

/// Sends datagrams until told to stop: so many at once, then a few each millisecond.
fn flood(socket: &UdpSocket, ahead: &AtomicBool, is_over: &AtomicBool) {
    (0..FLOOD_AHEAD).for_each(|_| drop(socket.send(&[0x55; 1_200])));
    ahead.store(true, Ordering::Relaxed);
    while !is_over.load(Ordering::Relaxed) {
        (0..FLOOD_EACH).for_each(|_| drop(socket.send(&[0x55; 1_200])));
        thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the flood, however the test ends.
struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How many of the datagrams that are sent while the slow link is flooded arrive at the third host.
fn arrived_beside_a_flood(lab: &Lab, third: &Host, plan: Plan) -> usize {
    let bind = |addr| move || UdpSocket::bind((addr, 9_000));
    let to = third.run(bind(plan.inner(3))).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // They come in bursts, and the socket itself is not to lose any.
    socket2::SockRef::from(&to).set_recv_buffer_size(1 << 20).unwrap();
    let [flooding, measured] = [2, 3].map(|network| {
        let from = lab.left.run(|| UdpSocket::bind((plan.inner(1), 0))).unwrap();
        from.connect((plan.inner(network), 9_000)).unwrap();
        from
    });
    let (ahead, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| flood(&flooding, &ahead, &is_over));
        let _end = End(&is_over);
        while !ahead.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        let receiver = scope.spawn(|| {
            let mut seen = vec![false; MEASURED as usize];
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut datagram = [0; 100];
            while seen.contains(&false) && Instant::now() < deadline {
                let Ok(len) = uninterrupted(|| to.recv(&mut datagram)) else { break };
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

#[test]
fn a_flood_to_a_slow_link_costs_other_peers_nothing() {
    let Some(lab) = Lab::build("a_flood_to_a_slow_link_costs_other_peers_nothing") else { return };
    let third = third_host(&lab);
    // The queue is so long that the sockets are full before it is.
    let limit =
        ["qdisc", "add", "dev", WIRE, "root", "tbf", "rate", "5mbit", "burst", "32kb", "limit", "256mb"];
    let shaped = lab.left.output("tc", &limit);
    if !shaped.status.success() {
        return casemate_left_out::note(format!("tc {limit:?}: {}", String::from_utf8_lossy(&shaped.stderr)));
    }
    for plan in [(true, false), (true, true), (false, false)].map(|(v4, encap)| Plan { v4, encap }) {
        let left = lab.left.protect(&(plan.tunnel(2, "out") + &plan.tunnel(3, "out")));
        lab.left.says("ip", &["link", "set", TUN, "txqueuelen", "20000"]);
        let receives = third.protect(&plan.tunnel(3, "in"));
        let arrived = arrived_beside_a_flood(&lab, &third, plan);
        let drops = lab.left.status()["drops"].clone();
        assert!(arrived * 100 > MEASURED as usize * 99, "{plan:?}: {arrived} of {MEASURED} arrived: {drops}");
        let dropped = drops.as_object().unwrap().iter().filter(|(_, count)| count.as_u64() != Some(0));
        let reasons: Vec<&String> = dropped.map(|(reason, _)| reason).collect();
        assert_eq!(reasons, ["link-full"], "{plan:?}");
        assert!(left.said().contains(&plan.outer(2, 2).to_string()), "{}", left.said());
        assert!(left.stop().success() && receives.stop().success());
    }
}

/// One end of a tunnel with keys that are negotiated; `own` and `peer` are inner and outer addresses.
fn negotiated(own: (IpAddr, IpAddr), peer: (IpAddr, IpAddr), action: &str) -> String {
    let name = peer.1.to_string().replace(['.', ':'], "-");
    format!(
        "connections {{ {name} {{\n local_addrs = {}\n remote_addrs = {}\n\
         local {{ auth = psk }}\n remote {{ auth = psk }}\n\
         children {{ c {{ local_ts = {}\n remote_ts = {}\n start_action = {action} }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
        own.1, peer.1, own.0, peer.0
    )
}

/// The link to one peer is narrower than most, and that to the other one wider. What left announces tells, for the
/// peers have wide links.
#[test]
fn each_peer_gets_what_its_link_takes() {
    let Some(lab) = Lab::build("each_peer_gets_what_its_link_takes") else { return };
    let third = third_host(&lab);
    let set_mtu = |host: &Host, name: &str, mtu| {
        let set = || {
            let mut netlink = Netlink::open()?;
            let index = netlink.link(name)?.index;
            netlink.set_up(index, mtu)
        };
        host.run(set).unwrap();
    };
    for (host, name, mtu) in [(&lab.left, WIRE, 9_000), (&lab.right, WIRE, 9_000)] {
        set_mtu(host, name, mtu);
    }
    for (host, name, mtu) in [(&lab.left, FAST, 1_300), (&third, FAST, 9_000)] {
        set_mtu(host, name, mtu);
    }
    for v4 in [true, false] {
        let plan = Plan { v4, encap: false };
        let ends = |network| {
            let own = (plan.inner(1), plan.outer(network, 1));
            (own, (plan.inner(network), plan.outer(network, 2)))
        };
        let peers = [(2, &lab.right), (3, &third)];
        let started = peers.map(|(network, host)| {
            let (left, peer) = ends(network);
            host.negotiate(&negotiated(peer, left, "none"), None)
        });
        let conf = peers.map(|(network, _)| negotiated(ends(network).0, ends(network).1, "start"));
        let left = lab.left.negotiate(&conf.concat(), None);
        lab.left.waits_until(|status| status["sas"].as_array().is_some_and(|sas| sas.len() == 4));
        for (network, host, mtu) in [(2, &lab.right, 9_000), (3, &third, 1_300)] {
            let (from, to) = (plan.inner(1), plan.inner(network));
            let ends = ((&lab.left.netns, from), (&host.netns, to));
            // What the peer announces is lowered as it arrives.
            for announced in [segment::announced(ends.0, ends.1), segment::announced(ends.1, ends.0)] {
                // AES-GCM in a tunnel takes 34 to 37 bytes and the outer header.
                let header = if v4 { 20 } else { 40 };
                let (packet, most) = (announced + header + 20, mtu - header - 34);
                assert!(
                    packet <= most && packet > most - 24,
                    "IPv4 {v4}, {mtu}: {announced} {}",
                    left.said()
                );
            }
        }
        assert!(left.stop().success());
        started.into_iter().for_each(|peer| assert!(peer.stop().success()));
    }
}
