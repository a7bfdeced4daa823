//! SAs with manual keys: all socket types, both modes, both IP versions.

use crate::host::{Host, HostAddrs, run};
use crate::virtual_link::{FrameLog, LinkEnd, VirtualLink};
use casemate::{Endpoint, bypass_control_plane};
use casemate_crypto::{MacAlg, MacKind};
use casemate_datapath::spd::{Action, Policy};
use casemate_datapath::{Direction, DropReason};
use casemate_ike::IkeSettings;
use casemate_rohc::{ChannelParams, ProfileSet};
use casemate_sa::{AddrRange, Mode, RohcParams, Selector, SpdId};
use casemate_test_support::hosts::{Ends, LinkSpec, Received, packets, suites};
use casemate_wire::checksum::pseudo_v4;
use casemate_wire::ip::{self, proto};
use smoltcp::phy::Medium;
use smoltcp::socket::{icmp, tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{IpAddress, IpEndpoint};
use std::net::IpAddr;

/// Two hosts with SAs with manual keys.
pub(crate) struct StaticPair {
    pub(crate) a: Host,
    pub(crate) b: Host,
    seen: FrameLog,
    now: Instant,
    /// Inner address of A, and that of its peer B.
    pub(crate) inner: HostAddrs,
}

/// Addresses of one end of a tunnel.
#[derive(Clone, Copy)]
struct TunnelEnd {
    outer: IpAddr,
    inner: IpAddr,
}

impl StaticPair {
    pub(crate) fn new(spec: &LinkSpec, medium: Medium, room: usize) -> Self {
        let link = spec.build();
        let VirtualLink { a: end_a, b: end_b, seen } = VirtualLink::new(medium, room);
        let end_of_a = TunnelEnd { outer: spec.ends.outer.0, inner: spec.ends.inner.0 };
        let end_of_b = TunnelEnd { outer: spec.ends.outer.1, inner: spec.ends.inner.1 };
        // The route into the tunnel and the route around it use the same neighbour. If the IP versions
        // differ, the inner address of the peer is treated as a neighbour.
        let is_mixed = end_of_a.outer.is_ipv4() != end_of_a.inner.is_ipv4();
        let host = |end: LinkEnd, mut datapath, number, own: TunnelEnd, peer: TunnelEnd| {
            bypass_control_plane(&mut datapath).unwrap();
            let endpoint = Endpoint::new(datapath, IkeSettings::DEVICE);
            let len = |addr: IpAddr| {
                if is_mixed {
                    8
                } else if addr.is_ipv4() {
                    24
                } else {
                    64
                }
            };
            let mut addrs = vec![(own.inner, len(own.inner)), (own.outer, len(own.outer))];
            addrs.dedup();
            let neighbour = if is_mixed { peer.inner } else { peer.outer };
            Host::new(end, endpoint, number, &addrs, neighbour)
        };
        let a = host(end_a, link.a.dp, 1, end_of_a, end_of_b);
        let b = host(end_b, link.b.dp, 2, end_of_b, end_of_a);
        let inner = HostAddrs { own: end_of_a.inner, peer: end_of_b.inner };
        Self { a, b, seen, now: Instant::from_millis(5_000), inner }
    }

    pub(crate) fn run(&mut self, limit: u64, done: impl FnMut(&mut Host, &mut Host) -> bool) {
        run(&mut self.now, &mut self.a, &mut self.b, limit, done);
    }
}

pub(crate) fn esp(ends: Ends, mode: Mode) -> LinkSpec {
    LinkSpec::single(ends, mode, suites::esp(suites::gcm(), 1))
}

/// A link, and the protocol of the packets on it.
struct ProtectedLink {
    spec: LinkSpec,
    protocol: u8,
}

fn protected_links() -> Vec<ProtectedLink> {
    let cbc = |ends, mode| LinkSpec::single(ends, mode, suites::esp(suites::cbc_sha1(), 1));
    let ah = |ends, mode| LinkSpec::single(ends, mode, suites::ah(MacAlg::standard(MacKind::HmacSha256), 1));
    // Restored headers are longer than what ESP leaves in front of them.
    let compressed = |ends| {
        let channel = ChannelParams { max_cid: 15, profiles: ProfileSet::ALL };
        let rohc = Some(RohcParams { channel, max_cid: channel.max_cid, integrity: None });
        let spec = LinkSpec::single(ends, Mode::Tunnel, suites::esp(suites::implicit_iv(), 1));
        (LinkSpec { rohc, ..spec }, proto::ESP)
    };
    let mut natt = esp(Ends::tunnel(4, 4), Mode::Tunnel);
    natt.encap = true;
    let mut specs = vec![
        (esp(Ends::transport(4), Mode::Transport), proto::ESP),
        (esp(Ends::transport(6), Mode::Transport), proto::ESP),
        (esp(Ends::tunnel(4, 4), Mode::Tunnel), proto::ESP),
        (esp(Ends::tunnel(6, 6), Mode::Tunnel), proto::ESP),
        (cbc(Ends::tunnel(6, 4), Mode::Tunnel), proto::ESP),
        (cbc(Ends::tunnel(4, 6), Mode::Tunnel), proto::ESP),
        (ah(Ends::transport(4), Mode::Transport), proto::AH),
        (ah(Ends::tunnel(6, 6), Mode::Tunnel), proto::AH),
        (natt, proto::UDP),
        compressed(Ends::tunnel(4, 4)),
        compressed(Ends::tunnel(4, 6)),
        compressed(Ends::tunnel(6, 6)),
    ];
    specs.iter_mut().for_each(|(spec, _)| spec.limits = crate::host::LIMITS);
    specs.into_iter().map(|(spec, protocol)| ProtectedLink { spec, protocol }).collect()
}

/// Asserts that all packets on the wire have this protocol, except for address resolution.
fn check_protected(seen: &FrameLog, protocol: u8, medium: Medium, what: &str) {
    let mut protocols = seen.protocols();
    if medium == Medium::Ethernet {
        protocols.retain(|other| ![0, proto::ICMPV6].contains(other));
    }
    assert_eq!(protocols, [protocol], "{what}");
}

#[test]
fn datagrams_of_every_length_are_delivered_in_both_directions() {
    for ProtectedLink { spec, protocol } in protected_links() {
        for medium in [Medium::Ip, Medium::Ethernet] {
            let what = format!("{:?} {medium:?}", spec.ends);
            let mut pair = StaticPair::new(&spec, medium, 1_000);
            let (socket_a, socket_b) = (pair.a.udp(1_000), pair.b.udp(2_000));
            let HostAddrs { own: inner_a, peer: inner_b } = pair.inner;
            for len in [0, 1, 100, 1_300, 1_400, 1_472, 1_500, 3_000, 8_000, 20_000, 65_000] {
                let data: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
                let to = IpEndpoint::new(IpAddress::from(inner_b), 2_000);
                let mut meta = udp::UdpMetadata::from(to);
                meta.local_address = Some(IpAddress::from(inner_a));
                pair.a.sockets.get_mut::<udp::Socket>(socket_a).send_slice(&data, meta).unwrap();
                let mut got = None;
                pair.run(3_000, |_, b| {
                    let socket = b.sockets.get_mut::<udp::Socket>(socket_b);
                    got = socket.recv().ok().map(|(data, meta)| (data.to_vec(), meta));
                    got.is_some()
                });
                let (received, meta) = got.unwrap();
                assert!(received == data, "{what}: {len} bytes came as {}", received.len());
                // And back.
                let mut back = udp::UdpMetadata::from(meta.endpoint);
                back.local_address = meta.local_address;
                pair.b.sockets.get_mut::<udp::Socket>(socket_b).send_slice(&data, back).unwrap();
                pair.run(3_000, |a, _| {
                    a.sockets.get_mut::<udp::Socket>(socket_a).recv().is_ok_and(|(back, _)| back == data)
                });
            }
            check_protected(&pair.seen, protocol, medium, &what);
        }
    }
}

#[test]
fn tcp_in_both_directions_needs_no_fragments() {
    const BYTES: usize = 1_000_000;
    for ProtectedLink { spec, protocol } in protected_links() {
        let mut pair = StaticPair::new(&spec, Medium::Ethernet, 1_000);
        let (socket_a, socket_b) = (pair.a.tcp(), pair.b.tcp());
        pair.b.sockets.get_mut::<tcp::Socket>(socket_b).listen(80).unwrap();
        let HostAddrs { own: inner_a, peer: inner_b } = pair.inner;
        let context = pair.a.interface.context();
        let (from, to) = ((IpAddress::from(inner_a), 4_000), (IpAddress::from(inner_b), 80));
        pair.a.sockets.get_mut::<tcp::Socket>(socket_a).connect(context, to, from).unwrap();
        let (mut sent, mut received) = ([0; 2], [0; 2]);
        pair.run(60_000, |a, b| {
            let sockets =
                [a.sockets.get_mut::<tcp::Socket>(socket_a), b.sockets.get_mut::<tcp::Socket>(socket_b)];
            for (n, socket) in sockets.into_iter().enumerate() {
                if socket.can_send() && sent[n] < BYTES {
                    let part: Vec<u8> =
                        (sent[n]..BYTES.min(sent[n] + 10_000)).map(|i| (i % 253) as u8).collect();
                    sent[n] += socket.send_slice(&part).unwrap();
                }
                if socket.can_recv() {
                    socket
                        .recv(|data| {
                            for byte in &*data {
                                assert_eq!(*byte, (received[n] % 253) as u8);
                                received[n] += 1;
                            }
                            (data.len(), ())
                        })
                        .unwrap();
                }
            }
            received == [BYTES; 2]
        });
        let frames = pair.seen.take();
        let is_fragment = |frame: &&Vec<u8>| match frame[14] >> 4 {
            4 => frame[20] & 0x3F != 0 || frame[21] != 0,
            6 => frame[20] == proto::FRAGMENT,
            _ => false,
        };
        assert_eq!(frames.iter().filter(is_fragment).count(), 0, "{:?} {protocol}", spec.ends);
        let longest = frames.iter().map(Vec::len).max().unwrap();
        // The MSS has to leave room for packets whose header is not compressed.
        let saved = if spec.rohc.is_some() { 40 } else { 0 };
        assert!(longest > 14 + 1_500 - 16 - saved, "segments are shorter than necessary: {longest}");
    }
}

/// Returns the identification of an IPv4 packet.
fn ident(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[4], packet[5]])
}

#[test]
fn frames_wait_when_the_device_has_no_room() {
    let over_ipv4 = protected_links().into_iter().filter(|link| link.spec.ends.outer.0.is_ipv4());
    for ProtectedLink { spec, protocol } in over_ipv4 {
        // The device has room for three frames; a datagram needs 15.
        let mut pair = StaticPair::new(&spec, Medium::Ip, 3);
        let (socket_a, socket_b) = (pair.a.udp(1_000), pair.b.udp(2_000));
        let to = IpEndpoint::new(IpAddress::from(pair.inner.peer), 2_000);
        let mut meta = udp::UdpMetadata::from(to);
        meta.local_address = Some(IpAddress::from(pair.inner.own));
        for _ in 0..5 {
            pair.a.sockets.get_mut::<udp::Socket>(socket_a).send_slice(&[7; 20_000], meta).unwrap();
        }
        let mut count = 0;
        pair.run(3_000, |_, b| {
            let socket = b.sockets.get_mut::<udp::Socket>(socket_b);
            while socket.recv().is_ok_and(|(data, _)| data == [7; 20_000]) {
                count += 1;
            }
            count == 5
        });
        assert_eq!(pair.a.dropped(DropReason::SendFailed), 0);
        let mut frames = pair.seen.take();
        // B sends feedback of header compression.
        frames.retain(|frame| ip::source(frame) == Some(spec.ends.outer.0));
        assert!(frames.iter().all(|frame| frame[9] == protocol && frame[6] & 0x40 == 0));
        // The fragments of different datagrams have different identifications.
        let mut idents: Vec<u16> = frames.iter().map(|frame| ident(frame)).collect();
        idents.dedup();
        assert!(idents.len() == 5 && !idents.contains(&0), "{:?}: {idents:?}", spec.ends);
        idents.sort_unstable();
        idents.dedup();
        assert_eq!(idents.len(), 5);
    }
}

#[test]
fn datagrams_of_every_length_pass_in_clear_too() {
    for version in [4, 6] {
        let mut spec = esp(Ends::transport(version), Mode::Transport);
        spec.limits = crate::host::LIMITS;
        let mut pair = StaticPair::new(&spec, Medium::Ethernet, 1_000);
        let any = if version == 4 { AddrRange::ANY_V4 } else { AddrRange::ANY_V6 };
        for host in [&mut pair.a, &mut pair.b] {
            let datapath = host.device.endpoint_mut().datapath_mut();
            for direction in [Direction::Outbound, Direction::Inbound] {
                let (selector, action) = (Selector::between(any, any), Action::Bypass);
                let is_protecting = |policy: &Policy| matches!(policy.action, Action::Protect(_));
                let found = datapath.policies(direction).find(|(_, policy)| is_protecting(policy)).unwrap().0;
                datapath.remove_policy(direction, found).unwrap();
                datapath
                    .add_policy(direction, Policy { spd: SpdId::MAIN, selector, action, priority: 9 })
                    .unwrap();
            }
        }
        let (socket_a, socket_b) = (pair.a.udp(1_000), pair.b.udp(2_000));
        let to = IpEndpoint::new(IpAddress::from(pair.inner.peer), 2_000);
        for len in [10, 1_472, 1_473, 40_000] {
            pair.a.sockets.get_mut::<udp::Socket>(socket_a).send_slice(&vec![8; len], to).unwrap();
            pair.run(3_000, |_, b| {
                b.sockets.get_mut::<udp::Socket>(socket_b).recv().is_ok_and(|(data, _)| data == vec![8; len])
            });
        }
        assert!(pair.seen.protocols().contains(&proto::UDP));
    }
}

/// The peer does not adjust the MSS: it uses the value in our SYN, and announces an MSS of 9,000 bytes
/// itself.
#[test]
fn tcp_segments_fit_with_a_peer_that_ignores_ipsec() {
    let spec = protected_links().remove(2).spec;
    let mut pair = StaticPair::new(&spec, Medium::Ip, 1_000);
    let mut peer = spec.build().b;
    let socket = pair.a.tcp();
    let HostAddrs { own: from, peer: to } = pair.inner;
    let context = pair.a.interface.context();
    let tcp = pair.a.sockets.get_mut::<tcp::Socket>(socket);
    tcp.connect(context, (IpAddress::from(to), 80), (IpAddress::from(from), 4_000)).unwrap();
    pair.a.poll(pair.now);
    let Received::Packet(syn) = peer.receive(&pair.seen.take()[0]) else { panic!("a SYN") };
    let announced = u16::from_be_bytes([syn[42], syn[43]]);
    assert_eq!(syn[40..42], [2, 4], "the MSS is the first option");
    assert!((1_300..1_460).contains(&announced), "{announced}");
    // SYN and ACK with an MSS of 9,000 bytes and a window of 60,000.
    let mut answer = vec![0, 80, 0x0F, 0xA0, 0, 0, 0, 9];
    answer.extend((u32::from_be_bytes([syn[24], syn[25], syn[26], syn[27]]) + 1).to_be_bytes());
    answer.extend([0x60, 0x12, 0xEA, 0x60, 0, 0, 0, 0, 2, 4, 0x23, 0x28]);
    let (IpAddr::V4(own), IpAddr::V4(other)) = (from, to) else { panic!("IPv4") };
    let sum = pseudo_v4(other, own, proto::TCP, 24).add_bytes(&answer).finish();
    answer[16..18].copy_from_slice(&sum.to_be_bytes());
    let wire = peer.send(&packets::ip(to, from, proto::TCP, &answer, true)).wire();
    pair.a.device.device_mut().inject(&wire);
    pair.a.poll(pair.now);
    assert_eq!(pair.a.sockets.get_mut::<tcp::Socket>(socket).send_slice(&[7; 20_000]), Ok(20_000));
    pair.seen.take();
    pair.a.poll(pair.now);
    let segments = pair.seen.take();
    let longest = segments.iter().map(Vec::len).max().unwrap();
    assert!(longest > 1_484 && segments.iter().all(|frame| frame[6] & 0x3F == 0), "{longest}");
}

#[test]
fn unprotected_packets_are_dropped() {
    for ProtectedLink { spec, .. } in protected_links() {
        let mut pair = StaticPair::new(&spec, Medium::Ip, 1_000);
        let socket = pair.b.udp(2_000);
        let HostAddrs { own: from, peer: to } = pair.inner;
        let clear = packets::udp(from, to, (1_000, 2_000), b"trust me", false);
        let mut forged = vec![clear.clone()];
        if to.is_ipv6() {
            // Behind destination options and hop-by-hop options.
            for kind in [proto::DEST_OPTS, proto::HOP_BY_HOP] {
                forged.push(packets::with_v6_headers(&clear, &[(kind, vec![0, 0, 1, 4, 0, 0, 0, 0])]));
            }
        }
        let count = forged.len() as u64;
        forged.iter().for_each(|packet| pair.b.device.device_mut().inject(packet));
        for _ in 0..10 {
            pair.b.poll(pair.now);
        }
        assert!(pair.b.sockets.get_mut::<udp::Socket>(socket).recv().is_err());
        assert_eq!(pair.b.dropped(DropReason::Unprotected), count, "{:?} {:?}", spec.ends, pair.b.drops());
    }
}

#[test]
fn pings_of_all_lengths_are_answered() {
    for ProtectedLink { spec, protocol } in protected_links() {
        let mut pair = StaticPair::new(&spec, Medium::Ethernet, 1_000);
        let HostAddrs { own: a, peer: b } = pair.inner;
        let socket = pair.a.icmp(0x77);
        for len in [0, 56, 1_400, 1_472, 5_000, 60_000] {
            use smoltcp::phy::ChecksumCapabilities;
            use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr};
            let data = vec![0x5A; len];
            let icmp = pair.a.sockets.get_mut::<icmp::Socket>(socket);
            match (a, b) {
                (IpAddr::V6(from), IpAddr::V6(to)) => {
                    let echo = Icmpv6Repr::EchoRequest { ident: 0x77, seq_no: 1, data: &data };
                    let room = icmp.send(echo.buffer_len(), b.into()).unwrap();
                    echo.emit(
                        &from,
                        &to,
                        &mut Icmpv6Packet::new_unchecked(room),
                        &ChecksumCapabilities::default(),
                    );
                }
                _ => {
                    let echo = Icmpv4Repr::EchoRequest { ident: 0x77, seq_no: 1, data: &data };
                    let room = icmp.send(echo.buffer_len(), b.into()).unwrap();
                    echo.emit(&mut Icmpv4Packet::new_unchecked(room), &ChecksumCapabilities::default());
                }
            }
            pair.run(3_000, |a, _| {
                let socket = a.sockets.get_mut::<icmp::Socket>(socket);
                socket.recv().is_ok_and(|(answer, _)| answer.len() == 8 + len && answer[8..] == data)
            });
        }
        check_protected(&pair.seen, protocol, Medium::Ethernet, "ping");
    }
}

#[test]
fn the_stack_gets_an_icmp_error_for_forbidden_packets() {
    let forbidden: IpAddr = "198.51.100.7".parse().unwrap();
    for medium in [Medium::Ip, Medium::Ethernet] {
        let spec = protected_links().remove(0).spec;
        let mut pair = StaticPair::new(&spec, medium, 1_000);
        let selector = Selector::between(AddrRange::ANY_V4, AddrRange::single(forbidden));
        let policy = Policy { spd: SpdId::MAIN, selector, action: Action::Discard, priority: 1 };
        pair.a.device.endpoint_mut().datapath_mut().add_policy(Direction::Outbound, policy).unwrap();
        let (sender, errors) = (pair.a.udp(1_000), pair.a.icmp_about(1_000));
        let to = IpEndpoint::new(forbidden.into(), 7);
        pair.a.sockets.get_mut::<udp::Socket>(sender).send_slice(b"anybody?", to).unwrap();
        let mut notices = Vec::new();
        pair.run(100, |a, _| {
            let socket = a.sockets.get_mut::<icmp::Socket>(errors);
            socket.recv().is_ok_and(|(error, _)| {
                notices = error.to_vec();
                true
            })
        });
        // Destination unreachable, communication administratively prohibited (RFC 4301 section 6).
        assert_eq!(notices[..2], [3, 13]);
        let mut protocols = pair.seen.protocols();
        protocols.retain(|protocol| *protocol != 0);
        assert!(protocols.is_empty(), "no packet was sent: {protocols:?}");
    }
}
