//! ICMP errors that the data path sends and accepts.

use super::generate;
use crate::Target;
use crate::input::{Input, Script};
use casemate_datapath::icmp::{NoReply, PmtuUpdate, Quoted, parse_inbound, prohibited, too_big};
use casemate_sa::Protocol;
use casemate_test_support::hosts::{Ends, LinkSpec, Sent};
use casemate_wire::icmp::{Cause, HEADER_LEN, IcmpError, MAX_QUOTE_V4, MAX_QUOTE_V6};
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, ext, proto, version};
use casemate_wire::packet::Packet;
use core::net::IpAddr;

pub(crate) const TARGET: Target = Target {
    name: "icmp-errors",
    about: "ICMP replies: well-formed, sent to the source, with a quote; path MTU updates identify the SA that sent the packet",
    max_len: 1_600,
    run,
    seeds,
    dictionary: &[],
};

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (shape, mtu) = (input.u8(), usize::from(input.u16()));
    match shape & 3 {
        0 => {
            let _ = parse_inbound(input.rest());
        }
        1 => reply_to(input.rest(), mtu, shape),
        2 => {
            let version = if shape & 4 == 0 { 4 } else { 6 };
            reply_to(&generate::packet(&mut input, Ends::tunnel(version, version).inner), mtu, shape);
        }
        _ => pmtu_update(&mut input, mtu),
    }
}

/// Requests both replies, with buffer space in front, behind, or neither.
fn reply_to(packet: &[u8], mtu: usize, shape: u8) {
    let (head, tail) = [(64, 0), (0, 64), (27, 20)][usize::from(shape >> 3) % 3];
    let our_addr = (shape & 0x80 != 0).then_some(IpAddr::from([198, 51, 100, 7]));
    for is_too_big in [true, false] {
        let mut storage = vec![0xee; head + packet.len() + tail];
        storage[head..head + packet.len()].copy_from_slice(packet);
        let mut reply = Packet::new(&mut storage, head, packet.len()).unwrap();
        let made =
            if is_too_big { too_big(&mut reply, mtu, our_addr) } else { prohibited(&mut reply, our_addr) };
        match made {
            Ok(()) => check_reply(packet, reply.data(), is_too_big.then_some(mtu), our_addr),
            Err(why) => {
                assert_eq!(reply.data(), packet, "unchanged");
                let has_room = head >= 48 || tail >= 48;
                assert!(why != NoReply::NoRoom || !has_room);
            }
        }
    }
}

fn check_reply(packet: &[u8], reply: &[u8], mtu: Option<usize>, our_addr: Option<IpAddr>) {
    let (error, quote) = match version(packet).unwrap() {
        IpVersion::V4 => {
            let (ip, sent) = (Ipv4::parse(reply).unwrap(), Ipv4::parse(packet).unwrap());
            assert!(ip.verify_checksum() && reply.len() <= 576);
            assert_eq!((usize::from(ip.total_len()), ip.dst()), (reply.len(), sent.src()));
            assert_eq!(IpAddr::from(ip.src()), our_addr.unwrap_or(sent.dst().into()));
            let (error, quote) = IcmpError::parse_v4(&reply[20..]).unwrap();
            assert_eq!(quote, &packet[..usize::from(sent.total_len()).min(MAX_QUOTE_V4)]);
            (error, quote)
        }
        IpVersion::V6 => {
            let (ip, sent) = (Ipv6::parse(reply).unwrap(), Ipv6::parse(packet).unwrap());
            assert!(reply.len() <= 1_280);
            assert_eq!((ip.total_len(), ip.dst(), ip.src()), (reply.len(), sent.src(), sent.dst()));
            let (error, quote) = IcmpError::parse_v6(&reply[40..], ip.src(), ip.dst()).unwrap();
            assert_eq!(quote, &packet[..sent.total_len().min(MAX_QUOTE_V6)]);
            (error, quote)
        }
    };
    assert!(quote.len() + HEADER_LEN < reply.len());
    match mtu {
        Some(mtu) => assert_eq!(error.cause(), Cause::TooBig { mtu: mtu as u32 }),
        None => assert_eq!(error.cause(), Cause::Prohibited),
    }
    // No error in reply to an error (RFC 1122 section 3.2.2).
    let mut again = [vec![0; 64], reply.to_vec()].concat();
    let mut again = Packet::new(&mut again, 64, reply.len()).unwrap();
    assert_eq!(too_big(&mut again, 1_280, None), Err(NoReply::IcmpError));
}

/// A router on the path of an SA reports that a packet is too big.
fn pmtu_update(input: &mut Input<'_>, mtu: usize) {
    let spec = generate::link_spec(input.u8());
    let (cut, mut link) = (usize::from(input.u16()), spec.build());
    let Sent::Wire(wire, _) = link.a.send(&generate::packet(input, spec.ends.inner)) else { return };
    let mut storage = [vec![0; 64], wire.clone()].concat();
    let mut error = Packet::new(&mut storage, 64, wire.len()).unwrap();
    too_big(&mut error, mtu, None).expect("the packet permits an error");
    let update = parse_inbound(error.data());
    let is_v4 = spec.ends.outer.0.is_ipv4();
    // The quote may end before the SPI.
    let shows_spi = is_v4 || {
        let protection = ext::parse_chain(&wire).unwrap().last;
        let spi_ends = match protection.next_header {
            proto::ESP => 4,
            proto::AH => 8,
            _ => 12,
        };
        protection.at + spi_ends <= MAX_QUOTE_V6
    };
    // Routers before RFC 1191 report 0: the next smaller common MTU is used.
    let is_possible = match mtu {
        _ if !shows_spi => false,
        0 => is_v4 && wire.len() > 68,
        mtu => mtu < wire.len() && (is_v4 || mtu >= 1_280),
    };
    assert_eq!(update.is_some(), is_possible, "{mtu} for {} bytes", wire.len());
    let Some(update) = update else { return };
    assert_eq!((update.src, update.dst), spec.ends.outer);
    assert!(update.mtu == mtu || mtu == 0 && update.mtu < wire.len());
    assert_eq!(update.quoted, quoted(&spec));
    // A corrupted message has no effect.
    let mut damaged = error.data().to_vec();
    let at = if is_v4 { 20 } else { 40 } + cut % (damaged.len() - if is_v4 { 20 } else { 40 });
    damaged[at] ^= 1;
    assert_eq!(parse_inbound(&damaged), None::<PmtuUpdate>);
}

fn quoted(spec: &LinkSpec) -> Quoted {
    let sa = spec.params(spec.layers.len() - 1, true);
    match (sa.encap, sa.transform.protocol()) {
        (Some(encap), _) => {
            Quoted::UdpEsp { src_port: encap.src_port, dst_port: encap.dst_port, spi: sa.spi }
        }
        (None, Protocol::Esp) => Quoted::Esp(sa.spi),
        (None, Protocol::Ah) => Quoted::Ah(sa.spi),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let start = |shape: u8, mtu: u16| Script::default().u8(shape).u16(mtu);
    let inner = [0x80, 0xb8, 200, 4, 1, 2, 3, 4];
    let mut seeds: Vec<Vec<u8>> =
        (0..generate::LINKS).map(|link| start(3, 1_290).u8(link).u16(30).bytes(&inner).finish()).collect();
    for (version, shape) in [(4, 2), (6, 6), (4, 0x8a), (6, 0x12)] {
        let (src, dst) = Ends::tunnel(version, version).inner;
        let packet = casemate_test_support::hosts::packets::udp(src, dst, (1, 2), &[7; 600], true);
        seeds.push(start(shape, 1_400).bytes(&inner).finish());
        seeds.push(start(shape & !3 | 1, 1_400).bytes(&packet).finish());
    }
    seeds
}
