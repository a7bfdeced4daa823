//! Forged and malformed packets.

use crate::pair::{PairAddrs, StaticCase, StaticPair, cases, with_each};
use crate::peer::protocol;
use crate::services::echo_datagrams;
use casemate_datapath::fragment::Fragments;
use casemate_datapath::{Direction, Unmatched};
use casemate_sa::{Mode, SaParams, Spi};
use casemate_test_support::TestRng;
use casemate_test_support::hosts::{Ends, Host, PROVIDERS, packets};
use casemate_wire::ip::{Ipv4, Ipv6, proto};
use casemate_wire::udp::Udp;
use smoltcp::socket::udp;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Sends an IP packet to lwIP.
fn inject(pair: &mut StaticPair, packet: &[u8]) {
    let kind = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xDD] };
    let frame = [&[2, 0, 0, 0, 0, 2][..], &[2, 0, 0, 0, 0, 1], &kind, packet].concat();
    pair.peer.device.device_mut().send(frame);
}

/// Runs both ends for 100 ms.
fn run_100_ms(pair: &mut StaticPair) {
    let start = Instant::now();
    pair.run("a while", |_| start.elapsed() > Duration::from_millis(100));
}

/// Builds a UDP datagram to lwIP's echo service, with its checksum.
fn datagram(from: IpAddr, to: IpAddr, data: &[u8]) -> Vec<u8> {
    let mut packet = packets::udp(from, to, (1_000, 7), data, false);
    if let (IpAddr::V6(from), IpAddr::V6(to)) = (from, to) {
        Udp::parse(&mut packet[40..]).unwrap().fill_checksum_v6(from, to);
    }
    packet
}

#[test]
fn unprotected_packets_are_dropped() {
    with_each(cases(), |case, pair| {
        let client = pair.peer.udp(1_000);
        let PairAddrs { peer: from, lwip: to } = pair.inner;
        let clear = datagram(from, to, b"trust me");
        let mut forged = vec![clear.clone()];
        if to.is_ipv6() {
            // Behind each of the extension headers, and behind two.
            let options = |kind| (kind, vec![0, 0, 1, 4, 0, 0, 0, 0]);
            let atomic = (proto::FRAGMENT, vec![0, 0, 0, 0, 0, 0, 0, 9]);
            forged.push(packets::with_v6_headers(&clear, &[options(proto::DEST_OPTS)]));
            forged.push(packets::with_v6_headers(&clear, &[options(proto::HOP_BY_HOP)]));
            forged.push(packets::with_v6_headers(&clear, &[atomic]));
            forged.push(packets::with_v6_headers(
                &clear,
                &[options(proto::HOP_BY_HOP), options(proto::DEST_OPTS)],
            ));
        }
        // In fragments, which lwIP reassembles to one datagram.
        let long = datagram(from, to, &[7; 3_000]);
        let mut fragments = Fragments::new(&long, 1_280, 5).unwrap();
        let mut piece = [0; 1_280];
        let count = forged.len() + 1;
        forged.iter().for_each(|packet| inject(pair, packet));
        while let Some(len) = fragments.next(&mut piece) {
            inject(pair, &piece[..len]);
        }
        run_100_ms(pair);
        assert!(pair.peer.sockets.get_mut::<udp::Socket>(client).recv().is_err(), "no echo");
        let drops = pair.lwip_drops();
        assert_eq!(drops, format!("dropped: unprotected {count}"), "{}", case.name());
    });
}

/// Below IP, a VLAN tag hides the IP packet from the policies. Such a frame must not be sent in clear text.
#[test]
fn frames_with_a_vlan_tag_are_not_sent_in_clear() {
    let cases = vec![
        StaticCase::esp(Ends::transport(4), Mode::Transport),
        StaticCase::esp(Ends::tunnel(6, 6), Mode::Tunnel),
    ];
    with_each(cases, |case, pair| {
        let PairAddrs { peer: own, lwip: other } = pair.inner;
        let server = pair.peer.udp(7);
        // Address resolution first: its frames would get the tag too.
        pair.job(&format!("udp {other} {own} 100"), |peer| echo_datagrams(peer, server));
        pair.lwip.command("vlan 7").unwrap();
        pair.seen.take();
        pair.lwip.begin(&format!("udp {other} {own} 100"));
        run_100_ms(pair);
        let tagged = pair.seen.take().into_iter().filter(|frame| frame[12..14] == [0x81, 0]);
        let clear =
            tagged.filter(|frame| matches!(protocol(&frame[18..]), Some(kind) if kind != case.protocol));
        assert_eq!(clear.count(), 0, "{}", case.name());
    });
}

/// A peer's stack may fragment a datagram before its tunnel protects the fragments. They must not be
/// mixed with fragments in clear text or fragments of another SA (RFC 4301 section 7.4).
#[test]
fn fragments_received_through_a_tunnel_are_reassembled() {
    let tunnels = [4, 6].map(|version| {
        let mut case = StaticCase::esp(Ends::tunnel(version, version), Mode::Tunnel);
        case.is_first = true;
        case
    });
    with_each(tunnels.into(), |case, pair| {
        let PairAddrs { peer: from, lwip: to } = pair.inner;
        let client = pair.peer.udp(1_000);
        let data: Vec<u8> = (0..5_000).map(|at| (at % 249) as u8).collect();
        let whole = datagram(from, to, &data);
        let forged = datagram(from, to, &[0xEE; 5_000]);
        // The peer's data path, as a second sender on the same SA.
        let mut sender = case.spec.build().a;
        let mut other = another_sa(case, pair);
        let mut fragments = Fragments::new(&whole, 1_280, 99).unwrap();
        let mut in_clear = Fragments::new(&forged, 1_280, 99).unwrap();
        let mut piece = [0; 1_280];
        while let Some(len) = in_clear.next(&mut piece) {
            inject(pair, &piece[..len]);
            // The last fragment never arrives through the other SA.
            if !in_clear.is_finished() {
                inject(pair, &other.send(&piece[..len]).wire());
            }
            let len = fragments.next(&mut piece).unwrap();
            let wire = sender.send(&piece[..len]).wire();
            inject(pair, &wire);
        }
        let mut echo = Vec::new();
        pair.run(&case.name(), |peer| {
            let socket = peer.sockets.get_mut::<udp::Socket>(client);
            socket.recv().is_ok_and(|(back, _)| {
                echo = back.to_vec();
                true
            })
        });
        assert!(echo == data, "{}: {} bytes", case.name(), echo.len());
        run_100_ms(pair);
        assert!(pair.peer.sockets.get_mut::<udp::Socket>(client).recv().is_err(), "no second echo");
        assert_eq!(pair.lwip_drops(), "dropped: unprotected 1");
    });
}

/// Adds a second SA for the same policy to lwIP. Returns the data path of its sender.
fn another_sa(case: &StaticCase, pair: &mut StaticPair) -> Host {
    let first = case.spec.params(0, true);
    let params = SaParams { spi: Spi::new(0x2000).unwrap(), ..first.clone() };
    let mut host = Host::with_limits(Unmatched::Discard, 65_535, case.spec.limits);
    host.dp.add_sa(&params, Direction::Outbound, &PROVIDERS, host.now).unwrap();
    host.dp.add_policy(Direction::Outbound, case.spec.policy(true)).unwrap();
    let command = case.commands().into_iter().find(|command| command.starts_with("sa in")).unwrap();
    let spi = |params: &SaParams| format!(" spi {} ", params.spi.get());
    pair.lwip.command(&command.replace(&spi(&first), &spi(&params))).unwrap();
    host
}

/// ESP and AH packets arrive in fragments. Between the fragments, more forged ones arrive than Casemate
/// has reassembly slots below IP. Inside IP lwIP does the reassembly and has enough room.
#[test]
fn forged_fragments_do_not_displace_those_of_a_peer() {
    let cases = vec![
        StaticCase::esp(Ends::tunnel(4, 4), Mode::Tunnel),
        StaticCase::esp(Ends::tunnel(6, 6), Mode::Tunnel),
        StaticCase::ah(Ends::transport(4), Mode::Transport),
    ];
    with_each(cases, |case, pair| {
        let PairAddrs { peer: from, lwip: to } = pair.inner;
        let client = pair.peer.udp(1_000);
        let data = [7; 3_000];
        let wire = case.spec.build().a.send(&datagram(from, to, &data)).wire();
        let mut fragments = Fragments::new(&wire, 1_280, 99).unwrap();
        let mut piece = [0; 1_280];
        let mut first: Option<Vec<u8>> = None;
        while let Some(len) = fragments.next(&mut piece) {
            let first = first.get_or_insert_with(|| piece[..len].to_vec());
            for n in 0..100 {
                inject(pair, &from_elsewhere(first, n));
            }
            inject(pair, &piece[..len]);
        }
        let mut echo = Vec::new();
        pair.run(&case.name(), |peer| {
            let socket = peer.sockets.get_mut::<udp::Socket>(client);
            socket.recv().is_ok_and(|(back, _)| {
                echo = back.to_vec();
                true
            })
        });
        assert!(echo == data, "{}: {} bytes", case.name(), echo.len());
    });
}

/// Returns the fragment with another source address.
fn from_elsewhere(fragment: &[u8], n: u8) -> Vec<u8> {
    let mut packet = fragment.to_vec();
    if packet[0] >> 4 == 4 {
        let mut ip = Ipv4::parse(&mut packet[..]).unwrap();
        ip.set_src([198, 51, 100, n].into());
        ip.fill_checksum();
    } else {
        Ipv6::parse(&mut packet[..]).unwrap().set_src([0x2001, 0xdb8, 9, 9, 9, 9, 9, n.into()].into());
    }
    packet
}

/// Modified, truncated and random packets: the sanitizers report no error, and the service still works.
#[test]
fn malformed_packets_do_no_harm() {
    with_each(cases(), |case, pair| {
        let PairAddrs { peer: from, lwip: to } = pair.inner;
        let client = pair.peer.udp(1_000);
        let mut sender = case.spec.build().a;
        let mut rng = TestRng::new(1);
        let genuine = sender.send(&datagram(from, to, &[3; 600])).wire();
        let headers = if genuine[0] >> 4 == 4 { 20 } else { 40 };
        for _ in 0..1_000 {
            let mut packet = genuine.clone();
            for _ in 0..rng.below(8) {
                let at = headers + rng.below(packet.len() - headers);
                packet[at] = rng.below(256) as u8;
            }
            if rng.below(2) == 0 {
                packet.truncate(headers + rng.below(packet.len() - headers));
            }
            // Another protocol or a fragment, with a correct length and checksum, so that the packet is
            // not dropped early.
            let protocols = [proto::ESP, proto::AH, proto::UDP, proto::TCP, 1, 58];
            let mut kind = protocols[rng.below(protocols.len())];
            let mut body = packet.split_off(headers);
            if rng.below(4) == 0 {
                // Only behind a well-formed option: lwIP itself reads one byte too many of a truncated
                // header.
                body.splice(0..0, [kind, 0, 1, 4, 0, 0, 0, 0]);
                kind = [proto::DEST_OPTS, proto::HOP_BY_HOP][rng.below(2)];
            }
            let (outer_from, outer_to) = case.spec.ends.outer;
            let mut made = packets::ip(outer_from, outer_to, kind, &body, false);
            if headers == 20 && rng.below(4) == 0 {
                made[6] = rng.below(64) as u8;
                made[7] = rng.below(256) as u8;
                made[10..12].copy_from_slice(&[0, 0]);
                Ipv4::parse(&mut made[..]).unwrap().fill_checksum();
            }
            inject(pair, &made);
            pair.peer.poll();
        }
        run_100_ms(pair);
        let data = [9; 2_000];
        let mut meta = udp::UdpMetadata::from(smoltcp::wire::IpEndpoint::new(to.into(), 7));
        meta.local_address = Some(from.into());
        let mut last = Instant::now() - Duration::from_secs(9);
        pair.run(&case.name(), |peer| {
            let socket = peer.sockets.get_mut::<udp::Socket>(client);
            if last.elapsed() > Duration::from_secs(1) {
                last = Instant::now();
                socket.send_slice(&data, meta).unwrap();
            }
            socket.recv().is_ok_and(|(back, _)| back == data)
        });
    });
}
