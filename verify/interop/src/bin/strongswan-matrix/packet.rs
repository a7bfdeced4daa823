//! Captured frame, classified as the cases need it: IKE, ESP, AH, or traffic that must not occur.

use std::ops::Range;

const IKE_PORT: u16 = 500;
const NATT_PORT: u16 = 4500;
/// Marker before IKE on port 4500 (RFC 3948 section 2.2).
const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// Content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packet {
    /// IKE message.
    Ike(Ike),
    /// ESP directly in IP.
    Esp,
    /// ESP in UDP (RFC 3948).
    EspInUdp,
    /// AH.
    Ah,
    /// NAT keepalive (RFC 3948 section 2.3).
    Keepalive,
    /// IP fragment other than the first. A first fragment is classified by its content.
    Fragment,
    /// ICMP error about one of the above. A peer that ends does not wait for the last reply.
    Unreachable,
    /// ARP, neighbor discovery or multicast listener discovery.
    Neighbour,
    /// Other traffic, with the IP protocol if it is IP.
    Other(u8),
}

/// Fields of the header of an IKE message (RFC 7296 section 3.1), and of the first payload if that is a
/// notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ike {
    pub(crate) exchange: u8,
    pub(crate) is_response: bool,
    /// Type of the first payload.
    pub(crate) first_payload: u8,
    /// Notify message type of the first payload (RFC 7296 section 3.10).
    pub(crate) notify: Option<u16>,
}

/// Exchange types (RFC 7296 section 3.1).
pub(crate) const IKE_SA_INIT: u8 = 34;
/// Payload types: Notify (RFC 7296 section 3.2) and Encrypted Fragment (RFC 7383 section 2.5).
pub(crate) const NOTIFY: u8 = 41;
pub(crate) const ENCRYPTED_FRAGMENT: u8 = 53;
/// Notify message types (RFC 7296 section 3.10.1).
pub(crate) const INVALID_KE_PAYLOAD: u16 = 17;
pub(crate) const COOKIE: u16 = 16390;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// ICMP types for "destination unreachable" (RFC 792, RFC 4443 section 3.1).
const UNREACHABLE: u8 = 3;
const UNREACHABLE_V6: u8 = 1;
const UDP: u8 = 17;
const ESP: u8 = 50;
const AH: u8 = 51;
const FRAGMENT_HEADER: u8 = 44;

impl Packet {
    /// Classifies an Ethernet frame.
    pub(crate) fn parse(frame: &[u8]) -> Self {
        let body = frame.get(14..).unwrap_or_default();
        match (frame.get(12), frame.get(13)) {
            (Some(0x08), Some(0x00)) => Self::v4(body),
            (Some(0x86), Some(0xdd)) => Self::v6(body),
            (Some(0x08), Some(0x06)) => Self::Neighbour,
            _ => Self::Other(0),
        }
    }

    fn v4(packet: &[u8]) -> Self {
        let header = packet.first().map_or(0, |first| usize::from(first & 15).saturating_mul(4));
        let offset = number(packet, 6..8) & 0x1fff;
        Self::transport(byte(packet, 9), offset, packet.get(header..).unwrap_or_default())
    }

    fn v6(packet: &[u8]) -> Self {
        let (next, body) = (byte(packet, 6), packet.get(40..).unwrap_or_default());
        if next != FRAGMENT_HEADER {
            return Self::transport(next, 0, body);
        }
        Self::transport(byte(body, 0), number(body, 2..4) >> 3, body.get(8..).unwrap_or_default())
    }

    fn transport(protocol: u8, offset: u64, body: &[u8]) -> Self {
        match protocol {
            _ if offset > 0 => Self::Fragment,
            UDP => Self::udp(body),
            ESP => Self::Esp,
            AH => Self::Ah,
            ICMP if byte(body, 0) == UNREACHABLE => Self::quoted(Self::v4(body.get(8..).unwrap_or_default())),
            ICMPV6 if byte(body, 0) == UNREACHABLE_V6 => {
                Self::quoted(Self::v6(body.get(8..).unwrap_or_default()))
            }
            // RFC 2710, RFC 3810, RFC 4861.
            ICMPV6 if matches!(byte(body, 0), 130..=137 | 143) => Self::Neighbour,
            // Multicast listener discovery follows a hop-by-hop option.
            0 if byte(body, 0) == ICMPV6 => Self::Neighbour,
            other => Self::Other(other),
        }
    }

    /// Classifies an ICMP error that quotes `packet`.
    fn quoted(packet: Self) -> Self {
        match packet {
            Self::Ike(_) | Self::Esp | Self::EspInUdp | Self::Ah | Self::Keepalive => Self::Unreachable,
            Self::Other(protocol) => Self::Other(protocol),
            _ => Self::Other(ICMP),
        }
    }

    fn udp(datagram: &[u8]) -> Self {
        let ports = [number(datagram, 0..2), number(datagram, 2..4)];
        let body = datagram.get(8..).unwrap_or_default();
        if ports.contains(&u64::from(NATT_PORT)) {
            return match body {
                [0xff] => Self::Keepalive,
                _ if body.starts_with(&NON_ESP_MARKER) => Self::ike(body.get(4..).unwrap_or_default()),
                _ => Self::EspInUdp,
            };
        }
        if ports.contains(&u64::from(IKE_PORT)) { Self::ike(body) } else { Self::Other(UDP) }
    }

    fn ike(message: &[u8]) -> Self {
        let first_payload = byte(message, 16);
        // The notification follows the generic header, the protocol and the SPI length. IKE_SA_INIT has no
        // SPI there.
        let notify = (first_payload == NOTIFY).then(|| number(message, 34..36) as u16);
        let is_response = byte(message, 19) & 0x20 != 0;
        Self::Ike(Ike { exchange: byte(message, 18), is_response, first_payload, notify })
    }
}

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}

fn number(bytes: &[u8], range: Range<usize>) -> u64 {
    bytes.get(range).unwrap_or_default().iter().fold(0, |number, &byte| (number << 8) | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(protocol: u8, fragment: [u8; 2], body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 34];
        frame[12] = 0x08;
        frame[14] = 0x45;
        frame[20..22].copy_from_slice(&fragment);
        frame[23] = protocol;
        frame.extend_from_slice(body);
        frame
    }

    fn udp(port: u16, body: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0x4e, 0x20];
        datagram.extend_from_slice(&port.to_be_bytes());
        datagram.extend_from_slice(&[0; 4]);
        datagram.extend_from_slice(body);
        v4(UDP, [0, 0], &datagram)
    }

    /// Response of IKE_SA_INIT whose first payload is a COOKIE notification.
    fn cookie() -> Vec<u8> {
        let mut message = vec![7; 28];
        message[16..20].copy_from_slice(&[NOTIFY, 0x20, IKE_SA_INIT, 0x20]);
        message.extend_from_slice(&[0, 0, 0, 12, 0, 0, 0x40, 0x06, 1, 2, 3, 4]);
        message
    }

    #[test]
    fn recognizes_ike_on_both_ports() {
        let expected =
            Packet::Ike(Ike { exchange: 34, is_response: true, first_payload: NOTIFY, notify: Some(COOKIE) });
        assert_eq!(Packet::parse(&udp(500, &cookie())), expected);
        assert_eq!(Packet::parse(&udp(4500, &[&[0; 4], cookie().as_slice()].concat())), expected);
    }

    #[test]
    fn distinguishes_esp_keepalives_and_fragments_from_clear_text() {
        assert_eq!(Packet::parse(&udp(4500, &[1, 2, 3, 4])), Packet::EspInUdp);
        assert_eq!(Packet::parse(&udp(4500, &[0xff])), Packet::Keepalive);
        assert_eq!(Packet::parse(&v4(ESP, [0, 0], &[1; 20])), Packet::Esp);
        assert_eq!(Packet::parse(&v4(AH, [0, 0], &[1; 20])), Packet::Ah);
        assert_eq!(Packet::parse(&v4(UDP, [0, 1], &[1; 20])), Packet::Fragment);
        assert_eq!(Packet::parse(&v4(1, [0, 0], &[8, 0])), Packet::Other(1));
        let quote = |frame: Vec<u8>| [&[3, 3, 0, 0, 0, 0, 0, 0], &frame[14..]].concat();
        assert_eq!(Packet::parse(&v4(ICMP, [0, 0], &quote(udp(4500, &[1, 2, 3, 4])))), Packet::Unreachable);
        assert_eq!(Packet::parse(&v4(ICMP, [0, 0], &quote(udp(53, &[1, 2])))), Packet::Other(UDP));
        assert_eq!(Packet::parse(&udp(53, &[1, 2])), Packet::Other(UDP));
    }
}
