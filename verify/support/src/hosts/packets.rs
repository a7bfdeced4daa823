//! Builders of IP packets.

use alloc::vec;
use alloc::vec::Vec;
use casemate_wire::ip::proto;
use casemate_wire::ip::v4::{Ipv4, Ipv4Header};
use casemate_wire::ip::v6::Ipv6Header;
use casemate_wire::udp::UdpHeader;
use core::net::IpAddr;

/// Returns a UDP datagram with `payload` in an IP packet. `df` sets the DF flag in IPv4.
pub fn udp(src: IpAddr, dst: IpAddr, ports: (u16, u16), payload: &[u8], df: bool) -> Vec<u8> {
    let mut datagram = vec![0u8; 8];
    let header = UdpHeader { src_port: ports.0, dst_port: ports.1, payload_len: payload.len() as u16 };
    header.emit(datagram.first_chunk_mut().unwrap()).unwrap();
    datagram.extend_from_slice(payload);
    ip(src, dst, proto::UDP, &datagram, df)
}

/// Returns an IP packet with `payload`. Its TOS is 0xb8 (expedited forwarding), so that tests can see
/// whether it is copied.
pub fn ip(src: IpAddr, dst: IpAddr, protocol: u8, payload: &[u8], df: bool) -> Vec<u8> {
    let payload_len = payload.len() as u16;
    let mut packet = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut out = vec![0u8; 20];
            let header = Ipv4Header { tos: 0xb8, ident: 77, df, ttl: 63, protocol, src, dst, payload_len };
            header.emit(out.first_chunk_mut().unwrap()).unwrap();
            out
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut out = vec![0u8; 40];
            let header = Ipv6Header {
                traffic_class: 0xb8,
                flow_label: 0x12345,
                hop_limit: 63,
                next_header: protocol,
                src,
                dst,
                payload_len,
            };
            header.emit(out.first_chunk_mut().unwrap());
            out
        }
        _ => panic!("IP versions of the addresses differ"),
    };
    packet.extend_from_slice(payload);
    packet
}

/// A packet of a voice call: RTP with `payload` bytes of speech, and the header fields of a telephone that
/// has sent `number` packets before. The UDP checksum is `checksum`, which is not that of the packet; 0 is
/// none.
pub fn voice(src: IpAddr, dst: IpAddr, number: u16, payload: usize, checksum: u16) -> Vec<u8> {
    let mut rtp = vec![0x80, 18];
    rtp.extend((7_000 + number).to_be_bytes());
    rtp.extend((u32::from(number) * 160 + 90_000).to_be_bytes());
    rtp.extend(0x1234_5678u32.to_be_bytes());
    rtp.resize(rtp.len() + payload, 0x5a);
    let mut packet = udp(src, dst, (20_000, 30_000), &rtp, false);
    let at = packet.len() - rtp.len() - 2;
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    if src.is_ipv4() {
        let mut ip = Ipv4::parse(&mut packet[..]).unwrap();
        ip.set_ident(500 + number);
        ip.fill_checksum();
    }
    packet
}

/// Inserts IPv4 `options` after the fixed header.
pub fn with_v4_options(packet: &[u8], options: &[u8]) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0);
    let mut out = packet[..20].to_vec();
    out.extend_from_slice(options);
    out.extend_from_slice(&packet[20..]);
    out[0] = 0x45 + (options.len() / 4) as u8;
    let len = out.len() as u16;
    // The length is set before the header is parsed, because the parser requires a length that covers the
    // header.
    out[2..4].copy_from_slice(&len.to_be_bytes());
    Ipv4::parse(&mut out[..]).unwrap().fill_checksum();
    out
}

/// Inserts IPv6 extension `headers` (type and content) before the payload. The first byte of each content
/// is set to the type of the next header.
pub fn with_v6_headers(packet: &[u8], headers: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut out = packet[..40].to_vec();
    let mut name_at = 6;
    let upper = packet[6];
    for (kind, content) in headers {
        out[name_at] = *kind;
        name_at = out.len();
        out.extend_from_slice(content);
    }
    out[name_at] = upper;
    out.extend_from_slice(&packet[40..]);
    let len = (out.len() - 40) as u16;
    out[4..6].copy_from_slice(&len.to_be_bytes());
    out
}
