//! The packets that nodes exchange, as datagrams of the simulated network.

use crate::net::{Datagram, Payload};
use casemate_ike::Transmit;
use casemate_test_support::hosts::packets;
use casemate_wire::ip::proto;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Datagram that carries an IKE message or a NAT keepalive.
pub(crate) fn ike_datagram(transmit: &Transmit) -> Datagram {
    let payload = match (transmit.message.is_empty(), transmit.non_esp_marker) {
        (true, _) => vec![0xff],
        (false, true) => [&[0; 4], &*transmit.message].concat(),
        (false, false) => transmit.message.clone(),
    };
    Datagram { from: transmit.path.local, to: transmit.path.remote, payload: Payload::Udp(payload) }
}

/// Packet that an SA protects, as the endpoint sends it. It has no IP options and is not a fragment.
pub(crate) struct ProtectedPacket {
    bytes: Vec<u8>,
    /// Offset of the UDP payload; none without UDP.
    udp_payload: Option<usize>,
}

impl ProtectedPacket {
    /// Packet that an endpoint sealed.
    pub(crate) fn new(bytes: Vec<u8>, udp_payload: Option<u16>) -> Self {
        Self { bytes, udp_payload: udp_payload.map(usize::from) }
    }

    fn is_v6(&self) -> bool {
        self.bytes[0] >> 4 == 6
    }

    /// Whether the packet has an AH header. Otherwise it has an ESP header.
    pub(crate) fn is_ah(&self) -> bool {
        self.bytes[if self.is_v6() { 6 } else { 9 }] == proto::AH
    }

    /// The packet from its ESP or AH header on.
    pub(crate) fn payload(&self) -> &[u8] {
        let ip_header = if self.is_v6() { 40 } else { 20 };
        &self.bytes[self.udp_payload.unwrap_or(ip_header)..]
    }

    /// Converts the packet into a datagram.
    pub(crate) fn into_datagram(self) -> Datagram {
        let (src, dst) = self.addrs();
        let Some(offset) = self.udp_payload else {
            let (from, to) = (SocketAddr::new(src, 0), SocketAddr::new(dst, 0));
            return Datagram { from, to, payload: Payload::Ip(self.bytes) };
        };
        let port = |offset: usize| u16::from_be_bytes([self.bytes[offset], self.bytes[offset + 1]]);
        let (from, to) = (SocketAddr::new(src, port(offset - 8)), SocketAddr::new(dst, port(offset - 6)));
        Datagram { from, to, payload: Payload::Udp(self.bytes[offset..].to_vec()) }
    }

    fn addrs(&self) -> (IpAddr, IpAddr) {
        let v4 = |offset: usize| Ipv4Addr::from(*self.bytes[offset..].first_chunk::<4>().unwrap()).into();
        let v6 = |offset: usize| Ipv6Addr::from(*self.bytes[offset..].first_chunk::<16>().unwrap()).into();
        if self.is_v6() { (v6(8), v6(24)) } else { (v4(12), v4(16)) }
    }
}

/// IP packet that carries the datagram.
pub(crate) fn to_packet(datagram: &Datagram) -> Vec<u8> {
    match &datagram.payload {
        Payload::Ip(packet) => packet.clone(),
        Payload::Udp(payload) => {
            let (from, to) = (datagram.from, datagram.to);
            packets::udp(from.ip(), to.ip(), (from.port(), to.port()), payload, false)
        }
    }
}
