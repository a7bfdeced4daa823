//! The headers of datagrams, which a socket strips and the data path wants to see.

use crate::sys::Meta;
use casemate_wire::ip::proto;
use casemate_wire::ip::v4::{self, Ipv4Header};
use casemate_wire::ip::v6::{self, Ipv6Header};
use casemate_wire::packet::Packet;
use casemate_wire::udp::{self, UdpHeader};
use std::net::{IpAddr, SocketAddr};

/// Any will do: nothing looks at it.
const TTL: u8 = 64;

/// Writes UDP and IP headers in front of the payload.
pub(super) fn restore(packet: &mut Packet<'_>, meta: &Meta, port: u16) -> Option<()> {
    let (src, src_port) = meta.source()?;
    let (dst, tos) = meta.destination();
    let payload_len = u16::try_from(packet.len()).ok()?;
    packet.grow_front(udp::HEADER_LEN).ok()?;
    let header = UdpHeader { src_port, dst_port: port, payload_len };
    header.emit(packet.data_mut().first_chunk_mut()?).ok()?;
    push_ip(packet, src, dst?, tos)
}

/// Writes an IP header in front of a UDP datagram.
fn push_ip(packet: &mut Packet<'_>, src: IpAddr, dst: IpAddr, tos: u8) -> Option<()> {
    let payload_len = u16::try_from(packet.len()).ok()?;
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            packet.grow_front(v4::HEADER_LEN).ok()?;
            let protocol = proto::UDP;
            let header = Ipv4Header { tos, ident: 1, df: false, ttl: TTL, protocol, src, dst, payload_len };
            header.emit(packet.data_mut().first_chunk_mut()?).ok()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            packet.grow_front(v6::HEADER_LEN).ok()?;
            let header = Ipv6Header {
                traffic_class: tos,
                flow_label: 0,
                payload_len,
                next_header: proto::UDP,
                hop_limit: TTL,
                src,
                dst,
            };
            header.emit(packet.data_mut().first_chunk_mut()?);
            Some(())
        }
        _ => None,
    }
}

/// A NAT keepalive (RFC 3948 section 2.3) as an IP packet.
pub(crate) fn keepalive(src: SocketAddr, dst: SocketAddr) -> Option<Vec<u8>> {
    datagram(src, dst, [&[casemate_wire::natt::KEEPALIVE], &[]])
}

/// A datagram made of two parts as an IP packet; `None` if the addresses are of two versions or the datagram is too long.
pub(crate) fn datagram(src: SocketAddr, dst: SocketAddr, parts: [&[u8]; 2]) -> Option<Vec<u8>> {
    const ROOM: usize = v6::HEADER_LEN + udp::HEADER_LEN;
    let mut bytes = [&[0; ROOM], parts[0], parts[1]].concat();
    let len = bytes.len().checked_sub(ROOM)?;
    let mut packet = Packet::new(&mut bytes, ROOM, len)?;
    packet.grow_front(udp::HEADER_LEN).ok()?;
    let payload_len = u16::try_from(len).ok()?;
    let header = UdpHeader { src_port: src.port(), dst_port: dst.port(), payload_len };
    header.emit(packet.data_mut().first_chunk_mut()?).ok()?;
    // RFC 8200 section 8.1: over IPv6 the checksum is not optional.
    if let (IpAddr::V6(src), IpAddr::V6(dst)) = (src.ip(), dst.ip()) {
        udp::Udp::parse(packet.data_mut()).ok()?.fill_checksum_v6(src, dst);
    }
    push_ip(&mut packet, src.ip(), dst.ip(), 0)?;
    let start = packet.head_room();
    bytes.drain(..start);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_wire::ip::Ipv4;
    use casemate_wire::udp::Udp;
    use std::net::Ipv6Addr;

    #[test]
    fn a_keepalive_is_one_byte_in_udp() {
        let out = keepalive("192.0.2.1:4500".parse().unwrap(), "192.0.2.2:4501".parse().unwrap()).unwrap();
        assert_eq!(out.len(), 29);
        let ip = Ipv4::parse(&out[..]).unwrap();
        assert!(ip.verify_checksum());
        let udp = Udp::parse(ip.payload()).unwrap();
        assert_eq!((udp.src_port(), udp.dst_port(), udp.payload()), (4500, 4501, &[0xff][..]));

        let (src, dst): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let out = keepalive((src, 4500).into(), (dst, 4500).into()).unwrap();
        assert_eq!(out.len(), 49);
        assert!(Udp::parse(&out[40..49]).unwrap().verify_checksum_v6(src, dst));
    }
}
