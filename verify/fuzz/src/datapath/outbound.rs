//! Outbound path with any packets. A sent packet must open to the same bytes at the peer.

use super::{dropped, generate};
use crate::Target;
use crate::input::{Input, Script};
use casemate_datapath::fragment::{CannotFragment, Fragments};
use casemate_datapath::reassembly::{MAX_FRAGMENTS, Reassembler, Reassembly, ReassemblyError, Sender};
use casemate_datapath::{Consumed, DropReason, Inbound, Sealed};
use casemate_sa::Mode;
use casemate_test_support::hosts::{Link, LinkSpec, Received, Sent};
use casemate_wire::flow::{FlowKey, FragmentKind};
use casemate_wire::icmp::IcmpError;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, ext, proto, version};
use core::net::IpAddr;

pub(crate) const TARGET: Target = Target {
    name: "outbound",
    about: "outbound path: a sent packet fits the link and opens to the same bytes; every drop is counted once",
    max_len: 2_048,
    run,
    seeds,
    dictionary: &[],
};

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut spec = generate::link_spec(input.u8());
    spec.link_mtu = [1_500, 1_280, 1_301, 9_000][input.index(4)];
    let mut link = spec.build();
    for _ in 0..16 {
        if input.is_empty() {
            break;
        }
        let shape = input.u8();
        let mut packet = match shape & 1 {
            0 => generate::packet(&mut input, spec.ends.inner),
            _ => {
                let len = input.u16();
                input.take(usize::from(len) % 2_048).to_vec()
            }
        };
        if shape & 2 != 0 {
            readdress(&mut packet, spec.ends.inner);
        }
        clear_syn(&mut packet);
        offer(&spec, &mut link, &packet, shape & 4 != 0);
    }
}

/// Sets the addresses to the two hosts behind the tunnel, with a valid header checksum.
fn readdress(packet: &mut [u8], ends: (IpAddr, IpAddr)) {
    match ends {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            if let Ok(mut ip) = Ipv4::parse(packet) {
                ip.set_src(src);
                ip.set_dst(dst);
                ip.fill_checksum();
            }
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            if let Ok(mut ip) = Ipv6::parse(packet) {
                ip.set_src(src);
                ip.set_dst(dst);
            }
        }
        _ => {}
    }
}

/// Clears the SYN flag of a TCP segment, because the data path changes its MSS option.
fn clear_syn(packet: &mut [u8]) {
    let at = match version(packet) {
        Ok(IpVersion::V4) => Ipv4::parse(&*packet).ok().map(|ip| ip.header_len()),
        Ok(IpVersion::V6) => ext::parse_chain(packet).ok().map(|chain| chain.last.at),
        Err(_) => None,
    };
    if FlowKey::parse(packet).is_ok_and(|flow| flow.proto() == Some(proto::TCP))
        && let Some(flags) = at.and_then(|at| packet.get_mut(at + 13))
    {
        *flags &= !2;
    }
}

fn offer(spec: &LinkSpec, link: &mut Link, packet: &[u8], is_reassembled: bool) {
    let before = dropped(&link.a);
    let sent = if is_reassembled { link.a.send_reassembled(packet) } else { link.a.send(packet) };
    let is_dropped = matches!(sent, Sent::Drop(_) | Sent::Reply(..));
    assert_eq!(dropped(&link.a) - before, u64::from(is_dropped), "{sent:?}");
    match sent {
        Sent::Wire(wire, sealed) => {
            check_size(spec, &wire, sealed);
            let expected = expected(spec, packet, sealed.fragment_to.is_some());
            assert_eq!(link.b.receive(&wire), expected, "{spec:?}");
        }
        Sent::Bypass(_) => panic!("no policy is a bypass"),
        Sent::Reply(_, reply) => check_reply(packet, &reply),
        Sent::Reassemble => {
            assert!(!is_reassembled);
            assert_ne!(FlowKey::parse(packet).unwrap().fragment(), FragmentKind::Whole);
        }
        Sent::Drop(reason) => assert!(reason != DropReason::CryptoFailed && reason != DropReason::NoRoom),
    }
}

/// Checks that a sent packet fits the link, or can be fragmented to fit.
fn check_size(spec: &LinkSpec, wire: &[u8], sealed: Sealed) {
    let Some(mtu) = sealed.fragment_to else {
        assert!(wire.len() <= spec.link_mtu, "{} bytes for a link of {}", wire.len(), spec.link_mtu);
        return;
    };
    let mtu = usize::from(mtu);
    assert!(mtu <= spec.link_mtu);
    let mut fragments = match Fragments::new(wire, mtu, 7) {
        Ok(fragments) => fragments,
        // In transport mode the headers of the packet are the outer ones: it may be a fragment, have
        // invalid options, or have more headers than fit the link. The sender of the packet detects and
        // counts this.
        Err(
            CannotFragment::AlreadyFragment
            | CannotFragment::Malformed(_)
            | CannotFragment::MtuTooSmall { .. },
        ) if spec.layers[0].0 == Mode::Transport => return,
        Err(why) => panic!("the packet should be fragmentable: {why}"),
    };
    let mut reassembler = Reassembler::new(1, 8_192);
    let mut piece = vec![0; mtu];
    let mut whole = None;
    for _ in 0..=MAX_FRAGMENTS {
        let Some(len) = fragments.next(&mut piece) else { break };
        match reassembler.push(casemate_sa::Instant::ZERO, &piece[..len], Sender::Known) {
            Reassembly::Whole(packet) => whole = Some(packet.data().to_vec()),
            Reassembly::Held => {}
            // Receivers drop packets with so many extension headers.
            Reassembly::Dropped(ReassemblyError::TinyFirst | ReassemblyError::HeadersTooLong) => return,
            Reassembly::Dropped(error) => panic!("{error}"),
        }
    }
    assert_eq!(whole.as_deref(), Some(wire));
}

/// Expected result at the peer: the same packet, without trailing bytes.
fn expected(spec: &LinkSpec, packet: &[u8], is_cut: bool) -> Received {
    let is_transport = spec.layers[0].0 == Mode::Transport;
    let (mut packet, payload) = match version(packet).unwrap() {
        IpVersion::V4 => {
            let ip = Ipv4::parse(packet).unwrap();
            (packet[..ip.total_len().into()].to_vec(), ip.protocol())
        }
        IpVersion::V6 => {
            let chain = ext::parse_chain(packet).unwrap();
            (Ipv6::parse(packet).unwrap().packet().to_vec(), chain.transport.next_header)
        }
    };
    if is_transport && payload == proto::NO_NEXT {
        return Received::Other(Inbound::Consumed(Consumed::Dummy));
    }
    // Transport mode recomputes the header checksum, and a packet that has to be fragmented loses DF.
    if is_transport && let Ok(mut ip) = Ipv4::parse(&mut packet[..]) {
        ip.set_df(ip.df() && !is_cut);
        ip.fill_checksum();
    }
    Received::Packet(packet)
}

fn check_reply(packet: &[u8], reply: &[u8]) {
    let quoted = match version(packet).unwrap() {
        IpVersion::V4 => {
            let ip = Ipv4::parse(reply).unwrap();
            assert!(ip.verify_checksum());
            assert_eq!(ip.dst(), Ipv4::parse(packet).unwrap().src());
            IcmpError::parse_v4(&reply[20..]).unwrap().1
        }
        IpVersion::V6 => {
            let ip = Ipv6::parse(reply).unwrap();
            assert_eq!(ip.dst(), Ipv6::parse(packet).unwrap().src());
            IcmpError::parse_v6(&reply[40..], ip.src(), ip.dst()).unwrap().1
        }
    };
    assert!(packet.starts_with(quoted));
}

fn seeds() -> Vec<Vec<u8>> {
    let inner = |shape: u8, len: u8| [&[0][..], &[shape, 0xba, len, 4, 1, 2, 3, 4]].concat();
    let mut seeds = Vec::new();
    for link in 0..generate::LINKS {
        let spec = generate::link_spec(link);
        let (src, dst) = spec.ends.inner;
        let raw = casemate_test_support::hosts::packets::udp(src, dst, (1, 2), b"raw bytes", false);
        let start = Script::default().u8(link).u8(link & 3);
        seeds.push(
            start.clone().bytes(&inner(0, 0)).bytes(&inner(0x80, 100)).bytes(&inner(0xa0, 150)).finish(),
        );
        seeds.push(start.clone().u8(3).u16(raw.len() as u16).bytes(&raw).bytes(&inner(5, 3)).finish());
        let headers = [0, 0x10, 0, 40, 0, 1, 148, 4, 0, 0, 7, 7, 4, 0];
        seeds.push(start.bytes(&headers).bytes(&inner(0x90, 157)).finish());
    }
    seeds
}
