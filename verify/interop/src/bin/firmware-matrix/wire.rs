//! Packets on the wire, from QEMU's capture.

use casemate_interop::{Error, PAGE, Result};
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Lengths of the headers of a capture file and of its packets, which are in the byte order of this
/// machine.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Bytes of the page that identify it in a frame.
const SAMPLE: usize = 24;

const ESP: u8 = 50;
const UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const ICMPV6: u8 = 58;
/// Offset of UDP in a frame with an IPv4 header without options, and length of the UDP header.
const IPV4_UDP: usize = 34;
const UDP_HEADER: usize = 8;
/// Offsets in an IKE message (RFC 7296 sections 3.1 and 3.10).
const NEXT_PAYLOAD: usize = 16;
const EXCHANGE: usize = 18;
const FLAGS: usize = 19;
const NOTIFY_TYPE: usize = 34;
const IKE_SA_INIT: u8 = 34;
const RESPONSE: u8 = 0x20;
const NOTIFY: u8 = 41;
const COOKIE: u16 = 16_390;
/// IKE ports (RFC 7296 section 2).
const IKE: [u16; 2] = [500, 4500];

/// Frames by kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wire {
    /// ARP, neighbour discovery and multicast listener discovery.
    pub(crate) neighbour: u32,
    pub(crate) ike: u32,
    pub(crate) esp: u32,
    /// All other frames, which are clear text.
    pub(crate) clear: u32,
    /// Frames that contain a part of the page.
    pub(crate) page: u32,
}

impl Wire {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        Ok(Self::of(&fs::read(file).map_err(Error::context(file.display()))?))
    }

    fn of(file: &[u8]) -> Self {
        let (mut wire, page) = (Self::default(), PAGE.windows(SAMPLE).collect());
        frames(file).for_each(|frame| wire.count(frame, &page));
        wire
    }

    /// Counts a frame. `page` contains all parts of the page.
    fn count(&mut self, frame: &[u8], page: &HashSet<&[u8]>) {
        let byte = |at: usize| frame.get(at).copied().unwrap_or_default();
        let kind = match frame.get(12..14) {
            Some([0x08, 0x06]) => &mut self.neighbour,
            Some([0x08, 0x00]) => match byte(23) {
                ESP => &mut self.esp,
                UDP if is_ike(frame, IPV4_UDP) => &mut self.ike,
                _ => &mut self.clear,
            },
            Some([0x86, 0xDD]) => match (byte(20), byte(54)) {
                (ESP, _) | (FRAGMENT, ESP) => &mut self.esp,
                (UDP, _) if is_ike(frame, 54) => &mut self.ike,
                // RFC 4861 section 4, RFC 3810 section 5.
                (ICMPV6, 133..=137) | (HOP_BY_HOP, ICMPV6) => &mut self.neighbour,
                _ => &mut self.clear,
            },
            _ => &mut self.clear,
        };
        *kind = kind.saturating_add(1);
        let has_page = frame.chunks_exact(SAMPLE).any(|part| page.contains(part));
        self.page = self.page.saturating_add(u32::from(has_page));
    }

    /// Checks that all packets were protected or, without protection, that the capture contains the page.
    pub(crate) fn judge(self, is_protected: bool) -> Result<()> {
        let is_right = if is_protected {
            self.esp > 0 && self.clear == 0 && self.page == 0
        } else {
            self.esp == 0 && self.page > 0
        };
        if is_right { Ok(()) } else { Err(Error::new(format!("the wire carried {self:?}"))) }
    }
}

/// Frames of a capture.
fn frames(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = file.get(FILE_HEADER..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (header, after) = rest.split_at_checked(PACKET_HEADER)?;
        let length = header.get(8..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes);
        // The last frame may be written incompletely.
        let (frame, next) = after.split_at_checked(length as usize)?;
        rest = next;
        Some(frame)
    })
}

/// IKE_SA_INIT messages over IPv4 in a capture, requests and responses.
pub(crate) fn first_messages(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let messages = frames(file).filter(|frame| frame.get(23) == Some(&UDP) && is_ike(frame, IPV4_UDP));
    let messages = messages.filter_map(|frame| frame.get(IPV4_UDP.saturating_add(UDP_HEADER)..));
    messages.filter(|message| message.get(EXCHANGE) == Some(&IKE_SA_INIT))
}

/// Whether an IKE_SA_INIT message requests a cookie: its first payload is a COOKIE notification (RFC 7296
/// section 2.6).
pub(crate) fn asks_for_cookie(message: &[u8]) -> bool {
    message.get(NEXT_PAYLOAD) == Some(&NOTIFY)
        && message.get(FLAGS).is_some_and(|flags| flags & RESPONSE != 0)
        && message.get(NOTIFY_TYPE..).is_some_and(|kind| kind.starts_with(&COOKIE.to_be_bytes()))
}

/// Whether the UDP datagram at this offset has IKE ports.
fn is_ike(frame: &[u8], udp: usize) -> bool {
    let ports = frame.get(udp..).and_then(|datagram| datagram.first_chunk::<4>());
    ports.is_some_and(|[a, b, c, d]| {
        [[*a, *b], [*c, *d]].into_iter().all(|port| IKE.contains(&u16::from_be_bytes(port)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut file = vec![0; FILE_HEADER];
        for frame in frames {
            file.extend_from_slice(&[0; 8]);
            file.extend_from_slice(&(frame.len() as u32).to_ne_bytes());
            file.extend_from_slice(&[0; 4]);
            file.extend_from_slice(frame);
        }
        file.extend_from_slice(&[0; 9]);
        file
    }

    fn ip(protocol: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 34];
        (frame[12], frame[14], frame[23]) = (0x08, 0x45, protocol);
        frame.extend_from_slice(body);
        frame
    }

    fn ipv6(next: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 54];
        (frame[12], frame[13], frame[14], frame[20]) = (0x86, 0xDD, 0x60, next);
        frame.extend_from_slice(body);
        frame
    }

    #[test]
    fn frames_are_classified() {
        let mut arp = vec![0; 42];
        (arp[12], arp[13]) = (0x08, 0x06);
        let frames = [
            arp,
            ip(ESP, &[1; 60]),
            ip(UDP, &[1, 244, 1, 244, 0, 0]),
            ip(UDP, &[1, 244, 0, 53, 0, 0]),
            ip(6, &PAGE[100..1_000]),
            vec![],
            ipv6(ESP, &[1; 60]),
            ipv6(FRAGMENT, &[ESP, 0, 0, 0]),
            ipv6(FRAGMENT, &[UDP, 0, 0, 0]),
            ipv6(UDP, &[17, 148, 1, 244, 0, 0]),
            ipv6(ICMPV6, &[135, 0]),
            ipv6(ICMPV6, &[128, 0]),
        ];
        let wire = Wire::of(&file(&frames));
        assert_eq!(wire, Wire { neighbour: 2, ike: 2, esp: 3, clear: 5, page: 1 });
    }

    #[test]
    fn clear_text_is_an_error_with_protection() {
        let protected = Wire { neighbour: 2, ike: 4, esp: 10, clear: 0, page: 0 };
        assert!(protected.judge(true).is_ok() && protected.judge(false).is_err());
        assert!(Wire { clear: 1, ..protected }.judge(true).is_err());
        assert!(Wire { esp: 0, ..protected }.judge(true).is_err());
        assert!(Wire { esp: 0, page: 1, ..protected }.judge(false).is_ok());
    }
}
