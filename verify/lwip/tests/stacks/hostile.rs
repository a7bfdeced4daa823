//! Packets that nobody should believe.

use crate::pair::{Pair, with_each};
use crate::peer::protocol;
use crate::services::echo_datagrams;
use crate::specs::{Case, cases};
use casemate_datapath::fragment::Fragments;
use casemate_datapath::{Direction, Unmatched};
use casemate_datapath_tests::{Ends, Host, PROVIDERS, packets};
use casemate_sa::{Mode, SaParams, Spi};
use casemate_wire::ip::{Ipv4, Ipv6, proto};
use casemate_wire::udp::Udp;
use smoltcp::socket::udp;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Puts an IP packet on the wire to lwIP.
fn inject(pair: &mut Pair, packet: &[u8]) {
    let kind = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xDD] };
    let frame = [&[2, 0, 0, 0, 0, 2][..], &[2, 0, 0, 0, 0, 1], &kind, packet].concat();
    pair.peer.device.device_mut().send(frame);
}

/// Lets both work for a while.
fn settle(pair: &mut Pair) {
    let start = Instant::now();
    pair.run("a while", |_| start.elapsed() > Duration::from_millis(100));
}

/// A datagram to lwIP's echo service, with its checksum.
fn datagram(from: IpAddr, to: IpAddr, data: &[u8]) -> Vec<u8> {
    let mut packet = packets::udp(from, to, (1_000, 7), data, false);
    if let (IpAddr::V6(from), IpAddr::V6(to)) = (from, to) {
        Udp::parse(&mut packet[40..]).unwrap().fill_checksum_v6(from, to);
    }
    packet
}

#[test]
fn clear_text_that_should_be_protected_is_refused() {
    with_each(cases(), |case, pair| {
        let client = pair.peer.udp(1_000);
        let (from, to) = pair.inner;
        let clear = datagram(from, to, b"trust me");
        let mut forged = vec![clear.clone()];
        if to.is_ipv6() {
            // Hidden behind each of the extension headers, and behind two.
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
        // In fragments, which lwIP puts together: one datagram.
        let long = datagram(from, to, &[7; 3_000]);
        let mut fragments = Fragments::new(&long, 1_280, 5).unwrap();
        let mut piece = [0; 1_280];
        let count = forged.len() + 1;
        forged.iter().for_each(|packet| inject(pair, packet));
        while let Some(len) = fragments.next(&mut piece) {
            inject(pair, &piece[..len]);
        }
        settle(pair);
        assert!(pair.peer.sockets.get_mut::<udp::Socket>(client).recv().is_err(), "no echo");
        let drops = pair.lwip_drops();
        assert_eq!(drops, format!("dropped: unprotected {count}"), "{}", case.name());
    });
}

/// Below IP, a frame with a VLAN tag hides its packet from the policies. It must not leave as it is.
#[test]
fn frames_with_a_vlan_tag_do_not_leave_in_clear() {
    let cases =
        vec![Case::esp(Ends::transport(4), Mode::Transport), Case::esp(Ends::tunnel(6, 6), Mode::Tunnel)];
    with_each(cases, |case, pair| {
        let (own, other) = pair.inner;
        let server = pair.peer.udp(7);
        // Both find each other first: what finds neighbours would get the tag too.
        pair.job(&format!("udp {other} {own} 100"), |peer| echo_datagrams(peer, server));
        pair.lwip.order("vlan 7").unwrap();
        pair.seen.take();
        pair.lwip.begin(&format!("udp {other} {own} 100"));
        settle(pair);
        let tagged = pair.seen.take().into_iter().filter(|frame| frame[12..14] == [0x81, 0]);
        let clear =
            tagged.filter(|frame| matches!(protocol(&frame[18..]), Some(kind) if kind != case.protocol));
        assert_eq!(clear.count(), 0, "{}", case.name());
    });
}

/// A peer's stack may cut a datagram before its tunnel protects the pieces. They are not mixed with pieces in
/// clear, nor with those of another SA (RFC 4301 section 7.4).
#[test]
fn fragments_inside_of_a_tunnel_are_put_together_behind_it() {
    let tunnels = [4, 6].map(|version| {
        let mut case = Case::esp(Ends::tunnel(version, version), Mode::Tunnel);
        case.is_first = true;
        case
    });
    with_each(tunnels.into(), |case, pair| {
        let (from, to) = pair.inner;
        let client = pair.peer.udp(1_000);
        let data: Vec<u8> = (0..5_000).map(|at| (at % 249) as u8).collect();
        let whole = datagram(from, to, &data);
        let forged = datagram(from, to, &[0xEE; 5_000]);
        // The peer's data path, as another sender on the same SA.
        let mut sender = case.spec.build().a;
        let mut other = another_sa(case, pair);
        let mut fragments = Fragments::new(&whole, 1_280, 99).unwrap();
        let mut in_clear = Fragments::new(&forged, 1_280, 99).unwrap();
        let mut piece = [0; 1_280];
        while let Some(len) = in_clear.next(&mut piece) {
            inject(pair, &piece[..len]);
            // The last piece never comes through the other SA.
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
        settle(pair);
        assert!(pair.peer.sockets.get_mut::<udp::Socket>(client).recv().is_err(), "no second echo");
        assert_eq!(pair.lwip_drops(), "dropped: unprotected 1");
    });
}

/// Gives lwIP another SA for the same policy; the data path that sends with it.
fn another_sa(case: &Case, pair: &mut Pair) -> Host {
    let first = case.spec.params(0, true);
    let params = SaParams { spi: Spi::new(0x2000).unwrap(), ..first.clone() };
    let mut host = Host::with_limits(Unmatched::Discard, 65_535, case.spec.limits);
    host.dp.add_sa(&params, Direction::Outbound, &PROVIDERS, host.now).unwrap();
    host.dp.add_policy(Direction::Outbound, case.spec.policy(true)).unwrap();
    let order = case.orders().into_iter().find(|order| order.starts_with("sa in")).unwrap();
    let spi = |params: &SaParams| format!(" spi {} ", params.spi.get());
    pair.lwip.order(&order.replace(&spi(&first), &spi(&params))).unwrap();
    host
}

/// ESP and AH themselves come in fragments here, and between each two come more forged ones than Casemate has
/// slots below IP. Inside IP they are put together by lwIP, which has room for these.
#[test]
fn forged_fragments_do_not_stop_those_of_a_peer() {
    let cases = vec![
        Case::esp(Ends::tunnel(4, 4), Mode::Tunnel),
        Case::esp(Ends::tunnel(6, 6), Mode::Tunnel),
        Case::ah(Ends::transport(4), Mode::Transport),
    ];
    with_each(cases, |case, pair| {
        let (from, to) = pair.inner;
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

/// The same fragment from another source.
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

/// xorshift64: the same flood each time.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % below
    }
}

/// Genuine packets, cut, changed and made up: the sanitizers look on, and the service goes on.
#[test]
fn a_flood_of_malformed_packets_harms_nothing() {
    with_each(cases(), |case, pair| {
        let (from, to) = pair.inner;
        let client = pair.peer.udp(1_000);
        let mut sender = case.spec.build().a;
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
        let genuine = sender.send(&datagram(from, to, &[3; 600])).wire();
        let headers = if genuine[0] >> 4 == 4 { 20 } else { 40 };
        for _ in 0..1_000 {
            let mut packet = genuine.clone();
            for _ in 0..dice.next(8) {
                let at = headers + dice.next(packet.len() - headers);
                packet[at] = dice.next(256) as u8;
            }
            if dice.next(2) == 0 {
                packet.truncate(headers + dice.next(packet.len() - headers));
            }
            // Another protocol, or a fragment, with a right length and checksum, so that it comes far.
            let protocols = [proto::ESP, proto::AH, proto::UDP, proto::TCP, 1, 58];
            let mut kind = protocols[dice.next(protocols.len())];
            let mut body = packet.split_off(headers);
            if dice.next(4) == 0 {
                // Behind options that are well-formed: lwIP itself reads a byte too far where such a header is cut short.
                body.splice(0..0, [kind, 0, 1, 4, 0, 0, 0, 0]);
                kind = [proto::DEST_OPTS, proto::HOP_BY_HOP][dice.next(2)];
            }
            let (outer_from, outer_to) = case.spec.ends.outer;
            let mut made = packets::ip(outer_from, outer_to, kind, &body, false);
            if headers == 20 && dice.next(4) == 0 {
                made[6] = dice.next(64) as u8;
                made[7] = dice.next(256) as u8;
                made[10..12].copy_from_slice(&[0, 0]);
                Ipv4::parse(&mut made[..]).unwrap().fill_checksum();
            }
            inject(pair, &made);
            pair.peer.poll();
        }
        settle(pair);
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
