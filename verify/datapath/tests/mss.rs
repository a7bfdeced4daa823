//! Segments of TCP connections under an SA fit the link, and not by a byte more than they must.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_datapath::Direction;
use casemate_datapath::spd::{Action, Policy};
use casemate_datapath_tests::{Ends, LinkSpec, Sent, packets, suites};
use casemate_sa::{AddrRange, Mode, Selector};
use casemate_wire::ip::proto;
use core::net::IpAddr;

/// A TCP segment with these flags, that announces 9,000 bytes if it is a SYN.
fn tcp(from: IpAddr, to: IpAddr, flags: u8, data: usize) -> Vec<u8> {
    let mut segment = vec![0, 80, 0x30, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0xFF, 0xFF, 0, 0, 0, 0];
    if flags & 2 != 0 {
        segment[12] = 0x60;
        segment.extend([2, 4, 0x23, 0x28]);
    }
    segment.resize(segment.len() + data, 7);
    packets::ip(from, to, proto::TCP, &segment, true)
}

fn announced(packet: &[u8], ip_header: usize) -> usize {
    usize::from(u16::from_be_bytes([packet[ip_header + 22], packet[ip_header + 23]]))
}

fn specs() -> Vec<LinkSpec> {
    let esp = |suite| suites::esp(suite, 1);
    let mut natt = LinkSpec::single(Ends::tunnel(4, 6), Mode::Tunnel, esp(suites::cbc_sha1()));
    natt.encap = true;
    let mut bundle = LinkSpec::single(Ends::transport(4), Mode::Transport, esp(suites::gcm()));
    bundle.layers.push((Mode::Tunnel, esp(suites::cbc_sha1())));
    vec![
        LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, esp(suites::gcm())),
        LinkSpec::single(Ends::tunnel(6, 4), Mode::Tunnel, esp(suites::cbc_sha1())),
        LinkSpec::single(Ends::transport(6), Mode::Transport, esp(suites::cbc_sha1())),
        natt,
        bundle,
    ]
}

#[test]
fn a_full_segment_fits_and_a_longer_one_would_not() {
    for mut spec in specs() {
        spec.link_mtu = 1500;
        let (a, b) = spec.ends.inner;
        let header = if a.is_ipv4() { 20 } else { 40 };
        let mut link = spec.build();
        let now = link.a.now;
        // What both ends announce is lowered on its way out at one end, or on its way in.
        let (mut out, mut back) = (tcp(a, b, 0x02, 0), tcp(b, a, 0x12, 0));
        link.a.dp.clamp_mss(now, &mut out, Direction::Outbound);
        link.a.dp.clamp_mss(now, &mut back, Direction::Inbound);
        let most = announced(&out, header);
        assert_eq!(announced(&back, header), most);
        assert!((1300..1460).contains(&most), "{most}");
        let mut send = |data| link.a.send(&tcp(a, b, 0x10, data));
        match send(most) {
            Sent::Wire(wire, sealed) => {
                assert_eq!(sealed.fragment_to, None);
                assert!(wire.len() > 1500 - 16 && wire.len() <= 1500, "{}", wire.len());
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(send(most + 1), Sent::Reply(..)), "{most} is as much as fits");
    }
}

#[test]
fn in_clear_the_link_alone_counts() {
    let mut spec = specs()[0].clone();
    spec.link_mtu = 1500;
    let mut link = spec.build();
    let (now, (a, _)) = (link.a.now, spec.ends.inner);
    let elsewhere: IpAddr = "198.51.100.1".parse().unwrap();
    for (direction, from, to) in [(Direction::Outbound, a, elsewhere), (Direction::Inbound, elsewhere, a)] {
        let mut syn = tcp(from, to, 0x02, 0);
        link.a.dp.clamp_mss(now, &mut syn, direction);
        // What no policy names is discarded at these hosts, and then it does not matter.
        assert_eq!(announced(&syn, 20), 9000);
        link.a.dp.add_policy(Direction::Outbound, bypass()).unwrap();
        link.a.dp.clamp_mss(now, &mut syn, direction);
        assert_eq!(announced(&syn, 20), 1460);
        let id = link.a.dp.policies(Direction::Outbound).last().unwrap().0;
        link.a.dp.remove_policy(Direction::Outbound, id);
    }
}

/// Everything in clear, if nothing else is said.
fn bypass() -> Policy {
    let any = AddrRange::prefix("0.0.0.0".parse().unwrap(), 0).unwrap();
    Policy { selector: Selector::between(any, any), action: Action::Bypass, priority: u32::MAX }
}

#[test]
fn what_is_no_syn_or_goes_nowhere_stays_as_it_is() {
    let spec = &specs()[0];
    let (a, b) = spec.ends.inner;
    let mut link = spec.build();
    let now = link.a.now;
    let elsewhere: IpAddr = "198.51.100.1".parse().unwrap();
    let mut fragment = tcp(a, b, 0x02, 0);
    fragment[6] = 0x20;
    let others = [
        tcp(a, b, 0x10, 100),
        tcp(a, elsewhere, 0x02, 0),
        packets::udp(a, b, (1, 2), &[2; 40], true),
        fragment,
        vec![0x45; 20],
        vec![],
    ];
    for other in others {
        for direction in [Direction::Outbound, Direction::Inbound] {
            let mut same = other.clone();
            link.a.dp.clamp_mss(now, &mut same, direction);
            assert_eq!(same, other);
        }
    }
}
