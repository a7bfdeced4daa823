//! The early drop at a host that receives packets from another one.

use super::{EarlyDrop, table_name};
use crate::link_sender::tests::{Pair, RIGHT, packet, pair};
use crate::netfilter::Netfilter;
use crate::netlink::Netlink;
use crate::netns::FrameCapture;
use crate::nft::Nft;
use crate::raw_socket::{AddressedPacket, RawSender};
use casemate_sa::Instant;
use casemate_wire::ip::proto;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io::Read;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

/// A second address of the right host, of each IP version.
const OTHER: [&str; 2] = ["192.0.2.3", "2001:db8::3"];

fn set_of(addrs: &[&str]) -> BTreeSet<IpAddr> {
    addrs.iter().map(|addr| addr.parse().unwrap()).collect()
}

/// The right host: its early drop, and what its programs and its packet sockets receive.
struct Receiver {
    early_drop: EarlyDrop,
    programs: Vec<Socket>,
    capture: FrameCapture,
}

impl Receiver {
    fn open() -> Self {
        let mut netlink = Netlink::open().unwrap();
        let wire = netlink.link("wire").unwrap().index;
        for (addr, len) in OTHER.iter().zip([24, 64]) {
            netlink.add_address(wire, addr.parse().unwrap(), len).unwrap();
        }
        let raw = |domain, protocol: u8| {
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(i32::from(protocol)))).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let domains = [Domain::IPV4, Domain::IPV6].into_iter();
        let programs = domains
            .flat_map(|domain| [proto::ESP, proto::AH, proto::UDP].map(|protocol| raw(domain, protocol)));
        Self {
            early_drop: EarlyDrop::open("tun5", 999).unwrap(),
            programs: programs.collect(),
            capture: FrameCapture::open(wire).unwrap(),
        }
    }

    /// Whether a program receives the next packet that has this length. It is captured in any case.
    fn reaches_programs(&mut self, len: usize) -> bool {
        let mut buffer = [0; 2_000];
        let is_packet = |frame: &[u8]| frame.len() == len + 14;
        while let Some(count) = self.capture.next(&mut buffer, Duration::from_secs(20)).unwrap() {
            if is_packet(&buffer[..count]) {
                // The capture comes first, in the same softirq.
                std::thread::sleep(Duration::from_millis(20));
                return self.programs.iter().filter(|socket| (&**socket).read(&mut buffer).is_ok()).count()
                    > 0;
            }
        }
        panic!("the packet has not arrived");
    }
}

/// Runs a test with a receiver at the right host, and a function that sends packets there.
fn with_receiver(test: impl FnOnce(&mut Receiver, &dyn Fn(&[u8])) + Send) {
    let Some(Pair { left, right }) = pair() else { return };
    let sender = left.run(|| RawSender::open(1).unwrap()).unwrap();
    let send = |bytes: &[u8]| {
        let dst = casemate_wire::ip::destination(bytes).unwrap();
        assert_eq!(sender.send(Instant::ZERO, &[AddressedPacket { bytes, dst }]).unwrap(), 1);
    };
    right.run(|| test(&mut Receiver::open(), &send)).unwrap();
}

#[test]
fn only_esp_and_ah_to_the_addresses_are_dropped() {
    with_receiver(|receiver, send| {
        let all = RIGHT
            .iter()
            .chain(&OTHER)
            .flat_map(|dst| [proto::ESP, proto::AH, proto::UDP].map(|protocol| (*dst, protocol)));
        let all: Vec<(&str, u8)> = all.collect();
        for addrs in [&[][..], &RIGHT[..], &RIGHT[1..], &OTHER[..], &[]] {
            receiver.early_drop.set(set_of(addrs)).unwrap();
            for (dst, protocol) in &all {
                // AH with a next header and a length, because the kernel follows it in IPv6.
                let payload = [17, 4, 0, 0, 0, 0, 16, 0].repeat(8);
                let packet = packet(dst.parse().unwrap(), *protocol, &payload);
                send(&packet);
                let is_dropped = addrs.contains(dst) && *protocol != proto::UDP;
                assert_eq!(
                    receiver.reaches_programs(packet.len()),
                    !is_dropped,
                    "{dst} {protocol} {addrs:?}"
                );
            }
        }
    });
}

#[test]
fn fragments_are_dropped_in_ipv4_and_packets_with_extension_headers_pass() {
    with_receiver(|receiver, send| {
        receiver.early_drop.set(set_of(&RIGHT)).unwrap();
        let mut fragment = packet(RIGHT[0].parse().unwrap(), proto::ESP, &[0; 64]);
        fragment[6] = 0x20;
        send(&fragment);
        assert!(!receiver.reaches_programs(fragment.len()));
        let hop_by_hop = [&[proto::ESP, 0, 1, 4, 0, 0, 0, 0][..], &[0; 64]].concat();
        let packet = packet(RIGHT[1].parse().unwrap(), 0, &hop_by_hop);
        send(&packet);
        assert!(receiver.reaches_programs(packet.len()));
    });
}

#[test]
fn packets_from_the_tun_interface_pass() {
    with_receiver(|receiver, send| {
        let wire = Netlink::open().unwrap().link("wire").unwrap().index;
        receiver.early_drop = EarlyDrop::open("tun5", wire).unwrap();
        receiver.early_drop.set(set_of(&RIGHT)).unwrap();
        let packet = packet(RIGHT[0].parse().unwrap(), proto::ESP, &[0; 64]);
        send(&packet);
        assert!(receiver.reaches_programs(packet.len()));
    });
}

#[test]
fn the_table_ends_with_the_connection_and_other_programs_cannot_change_it() {
    with_receiver(|receiver, _| {
        let has_table = || Netfilter::open().unwrap().has_table(&table_name("tun5")).unwrap();
        assert!(!has_table());
        receiver.early_drop.set(set_of(&RIGHT)).unwrap();
        assert!(has_table());
        Nft::direct().run("flush ruleset\n").unwrap();
        assert!(Nft::direct().run("delete table inet casemate-received_tun5\n").is_err());
        assert!(has_table());
        let shown = Command::new("nft").args(["list", "ruleset"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        for part in [
            "hook prerouting priority -450",
            "iifkind \"bridge\" accept",
            "ip protocol",
            "ip daddr @local4",
            "ip6 daddr @local6",
            RIGHT[1],
        ] {
            assert!(shown.contains(part), "no `{part}` in\n{shown}");
        }
        receiver.early_drop.set(BTreeSet::new()).unwrap();
        assert!(!has_table());
        receiver.early_drop.set(set_of(&RIGHT)).unwrap();
        receiver.early_drop = EarlyDrop::open("tun5", 999).unwrap();
        assert!(!has_table(), "the connection was closed");
    });
}

#[test]
fn many_addresses_fit() {
    with_receiver(|receiver, _| {
        let many = |count: u16| {
            (0..count).map(|number| {
                let [a, b] = number.to_be_bytes();
                IpAddr::from([10, 0, a, b])
            })
        };
        let v6 = (0..2_000u16).map(|number| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, number]));
        receiver.early_drop.set(many(2_000).chain(v6).collect()).unwrap();
        receiver.early_drop.set(many(3).collect()).unwrap();
    });
}

/// With br_netfilter, the hook is called before the packet sockets see a packet from a bridge.
#[test]
fn packets_from_a_bridge_pass() {
    with_receiver(|receiver, send| {
        let commands = format!(
            "ip link add hub type bridge && ip link set wire master hub && ip addr flush dev wire && \
             ip addr add {}/24 dev hub && ip link set hub up && \
             echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables",
            RIGHT[0]
        );
        let made = Command::new("sh").args(["-c", &commands]).output().unwrap();
        if !made.status.success() {
            return casemate_test_support::skip(String::from_utf8_lossy(&made.stderr));
        }
        receiver.early_drop.set(set_of(&RIGHT)).unwrap();
        let packet = packet(RIGHT[0].parse().unwrap(), proto::ESP, &[0; 64]);
        send(&packet);
        assert!(receiver.reaches_programs(packet.len()));
    });
}
