//! IP packets made of choices: sound by themselves, unusual in every way that a host can be.

use crate::input::Input;
use casemate_datapath_tests::packets;
use casemate_wire::ip::proto;
use casemate_wire::ip::v4::Ipv4;
use core::net::IpAddr;

const WITH_HEADERS: u8 = 0x10;
const DF: u8 = 0x20;
const FRAGMENT: u8 = 0x40;
const LONG: u8 = 0x80;

/// A packet from `src` to `dst`.
pub(super) fn packet(input: &mut Input<'_>, (src, dst): (IpAddr, IpAddr)) -> Vec<u8> {
    let (shape, tos) = (input.u8(), input.u8());
    let protocol = match shape & 7 {
        0..=2 => proto::UDP,
        3 => proto::TCP,
        4 if src.is_ipv4() => proto::ICMP,
        4 => proto::ICMPV6,
        5 => proto::NO_NEXT,
        _ => input.u8(),
    };
    let mut packet = packets::ip(src, dst, protocol, &payload(input, shape & LONG != 0), shape & DF != 0);
    if shape & WITH_HEADERS != 0 {
        packet = with_headers(input, &packet);
    }
    match src {
        IpAddr::V4(_) => {
            let mut ip = Ipv4::parse(&mut packet[..]).unwrap();
            ip.set_tos(tos);
            if shape & FRAGMENT != 0 {
                ip.set_fragment(input.u16(), input.flag());
            }
            ip.fill_checksum();
        }
        IpAddr::V6(_) => packet[..2].copy_from_slice(&[0x60 | tos >> 4, tos << 4]),
    }
    packet
}

/// Some chosen bytes, and regular ones behind them.
fn payload(input: &mut Input<'_>, is_long: bool) -> Vec<u8> {
    let len = usize::from(input.u8()) + if is_long { 1_300 } else { 0 };
    let chosen = usize::from(input.u8() & 31).min(len);
    let mut payload = input.take(chosen).to_vec();
    payload.extend((payload.len()..len).map(|i| i as u8));
    payload
}

/// IPv4 options, or IPv6 extension headers.
fn with_headers(input: &mut Input<'_>, packet: &[u8]) -> Vec<u8> {
    let count = 1 + input.index(3);
    if packet[0] >> 4 == 4 {
        let options: Vec<u8> = (0..count * 4).map(|_| input.u8()).collect();
        return packets::with_v4_options(packet, &options);
    }
    let headers: Vec<(u8, Vec<u8>)> = (0..count)
        .map(|_| {
            let kind = [proto::DEST_OPTS, proto::ROUTING, proto::HOP_BY_HOP, proto::FRAGMENT][input.index(4)];
            // The length field says 8 bytes, and a fragment header has no other length.
            let [_, _, rest @ ..] = input.array::<8>();
            (kind, [&[0, 0][..], &rest].concat())
        })
        .collect();
    packets::with_v6_headers(packet, &headers)
}
