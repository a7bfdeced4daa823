//! Packets on the wire: tcpdump captures them on the router, and this module reads the capture file. It
//! classifies each frame as the cases need it: IKE, ESP, AH, or traffic that must not occur.

use crate::path::{Path, interface};
use crate::peer::{Family, Side};
use casemate_interop::{Background, Error, Result};
use std::fs;
use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(5);
/// Header sizes of a capture file and of each packet in it. The fields are in the byte order of this
/// machine.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Size of the headers of Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;

/// Running capture.
pub(crate) struct Capture {
    tcpdump: Background,
    file: PathBuf,
}

impl Capture {
    /// Captures the packets between the router and strongSwan to a file in `directory`.
    pub(crate) fn start(path: &Path, directory: &std::path::Path) -> Result<Self> {
        let file = directory.join("wire.pcap");
        let mut command = path.router().command("tcpdump");
        command
            .args(["-i", interface(Side::Right), "-s", "0", "-U", "--immediate-mode", "-Z", "root", "-w"])
            .arg(&file);
        let mut tcpdump = Background::start("tcpdump", command, &directory.join("tcpdump"))?;
        tcpdump.wait_until(LIMIT, |output| output.contains("listening on"))?;
        Ok(Self { tcpdump, file })
    }

    /// Ends the capture and reads its file.
    pub(crate) fn stop(self) -> Result<Wire> {
        self.tcpdump.stop(LIMIT)?;
        Wire::read(self.file)
    }

    /// Returns the packets captured so far.
    pub(crate) fn so_far(&self) -> Result<Wire> {
        Wire::read(self.file.clone())
    }
}

/// Packets of a capture.
pub(crate) struct Wire {
    file: PathBuf,
    frames: Vec<Vec<u8>>,
}

impl Wire {
    fn read(file: PathBuf) -> Result<Self> {
        let bytes = fs::read(&file).map_err(Error::context(file.display()))?;
        Ok(Self { frames: frames(&bytes), file })
    }

    /// Returns the path of the capture file.
    pub(crate) fn file(&self) -> &std::path::Path {
        &self.file
    }

    fn packets(&self) -> impl Iterator<Item = Packet> {
        self.frames.iter().map(|frame| Packet::parse(frame))
    }

    /// Returns the IKE messages.
    pub(crate) fn ike(&self) -> impl Iterator<Item = Ike> {
        self.packets().filter_map(|packet| if let Packet::Ike(ike) = packet { Some(ike) } else { None })
    }

    /// Returns the last request of IKE_SA_INIT so far, if its datagram was IPv4 without options.
    pub(crate) fn last_request(&self) -> Option<&[u8]> {
        let is_request = |frame: &&Vec<u8>| matches!(Packet::parse(frame), Packet::Ike(ike) if ike.exchange == IKE_SA_INIT && !ike.is_response);
        self.frames.iter().rfind(is_request)?.get(HEADERS..)
    }

    /// Returns the number of packets with ESP or AH.
    pub(crate) fn protected(&self) -> usize {
        self.packets().filter(|packet| matches!(packet, Packet::Esp | Packet::EspInUdp | Packet::Ah)).count()
    }

    /// Returns the number of packets of this kind.
    pub(crate) fn count(&self, kind: Packet) -> usize {
        self.packets().filter(|&packet| packet == kind).count()
    }

    /// Checks that the capture contains only IKE, ESP and AH and, if ESP encrypts, that no inner packet is
    /// readable.
    pub(crate) fn expect_no_clear_text(&self, is_encrypted: bool) -> Result<()> {
        let alien = self.packets().find(|packet| matches!(packet, Packet::Other(_)));
        if let Some(Packet::Other(protocol)) = alien {
            return Err(Error::new(format!("clear text on the wire: IP protocol {protocol}")));
        }
        let holds = |pattern: &Vec<u8>| {
            self.frames
                .iter()
                .any(|frame| frame.windows(pattern.len()).any(|window| window == pattern.as_slice()))
        };
        if is_encrypted && inner_addresses().iter().any(holds) {
            return Err(Error::new("clear text on the wire: the addresses of an inner packet"));
        }
        if is_encrypted && payloads().iter().any(holds) {
            return Err(Error::new("clear text on the wire: the payload of an echo request"));
        }
        Ok(())
    }
}

/// Returns source and destination addresses as adjacent bytes, as every IP header between the two inner
/// networks contains them.
fn inner_addresses() -> Vec<Vec<u8>> {
    let bytes = |text: String| match text.parse() {
        Ok(IpAddr::V4(address)) => address.octets().to_vec(),
        Ok(IpAddr::V6(address)) => address.octets().to_vec(),
        Err(_) => Vec::new(),
    };
    let mut patterns = Vec::new();
    for side in Side::BOTH {
        for family in [Family::V4, Family::V6] {
            patterns.push([bytes(side.behind(family)), bytes(side.other().behind(family))].concat());
        }
        patterns.push([bytes(side.second()), bytes(side.other().second())].concat());
    }
    patterns
}

/// Returns the starts of the payloads of the first echo requests that `probe ping` sends. Transport mode
/// has no inner addresses.
fn payloads() -> Vec<Vec<u8>> {
    (0..8u8).map(|sequence| (0..32u8).map(|index| index.wrapping_mul(7) ^ sequence).collect()).collect()
}

/// Returns the frames of a capture file. A truncated last frame is omitted, because tcpdump is still
/// writing it.
fn frames(file: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = file.get(FILE_HEADER..).unwrap_or_default();
    let mut frames = Vec::new();
    while let Some((header, after)) = rest.split_at_checked(PACKET_HEADER) {
        let length = header.get(8..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes);
        let Some((frame, next)) = after.split_at_checked(length as usize) else { break };
        frames.push(frame.to_vec());
        rest = next;
    }
    frames
}

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

    fn wire(frames: &[&[u8]]) -> Wire {
        let mut file = vec![0; FILE_HEADER];
        for frame in frames {
            file.extend_from_slice(&[0; 8]);
            file.extend_from_slice(&(frame.len() as u32).to_ne_bytes());
            file.extend_from_slice(&[0; 4]);
            file.extend_from_slice(frame);
        }
        // Part of the next packet, which tcpdump is still writing.
        file.extend_from_slice(&[0; 9]);
        Wire { file: PathBuf::new(), frames: super::frames(&file) }
    }

    /// ESP in an IPv4 packet around `payload`.
    fn esp(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 34];
        (frame[12], frame[14], frame[23]) = (0x08, 0x45, 50);
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn detects_an_inner_packet_in_clear_text() {
        let inner = [&[0x45, 0, 0, 20][..], &[10, 99, 1, 1, 10, 99, 2, 1]].concat();
        let wire = wire(&[&esp(&[1, 2, 3]), &esp(&inner)]);
        assert_eq!(wire.count(Packet::Esp), 2);
        assert!(wire.expect_no_clear_text(true).is_err());
        assert!(wire.expect_no_clear_text(false).is_ok());
    }

    #[test]
    fn detects_a_payload_in_clear_text() {
        let payload: Vec<u8> = (0..64u8).map(|index| index.wrapping_mul(7) ^ 3).collect();
        assert!(wire(&[&esp(&payload)]).expect_no_clear_text(true).is_err());
        assert!(wire(&[&esp(&payload)]).expect_no_clear_text(false).is_ok());
    }

    #[test]
    fn detects_a_packet_of_another_protocol() {
        let mut ping = esp(&[8, 0]);
        ping[23] = 1;
        assert!(wire(&[&ping]).expect_no_clear_text(false).is_err());
        assert!(wire(&[&esp(&[1])]).expect_no_clear_text(true).is_ok());
    }

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
