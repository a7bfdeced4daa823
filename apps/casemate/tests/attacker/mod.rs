//! A gateway with a host behind it, a peer, and an attacker on the cable between the gateways who can
//! inject arbitrary packets.

use super::testnet::{Host, Side, TestNet, WIRE, retry_interrupted};
use casemate_linux::Error;
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::{FrameInjector, Netns};
use casemate_sa::AddrPair;
use casemate_test_support::Program;
use casemate_wire::checksum::{Sum, pseudo_v6};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

pub(crate) const UDP: u8 = 17;
pub(crate) const ESP: u8 = 50;
pub(crate) const AH: u8 = 51;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const LAN: &str = "lan0";

/// The hosts.
pub(crate) struct AttackNet {
    pub(crate) net: TestNet,
    /// The host behind the right gateway.
    pub(crate) lan: Netns,
    /// Ethernet address of the right gateway on the cable.
    mac: [u8; 6],
}

/// The destination of the attacker's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The gateway.
    Gateway,
    /// A protected address behind the gateway.
    Lan,
    /// An address behind the gateway without a policy.
    Open,
}

impl Destination {
    pub(crate) fn addr(self, v4: bool) -> IpAddr {
        match (self, v4) {
            (Self::Gateway, _) => Side::Right.inner(v4),
            (Self::Lan, true) => [10, 2, 5, 2].into(),
            (Self::Lan, false) => [0xfd02, 0, 0, 5, 0, 0, 0, 2].into(),
            (Self::Open, true) => [172, 16, 5, 2].into(),
            (Self::Open, false) => [0xfdee, 0, 0, 5, 0, 0, 0, 2].into(),
        }
    }
}

impl AttackNet {
    /// Builds the hosts. Notes the skipped test and returns `None` if network namespaces are not
    /// permitted.
    pub(crate) fn build(test: &str) -> Option<Self> {
        let net = TestNet::build(test)?;
        let lan = Netns::new().unwrap();
        net.right.run(|| Netlink::open()?.add_veth(LAN, LAN, lan.as_fd())).unwrap();
        net.right
            .run(|| {
                configure_addrs(&["10.2.5.1/24", "fd02:0:0:5::1/64", "172.16.5.1/24", "fdee:0:0:5::1/64"])
            })
            .unwrap();
        lan.run(|| {
            configure_addrs(&["10.2.5.2/24", "fd02:0:0:5::2/64", "172.16.5.2/24", "fdee:0:0:5::2/64"])
        })
        .unwrap()
        .unwrap();
        let write = |name: &str, value: &str| std::fs::write(format!("/proc/sys/net/{name}"), value);
        let forward = || {
            write("ipv4/ip_forward", "1")?;
            write("ipv6/conf/all/forwarding", "1")?;
            // Without the guard, the attacker's packets arrive.
            write("ipv4/conf/all/rp_filter", "0")?;
            write(&format!("ipv4/conf/{WIRE}/rp_filter"), "0")
        };
        net.right.run(forward).unwrap();
        for (family, via) in [("-4", "10.2.5.1"), ("-6", "fd02:0:0:5::1")] {
            ip(&lan, &[family, "route", "add", "default", "via", via]);
        }
        for (family, dst, via) in [("-4", "172.16.5.0/24", true), ("-6", "fdee:0:0:5::/64", false)] {
            let via = Side::Right.outer(via).to_string();
            net.left.stdout_of("ip", &[family, "route", "add", dst, "via", &via]);
        }
        let link = net.right.stdout_of("ip", &["-o", "link", "show", WIRE]);
        let text = link.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
        let mut mac = [0; 6];
        for (byte, digits) in mac.iter_mut().zip(text.split(':')) {
            *byte = u8::from_str_radix(digits, 16).unwrap();
        }
        Some(Self { net, lan, mac })
    }

    /// Injects packets on the cable.
    pub(crate) fn attack(&self, packets: &[Vec<u8>]) {
        let open = || FrameInjector::open(Netlink::open()?.link(WIRE)?.index);
        let inject = self.net.left.run(open).unwrap();
        for packet in packets {
            let ethertype = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
            let frame = [&self.mac[..], &[2, 0, 0, 0, 0, 9], &ethertype, packet].concat();
            inject.send(&frame).unwrap();
        }
    }

    /// Sends packets from the left gateway's own IP stack, and so through the tunnel if there is one.
    pub(crate) fn send_from_left(&self, packets: &[Vec<u8>]) {
        for packet in packets {
            let v4 = packet[0] >> 4 == 4;
            let domain = if v4 { Domain::IPV4 } else { Domain::IPV6 };
            let open = || Socket::new(domain, Type::RAW, Some(Protocol::from(255)));
            let socket = self.net.left.run(open).unwrap();
            if v4 { socket.set_header_included_v4(true) } else { socket.set_header_included_v6(true) }
                .unwrap();
            let dst: IpAddr = match v4 {
                true => Ipv4Addr::from(*packet[16..].first_chunk::<4>().unwrap()).into(),
                false => Ipv6Addr::from(*packet[24..].first_chunk::<16>().unwrap()).into(),
            };
            socket.send_to(packet, &SockAddr::from(SocketAddr::new(dst, 0))).unwrap();
        }
    }

    /// Runs `work` on the destination host.
    pub(crate) fn on<T: Send>(&self, to: Destination, work: impl FnOnce() -> T + Send) -> T {
        match to {
            Destination::Gateway => self.net.right.netns.run(work).unwrap(),
            Destination::Lan | Destination::Open => self.lan.run(work).unwrap(),
        }
    }

    /// A UDP socket on the destination host.
    pub(crate) fn receiver(&self, to: Destination, v4: bool, port: u16) -> UdpSocket {
        let socket = self.on(to, || UdpSocket::bind((to.addr(v4), port))).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }

    /// A raw socket on the destination host.
    pub(crate) fn raw_receiver(&self, to: Destination, v4: bool, protocol: u8) -> Socket {
        let domain = if v4 { Domain::IPV4 } else { Domain::IPV6 };
        let open = || Socket::new(domain, Type::RAW, Some(Protocol::from(i32::from(protocol))));
        let socket = self.on(to, open).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    /// Sends the datagram `last` through the tunnel and returns the datagrams that arrive before it.
    pub(crate) fn received_before(&self, socket: &UdpSocket, v4: bool, last: &[u8]) -> Vec<Vec<u8>> {
        let dst = socket.local_addr().unwrap();
        let addrs = AddrPair { src: Side::Left.inner(v4), dst: dst.ip() };
        let datagram = udp(addrs, Ports { src: 1, dst: dst.port() }, last);
        self.send_from_left(&[packet(addrs, UDP, &datagram)]);
        let mut arrived = Vec::new();
        let mut buffer = [0; 65_536];
        loop {
            let len = receive(socket, &mut buffer);
            if buffer[..len] == *last {
                return arrived;
            }
            arrived.push(buffer[..len].to_vec());
        }
    }
}

/// Waits for a datagram and returns its length.
pub(crate) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> usize {
    retry_interrupted(|| socket.recv(buffer)).unwrap()
}

/// Number of packets in the receive buffer of a raw socket.
pub(crate) fn count(mut socket: &Socket) -> usize {
    let mut buffer = [0; 65_536];
    std::iter::from_fn(|| socket.read(&mut buffer).ok()).count()
}

fn configure_addrs(addrs: &[&str]) -> Result<(), Error> {
    let mut netlink = Netlink::open()?;
    let index = netlink.link(LAN)?.index;
    netlink.set_up(index, 1500)?;
    for addr in addrs {
        let (addr, len) = addr.split_once('/').unwrap();
        netlink.add_address(index, addr.parse().unwrap(), len.parse().unwrap())?;
    }
    Ok(())
}

fn ip(netns: &Netns, args: &[&str]) {
    let output = Program::new("ip").args(args).output_with(|command| netns.spawn(command));
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Ports of a UDP datagram.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) src: u16,
    pub(crate) dst: u16,
}

/// A UDP datagram between these ports.
pub(crate) fn udp(addrs: AddrPair, ports: Ports, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() + 8) as u16;
    let mut datagram = [ports.src, ports.dst, len, 0].map(u16::to_be_bytes).concat();
    datagram.extend(payload);
    if let (IpAddr::V6(src), IpAddr::V6(dst)) = (addrs.src, addrs.dst) {
        let sum = pseudo_v6(src, dst, UDP, len.into()).combine(Sum::of(&datagram)).finish();
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    datagram
}

/// A whole packet.
pub(crate) fn packet(addrs: AddrPair, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (addrs.src, addrs.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => v4(src, dst, protocol, V4Fragment::WHOLE, payload),
        (IpAddr::V6(src), IpAddr::V6(dst)) => v6(src, dst, protocol, payload),
        _ => unreachable!(),
    }
}

/// Splits the packet into two fragments after `at` bytes of its payload.
pub(crate) fn fragments(
    addrs: AddrPair,
    protocol: u8,
    payload: &[u8],
    at: usize,
    ident: u16,
) -> [Vec<u8>; 2] {
    let (first, later) = payload.split_at(at);
    let offset = (at / 8) as u16;
    match (addrs.src, addrs.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => [
            v4(src, dst, protocol, V4Fragment { ident, flags_and_offset: 0x2000 }, first),
            v4(src, dst, protocol, V4Fragment { ident, flags_and_offset: offset }, later),
        ],
        (IpAddr::V6(src), IpAddr::V6(dst)) => [(first, 1), (later, offset << 3)].map(|(part, field)| {
            let mut body = vec![protocol, 0];
            body.extend(field.to_be_bytes());
            body.extend(u32::from(ident).to_be_bytes());
            body.extend(part);
            v6(src, dst, FRAGMENT, &body)
        }),
        _ => unreachable!(),
    }
}

/// A source route of an IPv4 packet (RFC 791 section 3.1).
#[derive(Clone, Copy)]
pub(crate) struct SourceRoute {
    /// The address to which the packet is sent first.
    pub(crate) via: Ipv4Addr,
    /// Option type: 0x83 (loose) or 0x89 (strict).
    pub(crate) option: u8,
    /// Whether the packet has already passed another router.
    pub(crate) has_passed: bool,
}

/// A UDP packet to `route.via` whose source route continues to the destination.
pub(crate) fn source_routed(src: Ipv4Addr, dst: Ipv4Addr, route: SourceRoute, payload: &[u8]) -> Vec<u8> {
    let mut packet = v4(src, route.via, UDP, V4Fragment::WHOLE, payload);
    let router: &[u8] = if route.has_passed { &[192, 0, 2, 9] } else { &[] };
    let (len, next) = (7 + router.len() as u8, 4 + router.len() as u8);
    let options = [&[route.option, len, next][..], router, &dst.octets(), &[0]].concat();
    let header = 20 + options.len();
    packet.splice(20..20, options);
    let len = packet.len() as u16;
    packet[0] = 0x40 | (header / 4) as u8;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[10..12].fill(0);
    let sum = Sum::of(&packet[..header]).finish().to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    packet
}

/// A UDP packet to `via` whose segment routing header (RFC 8754) continues to the destination.
pub(crate) fn segment_routed(src: Ipv6Addr, dst: Ipv6Addr, via: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let header = [&[UDP, 4, 4, 1, 1, 0, 0, 0][..], &dst.octets(), &via.octets(), payload].concat();
    v6(src, via, ROUTING, &header)
}

/// Fields of an IPv4 header for fragmentation. The identification 0 is replaced by 1.
#[derive(Clone, Copy)]
struct V4Fragment {
    ident: u16,
    flags_and_offset: u16,
}

impl V4Fragment {
    const WHOLE: Self = Self { ident: 0, flags_and_offset: 0 };
}

fn v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, fragment: V4Fragment, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() + 20) as u16;
    let mut header = vec![0x45, 0];
    let words = [len, fragment.ident.max(1), fragment.flags_and_offset];
    words.iter().for_each(|word| header.extend(word.to_be_bytes()));
    header.extend([64, protocol, 0, 0]);
    header.extend(src.octets());
    header.extend(dst.octets());
    let sum = Sum::of(&header).finish().to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    header.extend(payload);
    header
}

fn v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((payload.len() as u16).to_be_bytes());
    header.extend([next_header, 64]);
    header.extend(src.octets());
    header.extend(dst.octets());
    header.extend(payload);
    header
}

/// ip-xfrm(8) lines of a tunnel between the gateways; `what` restricts the policies.
pub(crate) fn tunnel(host: &Host, what: &str) -> String {
    let (left, right) = (Side::Left.outer(true), Side::Right.outer(true));
    let mut text = String::new();
    for v4 in [true, false] {
        let directions = [(left, right, 1), (right, left, 2)];
        for (src, dst, spi) in directions {
            let spi = spi + 2 * u32::from(v4);
            let key = format!("{spi:02x}").repeat(36);
            let (from, to) = nets(v4, src == left);
            text += &format!(
                "xfrm state add src {src} dst {dst} proto esp spi {spi:#x}000 mode tunnel reqid {} replay-window 64 \
                 sel src {from} dst {to} flag esn aead 'rfc7539esp(chacha20,poly1305)' 0x{key} 128\n",
                u32::from(v4) + 1
            );
            let dir = if (src == left) == (host.side == Side::Left) { "out" } else { "in" };
            text += &format!(
                "xfrm policy add src {from} dst {to} {what} dir {dir} tmpl src {src} dst {dst} proto esp mode tunnel reqid {}\n",
                u32::from(v4) + 1
            );
        }
    }
    text
}

fn nets(v4: bool, from_left: bool) -> (&'static str, &'static str) {
    let (left, right) = if v4 { ("10.1.0.0/16", "10.2.0.0/16") } else { ("fd01::/16", "fd02::/16") };
    if from_left { (left, right) } else { (right, left) }
}
