//! All socket types through SAs of every kind.

use crate::pair::{PairAddrs, cases, with_each};
use crate::peer::{ETHERNET, SmoltcpPeer};
use casemate_test_support::hosts::Received;
use casemate_wire::ip::proto;
use smoltcp::iface::SocketHandle;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::{icmp, tcp, udp};
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpAddress, IpEndpoint};
use std::net::IpAddr;

/// Port of the echo service on both ends.
const ECHO: u16 = 7;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

pub(crate) fn echo_datagrams(peer: &mut SmoltcpPeer, handle: SocketHandle) {
    let socket = peer.sockets.get_mut::<udp::Socket>(handle);
    while let Ok((data, meta)) = socket.recv() {
        let (data, mut back) = (data.to_vec(), udp::UdpMetadata::from(meta.endpoint));
        back.local_address = meta.local_address;
        socket.send_slice(&data, back).unwrap();
    }
}

#[test]
fn datagrams_of_every_length_are_echoed_by_both_ends() {
    with_each(cases(), |case, pair| {
        let (client, server) = (pair.peer.udp(1_000), pair.peer.udp(ECHO));
        let PairAddrs { peer: own, lwip: other } = pair.inner;
        for len in [0, 1, 100, 1_300, 1_400, 1_472, 1_500, 3_000, 8_000, 20_000] {
            let data = pattern(len);
            let mut meta = udp::UdpMetadata::from(IpEndpoint::new(IpAddress::from(other), ECHO));
            meta.local_address = Some(IpAddress::from(own));
            pair.peer.sockets.get_mut::<udp::Socket>(client).send_slice(&data, meta).unwrap();
            pair.run(&format!("{}, {len} bytes", case.name()), |peer| {
                let socket = peer.sockets.get_mut::<udp::Socket>(client);
                socket.recv().is_ok_and(|(back, _)| back == data)
            });
            // lwIP cannot distinguish an empty echo, so it sends no empty datagrams.
            if len > 0 {
                pair.job(&format!("udp {other} {own} {len}"), |peer| echo_datagrams(peer, server));
            }
        }
        assert_eq!(pair.seen.protocols(), [case.protocol], "{}", case.name());
    });
}

#[test]
fn pings_of_all_lengths_are_answered() {
    with_each(cases(), |case, pair| {
        let PairAddrs { peer: own, lwip: other } = pair.inner;
        let handle = pair.peer.icmp(0x77);
        for len in [0, 56, 1_400, 1_472, 5_000, 20_000] {
            let data = pattern(len);
            let socket = pair.peer.sockets.get_mut::<icmp::Socket>(handle);
            let sums = ChecksumCapabilities::default();
            match (own, other) {
                (IpAddr::V6(from), IpAddr::V6(to)) => {
                    let echo = Icmpv6Repr::EchoRequest { ident: 0x77, seq_no: 1, data: &data };
                    let room = socket.send(echo.buffer_len(), other.into()).unwrap();
                    echo.emit(&from, &to, &mut Icmpv6Packet::new_unchecked(room), &sums);
                }
                _ => {
                    let echo = Icmpv4Repr::EchoRequest { ident: 0x77, seq_no: 1, data: &data };
                    let room = socket.send(echo.buffer_len(), other.into()).unwrap();
                    echo.emit(&mut Icmpv4Packet::new_unchecked(room), &sums);
                }
            }
            pair.run(&format!("{}, {len} bytes", case.name()), |peer| {
                let socket = peer.sockets.get_mut::<icmp::Socket>(handle);
                socket.recv().is_ok_and(|(answer, _)| answer.len() == 8 + len && answer[8..] == data)
            });
        }
        assert_eq!(pair.seen.protocols(), [case.protocol], "{}", case.name());
    });
}

/// Returns whether a frame contains a fragment.
fn is_fragment(frame: &&Vec<u8>) -> bool {
    let packet = &frame[ETHERNET..];
    match packet[0] >> 4 {
        4 => packet[6] & 0x3F != 0 || packet[7] != 0,
        6 => packet[6] == proto::FRAGMENT,
        _ => false,
    }
}

/// The MSS leaves room for the IPsec headers, in both directions.
#[test]
fn tcp_opened_by_the_peer_needs_no_fragments() {
    const BYTES: usize = 300_000;
    with_each(cases(), |case, pair| {
        let PairAddrs { peer: own, lwip: other } = pair.inner;
        let handle = pair.peer.tcp();
        let context = pair.peer.interface.context();
        let socket = pair.peer.sockets.get_mut::<tcp::Socket>(handle);
        socket.connect(context, (IpAddress::from(other), ECHO), (IpAddress::from(own), 4_000)).unwrap();
        let (data, mut sent, mut back) = (pattern(BYTES), 0, Vec::new());
        pair.run(&case.name(), |peer| {
            let socket = peer.sockets.get_mut::<tcp::Socket>(handle);
            if socket.can_send() {
                sent += socket.send_slice(&data[sent..]).unwrap();
            }
            if socket.can_recv() {
                socket.recv(|part| (part.len(), back.extend_from_slice(part))).unwrap();
            }
            back.len() == BYTES
        });
        assert!(back == data, "{}", case.name());
        check_segments(&case.name(), &pair.seen.take());
        pair.peer.sockets.get_mut::<tcp::Socket>(handle).close();
        pair.run("the end", |peer| !peer.sockets.get_mut::<tcp::Socket>(handle).may_recv());
    });
}

#[test]
fn tcp_opened_by_lwip_needs_no_fragments() {
    with_each(cases(), |case, pair| {
        let PairAddrs { peer: own, lwip: other } = pair.inner;
        let handle = pair.peer.tcp();
        pair.peer.sockets.get_mut::<tcp::Socket>(handle).listen(ECHO).unwrap();
        pair.job(&format!("tcp {other} {own} 300000"), |peer| {
            let socket = peer.sockets.get_mut::<tcp::Socket>(handle);
            let room = socket.send_capacity() - socket.send_queue();
            if socket.can_recv() && room > 0 {
                let take = |data: &mut [u8]| (room.min(data.len()), data[..room.min(data.len())].to_vec());
                let part = socket.recv(take).unwrap();
                assert_eq!(socket.send_slice(&part).unwrap(), part.len());
            }
        });
        let frames = pair.seen.take();
        check_segments(&case.name(), &frames);
        // The peer's device lowers the MSS as well. Decrypting lwIP's SYN shows the MSS that lwIP's side
        // announced.
        let mut opener = case.spec.build().a;
        let from_lwip = frames.iter().filter(|frame| frame[6..ETHERNET - 2] == [2, 0, 0, 0, 0, 2]);
        let mut announced = from_lwip.filter_map(|frame| match opener.receive(&frame[ETHERNET..]) {
            Received::Packet(packet) => mss_of_syn(&packet),
            Received::Other(_) => None,
        });
        let mss = announced.next().unwrap();
        assert!((1_300..1_440).contains(&mss), "{}: {mss}", case.name());
    });
}

/// Returns the MSS of a TCP SYN if it is the first option.
fn mss_of_syn(packet: &[u8]) -> Option<u16> {
    let segment = packet.get(if packet[0] >> 4 == 4 { 20 } else { 40 }..)?;
    let is_syn = segment.len() >= 24 && segment[13] & 2 != 0 && segment[20..22] == [2, 4];
    is_syn.then(|| u16::from_be_bytes([segment[22], segment[23]]))
}

fn check_segments(what: &str, frames: &[Vec<u8>]) {
    assert_eq!(frames.iter().filter(is_fragment).count(), 0, "{what}");
    let longest = frames.iter().map(Vec::len).max().unwrap();
    // lwIP limits segments to TCP_MSS, which fits an Ethernet frame with IPv4.
    assert!(longest > ETHERNET + 1_500 - 16, "{what}: segments are shorter than necessary: {longest}");
}
